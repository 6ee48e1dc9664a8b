//! How many runs a second: printed, not judged.

use std::thread;

use gridpool_protocol::clock;

use crate::harness::{ask, contexts, engine, fp32, irregular, load};

/// `cargo test --release -p gridpool-worker --test infer bench -- --ignored --nocapture`
#[test]
#[ignore = "prints a rate"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn how_many_requests_a_second_run_on_1_to_8_contexts() {
    const REQUESTS: u32 = 5_000;
    for (count, max_batch) in [1, 2, 4, 8].into_iter().flat_map(|count| [(count, 1), (count, 32)]) {
        let Some(engine) = engine() else { return };
        let max_batch = Some(max_batch);
        load(
            &engine,
            "mlp",
            &gridpool_worker::infer::ModelOptions { max_batch, ..contexts(count) },
        );
        let input = [fp32("x", &[1, 16], &irregular(1, 16))];
        let began = clock::now();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..REQUESTS).for_each(|_| drop(ask(&engine, "mlp", &input))));
            }
        });
        let rate = 16.0 * f64::from(REQUESTS) / began.elapsed().as_secs_f64();
        println!("{count} contexts, max_batch {max_batch:?}: {rate:.0} requests/s");
    }
}

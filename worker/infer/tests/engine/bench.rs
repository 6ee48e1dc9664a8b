//! Measures runs per second. It prints them and asserts nothing.

use std::thread;

use gridpool_ipc::clock;

use crate::harness::{ask, contexts, engine, load, submit};
use crate::tensors::{fp32, irregular};

/// `cargo test --release -p gridpool-infer --test engine bench -- --ignored --nocapture`
#[test]
#[ignore = "prints a rate"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn how_many_requests_a_second_run_on_1_to_8_contexts() {
    const REQUESTS: u32 = 5_000;
    for (count, max_batch) in [1, 2, 4, 8].into_iter().flat_map(|count| [(count, 1), (count, 32)]) {
        let Some(engine) = engine() else { return };
        let max_batch = Some(max_batch);
        load(&engine, "mlp", &gridpool_infer::ModelOptions { max_batch, ..contexts(count) });
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

/// `cargo test --release -p gridpool-infer --test engine delays_at -- --ignored --nocapture`
#[test]
#[ignore = "prints rates"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn what_batching_delays_at_32_callers_do() {
    const CALLERS: u32 = 32;
    const REQUESTS: u32 = 1_000;
    let delays: [(u64, &[u32]); 6] =
        [(0, &[]), (100, &[]), (500, &[]), (500, &[8]), (500, &[16]), (2_000, &[32])];
    let input = [fp32("x", &[1, 16], &irregular(1, 16))];
    for (max_queue_delay_us, preferred) in [delays, delays].concat() {
        let Some(engine) = engine() else { return };
        let preferred_batch = preferred.iter().copied().collect();
        let options =
            gridpool_infer::ModelOptions { max_queue_delay_us, preferred_batch, ..contexts(2) };
        load(&engine, "mlp", &options);
        // The share of its run that each request had: together, the number of runs.
        let share = |_| {
            let answer = submit(&engine, "mlp", &input).expect("it is accepted").wait();
            1.0 / f64::from(answer.expect("it runs").report.joined_rows)
        };
        let began = clock::now();
        let runs: f64 = thread::scope(|scope| {
            let caller = || (0..REQUESTS).map(share).sum::<f64>();
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
            callers.into_iter().map(|caller| caller.join().expect("it counts")).sum()
        });
        let requests = f64::from(CALLERS * REQUESTS);
        let rate = requests / began.elapsed().as_secs_f64();
        let rows = requests / runs;
        println!(
            "{max_queue_delay_us} us, preferred {preferred:?}: {rows:.1} rows a run, {rate:.0} requests/s"
        );
    }
}

/// Bytes of memory that this process has now.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
}

/// `cargo test -p gridpool-infer --test engine memory -- --ignored --nocapture`
#[test]
#[ignore = "prints bytes"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn how_much_memory_loads_and_runs_leave_behind() {
    let Some(engine) = engine() else { return };
    for round in 0..6 {
        for _ in 0..100 {
            load(&engine, "mlp", &contexts(4));
            for rows in [1, 7, 40] {
                let input = fp32(
                    "x",
                    &[rows, 16],
                    &irregular(rows, 16 * usize::try_from(rows).expect("a few")),
                );
                (0..20).for_each(|_| drop(ask(&engine, "mlp", std::slice::from_ref(&input))));
            }
            engine
                .load("bad", &crate::tensors::model("four_bits"), &contexts(1))
                .expect_err("4 bits");
            assert!(engine.unload("mlp") && engine.unload("bad"));
        }
        println!("{} loads: {} KiB", 100 * (round + 1), resident() / 1_024);
    }
}

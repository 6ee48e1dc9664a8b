//! Thousands of results that are larger or smaller than their inputs. They come back packed in shared memory,
//! and each must be found again.

use gridpool_client::{Client, Handle, Job, Outputs};
use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::program::{Kind, Program, Type};
use gridpool_tests::oracle::chains::random_program;
use gridpool_tests::oracle::samples::{SplitMix64, random_grids, random_pairs};

use crate::documents::{Item, batch, item};
use crate::jobs::{answer, program, submit};
use crate::pool::cpu;
use crate::raw::is_ok;

const ITEMS: usize = 2_500;

/// Items of one job. The last size is all of them, the first gives jobs for two workers at a time.
const SIZES: [usize; 3] = [61, 1_000, ITEMS];

/// Over grids: larger, smaller, sometimes empty, sometimes in error, tuples, objects, patches.
const OVER_GRIDS: [&str; 12] = [
    "upscale(2)",
    "upscale(9)",
    "crop(1, 0, 4, 5)",
    "rot90 | tophalf | compress",
    "hsplit(3)",
    "vsplit(2) | apply(upscale(2)) | hconcat",
    "upscale(2) | o_g(5)",
    "o_g(1) | argmax(size) | subgrid",
    "partition | last | upscale(3)",
    "ofcolor(0) | outbox | shift(-4, 250)",
    "canvas(3, 7, 9)",
    "fill(7, ofcolor(0)) | trim | trim",
];

const OVER_PAIRS: [&str; 5] = [
    "hconcat",
    "vconcat | o_g(4)",
    "apply(upscale(3))",
    "second | hsplit(4)",
    "cellwise(0) | trim",
];

#[test]
fn packed_results_are_the_same_in_every_batch_size_on_two_workers() {
    let pool = cpu(2).start();
    let client = pool.client();
    let grids: Vec<Item> = random_grids(31, ITEMS).into_iter().map(Item::Grid).collect();
    let pairs = random_pairs(32, ITEMS).into_iter();
    let pairs: Vec<Item> = pairs.map(|(input, output)| Item::Pair(input, output)).collect();
    let programs = OVER_GRIDS.iter().map(|text| (text, &grids));
    for (text, items) in programs.chain(OVER_PAIRS.iter().map(|text| (text, &pairs))) {
        let program = program(text);
        let all = batch(&program, items);
        let reference = run_batch(&program, &all).expect("the batch has items");
        assert!(reference.packed().len() > INLINE_BYTES_MAX, "it takes an arena");
        for size in SIZES {
            let handles: Vec<Handle<Outputs>> = items
                .chunks(size)
                .map(|items| submit_batch(&client, &program, batch(&program, items)))
                .collect();
            let mut first = 0;
            for handle in handles {
                let answer = answer(handle);
                is_ok(&answer.receipt);
                let outputs = answer.outputs().expect("OK comes with results");
                let errors = (0..outputs.len()).filter(|&at| {
                    let (got, want) = (item(outputs, at), item(&reference, first + at));
                    assert!(got == want, "`{text}`, {size} a job, {}: {got}\n{want}", first + at);
                    got.get("error").is_some()
                });
                assert_eq!(errors.count(), answer.receipt.item_errors as usize, "`{text}`");
                first += outputs.len();
            }
            assert_eq!(first, ITEMS);
        }
    }
}

fn submit_batch(client: &Client, program: &Program, batch: GridBatch) -> Handle<Outputs> {
    submit(client, Job::program(program.clone(), batch).expect("it fits one job"))
}

#[test]
fn the_largest_results_are_served_and_one_cell_more_is_an_overflow() {
    let pool = cpu(1).start();
    let mut rng = SplitMix64::new(33);
    let mut grid = |h: usize, w: usize| {
        let cells = (0..h * w).map(|_| rng.pick(&[0, 3, 7, 9])).collect();
        Grid::new(h, w, cells).expect("it is within the limits")
    };
    // 64 x 64 is the most there is; 72 x 64, and sides of 256, are too much.
    let grids: Vec<Grid> = [(8, 8), (9, 8), (2, 31), (2, 32), (32, 1), (31, 2)]
        .into_iter()
        .flat_map(|(h, w)| std::iter::repeat_n(grid(h, w), 100))
        .collect();
    let program = program("upscale(8)");
    let batch = GridBatch::from_grids(&grids).expect("the batch is within the limits");
    let answer = answer(submit_batch(&pool.client(), &program, batch));
    is_ok(&answer.receipt);
    assert_eq!(answer.receipt.item_errors, 300);
    let outputs = answer.ok().expect("OK comes with results");
    for (number, grid) in grids.iter().enumerate() {
        let got = item(&outputs, number);
        assert_eq!(got, crate::documents::says(&program, grid), "item {number}");
        let large = 64 * grid.h() * grid.w() > 4_096 || 8 * grid.h().max(grid.w()) > 255;
        assert_eq!(got.get("error").is_some(), large, "item {number}");
    }
}

#[test]
fn random_programs_give_through_a_pool_what_the_reference_gives() {
    let pool = cpu(2).start();
    let client = pool.client();
    let grids: Vec<Item> = random_grids(34, 700).into_iter().map(Item::Grid).collect();
    let pairs = random_pairs(35, 700).into_iter();
    let pairs: Vec<Item> = pairs.map(|(input, output)| Item::Pair(input, output)).collect();
    let mut rng = SplitMix64::new(36);
    for number in 0..120 {
        let of_pairs = number % 3 == 0;
        let takes = if of_pairs { Type::PAIR } else { Type::one(Kind::Grid) };
        let program = random_program(&mut rng, takes, 6);
        let batch = batch(&program, if of_pairs { &pairs } else { &grids });
        let reference = run_batch(&program, &batch).expect("the batch has items");
        let answer = answer(submit_batch(&client, &program, batch));
        is_ok(&answer.receipt);
        let outputs = answer.ok().expect("OK comes with results");
        for at in 0..outputs.len() {
            let (got, want) = (item(&outputs, at), item(&reference, at));
            assert!(got == want, "`{}`, item {at}: {got}\n{want}", program.text());
        }
    }
}

//! Requests that share runs, requests that are split over runs, and requests that must do neither.

use std::sync::mpsc;

use gridpool_infer::{
    Engine, InferError, LoadError, ModelOptions, Request, RequestError, RunError,
};
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::Priority;

use crate::harness::{
    BlockedContext, Waiter, ask, close, engine, load, outputs, submit, submit_with,
};
use crate::tensors::{Full, device, fp32, int64, irregular, model};

/// How far rows may differ between runs of different sizes: kernels add in another order.
const TOLERANCE: f32 = 1e-5;
const ROW: usize = 16;

/// A row of `mlp`'s input.
fn row(row: u64) -> Vec<f32> {
    irregular(row, ROW)
}

fn rows(rows: std::ops::Range<u64>) -> Full {
    let count = rows.end - rows.start;
    fp32("x", &[count, ROW as u64], &rows.flat_map(row).collect::<Vec<_>>())
}

/// What each row gives alone.
fn single_runs(engine: &Engine, count: u64) -> Vec<Vec<f32>> {
    (0..count).map(|at| ask(engine, "mlp", &[rows(at..at + 1)])[0].fp32()).collect()
}

#[test]
fn batches_of_every_size_equal_the_single_runs() {
    let Some(engine) = engine() else { return };
    let info =
        load(&engine, "mlp", &ModelOptions { contexts: 2.into(), ..ModelOptions::default() });
    assert_eq!(info.max_batch, 32);
    let single = single_runs(&engine, 1_000);
    assert!(single.windows(2).all(|pair| pair[0] != pair[1]), "rows differ");
    for size in (1..=32).chain([33, 64, 1_000]) {
        let answer = submit(&engine, "mlp", &[rows(0..size)]).unwrap().wait().unwrap();
        let got = outputs(&answer);
        assert_eq!(got[0].shape, [size, 8]);
        close(&got[0].fp32(), &single[..usize::try_from(size).unwrap()].concat(), TOLERANCE);
        assert_eq!(u64::from(answer.report.runs), size.div_ceil(32), "{size} rows");
        assert_eq!((u64::from(answer.report.joined_rows), u64::from(answer.rows)), (size, size));
    }
}

#[test]
fn batches_of_1_to_17_give_all_outputs_of_every_row() {
    let Some(engine) = engine() else { return };
    load(&engine, "three_outputs", &ModelOptions::default());
    for size in 1..=17_u64 {
        let numbers = irregular(size, 4 * usize::try_from(size).unwrap());
        let got = ask(&engine, "three_outputs", &[fp32("x", &[size, 4], &numbers)]);
        let rows = || numbers.chunks(4);
        close(&got[0].fp32(), &rows().map(|row| row.iter().sum()).collect::<Vec<f32>>(), TOLERANCE);
        let doubled: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
        assert_eq!(got[1].fp32(), doubled);
        // The fraction is cut off, as `as` does.
        #[expect(clippy::cast_possible_truncation, reason = "numbers up to 100")]
        let whole: Vec<_> = numbers.iter().map(|number| (100.0 * number) as i64).collect();
        assert_eq!(got[2].int64(), whole);
    }
}

#[test]
fn requests_that_wait_share_a_run_and_each_gets_its_own_rows() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions::default());
    let single = single_runs(&engine, 40);
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let asked: Vec<(std::ops::Range<u64>, Waiter)> = (0..10)
        .map(|at| 3 * at..3 * at + 1 + at % 3)
        .map(|part| (part.clone(), submit(&engine, "mlp", &[rows(part)]).unwrap()))
        .collect();
    assert_eq!(engine.waiting("mlp"), 10);
    held.let_go();
    for (part, waiter) in asked {
        let answer = waiter.wait().unwrap();
        assert_eq!((answer.report.joined_rows, answer.report.runs), (19, 1));
        assert_eq!(u64::from(answer.rows), part.end - part.start);
        let part = usize::try_from(part.start).unwrap()..usize::try_from(part.end).unwrap();
        close(&outputs(&answer)[0].fp32(), &single[part].concat(), TOLERANCE);
    }
}

#[test]
fn requests_of_other_shapes_beside_their_rows_do_not_share_a_run() {
    let Some(engine) = engine() else { return };
    load(&engine, "two_inputs", &ModelOptions::default());
    let inputs = |long: u64| {
        let shift = gridpool_protocol::tensor::DataType::Int32;
        let shift = crate::tensors::full("shift", shift, &[1], &1_i32.to_le_bytes());
        [fp32("x", &[1, long], &irregular(long, usize::try_from(long).unwrap())), shift]
    };
    let held = BlockedContext::one(&engine, "two_inputs", &inputs(1));
    let asked: Vec<_> = [4, 7, 4, 7, 4]
        .into_iter()
        .enumerate()
        .map(|(client, long)| {
            let client = client as u64;
            let own = |request| Request { client, ..request };
            (long, submit_with(&engine, "two_inputs", &inputs(long), own).unwrap())
        })
        .collect();
    held.let_go();
    for (long, waiter) in asked {
        let answer = waiter.wait().unwrap();
        assert_eq!(answer.report.joined_rows, if long == 4 { 3 } else { 2 });
        let want: Vec<f32> = inputs(long)[0].fp32().iter().map(|number| number + 1.0).collect();
        assert_eq!(outputs(&answer)[0], fp32("y", &[1, long], &want));
    }
}

#[test]
fn a_wrong_request_fails_alone() {
    let Some(engine) = engine() else { return };
    load(&engine, "lookup", &ModelOptions::default());
    let index = |index: i64| [int64("index", &[1], &[index])];
    let want: Vec<_> = (0..8).map(|at| ask(&engine, "lookup", &index(at))).collect();
    let held = BlockedContext::one(&engine, "lookup", &index(0));
    let asked: Vec<_> = [1, 2, 99, 3, -99, 4]
        .into_iter()
        .map(|at| (at, submit(&engine, "lookup", &index(at)).unwrap()))
        .collect();
    held.let_go();
    for (at, waiter) in asked {
        match (usize::try_from(at).ok().filter(|&at| at < 8), waiter.wait()) {
            (Some(at), Ok(answer)) => assert_eq!(outputs(&answer), want[at]),
            (None, Err(InferError::Run(RunError::Fault(fault)))) => {
                assert!(fault.to_string().contains("out of data bounds"), "{fault}");
            }
            // CUDA's kernel gives zeros for an index out of range.
            (None, Ok(answer)) if device() == DeviceKind::Gpu => {
                assert_eq!(outputs(&answer)[0].fp32(), [0.0; 4]);
            }
            (_, other) => panic!("{at}: {other:?}"),
        }
    }
    assert_eq!(ask(&engine, "lookup", &index(5)), want[5], "the model still works");
}

#[test]
fn a_model_whose_rows_depend_on_each_other_is_detected() {
    let Some(engine) = engine() else { return };
    let info = load(&engine, "not_rows", &ModelOptions::default());
    assert_eq!(info.max_batch, 1, "steps in time do not share a run");
    let steps =
        |count: u64| fp32("x", &[count, 2], &vec![1.0; 2 * usize::try_from(count).unwrap()]);
    let held = BlockedContext::one(&engine, "not_rows", &[steps(1)]);
    let asked =
        [3, 100].map(|count| (count, submit(&engine, "not_rows", &[steps(count)]).unwrap()));
    held.let_go();
    for (count, waiter) in asked {
        let last = waiter.outputs()[0].fp32().last().copied();
        assert_eq!(last, Some(count as f32), "a sum over all steps of the request");
    }
    let asked = ModelOptions { max_batch: Some(8), ..ModelOptions::default() };
    let error = engine.load("asked", &model("not_rows"), &asked).unwrap_err();
    assert!(matches!(error, LoadError::Rows { max_batch: 8, .. }), "{error}");
    assert!(error.to_string().contains("row 1 of `y` changes if two rows share a run"), "{error}");
    let error = engine.load("asked", &model("fixed"), &asked).unwrap_err().to_string();
    assert!(error.contains("not every input and output has a free first dimension"), "{error}");
}

#[test]
fn rows_that_depend_on_each_other_fail_their_run_and_no_request_gets_other_rows() {
    let Some(engine) = engine() else { return };
    let pair = |a: f32, b: f32| [fp32("x", &[2, 2], &[a, a, b, b])];
    // CUDA has no kernel for this op.
    let options = ModelOptions { cpu_ops: ["Unique".to_owned()].into(), ..ModelOptions::default() };
    let info = load(&engine, "distinct", &options);
    assert_eq!(info.max_batch, 1, "its dimensions have different names");
    assert_eq!(ask(&engine, "distinct", &pair(1.0, 1.0))[0], fp32("y", &[1, 2], &[1.0, 1.0]));
    assert!(engine.unload("distinct"));
    let options = ModelOptions { max_batch: Some(8), ..options };
    if device() == DeviceKind::Gpu {
        // On CUDA, a run with the most rows is tried before READY, and its rows are alike.
        let error = engine.load("distinct", &model("distinct"), &options).unwrap_err();
        assert!(Chain(&error).to_string().contains("write max_batch = 1"), "{error}");
        return;
    }
    load(&engine, "distinct", &options);
    let held = BlockedContext::one(&engine, "distinct", &pair(1.0, 2.0));
    // Joined, they contain a row twice; apart, only one of them does.
    let inputs = [pair(1.0, 2.0), pair(2.0, 3.0), pair(4.0, 4.0)];
    let asked = inputs.clone().map(|input| submit(&engine, "distinct", &input).unwrap());
    held.let_go();
    let [first, second, third] = asked;
    assert_eq!(first.outputs()[0].bytes, inputs[0][0].bytes);
    assert_eq!(second.outputs()[0].bytes, inputs[1][0].bytes);
    let error = third.wait().unwrap_err().to_string();
    assert!(error.contains("has the shape [1, 2] after a run of 2 rows"), "{error}");
    assert!(error.ends_with("write max_batch = 1"), "{error}");
}

#[test]
fn max_batch_1_joins_nothing() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions { max_batch: Some(1), ..ModelOptions::default() });
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let asked = [1, 50].map(|count| submit(&engine, "mlp", &[rows(0..count)]).unwrap());
    held.let_go();
    for (count, waiter) in [1, 50].into_iter().zip(asked) {
        let answer = waiter.wait().unwrap();
        assert_eq!((answer.report.runs, answer.rows), (1, 1), "and is not split");
        assert_eq!(outputs(&answer)[0].shape, [count, 8]);
    }
}

#[test]
fn a_request_of_a_higher_priority_runs_before_those_of_its_client_that_wait() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions { max_batch: Some(1), ..ModelOptions::default() });
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let (sender, order) = mpsc::channel();
    for (number, priority) in
        [Priority::Low, Priority::Normal, Priority::High].into_iter().enumerate()
    {
        let sender = sender.clone();
        let done = move |answer: Result<_, _>| sender.send((number, answer.is_ok())).unwrap();
        let request = crate::harness::request("mlp", &[rows(0..1)], done);
        engine.submit(Request { priority, ..request }).unwrap();
    }
    held.let_go();
    drop(sender);
    assert_eq!(order.iter().collect::<Vec<_>>(), [(2, true), (1, true), (0, true)]);
}

#[test]
fn a_late_request_is_dropped_before_it_runs() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions::default());
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let now = clock::now();
    let by = |deadline| move |request| Request { deadline: Some(deadline), ..request };
    let late = submit_with(&engine, "mlp", &[rows(0..40)], by(now)).unwrap();
    let far = now + std::time::Duration::from_secs(3_600);
    let in_time = submit_with(&engine, "mlp", &[rows(0..1)], by(far)).unwrap();
    held.let_go();
    assert_eq!(late.wait().unwrap_err(), InferError::Late);
    assert_eq!(in_time.wait().unwrap().report.joined_rows, 1, "without the rows of the late one");
}

#[test]
fn a_request_is_withdrawn_while_it_waits_and_not_after() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &ModelOptions::default());
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let gone = submit(&engine, "mlp", &[rows(0..1)]).unwrap();
    let stays = submit(&engine, "mlp", &[rows(0..1)]).unwrap();
    let (ticket, other) = (gone.ticket.clone(), stays.ticket.clone());
    assert!(ticket.cancel());
    assert!(!ticket.cancel());
    held.let_go();
    assert_eq!(gone.wait().unwrap_err(), InferError::Cancelled);
    assert_eq!(stays.wait().unwrap().report.joined_rows, 1);
    assert!(!other.cancel());
    assert!(engine.unload("mlp"));
    assert!(!other.cancel(), "its model is gone");
}

#[test]
fn a_full_queue_refuses_without_calling_done() {
    let Some(engine) = engine() else { return };
    let options = ModelOptions { queue_requests: 2, ..ModelOptions::default() };
    load(&engine, "mlp", &options);
    let held = BlockedContext::one(&engine, "mlp", &[rows(0..1)]);
    let waiting = [0, 1].map(|_| submit(&engine, "mlp", &[rows(0..1)]).unwrap());
    let (sender, called) = mpsc::channel();
    let done = move |_| sender.send(()).unwrap();
    let refused = engine.submit(crate::harness::request("mlp", &[rows(0..1)], done));
    assert!(matches!(refused, Err(RequestError::Queue(_))), "{refused:?}");
    assert!(called.recv().is_err(), "it was let go of without a call");
    held.let_go();
    waiting.into_iter().for_each(|waiter| drop(waiter.outputs()));
}

#[test]
fn a_model_that_finds_its_own_shape_joins_rows_too() {
    let Some(engine) = engine() else { return };
    let cpu_ops = ["Shape", "Gather", "Concat"].map(str::to_owned).into();
    let options = ModelOptions { cpu_ops, ..ModelOptions::default() };
    let info = load(&engine, "shape_ops", &options);
    // One that is asked for says why it cannot be.
    let asked = ModelOptions { max_batch: Some(32), ..options };
    let why =
        || engine.load("asked", &model("shape_ops"), &asked).map_err(|e| Chain(&e).to_string());
    assert_eq!(info.max_batch, 32, "on {}: {:?}", device(), why());
    let x =
        |rows: u64| fp32("x", &[rows, 2, 3], &irregular(rows, 6 * usize::try_from(rows).unwrap()));
    for count in [1, 5, 70] {
        let input = x(count);
        let want: Vec<f32> = input.fp32().iter().map(|number| number.max(0.0)).collect();
        assert_eq!(ask(&engine, "shape_ops", &[input])[0], fp32("y", &[count, 6], &want));
    }
}

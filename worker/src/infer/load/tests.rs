//! How runs on a GPU get their inputs, on the CPU: the one thing about them that needs no GPU.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};

use super::*;
use crate::infer::Places;
use crate::infer::context::Share;
use crate::infer::place::Source;

const THREADS: u64 = 4;
const RUNS: u64 = 500;

/// Runs a row that belongs to `seed`, with `rows - 1` others.
fn run(context: &mut Context, seed: u64, rows: u64) -> Vec<u8> {
    let count = u16::try_from(16 * rows).unwrap();
    let number = |at: u16| f32::from((at * 31 + u16::try_from(seed).unwrap() * 7) % 97) / 97.0;
    let bytes: Vec<u8> = (0..count).flat_map(|at| number(at).to_le_bytes()).collect();
    let x = Tensor::new("x", DataType::Fp32, vec![rows, 16]).unwrap();
    let layout = TensorLayout::new(vec![x]).unwrap();
    let source = Source::Inline(Arc::from(layout.pack(&[&bytes]).unwrap()));
    let share = Share { layout: &layout, order: &[0], source: &source, rows: Some(0..rows) };
    let given = context.run(&[share]).unwrap();
    given.bytes(0, Some(&(0..1))).unwrap().to_vec()
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
fn inputs_that_go_with_the_run_give_what_bound_ones_give_on_several_threads() {
    let Ok(library) = Places::here(None).find() else {
        assert!(std::env::var_os("GRIDPOOL_REQUIRE_ONNXRUNTIME").is_none(), "no ONNX Runtime");
        println!("skipped: no ONNX Runtime (pip install onnxruntime)");
        return;
    };
    let runtime = Runtime::open(&library, 1).expect("a library that was found");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models/mlp.onnx");
    let file = ModelFile::read(&model).expect("the model is committed");
    let contexts = u32::try_from(THREADS).unwrap();
    let options = ModelOptions { contexts, ..ModelOptions::default() };
    let load = |manner| {
        let memory = (HostMemory::Plain, manner);
        load_to_run(&runtime, DeviceKind::Cpu, memory, &file, &options).expect("it loads")
    };
    let (_bound, mut contexts) = load(Manner::Bound);
    let want: Vec<_> = (0..THREADS).map(|seed| run(&mut contexts[0], seed, 1)).collect();
    assert!(want.windows(2).all(|pair| pair[0] != pair[1]));
    let (fed, contexts) = load(Manner::Fed);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (seed, mut context) in (0..).zip(contexts) {
            let (want, failures) = (&want[usize::try_from(seed).unwrap()], &failures);
            scope.spawn(move || {
                for at in 0..RUNS {
                    let got = run(&mut context, seed, 1 + at % 3);
                    if !crate::infer::warm_up::is_close(DataType::Fp32, &got, want) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push((seed, at));
                    }
                }
            });
        }
    });
    assert_eq!(failures.into_inner().unwrap(), []);
    assert_eq!(fed.rows_max, Some(MAX_BATCH_DEFAULT));
}

//! Tests of GPU code that need no GPU: how runs get their inputs, and the errors about nodes on the CPU.
//!
//! No grid code shares a process with ONNX Runtime, but its tests are in this binary. So a test that loads
//! the runtime runs in a process of its own.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;

use gridpool_protocol::tensor::options::Provider;
use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};

use super::session::{FALLBACK_IS_DISABLED, refusal, session};
use super::*;
use crate::Places;
use crate::inputs::RunInputs;
use crate::place::Source;
use crate::seam::{Binding, HostMemory, Manner, OwnedAllocator, Stop, Value, alone};

const THREADS: u64 = 4;
const RUNS: u64 = 500;
/// Longer than it takes to add a provider.
const ADDED: Duration = Duration::from_millis(300);

/// Runs the row of `seed` with `rows - 1` others.
fn run(context: &mut Context, seed: u64, rows: u64) -> Vec<u8> {
    let count = u16::try_from(16 * rows).unwrap();
    let number = |at: u16| f32::from((at * 31 + u16::try_from(seed).unwrap() * 7) % 97) / 97.0;
    let bytes: Vec<u8> = (0..count).flat_map(|at| number(at).to_le_bytes()).collect();
    let x = Tensor::new("x", DataType::Fp32, vec![rows, 16]).unwrap();
    let layout = TensorLayout::new(vec![x]).unwrap();
    let source = Source::Inline(Arc::from(layout.pack(&[&bytes]).unwrap()));
    let share = RunInputs { layout: &layout, order: &[0], source: &source, rows: Some(0..rows) };
    let given = context.run(&[share], &Stop::new().unwrap()).unwrap();
    given.bytes(0, Some(&(0..1))).unwrap().to_vec()
}

/// Set in the process that may load ONNX Runtime.
const ALONE: &str = "GRIDPOOL_TEST_ALONE";

#[test]
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
fn tests_that_load_onnx_runtime_pass_in_a_process_of_their_own() {
    if env::var_os(ALONE).is_some() {
        return;
    }
    let mut tests = Command::new(env::current_exe().unwrap());
    tests.args(["load::tests::", "--nocapture"]).env(ALONE, "1");
    let ran = tests.output().expect("this program can be run");
    let (out, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{errors}");
    assert!(out.contains("5 passed"), "{out}");
    println!("{out}");
}

/// The ONNX Runtime of this process, if this is a process that may load it.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
fn runtime() -> Option<Runtime> {
    if env::var_os(ALONE).is_none() {
        println!("skipped: in a process of its own");
        return None;
    }
    static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| {
        let mut places = Places::here(None);
        places.find().ok()?;
        // The first file is not a library, so it is passed over.
        let broken = tempfile::tempdir().unwrap();
        std::fs::write(broken.path().join("libonnxruntime.so.9.9.9"), "no library").unwrap();
        places.folders.insert(0, broken.path().to_owned());
        let runtime = Runtime::find(&places, 1).expect("a library that was found");
        Some(runtime)
    });
    if RUNTIME.is_none() {
        assert!(env::var_os("GRIDPOOL_REQUIRE_ONNXRUNTIME").is_none(), "no ONNX Runtime");
        println!("skipped: no ONNX Runtime (pip install onnxruntime)");
    }
    RUNTIME.clone()
}

fn file() -> ModelFile {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models/mlp.onnx");
    ModelFile::read(&model).expect("the model is committed")
}

#[test]
fn a_strict_session_has_no_node_on_the_cpu_and_a_lenient_one_names_them() {
    let Some(runtime) = runtime() else { return };
    let (file, options) = (file(), ModelOptions::default());
    let new = |is_strict| {
        session(&runtime, DeviceKind::Cpu, &file, &[Provider::Cpu], &options, None, is_strict)
    };
    let LoadError::Session(fault) = new(true).unwrap_err() else { panic!("another error") };
    assert!(fault.message().contains(FALLBACK_IS_DISABLED), "{fault}");
    let lenient =
        SharedSession::of(new(false).unwrap(), HostMemory::Plain, Manner::Bound, |_| ()).0;
    let refused = |providers: &[Provider]| {
        let lenient = Ok(lenient.clone());
        refusal(lenient, fault.clone(), providers, &options.cpu_ops).to_string()
    };
    let named = refused(&[Provider::Cuda]);
    assert!(named.starts_with("4 of 4 nodes would run on CPUExecutionProvider: "), "{named}");
    assert!(named.contains("Gemm (Gemm_h)") && named.contains("Softmax (Softmax_y)"), "{named}");
    assert_eq!(refused(&[Provider::Cpu]), fault.to_string(), "no node is misplaced");
}

#[test]
fn inputs_that_go_with_the_run_give_what_bound_ones_give_on_several_threads() {
    let Some(runtime) = runtime() else { return };
    let file = file();
    let contexts = u32::try_from(THREADS).unwrap();
    let options = ModelOptions { contexts: contexts.into(), ..ModelOptions::default() };
    let load = |manner| {
        let memory = (HostMemory::Plain, manner);
        let kind = DeviceKind::Cpu;
        let opened = Opened::open_to_run(&runtime, kind, memory, &file, &options, None);
        let Opened { session, signature, nodes } = opened.expect("it opens");
        warmed(kind, Graph::Model(session), signature, nodes, &options, None).expect("it loads")
    };
    let (_bound, mut contexts) = load(Manner::Bound);
    let want: Vec<_> = (0..THREADS).map(|seed| run(&mut contexts[0], seed, 1)).collect();
    assert!(want.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(!contexts.iter().any(Context::can_lend));
    let (fed, contexts) = load(Manner::Fed);
    assert!(contexts.iter().all(Context::can_lend));
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (seed, mut context) in (0..).zip(contexts) {
            let (want, failures) = (&want[usize::try_from(seed).unwrap()], &failures);
            scope.spawn(move || {
                for at in 0..RUNS {
                    let got = run(&mut context, seed, 1 + at % 3);
                    if !crate::warm_up::is_close(DataType::Fp32, &got, want) {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push((seed, at));
                    }
                }
            });
        }
    });
    assert_eq!(failures.into_inner().unwrap(), []);
    assert_eq!(fed.rows_max, Some(MAX_BATCH_DEFAULT));
}

#[test]
fn what_has_memory_of_a_session_keeps_it_so_that_the_session_frees_that_memory() {
    let Some(runtime) = runtime() else { return };
    let (memory, options) = ((HostMemory::Plain, Manner::Fed), ModelOptions::default());
    let open = || {
        let opened =
            Opened::open_to_run(&runtime, DeviceKind::Cpu, memory, &file(), &options, None);
        opened.expect("it opens")
    };
    let Opened { session, .. } = open();
    let is_freed = session.watch();
    let allocator = Arc::new(OwnedAllocator::of_host(&session).unwrap());
    drop(session);
    assert!(!is_freed(), "the allocator would free its memory later");
    drop(allocator);
    assert!(is_freed());
    let Opened { session, signature, .. } = open();
    let is_freed = session.watch();
    let names = (Signature::names(&signature.inputs), Signature::names(&signature.outputs));
    let mut binding = Binding::new(&session, names.0, names.1).unwrap();
    binding.input(0, DataType::Fp32, &[1, 16]).unwrap();
    let outputs: Vec<Value> = binding.run(&Stop::new().unwrap()).unwrap();
    drop((binding, session));
    assert!(!is_freed(), "an output has memory of an allocator");
    drop(outputs);
    assert!(is_freed());
}

#[test]
fn no_provider_is_added_while_a_run_is_captured() {
    let Some(runtime) = runtime() else { return };
    let (sender, added) = mpsc::channel();
    thread::scope(|scope| {
        let alone = alone();
        scope.spawn(|| {
            let (options, providers) = (ModelOptions::default(), [Provider::Cuda]);
            let gpu = DeviceKind::Gpu;
            // Without a GPU it is added in vain.
            let made = session(&runtime, gpu, &file(), &providers, &options, None, false);
            sender.send(made.is_ok()).unwrap();
        });
        assert_eq!(added.recv_timeout(ADDED), Err(RecvTimeoutError::Timeout));
        drop(alone);
        added.recv().unwrap();
    });
}

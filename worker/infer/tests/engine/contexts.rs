//! Many threads over one session: 1 to 8 contexts, and changes of their number while requests run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use gridpool_infer::{ContextsError, Engine, LoadError, ModelOptions, Request};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::Contexts;

use crate::harness::{BlockedContext, ask, close, contexts, engine, load, submit_with};
use crate::tensors::{Full, device, fp32, irregular, model};

const THREADS: u64 = 32;
const REQUESTS: u64 = 1_000;
/// Different inputs; every thread sends all of them, over and over.
const INPUTS: u64 = 64;
/// As in `joined`.
const TOLERANCE: f32 = 1e-5;

fn input(at: u64) -> [Full; 1] {
    [fp32("x", &[1, 16], &irregular(at % INPUTS, 16))]
}

fn serial(engine: &Engine) -> Vec<Vec<f32>> {
    (0..INPUTS).map(|at| ask(engine, "mlp", &input(at))[0].fp32()).collect()
}

/// One client's requests, each compared with the serial run.
fn client(engine: &Engine, client: u64, requests: u64, want: &[Vec<f32>]) {
    for at in 0..requests {
        let own = |request| Request { client, ..request };
        let waiter = submit_with(engine, "mlp", &input(client + at), own).expect("it is accepted");
        let got = waiter.outputs()[0].fp32();
        let which = usize::try_from((client + at) % INPUTS).expect("below INPUTS");
        close(&got, &want[which], TOLERANCE);
    }
}

#[test]
fn thirty_two_threads_get_on_any_number_of_contexts_what_the_serial_run_gives() {
    for count in [1, 2, 4, 8] {
        let Some(engine) = engine() else { return };
        let info = load(&engine, "mlp", &contexts(count));
        assert_eq!(info.contexts, count);
        let want = serial(&engine);
        thread::scope(|scope| {
            for name in 0..THREADS {
                let (engine, want) = (&engine, &want);
                scope.spawn(move || client(engine, name, REQUESTS, want));
            }
        });
        assert_eq!(engine.waiting("mlp"), 0);
    }
}

#[test]
fn changing_the_number_of_contexts_loses_no_request() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &contexts(1));
    let want = serial(&engine);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            let mut switched = 0;
            for count in [8, 1, 2, 64, 4, 1, 3].into_iter().cycle() {
                let info = engine.set_contexts("mlp", count).expect("the memory suffices");
                assert_eq!(info.contexts, count);
                switched += 1;
                if ended.load(Ordering::Relaxed) && switched >= 7 {
                    return;
                }
            }
            unreachable!("the numbers have no end")
        });
        let clients: Vec<_> = (0..8)
            .map(|name| {
                let (engine, want) = (&engine, &want);
                scope.spawn(move || client(engine, name, 300, want))
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(ScopedJoinHandle::join).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(clients.iter().all(Result::is_ok), "every answer is right");
        switcher.join().expect("every switch succeeds");
    });
    let refused = engine.set_contexts("mlp", 0).unwrap_err();
    assert_eq!(refused.to_string(), "0 contexts: write 1 to 64");
    assert!(engine.set_contexts("mlp", 65).is_err());
    let unknown = engine.set_contexts("no", 1).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no model `no`; there is mlp");
}

#[test]
fn surplus_contexts_end_after_their_run() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &contexts(2));
    let [first, second] = [0, 1].map(|at| BlockedContext::one(&engine, "mlp", &input(at)));
    let events = Mutex::new(Vec::new());
    let note = |event| events.lock().expect("no thread panicked").push(event);
    thread::scope(|scope| {
        scope.spawn(|| {
            engine.set_contexts("mlp", 1).expect("one is always allowed");
            note("switched");
        });
        // The list changes before surplus contexts have ended; both are busy.
        while engine.list()[0].contexts != 1 {
            thread::yield_now();
        }
        (0..1_000).for_each(|_| thread::yield_now());
        note("let go");
        first.let_go();
    });
    assert_eq!(*events.lock().expect("no thread panicked"), ["let go", "switched"]);
    let waits = submit_with(&engine, "mlp", &input(3), |request| request).expect("it waits");
    assert_eq!(engine.waiting("mlp"), 1, "the one that is left is busy");
    second.let_go();
    drop(waits.outputs());
}

#[test]
fn contexts_beyond_the_memory_that_a_model_is_allowed_are_refused_all_or_none() {
    let Some(engine) = engine() else { return };
    let options = |contexts: u32, device_bytes| ModelOptions {
        contexts: contexts.into(),
        device_bytes: Some(device_bytes),
        ..ModelOptions::default()
    };
    if device() == DeviceKind::Gpu {
        // On a GPU the runtime itself enforces the limit, in pieces that are larger than this model.
        engine.load("mlp", &model("mlp"), &options(64, 1 << 10)).expect_err("no memory");
        return;
    }
    let one = engine.load("mlp", &model("mlp"), &options(1, 1 << 30)).expect("the memory suffices");
    let two = engine.set_contexts("mlp", 2).expect("the memory suffices");
    let each = two.device_bytes - one.device_bytes;
    assert!(each > 0 && one.device_bytes >= each, "{one:?} {two:?}");
    // Memory for four, and not for five.
    let allowed = one.device_bytes + 3 * each;
    assert!(engine.unload("mlp"));
    let error = engine.load("mlp", &model("mlp"), &options(5, allowed)).unwrap_err();
    assert!(matches!(error, LoadError::Budget { contexts: 5, fit: 4, .. }), "{error}");
    assert_eq!(engine.list()[0].contexts, 0, "none is there");
    engine.load("mlp", &model("mlp"), &options(4, allowed)).expect("four fit");
    let error = engine.set_contexts("mlp", 5).unwrap_err();
    assert!(matches!(error, ContextsError::Load(LoadError::Budget { .. })), "{error}");
    assert_eq!(engine.list()[0].contexts, 4, "as before");
    client(&engine, 1, 10, &serial(&engine));
}

#[test]
fn as_many_contexts_as_serve_most_are_made_and_what_was_measured_is_said() {
    let Some(engine) = engine() else { return };
    let auto = |latency_ms| ModelOptions {
        contexts: Contexts::Auto,
        latency_ms,
        ..ModelOptions::default()
    };
    let info = load(&engine, "mlp", &auto(None));
    let measured = &info.contexts_measured;
    assert_eq!(measured[0].contexts, 1);
    assert!(measured.windows(2).all(|pair| pair[1].contexts == 2 * pair[0].contexts));
    assert!(measured.iter().all(|row| row.runs_per_minute > 0 && row.p99_us > 0), "{measured:?}");
    assert!(measured.iter().any(|row| row.contexts == info.contexts), "{info:?}");
    let most = measured.iter().map(|row| row.runs_per_minute).max().unwrap();
    let chosen = measured.iter().find(|row| row.contexts == info.contexts).unwrap();
    assert!(chosen.runs_per_minute * 100 >= most * 80, "{measured:?}");
    assert_eq!(ask(&engine, "mlp", &[fp32("x", &[1, 16], &[0.5; 16])])[0].shape, [1, 8]);
    assert_eq!(engine.set_contexts("mlp", info.contexts + 1).unwrap().contexts, info.contexts + 1);
    assert!(engine.unload("mlp"));
    // A bound that many runs at a time cannot keep: it gets one.
    let endless = engine.load("turns", &model("turns"), &auto(Some(1))).unwrap();
    assert!(endless.contexts >= 1 && !endless.contexts_measured.is_empty(), "{endless:?}");
    let error = engine.load("never", &model("mlp"), &auto(Some(0))).unwrap_err();
    assert_eq!(error.to_string(), "a latency_ms of 0: write at least 1, or leave it out");
    let fixed = load(&engine, "mlp", &contexts(2));
    assert_eq!((fixed.contexts, fixed.contexts_measured), (2, Vec::new()));
}

//! Captures of CUDA graphs while others load, run and free what lies on the same device. A capture fails if any thread
//! of the process allocates or frees memory of the device meanwhile. On a CPU device nothing is captured: there it
//! checks only that all of this can go on side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gridpool_infer::{Engine, LoadError, ModelOptions};
use gridpool_protocol::tensor::Contexts;
use gridpool_protocol::tensor::options::MAX_BATCH_DEFAULT;

use crate::graphs::{graphs, named};
use crate::harness::{ask, contexts, engine};
use crate::onnx::Folder;
use crate::pipelines::{picture, tracker};
use crate::tensors::{fp32, irregular, model};

/// How often each of the threads that capture loads its model.
const LOADS: u32 = 8;
/// Threads that load what is no model: the shortest way through a load, so that many meet each capture.
const REFUSED: usize = 4;

/// Sets the flag when it is dropped, also by a panic, so that the other threads end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Loads a model, runs it and frees it, until the captures have ended; at least once.
fn again(
    engine: &Engine,
    name: &str,
    file: &str,
    options: &ModelOptions,
    is_over: &AtomicBool,
    run: impl Fn(u32),
) {
    loop {
        run(engine.load(name, &model(file), options).expect("it loads").max_batch);
        assert!(engine.unload(name));
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn no_capture_meets_what_others_load_run_and_free() {
    let Some(engine) = engine() else { return };
    let (engine, is_over, folder) = (&engine, &AtomicBool::new(false), Folder::new());
    let broken = &folder.file("broken.onnx", b"this is no model");
    thread::scope(|scope| {
        // Many graphs in few sessions, and graphs with a session each.
        let rows: Vec<_> = (1..=8).map(|rows| [rows, 16]).collect();
        let rows: Vec<(&str, &[u64])> = rows.iter().map(|shape| ("x", &shape[..])).collect();
        let crops: [(&str, &[u64]); 2] = [("crops", &[1, 1, 16, 16]), ("crops", &[4, 1, 16, 16])];
        let captured =
            [("many", "mlp", named(graphs(2), &rows)), ("own", "pose", named(graphs(1), &crops))];
        let captures: Vec<_> = captured
            .into_iter()
            .map(|(name, file, options)| {
                scope.spawn(move || {
                    for _ in 0..LOADS {
                        engine.load(name, &model(file), &options).expect("it captures");
                        assert!(engine.unload(name));
                    }
                })
            })
            .collect();
        // A pipeline has sessions, memory and a stream for each context.
        for name in ["tracker", "follower"] {
            let options = ModelOptions { contexts: Contexts::Fixed(2), ..tracker() };
            scope.spawn(move || {
                let image = picture(&[3, 9, 12, 2]);
                let run = |_| drop(ask(engine, name, std::slice::from_ref(&image)));
                again(engine, name, "find", &options, is_over, run);
            });
        }
        scope.spawn(move || {
            let run = |rows: u16| {
                let numbers = irregular(rows.into(), 16 * usize::from(rows));
                drop(ask(engine, "plain", &[fp32("x", &[rows.into(), 16], &numbers)]));
            };
            let runs = |max_batch| {
                assert_eq!(max_batch, MAX_BATCH_DEFAULT, "the runs that prove it were spoilt");
                (1..=40).for_each(run);
            };
            again(engine, "plain", "mlp", &contexts(3), is_over, runs);
        });
        for _ in 0..REFUSED {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let error = engine.load("broken", broken, &contexts(1)).unwrap_err();
                    assert!(matches!(error, LoadError::Session(_)), "{error}");
                }
            });
        }
        let _ends = Ends(is_over);
        for capture in captures {
            capture.join().expect("nothing spoils a capture");
        }
    });
}

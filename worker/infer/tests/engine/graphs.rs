//! CUDA graphs. On a GPU: replays give, bit for bit, what runs give, for any number of rows and contexts. On a CPU
//! device: the option is accepted and has no effect. Those of a pipeline are of all its steps together.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use gridpool_infer::{Answer, Engine, LoadError, ModelOptions};
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::CUDA_GRAPHS_MAX;
use gridpool_protocol::tensor::{Contexts, DataType};

use crate::harness::{BlockedContext, ask, engine, load, outputs, submit};
use crate::pipelines::{self, pipeline, step, tracker};
use crate::tensors::{Full, TIMEOUT, device, fp32, full, irregular, model};
use crate::{programs, sized};

pub(crate) fn graphs(contexts: u32) -> ModelOptions {
    ModelOptions { cuda_graphs: true, contexts: contexts.into(), ..ModelOptions::default() }
}

pub(crate) fn named(options: ModelOptions, shapes: &[(&str, &[u64])]) -> ModelOptions {
    let warm_up = |(name, shape): &(&str, &[u64])| [((*name).to_owned(), shape.to_vec())].into();
    ModelOptions { warm_up: shapes.iter().map(warm_up).collect(), ..options }
}

fn on_gpu() -> bool {
    device() == DeviceKind::Gpu
}

fn rows(count: u64) -> [Full; 1] {
    let numbers = irregular(count, 16 * usize::try_from(count).expect("a few"));
    [fp32("x", &[count, 16], &numbers)]
}

fn answer(engine: &Engine, name: &str, inputs: &[Full]) -> Answer {
    submit(engine, name, inputs).expect("it is accepted").wait().expect("it runs")
}

/// Asserts that an answer is that of a model without graphs, and how many of its runs were replays on a GPU.
#[track_caller]
fn same(engine: &Engine, name: &str, plain: &str, inputs: &[Full], replays: u32) {
    let want = if on_gpu() { replays } else { 0 };
    let plain = ask(engine, plain, inputs);
    // A capture does not wait for what other tests load and run meanwhile: then the run is no replay, but is once they
    // have ended.
    let until = clock::now() + TIMEOUT;
    loop {
        let got = answer(engine, name, inputs);
        assert_eq!(outputs(&got), plain, "bit for bit");
        assert_eq!(got.report.runs, 1);
        if got.report.graph_replays == want {
            return;
        }
        assert!(
            got.report.graph_replays < want && clock::now() < until,
            "{} replays of {want}",
            got.report.graph_replays
        );
    }
}

#[test]
fn replays_give_what_runs_give_for_every_number_of_rows() {
    let Some(engine) = engine() else { return };
    engine.load("plain", &model("mlp"), &ModelOptions::default()).expect("it loads");
    let info = load(&engine, "mlp", &graphs(1));
    assert_eq!(info.cuda_graphs, if on_gpu() { 2 } else { 0 }, "the warm-up and the largest");
    // Twice: captured, then replayed. Back to the first after the others.
    for count in [1, 3, 8, 1, 32, 3, 8, 32, 5, 1, 5] {
        same(&engine, "mlp", "plain", &rows(count), 1);
    }
    // More rows than a run has are several runs.
    let long = answer(&engine, "mlp", &rows(40));
    assert_eq!(
        (long.report.runs, long.report.graph_replays),
        (2, if on_gpu() { 2 } else { 0 }),
        "32 and 8"
    );
    assert_eq!(outputs(&long), ask(&engine, "plain", &rows(40)));
}

#[test]
fn a_context_has_graphs_up_to_the_limit_and_runs_other_shapes_without() {
    let Some(engine) = engine() else { return };
    engine.load("plain", &model("mlp"), &ModelOptions::default()).expect("it loads");
    load(&engine, "mlp", &graphs(1));
    for count in 1..=CUDA_GRAPHS_MAX as u64 + 2 {
        // One graph is that of the largest run.
        let is_beyond = count >= CUDA_GRAPHS_MAX as u64;
        same(&engine, "mlp", "plain", &rows(count), u32::from(!is_beyond));
    }
    same(&engine, "mlp", "plain", &rows(2), 1);
}

#[test]
fn a_model_with_convolutions_has_graphs_of_its_warm_ups_and_preferred_sizes() {
    let Some(engine) = engine() else { return };
    engine.load("plain", &model("pose"), &ModelOptions::default()).expect("it loads");
    let options = named(graphs(2), &[("crops", &[1, 1, 16, 16]), ("crops", &[4, 1, 16, 16])]);
    let options = ModelOptions { preferred_batch: [8, 4].into(), ..options };
    let info = load(&engine, "pose", &options);
    assert_eq!(info.cuda_graphs, if on_gpu() { 3 } else { 0 });
    for (count, replays) in [(4, 1), (1, 1), (8, 1), (2, 0), (4, 1), (3, 0), (8, 1), (1, 1)] {
        let numbers = irregular(count, 256 * usize::try_from(count).expect("a few"));
        let crops = fp32("crops", &[count, 1, 16, 16], &numbers);
        same(&engine, "pose", "plain", &[crops], replays);
    }
}

#[test]
fn models_with_one_shape_and_with_several_tensors_have_graphs() {
    let Some(engine) = engine() else { return };
    let shift = full("shift", DataType::Int32, &[2], &[3, 0, 0, 0, 4, 0, 0, 0]);
    for name in ["fixed", "two_inputs", "three_outputs"] {
        let plain = format!("plain-{name}");
        engine.load(&plain, &model(name), &ModelOptions::default()).expect("it loads");
        load(&engine, name, &graphs(1));
        for seed in 0..3 {
            let inputs = match name {
                "fixed" => vec![fp32("x", &[2, 3], &irregular(seed, 6))],
                "two_inputs" => {
                    vec![fp32("x", &[2, 5], &irregular(seed, 10)), shift.clone()]
                }
                _ => vec![fp32("x", &[3, 4], &irregular(seed, 12))],
            };
            same(&engine, name, &plain, &inputs, 1);
        }
    }
}

#[test]
fn every_context_has_graphs_of_its_own() {
    let Some(engine) = engine() else { return };
    engine.load("plain", &model("mlp"), &ModelOptions::default()).expect("it loads");
    let want: Vec<_> = (1..=6).map(|count| ask(&engine, "plain", &rows(count))).collect();
    load(&engine, "mlp", &graphs(4));
    let replays = AtomicU32::new(0);
    let clients = |engine: &Engine| {
        thread::scope(|scope| {
            let (engine, want, replays) = (&engine, &want, &replays);
            for client in 0..8_usize {
                scope.spawn(move || {
                    for at in 0..200 {
                        let count = (client + at) % 6;
                        let inputs = rows(count as u64 + 1);
                        let ticket = submit(engine, "mlp", &inputs).expect("it is accepted");
                        let got = ticket.wait().expect("it runs");
                        replays.fetch_add(got.report.graph_replays, Ordering::Relaxed);
                        // Others may have shared its run, so that rows were added up in another order.
                        let (got, want) = (outputs(&got)[0].fp32(), want[count][0].fp32());
                        crate::harness::close(&got, &want, 1e-5);
                    }
                });
            }
        });
    };
    clients(&engine);
    for contexts in [1, 3, 8] {
        assert_eq!(engine.set_contexts("mlp", contexts).expect("they are made").contexts, contexts);
        clients(&engine);
    }
    // How many are replays depends on how many rows meet in a run: only what a context has captured is replayed.
    assert_eq!(replays.into_inner() > 0, on_gpu());
    // Each of them replays, not only the first.
    engine.set_contexts("mlp", 3).expect("they are made");
    let first = BlockedContext::one(&engine, "mlp", &rows(1));
    let second = BlockedContext::one(&engine, "mlp", &rows(1));
    assert_eq!(answer(&engine, "mlp", &rows(1)).report.graph_replays, u32::from(on_gpu()));
    second.let_go();
    assert_eq!(answer(&engine, "mlp", &rows(32)).report.graph_replays, u32::from(on_gpu()));
    first.let_go();
    assert!(engine.unload("mlp"));
}

#[test]
fn loads_and_unloads_beside_captures_fail_nothing() {
    let Some(engine) = engine() else { return };
    engine.load("plain", &model("mlp"), &ModelOptions::default()).expect("it loads");
    let want = ask(&engine, "plain", &rows(7));
    thread::scope(|scope| {
        for name in ["a", "b"] {
            let (engine, want) = (&engine, &want);
            scope.spawn(move || {
                for _ in 0..6 {
                    engine.load(name, &model("mlp"), &graphs(2)).expect("it loads");
                    (1..=7).for_each(|count| drop(ask(engine, name, &rows(count))));
                    assert_eq!(ask(engine, name, &rows(7)), *want);
                    assert!(engine.unload(name));
                }
            });
        }
        let engine = &engine;
        scope.spawn(move || (0..400).for_each(|at| drop(ask(engine, "plain", &rows(1 + at % 9)))));
    });
}

#[test]
fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let Some(engine) = engine() else { return };
    let refused = |name: &str| {
        let error = engine.load(name, &model(name), &graphs(1)).expect_err(name);
        assert!(error.end_of_device().is_none(), "{name}: {error:?}");
        (error.to_string(), Chain(&error).to_string())
    };
    let auto = ModelOptions { contexts: Contexts::Auto, ..graphs(1) };
    let error = engine.load("mlp", &model("mlp"), &auto).unwrap_err().to_string();
    assert!(error.starts_with("cuda_graphs cannot go with contexts = \"auto\""), "{error}");
    let on_cpu = ModelOptions { cpu_ops: ["Shape".to_owned()].into(), ..graphs(1) };
    let error = engine.load("shape_ops", &model("shape_ops"), &on_cpu).unwrap_err();
    assert!(matches!(error, LoadError::Options(_)), "{error}");
    if !on_gpu() {
        // There it has no effect.
        engine.load("nonzero", &model("nonzero"), &graphs(1)).expect("it loads");
        engine.load("random", &model("random"), &graphs(1)).expect("it loads");
        return;
    }
    let (what, why) = refused("nonzero");
    assert_eq!(what, "leave cuda_graphs out");
    assert!(why.contains("NonZero") && why.contains("depends on its data"), "{why}");
    let (_, why) = refused("random");
    assert!(why.contains("RandomUniformLike") && why.contains("draws random numbers"), "{why}");
    let (what, _) = refused("strings");
    assert!(what.contains("would run on CPUExecutionProvider"), "{what}");
    // The limit of 16, counted in different shapes.
    let shapes: Vec<_> = (1..=CUDA_GRAPHS_MAX as u64 + 1).map(|rows| [rows, 16]).collect();
    let shapes: Vec<(&str, &[u64])> = shapes.iter().map(|shape| ("x", &shape[..])).collect();
    let error = engine.load("many", &model("mlp"), &named(graphs(1), &shapes)).unwrap_err();
    let why = Chain(&error).to_string();
    assert!(why.contains("are 17 shapes, and a context has at most 16 graphs"), "{why}");
    let twice = [&shapes[1..], &shapes[1..]].concat();
    engine.load("many", &model("mlp"), &named(graphs(1), &twice)).expect("they are 16");
    assert_eq!(answer(&engine, "many", &rows(17)).report.graph_replays, 1);
    // The device serves on.
    load(&engine, "mlp", &graphs(1));
    assert_eq!(answer(&engine, "mlp", &rows(1)).report.graph_replays, 1);
}

/// `cargo test --release -p gridpool-infer --test engine graphs_at -- --ignored --nocapture`
#[test]
#[ignore = "prints rates"]
#[expect(clippy::print_stdout, reason = "a measurement is read by people")]
fn what_graphs_at_one_row_gain() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &graphs(1));
    engine.load("plain", &model("mlp"), &ModelOptions::default()).expect("it loads");
    for name in ["plain", "mlp", "plain", "mlp"] {
        let times = (0..3_000).map(|_| answer(&engine, name, &rows(1)).report.device_us);
        let mut times: Vec<_> = times.collect();
        times.sort_by(f64::total_cmp);
        println!("{name}: median {:.1} us a run", times[times.len() / 2]);
    }
}

/// Two branches over crops, of models that keep plans.
fn branches() -> ModelOptions {
    let steps = vec![
        step("enlarge", "enlarge", &[("crops", "crops")]),
        step("pose", "pose", &[("crops", "enlarge.large")]),
        step("reid", "reid", &[("crops", "crops")]),
    ];
    pipeline(&["crops"], steps, &[("points", "pose.points"), ("who", "reid.who")])
}

#[test]
fn the_steps_of_a_pipeline_are_replayed_together_for_the_shapes_of_its_warm_ups() {
    let Some(engine) = engine() else { return };
    let crops = |count: u64| {
        let pixels = 64 * usize::try_from(count).expect("a few");
        [fp32("crops", &[count, 1, 8, 8], &irregular(count, pixels))]
    };
    let one = ModelOptions { max_batch: Some(1), ..branches() };
    engine.load("plain", &model("reid"), &one).expect("it loads");
    let shapes: [(&str, &[u64]); 2] = [("crops", &[4, 1, 8, 8]), ("crops", &[1, 1, 8, 8])];
    let options = named(ModelOptions { cuda_graphs: true, contexts: 2.into(), ..one }, &shapes);
    let info = engine.load("replayed", &model("reid"), &options).expect("it loads");
    assert_eq!(info.cuda_graphs, if on_gpu() { 2 } else { 0 });
    for count in [4, 1, 3, 4, 3, 1, 4] {
        let (plain, got) =
            (answer(&engine, "plain", &crops(count)), answer(&engine, "replayed", &crops(count)));
        pipelines::same(&outputs(&got), &outputs(&plain));
        let replays = u32::from(on_gpu() && count != 3);
        assert_eq!(got.report.graph_replays, replays, "{count} crops");
        // A replay, too, says what each step took, and how long it was.
        let steps = |answer: &Answer| {
            let steps = answer.report.steps.iter();
            steps
                .map(|step| (step.name.clone(), step.device_bytes, step.host_bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(&got), steps(&plain));
        assert!(got.report.steps.iter().all(|step| step.device_us > 0.0), "{:?}", got.report.steps);
    }
    // A context that is made later has graphs of its own.
    engine.set_contexts("replayed", 3).expect("it has room");
    assert_eq!(answer(&engine, "replayed", &crops(4)).report.graph_replays, u32::from(on_gpu()));
}

#[test]
fn programs_over_grids_are_replayed_with_the_models_beside_them() {
    let Some(engine) = engine() else { return };
    let between = || {
        programs::between(
            "rot90 | fill(5, ofcolor(0)) | o_g(5) | argmax(size) | fill(3)",
            programs::ALL,
        )
    };
    engine.load("plain", &model("colors"), &between()).expect("it loads");
    let shape = [2, 12, 9];
    let options = ModelOptions { cuda_graphs: true, ..named(between(), &[("x", &shape)]) };
    let info = engine.load("replayed", &model("colors"), &options).expect("it loads");
    assert_eq!(info.cuda_graphs, u32::from(on_gpu()));
    for numbers in [programs::numbers(shape), programs::bad(shape), programs::numbers(shape)] {
        same(&engine, "replayed", "plain", &[numbers], 1);
    }
    same(&engine, "replayed", "plain", &[programs::numbers([2, 30, 40])], 0);
    same(&engine, "replayed", "plain", &[programs::numbers(shape)], 1);
}

#[test]
fn solvers_over_grids_of_several_sizes_are_replayed_and_each_grid_keeps_its_error() {
    let Some(engine) = engine() else { return };
    let text = "x1 = objects(I, T, F, T)\nx2 = order(x1, size)\nx3 = last(x2)\nO = subgrid(x3, I)";
    let load =
        |name: &str, options| engine.load(name, &model("ragged"), &options).expect("it loads");
    let grids = sized::arc();
    let [all, few] = [&grids[..32], &grids[..8]].map(|grids| sized::inputs(grids, sized::PLANE, 7));
    let shapes = all.each_ref().map(|input| (input.name.as_str(), input.shape.as_slice()));
    let warm_up = ModelOptions {
        warm_up: vec![shapes.map(|(name, shape)| (name.to_owned(), shape.to_vec())).into()],
        ..ModelOptions::default()
    };
    // Without the statuses, requests fail: the warm-ups' do, over grids of no size.
    for (which, of) in [("all", sized::ALL), ("few", &sized::ALL[3..])] {
        let own = || sized::between(sized::program(text, [20, 20]), of);
        let (plain, replayed) = (format!("plain-{which}"), format!("replayed-{which}"));
        load(&plain, own());
        let warm_up = warm_up.warm_up.clone();
        let info = load(&replayed, ModelOptions { cuda_graphs: true, warm_up, ..own() });
        assert_eq!(info.cuda_graphs, u32::from(on_gpu()));
        let ran = |name: &str, inputs: &[Full]| {
            let answer = submit(&engine, name, inputs).expect("it is accepted").wait();
            answer.map(|answer| (answer.report.graph_replays, outputs(&answer)))
        };
        for (inputs, replays) in [(&all, 1), (&few, 0), (&all, 1)] {
            match (ran(&replayed, inputs), ran(&plain, inputs)) {
                (Ok((replayed, got)), Ok((_, want))) => {
                    assert_eq!(got, want, "bit for bit");
                    assert_eq!(replayed, if on_gpu() { replays } else { 0 });
                }
                (replayed, plain) => {
                    let why = replayed.expect_err("a result of it is too large").to_string();
                    assert_eq!(why, plain.expect_err("for both").to_string());
                    assert_eq!(which, "few", "{why}");
                }
            }
        }
    }
}

#[test]
fn a_pipeline_that_counts_is_not_replayed() {
    let Some(engine) = engine() else { return };
    let options = ModelOptions { cuda_graphs: true, ..tracker() };
    let loaded = engine.load("tracker", &model("find"), &options);
    if on_gpu() {
        let why = Chain(&loaded.expect_err("it counts")).to_string();
        assert!(why.starts_with("leave cuda_graphs out: the shape of what its node"), "{why}");
    } else {
        assert_eq!(loaded.expect("there it has no effect").cuda_graphs, 0);
    }
}

//! Models that load, models that do not, and what a failure leaves of other models.

use std::fs;
use std::path::Path;

use gridpool_infer::{Engine, LibraryError, LoadError, ModelOptions, Provider, Runtime};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::ModelState;

use crate::harness::{ask, engine, load, submit};
use crate::onnx::{FLOAT, Folder, INT64, Message, graph, model as made, node, value};
use crate::tensors::{device, fp32, int64, model, runtime};

fn defaults() -> ModelOptions {
    ModelOptions::default()
}

#[test]
fn a_model_that_does_not_load_leaves_the_others_and_says_why_with_its_hash() {
    let Some(engine) = engine() else { return };
    load(&engine, "mlp", &defaults());
    let reasons = [
        ("four_bits", "its input `x` holds numbers of 4 bits, which are served as weights only"),
        ("sequence", "its output `parts` is a sequence; only tensors are served"),
    ];
    for (name, reason) in reasons {
        let error = engine.load(name, &model(name), &defaults()).unwrap_err();
        assert!(error.to_string().starts_with(reason), "{error}");
    }
    let folder = Folder::new();
    let broken = folder.file("broken.onnx", b"this is no model");
    let error = engine.load("broken", &broken, &defaults()).unwrap_err();
    assert!(matches!(error, LoadError::Session(_)), "{error}");
    fs::remove_file(&broken).unwrap();
    let error = engine.load("gone", &broken, &defaults()).unwrap_err();
    assert!(Chain(&error).to_string().contains("No such file"), "{error}");
    let listed = engine.list();
    let names: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["broken", "four_bits", "gone", "mlp", "sequence"]);
    for info in &listed {
        let is_ready = info.name == "mlp";
        assert_eq!(info.state == ModelState::Ready, is_ready, "{info:?}");
        assert_eq!(info.reason.is_empty(), is_ready, "{info:?}");
        assert_eq!(info.sha256.len(), if info.name == "gone" { 0 } else { 64 });
        assert!(is_ready || info.reason.contains(&info.sha256), "{info:?}");
    }
    let error = submit(&engine, "four_bits", &[]).err().expect("it is not served").to_string();
    assert!(error.starts_with("the model `four_bits` is not available: its input"), "{error}");
    assert_eq!(ask(&engine, "mlp", &[fp32("x", &[1, 16], &[0.5; 16])])[0].shape, [1, 8]);
}

#[test]
fn an_input_without_a_shape_is_refused_and_a_single_number_is_served() {
    let Some(engine) = engine() else { return };
    let folder = Folder::new();
    let file = |name: &str, input: &Message| {
        let nodes = [node("Identity", &["x"], "y")];
        let own = graph(&nodes, &[], std::slice::from_ref(input), &[value("y", FLOAT, &[])]);
        folder.file(name, &made(&own))
    };
    let single = file("single.onnx", &value("x", FLOAT, &[]));
    engine.load("single", &single, &defaults()).expect("the model loads");
    assert_eq!(ask(&engine, "single", &[fp32("x", &[], &[0.5])])[0].fp32(), [0.5]);
    let tensor = Message::default().number(1, FLOAT);
    let input = Message::default().text(1, "x").message(2, &Message::default().message(1, &tensor));
    let error = engine.load("any", &file("any.onnx", &input), &defaults()).unwrap_err().to_string();
    assert!(error.starts_with("its input `x` states no shape, not even a number"), "{error}");
}

#[test]
fn an_output_of_any_number_of_dimensions_is_told_from_a_single_number() {
    let Some(engine) = engine() else { return };
    let folder = Folder::new();
    let of = |name: &str, element, shape: Option<&Message>| {
        let tensor = Message::default().number(1, element);
        let tensor = shape.into_iter().fold(tensor, |tensor, shape| tensor.message(2, shape));
        Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
    };
    let row = Message::default().message(1, &Message::default().text(2, "n"));
    let nodes = [node("Reshape", &["x", "sides"], "y"), node("Size", &["x"], "size")];
    let inputs = [of("x", FLOAT, Some(&row)), of("sides", INT64, Some(&row))];
    let outputs = [of("y", FLOAT, None), value("size", INT64, &[])];
    let file = folder.file("any.onnx", &made(&graph(&nodes, &[], &inputs, &outputs)));
    let info = engine.load("any", &file, &defaults()).expect("the model loads");
    let said: Vec<_> = info.outputs.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["y FP32 [...]", "size INT64 []"]);
    let x = || fp32("x", &[6], &[0.5; 6]);
    for shape in [&[2, 3][..], &[6], &[1, 6, 1]] {
        let sides = int64("sides", &[shape.len() as u64], shape);
        let y = &ask(&engine, "any", &[x(), sides])[0];
        let got: Vec<i64> = y.shape.iter().map(|&side| side.cast_signed()).collect();
        assert_eq!(got, shape);
    }
}

#[test]
fn a_failed_load_changes_nothing_and_a_name_can_be_reused() {
    let Some(engine) = engine() else { return };
    let before = load(&engine, "mlp", &defaults());
    for path in [model("four_bits"), model("mlp")] {
        engine.load("mlp", &path, &defaults()).expect_err("the name is taken");
        assert_eq!(engine.list(), std::slice::from_ref(&before));
    }
    assert!(engine.unload("mlp"));
    assert!(!engine.unload("mlp"));
    assert!(engine.list().is_empty());
    let error = submit(&engine, "mlp", &[]).err().expect("it is gone").to_string();
    assert_eq!(error, "there is no model `mlp`; there is none");
    engine.load("mlp", &model("four_bits"), &defaults()).expect_err("it is not served");
    load(&engine, "mlp", &defaults());
    assert_eq!(engine.list()[0].state, ModelState::Ready);
    let error = engine.load("a/b", &model("mlp"), &defaults()).unwrap_err();
    assert!(error.to_string().contains("cannot be the name of a model"), "{error}");
}

#[test]
fn the_hash_is_that_of_the_file() {
    let Some(engine) = engine() else { return };
    use sha2::{Digest, Sha256};
    let info = load(&engine, "fixed", &defaults());
    let want = Sha256::digest(fs::read(model("fixed")).unwrap());
    assert_eq!(info.sha256, gridpool_protocol::program::hex(&want));
    assert_eq!((info.max_batch, info.contexts), (1, 1));
}

#[test]
fn weights_in_a_file_beside_the_model_are_found() {
    let Some(engine) = engine() else { return };
    load(&engine, "external", &defaults());
    let got = ask(&engine, "external", &[fp32("x", &[1, 4], &[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(got[0], fp32("y", &[1, 4], &[3.0, 10.0, 21.0, 44.0]));
}

#[test]
fn a_warm_up_that_fails_keeps_the_model_out_of_service() {
    let Some(engine) = engine() else { return };
    let warm_up = |name: &str, shape: &[u64]| ModelOptions {
        warm_up: vec![[(name.to_owned(), shape.to_vec())].into()],
        ..defaults()
    };
    let wrong = engine.load("wrong", &model("mlp"), &warm_up("x", &[1, 15])).unwrap_err();
    assert!(wrong.to_string().contains("`x` has the shape [1, 15]"), "{wrong}");
    let wrong = engine.load("mlp", &model("mlp"), &warm_up("z", &[1])).unwrap_err();
    assert!(wrong.to_string().contains("it has no input `z`"), "{wrong}");
    let right = engine.load("mlp", &model("mlp"), &warm_up("x", &[20, 16]));
    let right = right.expect("it runs");
    assert_eq!((right.state, right.warm_up_shapes), (ModelState::Ready, vec![vec![20, 16]]));
    let guessed = load(&engine, "two_inputs", &defaults());
    assert_eq!(guessed.warm_up_shapes, [vec![1, 1], vec![1]]);
}

#[test]
fn on_a_gpu_a_node_without_a_kernel_refuses_the_model_and_is_named() {
    let Some(engine) = engine() else { return };
    let loaded = engine.load("no_cuda_kernel", &model("no_cuda_kernel"), &defaults());
    match device() {
        DeviceKind::Cpu => {
            let nodes = loaded.expect("a cpu device has it").nodes;
            assert!(
                nodes.iter().all(|nodes| nodes.provider == "CPUExecutionProvider"),
                "{nodes:?}"
            );
            let unit = fp32("x", &[1, 3, 3], &[1.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 1.0]);
            assert_eq!(ask(&engine, "no_cuda_kernel", &[unit])[0], fp32("y", &[1], &[6.0]));
        }
        DeviceKind::Gpu => {
            loaded.expect_err("the switch that allows no node on the CPU");
            // The allow-list does not have its op, so the audit refuses it and names the node.
            let options = ModelOptions { cpu_ops: ["Shape".to_owned()].into(), ..defaults() };
            let error = engine.load("audited", &model("no_cuda_kernel"), &options).unwrap_err();
            assert!(error.to_string().contains("Det (Det_d)"), "{error}");
            let options = ModelOptions { cpu_ops: ["Det".to_owned()].into(), ..defaults() };
            let info = engine.load("allowed", &model("no_cuda_kernel"), &options).unwrap();
            assert_eq!(info.nodes.len(), 2, "{:?}", info.nodes);
        }
    }
}

/// Needs no GPU: without a GPU the provider is unavailable, and no other provider is tried.
#[test]
fn a_gpu_that_cannot_be_used_is_an_error_and_never_the_cpu() {
    let Some(runtime) = runtime() else { return };
    if device() == DeviceKind::Gpu {
        return;
    }
    let engine = Engine::new(runtime, DeviceKind::Gpu);
    let error = engine.load("mlp", &model("mlp"), &defaults()).unwrap_err();
    let provider = Provider::Cuda;
    assert!(matches!(error, LoadError::Provider { provider: p, .. } if p == provider), "{error:?}");
    let said = engine.list()[0].reason.clone();
    assert!(said.starts_with("the provider `cuda` cannot be used; nothing falls back"), "{said}");
    submit(&engine, "mlp", &[fp32("x", &[1, 16], &[0.0; 16])]).err().expect("it is not served");
    let tensorrt = ModelOptions { providers: vec![Provider::TensorRt], ..defaults() };
    let error = engine.load("trt", &model("mlp"), &tensorrt).unwrap_err();
    assert!(matches!(error, LoadError::TensorRtMissing), "{error:?}");
    assert!(error.to_string().contains("needs libnvinfer.so.10: install TensorRT"), "{error}");
}

#[test]
fn a_library_that_is_no_onnx_runtime_is_refused_without_a_panic() {
    let Some(runtime) = runtime() else { return };
    let second = Runtime::open(Path::new("/nowhere/libonnxruntime.so"), 1).unwrap_err();
    assert_eq!(second, LibraryError::Second { path: runtime.library().to_owned() });
    assert_eq!(second.exit_code(), 73);
}

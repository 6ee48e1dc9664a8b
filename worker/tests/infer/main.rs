//! The engine of inference over real models, by a real ONNX Runtime.
//!
//! Where there is none each test says so and passes; with `GRIDPOOL_REQUIRE_ONNXRUNTIME=1` that is a
//! failure. `pip install onnxruntime onnx` is all it takes: the library is looked for where a worker
//! looks, the published models in the package `onnx`. `GRIDPOOL_INFER_DEVICE=gpu` runs the same on the
//! first GPU, which needs `onnxruntime-gpu`.

mod bench;
mod changes;
mod contexts;
mod harness;
mod joined;
mod loading;
mod lone;
mod memory;
mod onnx;
mod published;
mod requests;
mod served;

//! The engine of inference over real models, with a real ONNX Runtime.
//!
//! Without ONNX Runtime each test prints that it was skipped and passes; with
//! `GRIDPOOL_REQUIRE_ONNXRUNTIME=1` it fails. Install it with `pip install onnxruntime onnx`: the tests
//! search for the library as a worker does, and take published models from the package `onnx`.
//! `GRIDPOOL_INFER_DEVICE=gpu` runs the same tests on the first GPU, which needs `onnxruntime-gpu`. They may
//! run side by side there, too; no CUDA graph is captured while another test of the process loads a model.

mod bench;
mod captures;
mod changes;
mod contexts;
mod delays;
mod graphs;
mod harness;
mod joined;
mod loading;
mod onnx;
mod pipelines;
mod programs;
mod published;
mod requests;
mod row_turns;
mod sized;
mod tensors;
mod texts;

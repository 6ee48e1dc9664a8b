//! A worker that serves models, alone: its channel, its models and its memory, with a real ONNX Runtime.
//!
//! `worker/infer/tests/engine/main.rs` says what happens without ONNX Runtime, and how to use a GPU.

mod harness;
mod memory;
#[path = "../../infer/tests/engine/onnx.rs"]
mod onnx;
mod served;
mod tables;
#[path = "../../infer/tests/engine/tensors.rs"]
mod tensors;

//! The error codes of ONNX Runtime. Data only.
//!
//! Source: `OrtErrorCode` of `onnxruntime_c_api.h`.

use super::FaultClass::{self, Device, Program};

/// What every name begins with.
pub(super) const PREFIX: &str = "ORT_";

/// `(code, name without prefix, class, sentence)` in ascending order of code, without OK.
pub(super) const CODES: &[(u32, &str, FaultClass, &str)] = &[
    (1, "FAIL", Device, "the run failed; ONNX Runtime gives no other reason"),
    (
        2,
        "INVALID_ARGUMENT",
        Program,
        "the name, shape or type of an input does not match the model",
    ),
    (3, "NO_SUCHFILE", Program, "the model's file does not exist"),
    (4, "NO_MODEL", Program, "no model is loaded"),
    (5, "ENGINE_ERROR", Device, "an execution provider's engine failed"),
    (6, "RUNTIME_EXCEPTION", Device, "ONNX Runtime threw an exception during the run"),
    (7, "INVALID_PROTOBUF", Program, "the model's file is not an ONNX model"),
    (8, "MODEL_LOADED", Program, "the model is already loaded"),
    (9, "NOT_IMPLEMENTED", Program, "the model uses an operator that is not implemented"),
    (10, "INVALID_GRAPH", Program, "the model's graph is invalid"),
    (11, "EP_FAIL", Device, "the execution provider failed, for instance CUDA"),
    (12, "MODEL_LOAD_CANCELED", Program, "loading the model was cancelled"),
    (13, "MODEL_REQUIRES_COMPILATION", Program, "the model must be compiled first"),
    (14, "NOT_FOUND", Program, "a named object was not found"),
    (15, "DEVICE_RESET", Device, "the device was reset"),
];

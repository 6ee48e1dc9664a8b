//! The error codes of ONNX Runtime. Data only.
//!
//! Source: `OrtErrorCode` of `onnxruntime_c_api.h`.

use super::FaultClass::{self, Device, Program};

/// What every name begins with.
pub(super) const PREFIX: &str = "ORT_";

/// `(code, name without prefix, class, sentence)` in ascending order of code, without OK.
pub(super) const CODES: &[(u32, &str, FaultClass, &str)] = &[
    (1, "FAIL", Device, "the run failed and the runtime does not say more"),
    (2, "INVALID_ARGUMENT", Program, "an input has another name, shape or type than the model's"),
    (3, "NO_SUCHFILE", Program, "the model's file is not there"),
    (4, "NO_MODEL", Program, "no model is loaded"),
    (5, "ENGINE_ERROR", Device, "an execution provider's engine failed"),
    (6, "RUNTIME_EXCEPTION", Device, "an exception was thrown during the run"),
    (7, "INVALID_PROTOBUF", Program, "the model's file is no ONNX model"),
    (8, "MODEL_LOADED", Program, "the model is loaded already"),
    (9, "NOT_IMPLEMENTED", Program, "an operator is not implemented"),
    (10, "INVALID_GRAPH", Program, "the model's graph is invalid"),
    (11, "EP_FAIL", Device, "the execution provider failed, CUDA for instance"),
    (12, "MODEL_LOAD_CANCELED", Program, "loading the model was cancelled"),
    (13, "MODEL_REQUIRES_COMPILATION", Program, "the model has to be compiled first"),
    (14, "NOT_FOUND", Program, "something that was named is not there"),
    (15, "DEVICE_RESET", Device, "the device was reset"),
];

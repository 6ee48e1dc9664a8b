//! What NVML returns that says something about a device, and the recovery actions that it names.
//! Data only.
//!
//! Sources: `nvml.h`; values from 5 on of the recovery action, the CUDA Python bindings.

use super::FaultClass::{self, Device, Notice, Setup};

/// `(code, name, class, sentence)` of results, in ascending order of code.
pub(super) const CODES: &[(u32, &str, FaultClass, &str)] = &[
    (15, "NVML_ERROR_GPU_IS_LOST", Device, "the GPU has fallen off the bus"),
    (16, "NVML_ERROR_RESET_REQUIRED", Device, "the GPU must be reset before it is used again"),
    (
        18,
        "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        Setup,
        "the driver library and the loaded kernel module have different versions: load the new module, or reboot",
    ),
    (999, "NVML_ERROR_UNKNOWN", Notice, "the driver reported an unknown error"),
];

/// `(value, name, class, sentence)` of the recovery action, in ascending order of value.
pub(super) const RECOVERY: &[(u32, &str, FaultClass, &str)] = &[
    (0, "NONE", Notice, "a new process may use the GPU at once"),
    (1, "GPU_RESET", Device, "reset the GPU: end every process on it, then run `nvidia-smi -r`"),
    (2, "NODE_REBOOT", Device, "reboot the machine"),
    (3, "DRAIN_P2P", Notice, "end work that spans several GPUs; gridpool runs none"),
    (4, "DRAIN_AND_RESET", Device, "finish the running work, then reset the GPU"),
    (5, "RECOVER_IMEX_DOMAIN", Notice, "recover the IMEX domain; gridpool uses none"),
    (6, "BUS_RESET", Device, "reset the GPU's bus"),
    (7, "SYSTEM_REBOOT", Device, "reboot the machine"),
];

//! The driver's Xid messages that matter to a worker. Data only.
//!
//! Sources: `nverror.h` of the open kernel modules for names and numbers; NVIDIA's Xid catalog
//! (docs.nvidia.com/deploy/xid-errors) for what is to be done.

use super::FaultClass::{self, Device, Notice, Sticky};

/// `(number, name, class, sentence)` in ascending order. Sticky: the process that caused it loses its
/// context and hears of it in CUDA.
pub(super) const CODES: &[(u32, &str, FaultClass, &str)] = &[
    (8, "idle timeout", Sticky, "the GPU stopped processing"),
    (11, "invalid push buffer", Sticky, "the GPU got an invalid or corrupted stream of commands"),
    (
        13,
        "engine exception",
        Sticky,
        "a kernel failed: out-of-bounds access, trap or illegal instruction",
    ),
    (31, "MMU fault", Sticky, "a kernel accessed an invalid memory address"),
    (32, "push buffer error", Sticky, "the GPU got an invalid or corrupted stream of commands"),
    (43, "channel reset", Notice, "the channel of a process was reset; the GPU is healthy"),
    (45, "preemptive removal", Notice, "the channels of a killed process were removed"),
    (46, "GPU timeout", Device, "the GPU stopped processing: it needs a reset"),
    (48, "double-bit ECC", Device, "device memory had an uncorrectable ECC error"),
    (61, "PMU breakpoint", Device, "the GPU's microcontroller stopped"),
    (62, "PMU halt", Device, "the GPU's microcontroller halted: it needs a reset"),
    (63, "row remapped", Notice, "a bad memory row will be replaced at the next reset"),
    (
        64,
        "row remap failed",
        Device,
        "a bad memory row could not be replaced: the GPU needs a reset",
    ),
    (68, "video processor", Sticky, "the video engine had an exception"),
    (69, "class error", Sticky, "an engine got an illegal method"),
    (74, "NVLink error", Device, "a link between GPUs failed"),
    (79, "off the bus", Device, "the GPU has fallen off the bus: reboot the machine"),
    (92, "many single-bit errors", Notice, "corrected ECC errors are frequent: watch this GPU"),
    (94, "contained error", Sticky, "device memory failed; one process lost its context"),
    (
        95,
        "uncontained error",
        Device,
        "device memory failed; any process on the GPU may be affected",
    ),
    (109, "context switch timeout", Device, "a context switch timed out"),
    (110, "security fault", Device, "the GPU's security engine failed: it needs a reset"),
    (119, "GSP RPC timeout", Device, "the GPU's system processor does not answer"),
    (120, "GSP error", Device, "the GPU's system processor failed"),
    (140, "ECC escape", Device, "the ECC of the GPU missed an error"),
    (143, "initialisation error", Device, "the GPU could not be initialised"),
    (154, "recovery action", Notice, "the recovery action of the GPU changed; see `recovery`"),
    (156, "resource retired", Device, "a resource of the GPU was retired: the GPU needs a reset"),
    (158, "fatal timeout", Device, "the GPU did not answer in time: it needs a reset"),
    (
        171,
        "uncorrectable DRAM",
        Notice,
        "device memory failed; the recovery action says what to do",
    ),
    (172, "uncorrectable SRAM", Notice, "a cache failed; the recovery action says what to do"),
];

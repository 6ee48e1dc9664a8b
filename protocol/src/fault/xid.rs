//! The driver's Xid messages that matter to a worker. Data only.
//!
//! Sources: `nverror.h` of the open kernel modules for names and numbers; NVIDIA's Xid catalog
//! (docs.nvidia.com/deploy/xid-errors) for what is to be done.

use super::FaultClass::{self, Device, Notice, Sticky};

/// `(number, name, class, sentence)` in ascending order. Sticky: the process that caused it loses its
/// context and hears of it in CUDA.
pub(super) const CODES: &[(u32, &str, FaultClass, &str)] = &[
    (8, "idle timeout", Sticky, "the GPU stopped processing"),
    (11, "invalid push buffer", Sticky, "a stream of commands is invalid or corrupted"),
    (13, "engine exception", Sticky, "a kernel failed: out of bounds, trap, bad instruction"),
    (31, "MMU fault", Sticky, "a kernel touched memory that is not its own"),
    (32, "push buffer error", Sticky, "a stream of commands is invalid or corrupted"),
    (43, "channel reset", Notice, "a process's channel was reset; the GPU is healthy"),
    (45, "preemptive removal", Notice, "channels of a process that was killed were removed"),
    (46, "GPU timeout", Device, "the GPU stopped processing: it needs a reset"),
    (48, "double-bit ECC", Device, "memory failed beyond correction"),
    (61, "PMU breakpoint", Device, "the GPU's microcontroller stopped"),
    (62, "PMU halt", Device, "the GPU's microcontroller halted: it needs a reset"),
    (63, "row remapped", Notice, "a bad row is replaced at the next reset"),
    (64, "row remap failed", Device, "a bad row could not be replaced: it needs a reset"),
    (68, "video processor", Sticky, "the video engine met an exception"),
    (69, "class error", Sticky, "an engine was given a wrong method"),
    (74, "NVLink error", Device, "a link between GPUs failed"),
    (79, "off the bus", Device, "the GPU has fallen off the bus: reboot the machine"),
    (92, "many single-bit errors", Notice, "errors are corrected and frequent: watch this GPU"),
    (94, "contained error", Sticky, "memory failed and one process lost its context"),
    (95, "uncontained error", Device, "memory failed and every process is suspect"),
    (109, "context switch timeout", Device, "a context would not leave the GPU in time"),
    (110, "security fault", Device, "the GPU's security engine failed: it needs a reset"),
    (119, "GSP RPC timeout", Device, "the GPU's system processor does not answer"),
    (120, "GSP error", Device, "the GPU's system processor failed"),
    (140, "ECC escape", Device, "an error got past the ECC of the GPU"),
    (143, "initialisation error", Device, "the GPU could not be initialised"),
    (154, "recovery action", Notice, "what the GPU needs has changed; see `recovery`"),
    (156, "resource retired", Device, "a part of the GPU was retired: it needs a reset"),
    (158, "fatal timeout", Device, "the GPU did not answer in time: it needs a reset"),
    (171, "uncorrectable DRAM", Notice, "memory failed; the recovery action says what is needed"),
    (172, "uncorrectable SRAM", Notice, "a cache failed; the recovery action says what is needed"),
];

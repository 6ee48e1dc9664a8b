//! Faults of a process. None of them is undefined behaviour to the compiler: the instructions are written
//! in assembly, and the kernel answers each with a signal.

#![expect(unsafe_code, reason = "instructions that fault, which no safe code has")]

use std::arch::asm;
use std::hint;

use gridpool_protocol::chaos::HostFault;
use nix::sys::signal::{Signal, raise};

use crate::fault::end_process;

/// The exit code of [`HostFault::Exit`]: not one of [`gridpool_protocol::exit::worker`].
const MEANINGLESS: i32 = 1;
/// Below the lowest address that Linux lets a process map (`vm.mmap_min_addr`, 65,536).
const UNMAPPED: usize = 4_096;

/// Causes the fault. It returns only in a process that was stopped and continued.
pub(super) fn inject(fault: HostFault) {
    match fault {
        HostFault::Abort => std::process::abort(),
        HostFault::Exit => end_process(MEANINGLESS),
        HostFault::Segv => store_out_of_bounds(),
        HostFault::Stop => {
            if let Err(errno) = raise(Signal::SIGSTOP) {
                tracing::error!(%errno, "this process cannot stop itself");
            }
        }
    }
}

/// A store where nothing is mapped: SIGSEGV.
pub(crate) fn store_out_of_bounds() -> ! {
    // SAFETY: the page is never mapped, so nothing is written; the process ends here.
    unsafe { asm!("mov byte ptr [{place}], 1", "ud2", place = in(reg) UNMAPPED, options(noreturn)) }
}

/// An instruction that no processor has: SIGILL.
pub(crate) fn run_no_instruction() -> ! {
    // SAFETY: the instruction does nothing but fault; the process ends here.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// A misaligned load while the processor's alignment check is on: SIGBUS.
pub(crate) fn load_misaligned() -> ! {
    let words = [0_u64; 2];
    // SAFETY: the bytes that are read lie within `words`; the process ends at the load, before the
    // flag could matter to anything else.
    unsafe {
        asm!(
            "pushfq",
            "or qword ptr [rsp], 0x40000",
            "popfq",
            "mov {place:e}, dword ptr [{place} + 1]",
            "ud2",
            place = in(reg) words.as_ptr(),
            options(noreturn),
        )
    }
}

/// Computes until it is killed.
pub(crate) fn never_end() -> ! {
    loop {
        hint::spin_loop();
    }
}

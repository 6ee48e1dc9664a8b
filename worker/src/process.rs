//! What a worker does to its process before anything else: it dies with its supervisor, keeps no foreign
//! descriptors, and refuses foreign CUDA libraries.

use std::io;

use gridpool_device::fault::Fault;
use gridpool_ipc::maps;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::unistd::{Pid, getppid};

/// Resets all signals to their default action and unblocks them. A child inherits signals that the
/// supervisor blocks. Rust's handler for stack overflows would swallow the first SIGSEGV or SIGBUS that
/// another process sends.
///
/// # Errors
/// The system's.
pub fn reset_signals() -> nix::Result<()> {
    SigSet::empty().thread_set_mask()?;
    for fatal in [Signal::SIGSEGV, Signal::SIGBUS] {
        #[expect(unsafe_code, reason = "a handler may be any function")]
        // SAFETY: the default action runs no code of ours.
        unsafe {
            signal(fatal, SigHandler::SigDfl)?;
        }
    }
    Ok(())
}

/// Ties the process's life to its supervisor's; `false` if the supervisor is gone already.
///
/// The signal comes when the *thread* that spawned this process ends, which is why the supervisor
/// spawns from one that lives as long as itself.
///
/// # Errors
/// The system's.
pub fn die_with(supervisor: u32) -> nix::Result<bool> {
    // It was started by a descriptor, and its name would be that number.
    prctl::set_name(c"gridpool-worker")?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let parent = i32::try_from(supervisor).ok().map(Pid::from_raw);
    Ok(parent == Some(getppid()))
}

/// Closes every descriptor but the three standard ones on exec.
///
/// # Errors
/// The system's.
pub fn mark_descriptors() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    #[expect(unsafe_code, reason = "close_range has no wrapper in std or nix")]
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed; only a flag of each descriptor is set.
    let set = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) };
    nix::errno::Errno::result(set).map(drop).map_err(Into::into)
}

/// Refuses a process that holds a CUDA library foreign to its role.
///
/// # Errors
/// [`Fault::Contaminated`] with the library's path.
pub fn check_contamination() -> Result<(), Fault> {
    let maps = maps::own().unwrap_or_default();
    match maps::foreign_library(&maps) {
        Some(library) => Err(Fault::Contaminated { library: library.to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_no_foreign_library() {
        assert_eq!(check_contamination(), Ok(()));
    }
}

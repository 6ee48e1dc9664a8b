//! The beacon: a socket to the supervisor that closes within a fraction of a millisecond of this
//! process's death.
//!
//! When a process dies, each of its threads frees first its memory and then its descriptors. Sockets that all
//! threads share close with the last thread. In a worker that has registered gigabytes with the driver that
//! takes a tenth of a second or more. So the first thread has a descriptor table of its own that holds one
//! socket. It only waits for its end: it makes raw system calls, shares no memory that must be freed first,
//! and logs nothing.
//!
//! The supervisor passes the socket as standard output, which a worker does not use otherwise.

#![expect(unsafe_code, reason = "descriptors by number, in a thread that owns none")]

use std::ffi::CStr;
use std::io;
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::SigSet;

/// The beacon's socket in every worker's table when its main begins.
const BEACON: libc::c_int = libc::STDOUT_FILENO;
/// More than a thread without calls needs, and the least that every system accepts.
const STACK_BYTES: usize = 64 << 10;
const NOWHERE: &CStr = c"/dev/null";

/// Starts the beacon, which takes over standard output. Call it before any other thread starts, and when this
/// process is in its sandbox: the thread inherits it.
///
/// # Errors
/// The system's. The process may go on: its death is then noticed when its other sockets close.
pub fn light() -> io::Result<()> {
    let (lit, says) = mpsc::channel();
    let keep = move || {
        let separate = separate();
        let is_separate = separate.is_ok();
        // The starting thread waits for this, so the send succeeds.
        drop(lit.send(separate));
        if is_separate {
            wait_for_the_end();
        }
    };
    thread::Builder::new().name("beacon".into()).stack_size(STACK_BYTES).spawn(keep)?;
    says.recv().map_err(io::Error::other)??;
    let nowhere = {
        // SAFETY: the path ends with a zero.
        let fd = unsafe { libc::open(NOWHERE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        Errno::result(fd)?
    };
    // SAFETY: both are numbers of this thread's table; nothing in this process owns `BEACON`, because
    // standard output has no user.
    let moved = unsafe { libc::dup2(nowhere, BEACON) };
    // SAFETY: it was opened above and nothing else knows it.
    let closed = unsafe { libc::close(nowhere) };
    Errno::result(moved).and_then(|_| Errno::result(closed)).map(drop).map_err(io::Error::from)
}

fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: it touches no memory.
        unsafe { libc::pause() };
    }
}

/// Gives the calling thread a descriptor table of its own that holds only the beacon.
fn separate() -> io::Result<()> {
    SigSet::all().thread_block()?;
    // One call copies the table and closes the copies: it does not touch the other threads, and works in a
    // sandbox that forbids `unshare`.
    close(BEACON as libc::c_uint + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    close(0, BEACON as libc::c_uint - 1, 0)
}

fn close(first: libc::c_uint, last: libc::c_uint, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the table is this thread's own, or becomes so in this very call; what other threads own
    // stays open in theirs.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    Errno::result(closed).map(drop).map_err(io::Error::from)
}

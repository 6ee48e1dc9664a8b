//! Sockets that ipc-channel leaks: one each time that it connects to a worker that has ended.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{AcceptConn, SockType};
use nix::sys::socket::{self, UnixAddr, getpeername, getsockopt};

use crate::mutex::Mutex;

/// Held while ipc-channel makes a socket that is not connected yet.
pub(super) static SOCKETS: Mutex<()> = Mutex::new(());

/// Closes them. The caller holds [`SOCKETS`].
pub(super) fn close() -> io::Result<()> {
    for fd in unconnected()? {
        #[expect(unsafe_code, reason = "ipc-channel has forgotten the descriptor")]
        // SAFETY: nobody owns it. Only ipc-channel makes sockets of this type; it returned an error instead of
        // this one, and it makes no other while the caller holds the lock.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    Ok(())
}

/// The sequenced-packet sockets of this process that neither are connected nor listen.
pub(super) fn unconnected() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/self/fd")?.map_while(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&fd| is_unconnected(fd)).collect())
}

fn is_unconnected(fd: RawFd) -> bool {
    #[expect(unsafe_code, reason = "the number of a descriptor that another thread may close")]
    // SAFETY: it is only asked what it is; a number that is closed meanwhile gives an error.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    getsockopt(&socket, SockType) == Ok(socket::SockType::SeqPacket)
        && getsockopt(&socket, AcceptConn) == Ok(false)
        && getpeername::<UnixAddr>(fd) == Err(Errno::ENOTCONN)
}

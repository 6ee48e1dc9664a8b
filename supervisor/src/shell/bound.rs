//! What the kernel knows of a listening socket and its path does not show: whether it was shut down, and to which file
//! it is bound. Nobody connects for that: such a connection would wait in the socket, and start a pool again.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use nix::sys::stat::fstat;

/// Whether it was shut down: one that listens is never hung up.
pub(super) fn is_shut_down(listener: &impl AsFd) -> io::Result<bool> {
    // It has no name in nix, which then gives no flags at all.
    let read_end = PollFlags::from_bits_retain(libc::POLLRDHUP);
    let mut fds = [PollFd::new(listener.as_fd(), read_end)];
    poll(&mut fds, PollTimeout::ZERO)?;
    let ends = PollFlags::POLLHUP | PollFlags::POLLERR;
    Ok(fds[0].revents().is_none_or(|events| events.intersects(ends)))
}

/// The number of the inode to which a Unix socket is bound, in the 32 bits that the kernel tells. Whatever became of
/// that file, no other has its number as long as the socket is open. The question is one of sock_diag(7).
pub(super) fn inode_of_file(listener: &impl AsFd) -> io::Result<u32> {
    const AF_UNIX: u8 = 1;
    const UDIAG_SHOW_VFS: u32 = 2;
    const ANSWER_BYTES_MAX: usize = 512;
    let raw = (SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag);
    let asked = socket(AddressFamily::Netlink, raw.0, raw.1, raw.2)?;
    let number = u32::try_from(fstat(listener)?.st_ino).map_err(io::Error::other)?;
    let (family, all) = (u32::from_ne_bytes([AF_UNIX, 0, 0, 0]), u32::MAX);
    // A `unix_diag_req`: in any state, with any cookie.
    let question = [family, all, number, UDIAG_SHOW_VFS, all, all].map(u32::to_ne_bytes).concat();
    send(asked.as_raw_fd(), &message(&question), MsgFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    // The kernel has answered once it has taken the question.
    let length = recv(asked.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    inode_in(answer.get(..length).unwrap_or_default())
}

/// A question with the header of netlink(7).
fn message(question: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 16;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST: u16 = 1;
    let length = u32::try_from(HEADER_BYTES + question.len()).unwrap_or(u32::MAX).to_ne_bytes();
    let kind = [SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST].map(u16::to_ne_bytes).concat();
    [&length, kind.as_slice(), &[0; 8], question].concat()
}

/// The inode's number in the kernel's answer.
fn inode_in(answer: &[u8]) -> io::Result<u32> {
    const KIND: usize = 4;
    const ERROR: u16 = 2;
    const BODY: usize = 16;
    /// After a `unix_diag_msg`.
    const ATTRIBUTES: usize = 32;
    const OF_FILE: u16 = 1;
    if short(answer, KIND) == Some(ERROR) {
        let errno = word(answer, BODY).map_or(0, |word| i32::from_ne_bytes(word.to_ne_bytes()));
        return Err(io::Error::from_raw_os_error(-errno));
    }
    let mut rest = answer.get(ATTRIBUTES..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (short(rest, 0), short(rest, 2)) {
        if let (OF_FILE, Some(inode)) = (kind, word(rest, 4)) {
            return Ok(inode);
        }
        let length = usize::from(length.max(4)).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Err(io::Error::other("the kernel names no file"))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use nix::sys::socket::{Shutdown, shutdown};

    use super::*;

    #[test]
    fn a_socket_is_dead_once_it_was_shut_down_and_not_because_somebody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _waits = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        for listener in [OwnedFd::from(tcp), unix.into()] {
            assert!(!is_shut_down(&listener).unwrap());
            shutdown(listener.as_raw_fd(), Shutdown::Read).unwrap();
            assert!(is_shut_down(&listener).unwrap());
        }
    }

    #[test]
    fn the_kernel_tells_the_file_of_a_socket_that_another_has_replaced_and_none_of_an_abstract_one()
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let inode = || fs::metadata(&path).unwrap().ino() & u64::from(u32::MAX);
        let first = UnixListener::bind(&path).unwrap();
        let (own, of_first) = (inode(), || u64::from(inode_of_file(&first).unwrap()));
        assert_eq!(of_first(), own);
        fs::remove_file(&path).unwrap();
        let second = UnixListener::bind(&path).unwrap();
        assert_eq!(of_first(), own);
        assert_eq!(u64::from(inode_of_file(&second).unwrap()), inode());
        assert_ne!(of_first(), inode());
        let name = format!("gridpool-bound-{}", std::process::id());
        let nowhere = SocketAddr::from_abstract_name(name).unwrap();
        assert!(inode_of_file(&UnixListener::bind_addr(&nowhere).unwrap()).is_err());
        assert!(inode_of_file(&TcpListener::bind("127.0.0.1:0").unwrap()).is_err());
    }

    #[test]
    fn an_answer_that_is_cut_or_an_error_names_no_file() {
        let error = [&[0; 4], [2, 0, 0, 0].as_slice(), &[0; 8], &(-2_i32).to_ne_bytes()].concat();
        assert_eq!(inode_in(&error).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let whole =
            [&[0; 32], [8, 0, 9, 0, 7, 7, 7, 7].as_slice(), &[12, 0, 1, 0, 5, 0, 0, 0]].concat();
        assert_eq!(inode_in(&whole).unwrap(), 5);
        for length in 0..whole.len() {
            assert!(inode_in(&whole[..length]).is_err(), "{length}");
        }
    }
}

//! Whether a frame can be sent without waiting for the peer.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether three quarters of the socket's buffer are free. An error is one of the next send.
#[must_use]
pub fn has_room(socket: &UnixStream) -> bool {
    let mut asked = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut asked, PollTimeout::ZERO).is_err() || asked[0].any() != Some(false)
}

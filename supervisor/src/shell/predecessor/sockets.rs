//! The sockets of the pool before this one, whose descriptors have come over the link.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use gridpool_protocol::handover::{Passed, Protocol};

use super::super::claim::{Claim, FileId, Inherited, SocketName};
use super::super::gateway::{Front, FrontSocket};
use super::super::given;
use super::TakeOverError;
use crate::config::{HttpAddress, HttpOptions};

/// Where a protocol is served, the file of a Unix socket, and the socket.
type ServedSocket = (String, Option<FileId>, OwnedFd);

/// The descriptors that have come.
#[derive(Default)]
pub(super) struct Sockets {
    socket: Option<((FileId, bool), OwnedFd)>,
    lock: Option<OwnedFd>,
    served: Vec<(Protocol, ServedSocket)>,
    locks: Vec<(Protocol, OwnedFd)>,
}

impl Sockets {
    pub(super) fn keep(&mut self, what: Passed, fd: OwnedFd) {
        match what {
            Passed::Socket { id, is_kept } => self.socket = Some(((id, is_kept), fd)),
            Passed::Lock => self.lock = Some(fd),
            Passed::Served { protocol, address, id } => {
                self.served.push((protocol, (address, id, fd)));
            }
            Passed::ServedLock(protocol) => self.locks.push((protocol, fd)),
        }
    }

    pub(super) fn claim(&mut self, path: &Path) -> Result<Claim, TakeOverError> {
        let (Some(((id, is_kept), listener)), Some(lock)) = (self.socket.take(), self.lock.take())
        else {
            return Err(TakeOverError::GivenUp("it sent no socket".to_owned()));
        };
        let name = SocketName::inherit(path, Inherited { id, is_kept, lock })?;
        let listener = UnixListener::from(listener);
        given::listen_anew(&listener).map_err(TakeOverError::Link)?;
        Ok(Claim { listener, name })
    }

    pub(super) fn front(
        &mut self,
        places: &[(Protocol, &HttpAddress)],
        options: &HttpOptions,
    ) -> Result<Option<Front>, TakeOverError> {
        if places.is_empty() {
            return Ok(None);
        }
        let sockets = places.iter().map(|&(protocol, asked)| self.front_socket(protocol, asked));
        let sockets = sockets.collect::<Result<_, _>>()?;
        Ok(Some(Front::inherit(sockets, options)?))
    }

    fn front_socket(
        &mut self,
        protocol: Protocol,
        asked: &HttpAddress,
    ) -> Result<FrontSocket, TakeOverError> {
        let none = || TakeOverError::GivenUp(format!("it sent no socket of {}", protocol.name()));
        let (address, id, listener) = taken(&mut self.served, protocol).ok_or_else(none)?;
        let name = match (asked, id, taken(&mut self.locks, protocol)) {
            (HttpAddress::Unix(path), Some(id), Some(lock)) => {
                Some(SocketName::inherit(path, Inherited { id, is_kept: false, lock })?)
            }
            (HttpAddress::Unix(_) | HttpAddress::Tcp(_), _, _) => None,
        };
        let address = HttpAddress::parse(&address).map_err(TakeOverError::GivenUp)?;
        Ok(FrontSocket { protocol, listener, asked: asked.clone(), address, name })
    }
}

/// Takes what came for a protocol.
fn taken<T>(came: &mut Vec<(Protocol, T)>, protocol: Protocol) -> Option<T> {
    let at = came.iter().position(|(of, _)| *of == protocol)?;
    Some(came.swap_remove(at).1)
}

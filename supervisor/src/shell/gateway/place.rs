//! A socket at which the gateway serves a protocol. The supervisor holds it, whichever process accepts from it.

use std::io;
use std::os::fd::OwnedFd;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::handover::{Passed, Protocol};

use super::HttpError;
use super::listening::{listen_at, restored};
use super::name::{self, Name};
use crate::config::{HttpAddress, HttpOptions};
use crate::refusals::Seldom;
use crate::shell::claim::{self, SocketName};
use crate::shell::process::lock_folders;

/// A socket that the gateway does not accept from yet.
#[derive(Debug)]
pub(in crate::shell) struct FrontSocket {
    pub(in crate::shell) protocol: Protocol,
    pub(in crate::shell) listener: OwnedFd,
    /// As the settings name it.
    pub(in crate::shell) asked: HttpAddress,
    pub(in crate::shell) address: HttpAddress,
    /// The Unix socket's name, which is removed with this.
    pub(in crate::shell) name: Option<SocketName>,
}

impl FrontSocket {
    /// Opens it. Connections wait until a gateway accepts them.
    pub(super) fn open(
        protocol: Protocol,
        asked: &HttpAddress,
        options: &HttpOptions,
    ) -> Result<Self, HttpError> {
        let (listener, address, name) = match asked {
            HttpAddress::Tcp(at) => {
                let failed =
                    |source| HttpError::Address { protocol, address: asked.clone(), source };
                let listener = listen_at(*at).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                (OwnedFd::from(listener), HttpAddress::Tcp(bound), None)
            }
            HttpAddress::Unix(path) => {
                let group = options.group.as_deref();
                let claim = name::claim(claim::claim, (protocol, path), group)?;
                (OwnedFd::from(claim.listener), asked.clone(), Some(claim.name))
            }
        };
        Ok(Self { protocol, listener, asked: asked.clone(), address, name })
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) protocol: Protocol,
    /// As the settings name it.
    asked: HttpAddress,
    pub(super) address: HttpAddress,
    /// Locked before the listener.
    name: Mutex<Name>,
    /// Until a successor serves.
    listener: Mutex<Option<OwnedFd>>,
    /// That the socket cannot be had again.
    warned: Seldom,
}

impl Place {
    pub(super) fn new(socket: FrontSocket) -> Self {
        let FrontSocket { protocol, listener, asked, address, name } = socket;
        let (name, listener) = (Mutex::new(Name::new(name)), Mutex::new(Some(listener)));
        Self { protocol, asked, address, name, listener, warned: Seldom::default() }
    }

    /// The protocol, and the address as the settings name it.
    pub(super) fn asked(&self) -> (Protocol, String) {
        (self.protocol, self.asked.to_string())
    }

    /// What a successor needs to serve it, each with its descriptor.
    pub(super) fn pass(&self) -> io::Result<Vec<(Passed, OwnedFd)>> {
        let (protocol, address) = (self.protocol, self.address.to_string());
        let mut name = self.name.lock();
        if matches!(*name, Name::Lost(_)) {
            let why = format!("the name of the socket of {} is lost", protocol.name());
            return Err(io::Error::other(why));
        }
        let name = name.held().map(|name| name.pass()).transpose()?;
        let id = name.as_ref().map(|name| name.id);
        let socket = (Passed::Served { protocol, address, id }, self.copy()?);
        let lock = name.map(|name| (Passed::ServedLock(protocol), name.lock));
        Ok([socket].into_iter().chain(lock).collect())
    }

    /// The listening socket once more.
    pub(super) fn copy(&self) -> io::Result<OwnedFd> {
        let none = || io::Error::other("a successor has the socket");
        self.listener.lock().as_ref().ok_or_else(none)?.try_clone()
    }

    /// Removes the Unix socket, unless a successor has it.
    pub(super) fn close(&self) {
        self.name.lock().take();
    }

    /// The Unix socket is this pool's alone.
    pub(super) fn own(&self) {
        self.name.lock().held().into_iter().for_each(SocketName::own);
    }

    /// The successor serves the socket.
    pub(super) fn give_up(&self) {
        self.listener.lock().take();
    }

    /// Leaves the Unix socket to the successor.
    pub(super) fn leave(&self) {
        self.name.lock().take().into_iter().for_each(SocketName::leave);
    }

    /// Serves a new socket if the old one was shut down, or the name of the Unix socket was lost. Returns whether it
    /// does, so that the gateway must begin anew.
    pub(super) fn look(&self, group: Option<&str>) -> bool {
        // A process that clears its folder away at its end must not find it made again.
        let _folders = lock_folders();
        let (mut name, mut serves) = (self.name.lock(), self.listener.lock());
        let Some(listener) = serves.as_ref() else { return false };
        let (protocol, place) = (self.protocol.name(), (self.protocol, &self.address));
        match restored(listener, (place, &mut name), group) {
            Ok(None) => false,
            Ok(Some((listener, lost))) => {
                *serves = Some(listener);
                tracing::warn!("{protocol}: the socket was {}, and is served again", lost.what());
                true
            }
            Err((lost, error)) => {
                if self.warned.is_due() {
                    let (error, lost) = (Chain(&error), lost.what());
                    tracing::error!(
                        %error,
                        "{protocol}: the socket was {lost}, and cannot be served again yet"
                    );
                }
                false
            }
        }
    }
}

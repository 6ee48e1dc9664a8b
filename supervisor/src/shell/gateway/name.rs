//! The name of a Unix socket of HTTP or gRPC. If it is lost, a new socket gets it.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use gridpool_protocol::handover::Protocol;

use super::HttpError;
use crate::shell::claim::{self, Claim, ListenError, SocketName};

/// See the module's text.
#[derive(Debug)]
pub(super) enum Name {
    Held(SocketName),
    /// It was lost, and another socket cannot have it yet.
    Lost(PathBuf),
    /// There is none: the protocol is served over TCP, the pool has ended, or a successor has it.
    None,
}

impl Name {
    pub(super) fn new(held: Option<SocketName>) -> Self {
        held.map_or(Self::None, Self::Held)
    }

    pub(super) fn held(&mut self) -> Option<&mut SocketName> {
        match self {
            Self::Held(name) => Some(name),
            Self::Lost(_) | Self::None => None,
        }
    }

    /// Gives it up.
    pub(super) fn take(&mut self) -> Option<SocketName> {
        match std::mem::replace(self, Self::None) {
            Self::Held(name) => Some(name),
            Self::Lost(_) | Self::None => None,
        }
    }

    /// A new socket if the name was lost, or is given up because its socket `is_dead`.
    pub(super) fn restore(
        &mut self,
        is_dead: bool,
        protocol: Protocol,
        group: Option<&str>,
    ) -> Result<Option<UnixListener>, HttpError> {
        if let Self::Held(name) = self
            && (is_dead || !name.is_there())
        {
            // This unlocks it, and removes it if it is ours still.
            *self = Self::Lost(name.path.clone());
        }
        let Self::Lost(path) = self else { return Ok(None) };
        let Claim { listener, name } = claim(claim::claim_again, (protocol, path), group)?;
        *self = Self::Held(name);
        Ok(Some(listener))
    }
}

/// Opens the socket for our user, or for a group.
pub(super) fn claim(
    claim: fn(&Path) -> Result<Claim, ListenError>,
    (protocol, path): (Protocol, &Path),
    group: Option<&str>,
) -> Result<Claim, HttpError> {
    let claim = claim(path).map_err(|error| HttpError::Socket(protocol, error))?;
    if let Some(group) = group {
        let admitted = claim.name.admit_group(group);
        admitted.map_err(|why| HttpError::Group { protocol, group: group.to_owned(), why })?;
    }
    Ok(claim)
}

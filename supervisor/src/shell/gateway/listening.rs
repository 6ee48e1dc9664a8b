//! Whether a socket of HTTP or gRPC still listens, and another socket in its place. Every process that holds a socket
//! can shut it down for all of them, and the gateway reads what strangers send. A filter of system calls cannot forbid
//! it: connections are shut down too, and `connect` to no address does the same.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use gridpool_protocol::handover::Protocol;

use super::HttpError;
use super::name::Name;
use crate::config::HttpAddress;
use crate::shell::bound::is_shut_down;
use crate::shell::given::listen_anew;

/// Why a new socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Its name was removed.
    Name,
    /// It was shut down.
    Socket,
}

impl Lost {
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Name => "removed",
            Self::Socket => "shut down",
        }
    }
}

/// Listens with the longest queue that the system allows. A client fills one of 128, which is usual, with a burst;
/// another then waits the second after which TCP tries again.
pub(super) fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listen_anew(&listener)?;
    Ok(listener)
}

/// A new socket if `listener` is of no use any more, and why. The error says also why it is not.
pub(super) fn restored(
    listener: &OwnedFd,
    ((protocol, address), name): ((Protocol, &HttpAddress), &mut Name),
    group: Option<&str>,
) -> Result<Option<(OwnedFd, Lost)>, (Lost, HttpError)> {
    let is_dead = is_shut_down(listener).unwrap_or_else(|error| {
        tracing::debug!(%error, "a socket of HTTP or gRPC cannot be looked at");
        false
    });
    let lost = if is_dead { Lost::Socket } else { Lost::Name };
    let failed = |error| (lost, error);
    match address {
        HttpAddress::Tcp(at) if is_dead => {
            let refused =
                |source| HttpError::Address { protocol, address: address.clone(), source };
            let listener = listen_at(*at).map_err(|error| failed(refused(error)))?;
            Ok(Some((listener.into(), lost)))
        }
        HttpAddress::Tcp(_) => Ok(None),
        HttpAddress::Unix(_) => {
            let listener = name.restore(is_dead, protocol, group).map_err(failed)?;
            Ok(listener.map(|listener| (listener.into(), lost)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    use nix::sys::socket::{Shutdown, shutdown};

    use super::*;

    #[test]
    fn a_burst_of_connections_has_room_before_any_is_accepted() {
        const RETRY_OF_TCP: std::time::Duration = std::time::Duration::from_secs(1);
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = most.trim().parse().map_or(300, |most: usize| most.min(300));
        let listener = listen_at("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        let connect = |_| std::net::TcpStream::connect_timeout(&at, RETRY_OF_TCP / 2).unwrap();
        assert_eq!((0..burst).map(connect).collect::<Vec<_>>().len(), burst);
    }

    #[test]
    fn a_socket_is_made_again_once_it_was_shut_down_and_not_because_somebody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(folder.path().join("s")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        let _waits = std::net::TcpStream::connect(at).unwrap();
        for (listener, address) in [
            (OwnedFd::from(tcp), HttpAddress::Tcp(at)),
            (unix.into(), HttpAddress::Unix(folder.path().join("s"))),
        ] {
            let place = (Protocol::Http, &address);
            let restored = || restored(&listener, (place, &mut Name::None), None);
            assert!(restored().unwrap().is_none());
            shutdown(listener.as_raw_fd(), Shutdown::Read).unwrap();
            let again = restored().unwrap();
            let is_tcp = matches!(address, HttpAddress::Tcp(_));
            assert_eq!(again.map(|(_, lost)| lost), is_tcp.then_some(Lost::Socket));
        }
    }
}

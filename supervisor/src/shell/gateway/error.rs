//! Why HTTP cannot be served, in words that say what to type instead.

use std::fmt;
use std::io;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::handover::Protocol;

use super::files::FileError;
use crate::config::HttpAddress;
use crate::shell::claim::ListenError;

/// Why HTTP or gRPC cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The system does not let us listen there.
    #[error(
        "{} cannot be served at {address}: name an address of this machine and a free port with {}, for instance \
         127.0.0.1:{}, or port 0 for any",
        protocol.name(),
        flag(*protocol),
        usual_port(*protocol)
    )]
    Address {
        /// What was to be served.
        protocol: Protocol,
        /// The address.
        address: HttpAddress,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("{} cannot be served: {}", .0.name(), OfFlag(*.0, .1))]
    Socket(Protocol, ListenError),
    /// The members of the group cannot be let in.
    #[error("{} cannot be served to the group `{group}`: {why}", protocol.name())]
    Group {
        /// What was to be served.
        protocol: Protocol,
        /// The group.
        group: String,
        /// Why.
        why: String,
    },
    /// A file of tokens, certificates or a key cannot be used.
    #[error("HTTP cannot be served: {flag}")]
    File {
        /// The flag that names it.
        flag: &'static str,
        /// Why.
        #[source]
        source: FileError,
    },
    /// Anyone could use the pool.
    #[error(
        "everyone who reaches {address} could run jobs: make a token with `gridpool token new NAME`, put its line \
         into a file with the mode 600, and name the file with --http-tokens; or serve only this machine with \
         {} 127.0.0.1:{}. --insecure serves everyone",
        flag(*protocol),
        usual_port(*protocol)
    )]
    Open {
        /// What was to be served.
        protocol: Protocol,
        /// The address.
        address: HttpAddress,
    },
}

/// The flag that names the address.
fn flag(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "--http",
        Protocol::Grpc => "--grpc",
    }
}

/// The port that Triton has for it.
fn usual_port(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Http => 8_000,
        Protocol::Grpc => 8_001,
    }
}

/// An error about a Unix socket, for the flag of a protocol.
struct OfFlag<'a>(Protocol, &'a ListenError);

impl fmt::Display for OfFlag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Chain(self.1).to_string();
        f.write_str(&said.replace("with --socket", &format!("with {} unix:PATH", flag(self.0))))
    }
}

impl HttpError {
    /// Whether another process listens there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Address { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Socket(_, error) => {
                matches!(error, ListenError::Taken(_) | ListenError::Served(_))
            }
            Self::File { .. } | Self::Group { .. } | Self::Open { .. } => false,
        }
    }
}

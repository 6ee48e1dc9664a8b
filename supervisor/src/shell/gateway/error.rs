//! Why HTTP cannot be served, in words that say what to type instead.

use std::fmt;
use std::io;

use gridpool_protocol::chain::Chain;

use super::files::FileError;
use crate::config::HttpAddress;
use crate::shell::claim::ListenError;

/// Why HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The system does not let us listen there.
    #[error(
        "HTTP cannot be served at {address}: name an address of this machine and a free port with --http, \
         for instance 127.0.0.1:8000, or port 0 for any"
    )]
    Address {
        /// The address.
        address: HttpAddress,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("HTTP cannot be served: {}", OfHttp(.0))]
    Socket(ListenError),
    /// The members of the group cannot be let in.
    #[error("HTTP cannot be served to the group `{group}`: {why}")]
    Group {
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
        "everyone who reaches {0} could run jobs: make a token with `gridpool token new NAME`, put its line \
         into a file with the mode 600, and name the file with --http-tokens; or serve only this machine with \
         --http 127.0.0.1:8000. --insecure serves everyone"
    )]
    Open(HttpAddress),
}

/// An error about a Unix socket, for the flag of HTTP.
struct OfHttp<'a>(&'a ListenError);

impl fmt::Display for OfHttp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Chain(self.0).to_string();
        f.write_str(&said.replace("with --socket", "with --http unix:PATH"))
    }
}

impl HttpError {
    /// Whether another process listens there.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Address { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Socket(error) => {
                matches!(error, ListenError::Taken(_) | ListenError::Served(_))
            }
            Self::File { .. } | Self::Group { .. } | Self::Open(_) => false,
        }
    }
}

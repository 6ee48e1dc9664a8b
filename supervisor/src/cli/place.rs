//! Where commands find a pool: flags and variables of a socket on this host, and of a cluster's servers.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use gridpool_nats::NatsOptions;

use super::flags::{FromMatches, PoolFlags, Read, SocketFlag};
use crate::config::NatsKeys;

/// A cluster: pools of several hosts that take jobs from NATS JetStream.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct NatsFlags {
    /// The NATS servers of a cluster, such as nats://a,b,c: jobs come from its streams, or go there.
    #[arg(long, value_name = "SERVERS", env = "GRIDPOOL_NATS")]
    pub(super) nats: Option<String>,
    /// What the names of the cluster's streams begin with; the default is gridpool.
    #[arg(long, value_name = "PREFIX", env = "GRIDPOOL_NATS_PREFIX")]
    pub(super) nats_prefix: Option<String>,
    /// A credentials file for the NATS servers.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_NATS_CREDENTIALS")]
    pub(super) nats_credentials: Option<PathBuf>,
    /// A PEM file with the authorities of the NATS servers' certificates, instead of the system's.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_NATS_CA")]
    pub(super) nats_ca: Option<PathBuf>,
    /// A PEM file with the certificate that this program shows to NATS servers which want one.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_NATS_CERT")]
    pub(super) nats_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    #[arg(long, value_name = "FILE", env = "GRIDPOOL_NATS_KEY")]
    pub(super) nats_key: Option<PathBuf>,
}

impl NatsFlags {
    pub(super) fn keys(&self) -> NatsKeys {
        NatsKeys {
            servers: self.nats.clone(),
            prefix: self.nats_prefix.clone(),
            credentials: self.nats_credentials.clone(),
            ca: self.nats_ca.clone(),
            cert: self.nats_cert.clone(),
            key: self.nats_key.clone(),
            ..NatsKeys::default()
        }
    }
}

/// Where a command with a job, or `top`, finds its pool: on this host or in a cluster. A flag wins over the variable of
/// the other.
#[derive(Debug, Args)]
pub(super) struct PlaceFlags {
    // First: a struct that reads a flag removes it.
    #[command(flatten)]
    given: Read<PlaceGiven>,
    #[command(flatten)]
    socket: SocketFlag,
    #[command(flatten)]
    nats: NatsFlags,
}

impl PlaceFlags {
    /// The servers of the cluster; `None` if a pool is meant.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn cluster(&self) -> Result<Option<NatsOptions>, String> {
        if self.given.0.socket { Ok(None) } else { self.nats.keys().options() }
    }

    /// The socket, if one is named.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.socket.socket.clone()
    }
}

/// The flags of a cluster.
const OF_CLUSTER: [(&str, &str); 6] = [
    ("nats", "--nats <SERVERS>"),
    ("nats_prefix", "--nats-prefix <PREFIX>"),
    ("nats_credentials", "--nats-credentials <FILE>"),
    ("nats_ca", "--nats-ca <FILE>"),
    ("nats_cert", "--nats-cert <FILE>"),
    ("nats_key", "--nats-key <FILE>"),
];

/// Flags of a pool of the command's own that name the reference too, which checks verdicts of any pool.
const OF_ALL_PLACES: [&str; 2] = ["config", "worker_bin"];

/// The flag of a pool on this host.
const OF_SOCKET: (&str, &str) = ("socket", "--socket <SOCKET>");

/// Whether flags describe a pool of the command's own: then a variable names no other. They do not go with flags that
/// name another.
#[derive(Debug)]
pub(super) struct OwnGiven(pub(super) bool);

impl FromMatches for OwnGiven {
    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let command = PoolFlags::augment_args(clap::Command::new("pool"));
        let is_own = |id: &str| is_flag(id) && !OF_ALL_PLACES.contains(&id);
        let own = command.get_arguments().find(|arg| is_own(arg.get_id().as_str()));
        let place = OF_CLUSTER.iter().chain([&OF_SOCKET]).find(|(id, _)| is_flag(id));
        if let (Some(own), Some((_, place))) = (own.and_then(clap::Arg::get_long), place) {
            let text = format!(
                "the argument '--{own}' cannot be used with '{place}': it is for a pool of this command's own, and the \
                 other names one that runs; leave one of them out"
            );
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
        }
        Ok(Self(own.is_some()))
    }
}

/// Whether a socket is named by a flag.
#[derive(Debug)]
struct PlaceGiven {
    socket: bool,
}

impl FromMatches for PlaceGiven {
    fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let socket = is_flag("socket");
        // Not `conflicts_with`: a variable does not conflict with a flag.
        if let Some((_, flag)) = OF_CLUSTER.iter().find(|(id, _)| socket && is_flag(id)) {
            let text = format!("the argument '{}' cannot be used with '{flag}'", OF_SOCKET.1);
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
        }
        Ok(Self { socket })
    }
}

//! Pools of several hosts: jobs and results in NATS JetStream. Owns what travels there: subjects, streams, messages,
//! and the pieces of large batches; and the sender, which answers a client as a pool would.
//!
//! A pool stays a pool of one host. On its host, the bridge (`supervisor/bridge`) takes jobs from the stream, runs
//! them as an ordinary client of the pool, and publishes their results. A client speaks with a [`Sender`] in its own
//! process, over the protocol of the pool's socket, so all clients work as they are. Neither knows the other.
//!
//! The promise is in `docs/src/guide/cluster.md`.

mod bucket;
mod cluster;
mod connect;
mod data;
mod error;
mod hosts;
mod lanes;
mod message;
mod message_id;
mod options;
mod past;
mod poison;
mod publish;
mod refusals;
mod results;
mod runs;
#[cfg(test)]
mod scripted;
mod sender;
mod streams;
mod subjects;

/// Between two tries to reach a server, of hosts and of clients.
pub const RETRY_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

pub use cluster::{Cluster, ClusterStatus};
pub use connect::{Connection, connect};
pub use data::Store;
pub use error::NatsError;
pub use hosts::{DeviceRow, HOST_AGE, HOST_EVERY, HostCounts, HostRow, Hosts};
pub use lanes::LaneRow;
pub use message::{Carried, JobMessage, Outcome, VERSION, decode, encode};
pub use message_id::Identity;
pub use options::{NatsOptions, ParseServersError, StreamLimits};
pub use past::LOOKED_AT_MAX;
pub use poison::{Conviction, Poison};
pub use publish::{Full, Published};
pub use results::{Found, Results};
pub use runs::{Left, Runs};
pub use sender::{Patience, Sender};
pub use streams::{Generation, Streams};
pub use subjects::{Lane, Subjects};

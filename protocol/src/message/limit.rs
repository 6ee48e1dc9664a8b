//! Limits that a submission can reach.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which limit a BUSY reply is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Memory of all arenas, or of this client's.
    Arenas,
    /// Jobs of this connection.
    ClientJobs,
    /// Connections that may submit; this one may only ask.
    Connections,
    /// Workers that this principal's jobs have cost.
    Kills {
        /// Seconds until one is given back, rounded up.
        back_s: u32,
    },
    /// Memory of all arenas of this user.
    PrincipalArenas,
    /// Inline bytes of this principal's jobs.
    PrincipalBytes,
    /// Waiting jobs of this principal.
    PrincipalJobs,
    /// The quota of bytes of this principal's jobs.
    QuotaBytes {
        /// The quota.
        max: u64,
    },
    /// The quota of device time of this principal's jobs.
    QuotaDeviceTime {
        /// When a job is accepted again, from now, milliseconds.
        again_ms: u64,
    },
    /// The quota of this principal's jobs, waiting or running.
    QuotaJobs {
        /// The quota.
        max: u64,
    },
    /// Inline bytes of all jobs.
    QueueBytes,
    /// Jobs of all clients.
    QueueJobs,
    /// Bytes of large batches in the stream of a cluster.
    StreamDataBytes,
    /// Bytes of jobs in the stream of a cluster.
    StreamJobBytes,
    /// Jobs in the stream of a cluster.
    StreamJobs,
}

impl Limit {
    /// Whether the client's own jobs may have reached it. Taking their answers then helps.
    #[must_use]
    pub fn is_own(self) -> bool {
        match self {
            Self::Arenas
            | Self::ClientJobs
            | Self::PrincipalArenas
            | Self::PrincipalBytes
            | Self::PrincipalJobs
            | Self::QuotaBytes { .. }
            | Self::QuotaJobs { .. } => true,
            Self::Connections
            | Self::Kills { .. }
            | Self::QuotaDeviceTime { .. }
            | Self::QueueBytes
            | Self::QueueJobs
            | Self::StreamDataBytes
            | Self::StreamJobBytes
            | Self::StreamJobs => false,
        }
    }

    /// When to come again, if the pool can tell.
    #[must_use]
    pub fn again_in(self) -> Option<Duration> {
        match self {
            Self::Kills { back_s } => Some(Duration::from_secs(back_s.into())),
            Self::QuotaDeviceTime { again_ms } => Some(Duration::from_millis(again_ms)),
            Self::Arenas
            | Self::ClientJobs
            | Self::Connections
            | Self::PrincipalArenas
            | Self::PrincipalBytes
            | Self::PrincipalJobs
            | Self::QuotaBytes { .. }
            | Self::QuotaJobs { .. }
            | Self::QueueBytes
            | Self::QueueJobs
            | Self::StreamDataBytes
            | Self::StreamJobBytes
            | Self::StreamJobs => None,
        }
    }
}

/// What is full, in words.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arenas => "shared memory is used up",
            Self::ClientJobs => "this client has as many jobs as it may",
            Self::Connections => {
                "the pool has as many connections as it may; this one may only ask"
            }
            Self::Kills { back_s } => {
                return write!(
                    f,
                    "your jobs have cost too many workers; others are accepted again in {back_s} s"
                );
            }
            Self::PrincipalArenas => "your connections have their share of the shared memory",
            Self::PrincipalBytes => "your jobs have their share of the queue's bytes",
            Self::PrincipalJobs => "your jobs have their share of the queue",
            Self::QuotaBytes { max } => {
                return write!(
                    f,
                    "your jobs may have {max} bytes, by your quota: try again when one of them has its verdict, or \
                     submit smaller batches"
                );
            }
            Self::QuotaDeviceTime { again_ms } => {
                let seconds = again_ms.div_ceil(1_000);
                return write!(
                    f,
                    "your quota of device seconds is used up: try again in {seconds} s"
                );
            }
            Self::QuotaJobs { max } => {
                return write!(
                    f,
                    "you may have {max} jobs, by your quota: try again when one of them has its verdict"
                );
            }
            Self::QueueBytes => "the queue holds as many bytes as it may",
            Self::QueueJobs => "the queue is full",
            Self::StreamDataBytes => {
                "the cluster's stream of large batches has as many bytes as it may (data_bytes_max)"
            }
            Self::StreamJobBytes => {
                "the cluster's stream of jobs has as many bytes as it may (jobs_bytes_max)"
            }
            Self::StreamJobs => "the cluster's stream of jobs has as many as it may (jobs_max)",
        })
    }
}

//! What `gridpool status` shows of the process that takes jobs of a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The process that takes jobs of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatsStatus {
    /// The NATS servers.
    pub servers: String,
    /// This host's name in the cluster.
    pub host: String,
    /// Process id; 0 where there is no process.
    pub pid: u32,
    /// Whether it sends heartbeats.
    pub up: bool,
    /// Processes started after the first.
    pub restarts: u32,
    /// The NATS server that answers it; empty if none does.
    pub server: String,
    /// Why it takes no jobs of the cluster; empty if it does.
    pub why_not: String,
    /// Seconds since it began or ceased to take them.
    pub since_s: u64,
    /// What the process has counted, by name: jobs `taken`, `redelivered`, `published`, and so on.
    pub counts: BTreeMap<String, u64>,
}

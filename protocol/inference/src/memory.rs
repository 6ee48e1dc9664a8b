//! Shared memory of a client's machine, in regions that have names.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Names a region: of `SystemSharedMemoryStatus` and `SystemSharedMemoryUnregister`. Without a name all are meant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SharedMemoryRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A region: what `SystemSharedMemoryRegister` makes, and what the status says.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct SharedMemoryRegion {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The name of the memory, as `shm_open` takes it.
    #[prost(string, tag = "2")]
    pub key: String,
    /// Where it begins there.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    /// How long it is.
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}

/// The regions that there are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SharedMemoryStatusResponse {
    /// By name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: BTreeMap<String, SharedMemoryRegion>,
}

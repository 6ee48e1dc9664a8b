//! What the hosts say of themselves: a bucket whose entries expire, so a host that vanished is not listed for long.

use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store, UpdateErrorKind};
use bytes::Bytes;
use gridpool_protocol::message::DeviceModel;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::NatsError;
use crate::bucket::entries;

/// How often a host says how it is.
pub const HOST_EVERY: Duration = Duration::from_secs(2);
/// How long what it said counts.
pub const HOST_AGE: Duration = Duration::from_secs(10);
/// Tries to say so while another pool of the same place does, as in an upgrade.
const SAY_TRIES: usize = 4;

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostRow {
    /// Its name.
    pub host: String,
    /// Where its pool is: the socket, and the machine that has it. A place has one pool at a time, so what says the
    /// same of itself goes on where another has ended; empty if its version does not say it.
    pub place: String,
    /// The machine's name.
    pub machine: String,
    /// The pool's process id there; 0 if its version does not say it.
    pub pid: u32,
    /// gridpool's version there.
    pub version: String,
    /// The version of the protocol.
    pub protocol: u32,
    /// Seconds since its bridge started.
    pub uptime_s: u64,
    /// Whether its pool answers.
    pub pool: bool,
    /// Whether it takes no more jobs.
    pub draining: bool,
    /// Jobs that it may have at a time.
    pub slots: u32,
    /// What its bridge counted.
    pub counts: HostCounts,
    /// Its devices.
    pub devices: Vec<DeviceRow>,
    /// Its models.
    pub models: Vec<DeviceModel>,
}

/// A worker's device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRow {
    /// As `gpu0`.
    pub device: String,
    /// The product's name.
    pub name: String,
    /// Its role: `grid` or `infer`.
    pub role: String,
    /// What its worker is doing.
    pub state: String,
    /// Attempts answered.
    pub jobs_done: u64,
}

/// What a bridge counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCounts {
    /// Jobs that it has now.
    pub running: u64,
    /// Jobs taken from the stream.
    pub taken: u64,
    /// Those that were delivered before, to this host or another.
    pub redelivered: u64,
    /// Results published.
    pub published: u64,
    /// Jobs run here whose result another host had published already.
    pub duplicates: u64,
    /// Jobs whose client had stored a verdict first: DEADLINE, or CANCELLED.
    pub unwanted: u64,
    /// Jobs not run because their result was there.
    pub known: u64,
    /// Jobs given back.
    pub given_back: u64,
    /// Jobs taken whose deadline had passed.
    pub late: u64,
    /// Bytes of batches that were fetched.
    pub fetched_bytes: u64,
    /// Jobs whose batch was here already.
    pub batches_reused: u64,
}

impl HostRow {
    /// Whether another pool says this than the one that says `own`.
    fn is_elsewhere(&self, own: &Self) -> bool {
        !self.place.is_empty() && self.place != own.place
    }

    /// Which pool it is, in words.
    #[must_use]
    pub fn whose(&self) -> String {
        match self.pid {
            0 => format!("the one at {}", self.place),
            pid => format!("process {pid} of the machine `{}`", self.machine),
        }
    }
}

/// The bucket of hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    store: Store,
}

impl Hosts {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Says how this host is, unless a pool elsewhere has said something under its name lately: then returns what that
    /// said.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn say(&self, row: &HostRow) -> Result<Option<HostRow>, NatsError> {
        let failed = "this host cannot be announced";
        let key = key(&row.host);
        let value = Bytes::from(serde_json::to_vec(row).expect("a row has a JSON form"));
        let mut left = SAY_TRIES;
        loop {
            let there = self.store.entry(&key).await.map_err(NatsError::jetstream(failed))?;
            let other = there.as_ref().filter(|entry| entry.operation == Operation::Put);
            let other = other.and_then(|entry| read(&entry.value).ok());
            if let Some(other) = other.filter(|other| other.is_elsewhere(row)) {
                return Ok(Some(other));
            }
            // Of two that see no other, the servers take one.
            let after = there.map_or(0, |entry| entry.revision);
            let Err(error) = self.store.update(&key, value.clone(), after).await else {
                return Ok(None);
            };
            left -= 1;
            if error.kind() != UpdateErrorKind::WrongLastRevision || left == 0 {
                return Err(NatsError::jetstream(failed)(error));
            }
        }
    }

    /// Takes this host off the list, as it has ended: what it has said, unless another pool has said something since.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn leave(&self, own: &HostRow) -> Result<(), NatsError> {
        let failed = "this host cannot be taken off the list";
        let key = key(&own.host);
        let there = self.store.entry(&key).await.map_err(NatsError::jetstream(failed))?;
        let is_own = |last: HostRow| (last.place, last.pid) == (own.place.clone(), own.pid);
        let there = there.filter(|entry| entry.operation == Operation::Put);
        let Some(last) = there.filter(|entry| read(&entry.value).is_ok_and(is_own)) else {
            return Ok(());
        };
        let removed = self.store.delete_expect_revision(&key, Some(last.revision)).await;
        removed.map_err(NatsError::jetstream(failed))
    }

    /// The hosts that said something lately, by name.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn list(&self) -> Result<Vec<HostRow>, NatsError> {
        let mut rows = Vec::new();
        for (key, value) in entries(&self.store, "").await? {
            rows.push(read(&value).unwrap_or_else(|error| {
                tracing::debug!(%error, key, "a host of another version");
                HostRow { host: key, ..HostRow::default() }
            }));
        }
        rows.sort_by(|one, other| one.host.cmp(&other.host));
        Ok(rows)
    }
}

/// What a host said of itself, perhaps one of another version: what is not there has its default, and what only that
/// version can say of its models and devices is left out.
fn read(value: &[u8]) -> Result<HostRow, serde_json::Error> {
    let mut row: Value = serde_json::from_slice(value)?;
    let whole = HostRow::deserialize(&row);
    match row.as_object_mut() {
        Some(fields) if whole.is_err() => {
            fields.retain(|name, _| !matches!(name.as_str(), "models" | "devices" | "counts"));
            HostRow::deserialize(row)
        }
        Some(_) | None => whole,
    }
}

/// The host's name as a key of the bucket.
fn key(host: &str) -> String {
    let right = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    host.chars().map(right).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_has_one_pool_and_another_place_another() {
        let at = |place: &str| HostRow { place: place.into(), ..HostRow::default() };
        assert!(at("/a/pool.sock").is_elsewhere(&at("/b/pool.sock")));
        assert!(!at("/a/pool.sock").is_elsewhere(&at("/a/pool.sock")), "it is started again");
        assert!(!at("").is_elsewhere(&at("/a/pool.sock")), "an older version does not say it");
    }

    #[test]
    fn what_hosts_of_other_versions_say_is_read_as_far_as_it_goes() {
        let row = HostRow { host: "a".into(), protocol: 7, pool: true, ..HostRow::default() };
        let said = serde_json::to_value(&row).unwrap();
        let read = |said: &Value| read(said.to_string().as_bytes());
        assert_eq!(read(&said).unwrap(), row);
        // A newer one counts more, and says something new of a model.
        let mut newer = said.clone();
        newer["counts"]["stolen"] = json!(1);
        newer["slots"] = json!(9);
        assert_eq!(read(&newer).unwrap(), HostRow { slots: 9, ..row.clone() });
        newer["models"] = json!([{ "state": "dreaming" }]);
        assert_eq!(read(&newer).unwrap(), HostRow { slots: 9, ..row.clone() });
        // An older one does not have every number.
        let mut older = said;
        older["counts"].as_object_mut().unwrap().remove("late");
        older.as_object_mut().unwrap().remove("slots");
        assert_eq!(read(&older).unwrap(), row);
        assert!(read(&json!("a host")).is_err());
    }
}

//! The lanes as an operator sees them: what waits in each, and whether a host can read it.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::{HostRow, NatsError, Streams};

/// Jobs that the same hosts can run, of one priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    /// As `grid-normal` or `model-NAME-high`; with the protocol, if it is not that of the program which asks.
    pub name: String,
    /// The version of the protocol of its jobs; 0 for jobs whose subject says none.
    pub protocol: u32,
    /// Hosts of that version. If there are none, its jobs wait for one.
    pub hosts: u64,
    /// Jobs that no host has.
    pub waiting: u64,
    /// Jobs that a host has.
    pub running: u64,
    /// Of those, jobs that were delivered before.
    pub redelivered: u64,
    /// Open questions of hosts for jobs.
    pub asking: u64,
}

impl LaneRow {
    /// Jobs that no host can read, as none is of their version.
    #[must_use]
    pub fn unread(&self) -> u64 {
        if self.hosts == 0 { self.waiting + self.running } else { 0 }
    }
}

impl Streams {
    /// The lanes that have jobs or a consumer, with how many of these hosts can read their jobs, by name.
    ///
    /// # Errors
    /// [`NatsError`].
    pub async fn lanes(&self, hosts: &[HostRow]) -> Result<Vec<LaneRow>, NatsError> {
        let failed = "the stream of jobs cannot be looked at";
        let row = |subject: &str| {
            let (protocol, name) = self.subjects.lane_of(subject);
            let name = match protocol == self.subjects.version() {
                true => name,
                false => format!("{name} of protocol {protocol}"),
            };
            let readers = hosts.iter().filter(|host| host.protocol == protocol).count() as u64;
            LaneRow { name, protocol, hosts: readers, ..LaneRow::default() }
        };
        // A lane that no host asks for jobs has no consumer after a while.
        let subjects = self.jobs.info_with_subjects(self.subjects.jobs()).await;
        let subjects = subjects.map_err(NatsError::jetstream(failed))?;
        let mut lanes: BTreeMap<String, LaneRow> = subjects
            .map_ok(|(subject, jobs)| {
                let row = LaneRow { waiting: jobs as u64, ..row(&subject) };
                (subject, row)
            })
            .try_collect()
            .await
            .map_err(NatsError::jetstream(failed))?;
        let consumers = self.jobs.consumers().try_collect::<Vec<_>>().await;
        for consumer in consumers.map_err(NatsError::jetstream(failed))? {
            let subject = consumer.config.filter_subject;
            let counted = LaneRow {
                waiting: consumer.num_pending,
                running: u64::try_from(consumer.num_ack_pending).unwrap_or(0),
                redelivered: u64::try_from(consumer.num_redelivered).unwrap_or(0),
                asking: u64::try_from(consumer.num_waiting).unwrap_or(0),
                ..row(&subject)
            };
            lanes.insert(subject, counted);
        }
        let mut lanes: Vec<_> = lanes.into_values().collect();
        lanes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(lanes)
    }
}

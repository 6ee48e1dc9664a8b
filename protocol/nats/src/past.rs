//! Jobs that have ended and are still in the stream: while no host lives, nobody takes them. They make room for others.
//!
//! A job has ended if it has its result, such as the DEADLINE that its client has stored; or if it is past its deadline
//! by the servers' own clock. The clock of this machine does not count: a fast one would remove jobs that are to run.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::DEADLINE_MAX;
use gridpool_protocol::receipt::{Receipt, Verdict};

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::message::StreamMessage;

use crate::{JobMessage, NatsError, Outcome, Streams, decode};

/// Jobs at the front of the stream that are looked at.
const LOOKED_AT_MAX: u64 = 64;
/// Of those, jobs that have not ended after which no others are looked at: the stream is full of work.
const LIVE_MAX: u64 = 8;
/// How far the clocks of two servers may be apart. The book says a second.
const CLOCKS_APART: Duration = Duration::from_secs(2);
/// How long the verdict of one may take to be stored.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(2);
/// Why it is late.
const LATE: &str = "its deadline passed in the stream";

impl Streams {
    /// Removes jobs from the front of the stream that have ended. Those that have no result get the verdict DEADLINE
    /// first. Returns how many were removed.
    ///
    /// # Errors
    /// [`NatsError`].
    pub(crate) async fn remove_past(&self) -> Result<u64, NatsError> {
        let (first, last) = self.span_of_jobs().await?.into_inner();
        let now_ns = self.data.now_ns().await.unwrap_or_else(|error| {
            tracing::debug!(error = Chain(&error).to_string(), "what time the servers have");
            // No job is late then.
            i128::MIN
        });
        let (mut removed, mut live) = (0, 0);
        for number in first..=last.min(first.saturating_add(LOOKED_AT_MAX - 1)) {
            let Some(job) = self.job_at(number).await? else { continue };
            if self.is_past(&job, now_ns).await? {
                removed += u64::from(self.remove_job(number).await?);
                continue;
            }
            live += 1;
            if live == LIVE_MAX {
                break;
            }
        }
        if removed > 0 {
            tracing::info!(removed, "jobs that had ended have made room");
        }
        Ok(removed)
    }

    /// Whether a job has its result by now; a late one gets it here.
    async fn is_past(&self, message: &StreamMessage, now_ns: i128) -> Result<bool, NatsError> {
        let Some(key) = key_of(message) else { return Ok(false) };
        if self.results.are_there(key).await? {
            return Ok(true);
        }
        // Only a host of its version can read the deadline of another version's job.
        let job = decode::<JobMessage>(self.subjects.version(), &message.payload).ok();
        let deadline = job.as_ref().map_or(DEADLINE_MAX, |job| job.terms.deadline());
        if !is_late(message.time.unix_timestamp_nanos(), deadline, now_ns) {
            return Ok(false);
        }
        let (content, items) = match &job {
            Some(job) => (Some(job.content), job.packing.items()),
            None => (None, 0),
        };
        let (verdict, reason) = (Verdict::Deadline, LATE.to_owned());
        let receipt =
            Receipt { key: key.to_string(), verdict, reason, items, ..Receipt::default() };
        let (outcome, until) =
            (Outcome::done(content, receipt, None), clock::now() + VERDICT_TIMEOUT);
        // If there is another by now, that is the job's.
        self.results.publish(key, "client", &outcome, until).await.map(|_| true)
    }
}

/// The key of a job, whatever its version; `None` if it is no job.
pub(crate) fn key_of(message: &StreamMessage) -> Option<JobKey> {
    let id = message.headers.get(NATS_MESSAGE_ID)?;
    u128::from_str_radix(id.as_str(), 16).ok().map(JobKey)
}

/// Whether a job of this deadline is late, which a stream took at that time. All are the servers' times.
fn is_late(taken_ns: i128, deadline: Duration, now_ns: i128) -> bool {
    let given = (deadline + CLOCKS_APART).as_nanos();
    now_ns.saturating_sub(taken_ns) > i128::try_from(given).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_late_after_its_deadline_and_not_while_clocks_may_differ() {
        let s = 1_000_000_000;
        let late = |age: i128| is_late(5 * s, Duration::from_secs(10), 5 * s + age);
        assert!(!late(-s) && !late(10 * s) && !late(12 * s));
        assert!(late(12 * s + 1));
        assert!(!is_late(i128::MAX, Duration::from_secs(1), i128::MIN));
    }
}

//! The client's jobs on their way into the stream. `wait` has them then, until they have a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gridpool_ipc::arena::ArenaMap;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::message::{
    Destination, Inline, Input, Limit, Packing, Refusal, ServerMessage, Submission,
};
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout_at};

use super::Agent;
use super::wait::{Waited, size};
use crate::message::{Carried, JobMessage, Outcome, encode};
use crate::publish::{Full, Published, publish};
use crate::{Found, Lane, NatsError, Store};
use async_nats::jetstream::message::PublishMessage;

/// How long the cluster may take to store a verdict that the client decides: DEADLINE, CANCELLED.
pub(super) const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two tries to tell or ask something while no server answers.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Inputs that may be on their way into the stream, in units of [`ROOM_UNIT`]: 256 MiB. What would be more is BUSY.
const ROOM: u32 = 256 * 1_024;
/// The unit in which they are counted.
const ROOM_UNIT: usize = 1_024;

/// The jobs that wait for results.
#[derive(Debug)]
pub(super) struct Jobs {
    pub(super) waiting: Mutex<BTreeMap<JobKey, Waiting>>,
    /// The subjects of notes that are subscribed.
    pub(super) notes: tokio::sync::Mutex<BTreeSet<String>>,
    /// The digests of batches that are being sent again.
    pub(super) again: Mutex<BTreeSet<[u8; 32]>>,
    /// For inputs on their way.
    room: Arc<Semaphore>,
}

/// How a job that waits hears of its result, and what it needs until then.
#[derive(Debug)]
pub(super) struct Waiting {
    found: oneshot::Sender<Found>,
    /// Its batch, if that lies in the stream of data.
    pub(super) batch: Option<Arc<Batch>>,
}

/// A large batch, which a host may miss.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) digest: [u8; 32],
    pub(super) input: Input,
    pub(super) deadline: Instant,
}

impl Default for Jobs {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(ROOM as usize));
        let notes = tokio::sync::Mutex::default();
        Self { waiting: Mutex::default(), notes, again: Mutex::default(), room }
    }
}

impl Jobs {
    /// Room for an input of that size; `None` if others fill it.
    pub(super) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(ROOM).min(ROOM);
        Arc::clone(&self.room).try_acquire_many_owned(units).ok()
    }

    /// Keeps where the batch of a job that waits is, for a host that misses it.
    fn keep_batch(&self, key: JobKey, batch: impl FnOnce() -> Batch) {
        if let Some(waiting) = self.waiting.lock().get_mut(&key) {
            waiting.batch = Some(Arc::new(batch()));
        }
    }

    /// The client is gone. Its jobs go on: their results wait for whoever asks for their keys.
    pub(super) fn forget_all(&self) {
        self.waiting.lock().clear();
    }

    pub(super) fn found(&self, key: JobKey, found: Found) {
        let waiting = self.waiting.lock().remove(&key);
        if let Some(waiting) = waiting {
            // Who waited has just given up.
            drop(waiting.found.send(found));
        }
    }
}

/// A job on its way.
pub(super) struct Sending {
    pub(super) submission: Submission,
    pub(super) output: Option<Arc<ArenaMap>>,
    pub(super) deadline: Instant,
}

/// What a job is known by.
pub(super) struct Names {
    pub(super) digest: [u8; 32],
    pub(super) content: ContentHash,
}

impl Sending {
    /// The most bytes that its result may have.
    pub(super) fn output_bytes_max(&self) -> u64 {
        let Submission { work, payload, .. } = &self.submission;
        match (payload.output, payload.packing) {
            (Destination::Arena(slice), _) => slice.bytes,
            (
                Destination::Inline,
                Packing::Grids { .. } | Packing::Search(_) | Packing::Tensors,
            ) => work.inline_bytes_max() as u64,
        }
    }
}

impl Agent {
    pub(super) fn submit(self: &Arc<Self>, submission: Submission, runtime: &Handle) {
        let key = submission.key;
        let Some(room) = self.jobs.room(size(&submission.payload.input)) else {
            let refusal = Refusal::Busy(Limit::QueueBytes);
            return self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let arenas = self.arenas.lock();
        let input = arenas.read(&submission.payload.input);
        let output = match submission.payload.output {
            Destination::Inline => Some(None),
            Destination::Arena(slice) => arenas.of(slice).map(Some),
        };
        drop(arenas);
        let (Some(input), Some(output)) = (input, output) else {
            let refusal = Refusal::Invalid("the job lies in memory that is not lent".to_owned());
            return self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let deadline = clock::now() + submission.terms.deadline();
        let sending = Sending { submission, output, deadline };
        let (agent, handle) = (Arc::clone(self), runtime.clone());
        runtime.spawn(async move { agent.run(sending, (input.into(), room), &handle).await });
    }

    /// Cancels a job: the verdict is CANCELLED, unless it has another.
    pub(super) fn cancel(self: &Arc<Self>, key: JobKey, runtime: &Handle) {
        let agent = Arc::clone(self);
        self.aside(runtime, "a cancellation", async move {
            let receipt = own_verdict(key, Verdict::Cancelled, CANCELLED);
            let outcome = Outcome::done(None, receipt, None);
            let until = clock::now() + VERDICT_TIMEOUT;
            let results = &agent.streams.results;
            match results.publish(key, "client", &outcome, until).await {
                Ok(Published::Stored(sequence)) => {
                    agent.jobs.found(key, Found { sequence, outcome });
                }
                Ok(Published::Duplicate(_) | Published::Taken) => {}
                // The host that has the job stores the verdict when it hears of it.
                Err(error) => tracing::debug!(%error, %key, "a cancellation is not stored"),
            }
            agent.tell_cancelled(key).await
        });
    }

    /// Tells the host that has a job.
    async fn tell_cancelled(&self, key: JobKey) -> Result<(), NatsError> {
        let client = &self.streams.connection.client;
        let until = clock::now() + VERDICT_TIMEOUT;
        loop {
            let payload = key.0.to_le_bytes().to_vec().into();
            match client.publish(self.streams.subjects.cancel(), payload).await {
                Ok(()) => return Ok(()),
                Err(error) if clock::until(until).is_zero() => {
                    return Err(NatsError::jetstream("a cancellation")(error));
                }
                Err(error) => tracing::debug!(%error, %key, "telling a cancellation again"),
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Sends a job, waits for its result, and answers the client. The input has its room.
    async fn run(
        self: &Arc<Self>,
        sending: Sending,
        (input, room): (Bytes, OwnedSemaphorePermit),
        runtime: &Handle,
    ) {
        let (key, deadline) = (sending.submission.key, sending.deadline);
        let (tell, found) = oneshot::channel();
        {
            let mut waiting = self.jobs.waiting.lock();
            if waiting.contains_key(&key) {
                let refusal = Refusal::KeyInUse(key);
                return self.outbox.say(&ServerMessage::Refused { key, refusal });
            }
            waiting.insert(key, Waiting { found: tell, batch: None });
        }
        let refuse = |refusal| {
            self.jobs.waiting.lock().remove(&key);
            self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let digest = Store::digest(&input);
        let Submission { work, payload, .. } = &sending.submission;
        let content = match JobMessage::content(work, payload.packing, &digest) {
            Ok(content) => content,
            Err(error) => return refuse(unable(error)),
        };
        let names = Names { digest, content };
        let waited = match timeout_at(deadline.into(), self.send(&sending, &input, &names, 0)).await
        {
            // It may be in the stream all the same; the verdict then ends it there.
            Err(_) => Waited::Late,
            Ok(Err(Refusal::Unable(_))) if clock::until(deadline).is_zero() => Waited::Late,
            Ok(Err(refusal)) => return refuse(refusal),
            Ok(Ok(place)) => {
                drop((input, room));
                if sending.submission.tell_acceptance {
                    self.outbox.say(&ServerMessage::Accepted { key });
                }
                self.wait(&sending, &names, (found, place)).await
            }
        };
        let found = match waited {
            Waited::Found(found) => *found,
            Waited::Late => {
                let why = self.why_late().await;
                self.give_up(key, content, (Verdict::Deadline, &why)).await
            }
            Waited::Lost => self.give_up(key, content, (Verdict::Failed, LOST)).await,
            Waited::Unreadable(error) => return refuse(other_build(key, &error)),
            // The client is gone, and the job goes on.
            Waited::Unwanted => return,
        };
        self.jobs.waiting.lock().remove(&key);
        if !found.outcome.is_of(content) {
            return refuse(other_job(key));
        }
        self.answer(&sending, found, runtime).await;
    }

    /// Puts a job into the stream, and returns its number there. `again` counts how often it was there before.
    pub(super) async fn send(
        self: &Arc<Self>,
        sending: &Sending,
        input: &Bytes,
        names: &Names,
        again: u32,
    ) -> Result<u64, Refusal> {
        let Submission { key, work, payload, terms, .. } = &sending.submission;
        let &Names { digest, content } = names;
        if let Some(why) = self.streams.poison.of(content) {
            let refusal = format!(
                "POISON: a job with this program and batch was convicted on {}: {}; `gridpool cluster release \
                 {content}` allows it again",
                why.host, why.reason
            );
            return Err(Refusal::Invalid(refusal));
        }
        if let Some(why) = self.why_unservable(work, sending.deadline).await.map_err(unable)? {
            return Err(Refusal::Invalid(why));
        }
        let carried = match input.len() {
            bytes if bytes <= self.streams.data.inline_bytes_max() => {
                Carried::Inline(Inline(input.to_vec()))
            }
            bytes => {
                let put = self.streams.data.put(digest, input, sending.deadline).await;
                put.map_err(unable)?;
                self.jobs.keep_batch(*key, || Batch {
                    digest,
                    input: sending.submission.payload.input.clone(),
                    deadline: sending.deadline,
                });
                Carried::Pieces { digest, bytes: bytes as u64 }
            }
        };
        let output_bytes = sending.output_bytes_max();
        let message = JobMessage {
            key: *key,
            work: work.clone(),
            packing: payload.packing,
            input: carried,
            output_bytes,
            terms: *terms,
            trace: sending.submission.trace,
            trace_state: sending.submission.trace_state.clone(),
            content,
        };
        let version = self.streams.subjects.version();
        let payload = Bytes::from(encode(version, &message).map_err(unable)?);
        self.listen(*key).await.map_err(unable)?;
        let subject = self.streams.subjects.job(&Lane::of(work, terms.priority));
        // The servers remember for a while what they have had under an identity, also if they have lost it.
        let id = if again == 0 { key.to_string() } else { format!("{key}.{again}") };
        let message = || PublishMessage::build().payload(payload.clone()).message_id(id.clone());
        let sent = publish(&self.streams.link, &subject, message, Full::JobBytes, sending.deadline);
        let place = match sent.await.map_err(unable)? {
            Published::Stored(place) => return Ok(place),
            // Jobs do not say what they expect to be there.
            Published::Taken => return Ok(0),
            Published::Duplicate(place) => place,
        };
        // It was submitted before, perhaps by another process: its result may be there.
        match self.streams.results.find_surely(*key).await {
            Ok(Some(found)) if !found.outcome.is_of(content) => return Err(other_job(*key)),
            Ok(Some(found)) => self.jobs.found(*key, found),
            Ok(None) => {}
            Err(error @ NatsError::Version { .. }) => return Err(other_build(*key, &error)),
            // It is looked up again.
            Err(error) => tracing::debug!(%error, %key, "looking for an earlier result"),
        }
        Ok(place)
    }
}

/// Why a job was cancelled.
const CANCELLED: &str = "the client cancelled it";
/// What has become of a job that the servers have lost.
const LOST: &str = "the servers have lost it, and it may run only once";

/// A receipt of a job that got its verdict from this client.
pub(super) fn own_verdict(key: JobKey, verdict: Verdict, reason: &str) -> Receipt {
    let reason = reason.to_owned();
    Receipt { key: key.to_string(), verdict, reason, ..Receipt::default() }
}

/// The refusal of a key whose result is of another job.
fn other_job(key: JobKey) -> Refusal {
    Refusal::Invalid(format!("key {key} was used for another job: give each job a key of its own"))
}

/// The refusal of a key under which another build has a job.
fn other_build(key: JobKey, error: &NatsError) -> Refusal {
    Refusal::Invalid(format!("the result of key {key} cannot be read: {error}"))
}

/// The refusal of a job that cannot be put into the stream.
fn unable(error: NatsError) -> Refusal {
    if let NatsError::Full(full) = error {
        return Refusal::Busy(limit(full));
    }
    Refusal::Unable(Chain(&error).to_string())
}

/// The limit as the client knows it.
fn limit(full: Full) -> Limit {
    match full {
        Full::Jobs => Limit::StreamJobs,
        Full::JobBytes => Limit::StreamJobBytes,
        Full::DataBytes | Full::ResultBytes => Limit::StreamDataBytes,
    }
}

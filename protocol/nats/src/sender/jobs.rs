//! The client's jobs: into the stream, and their results back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use gridpool_ipc::arena::ArenaMap;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::message::{
    Destination, Inline, Input, Limit, Packing, Refusal, ServerMessage, Submission,
};
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout, timeout_at};

use super::Agent;
use super::looked::Looked;
use super::put::Put;
use super::refusal::{other_build, other_job, unable};
use crate::message::{Carried, JobMessage, Outcome, decode, encode};
use crate::message_id::Identities;
use crate::publish::Published;
use crate::{Conviction, Found, Lane, NatsError, Store};

/// How long a result may take to arrive by itself before it is looked up.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// So much longer for each job that waits, so that looking up takes a bounded share of the servers' time.
const LOOK_AFTER_EACH: Duration = Duration::from_millis(2);
/// How long the cluster may take to store a verdict that the client decides: DEADLINE, CANCELLED.
pub(super) const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two tries to tell or ask something while no server answers.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long the hosts may take to say of which versions they are, before a job that is late gets its verdict.
const READERS_TIMEOUT: Duration = Duration::from_millis(500);
/// Inputs that may be on their way into the stream, in units of [`ROOM_UNIT`]: 256 MiB. What would be more is BUSY.
const ROOM: u32 = 256 * 1_024;
/// The unit in which they are counted.
const ROOM_UNIT: usize = 1_024;

/// The jobs that wait for results.
#[derive(Debug)]
pub(super) struct Jobs {
    waiting: Arc<Mutex<BTreeMap<JobKey, oneshot::Sender<Found>>>>,
    /// The subjects of notes that are subscribed.
    notes: tokio::sync::Mutex<BTreeSet<String>>,
    /// For inputs on their way.
    room: Arc<Semaphore>,
    identities: Identities,
    pub(super) looked: Looked,
}

impl Default for Jobs {
    fn default() -> Self {
        let room = Arc::new(Semaphore::new(ROOM as usize));
        let notes = tokio::sync::Mutex::default();
        let (identities, looked) = (Identities::default(), Looked::default());
        Self { waiting: Arc::default(), notes, room, identities, looked }
    }
}

impl Jobs {
    /// Room for an input of that size; `None` if others fill it.
    fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT)).unwrap_or(ROOM).min(ROOM);
        Arc::clone(&self.room).try_acquire_many_owned(units).ok()
    }

    /// The client is gone. Its jobs go on: their results wait for whoever asks for their keys.
    pub(super) fn forget_all(&self) {
        self.waiting.lock().clear();
    }

    fn found(&self, key: JobKey, found: Found) {
        if let Some(tell) = self.waiting.lock().remove(&key) {
            // Who waited has just given up.
            drop(tell.send(found));
        }
    }
}

/// A job on its way.
pub(super) struct Sending {
    pub(super) submission: Submission,
    /// Empty once the stream has it.
    input: Bytes,
    pub(super) output: Option<Arc<ArenaMap>>,
    deadline: Instant,
}

/// What a job is known by.
struct Names {
    digest: [u8; 32],
    content: ContentHash,
}

impl Sending {
    /// The most bytes that its result may have.
    pub(super) fn output_bytes_max(&self) -> u64 {
        let payload = &self.submission.payload;
        match (payload.output, payload.packing) {
            (Destination::Arena(slice), _) => slice.bytes,
            (
                Destination::Inline,
                Packing::Grids { .. } | Packing::Search(_) | Packing::Tensors,
            ) => INLINE_BYTES_MAX as u64,
        }
    }
}

/// How waiting for a result ended.
enum Waited {
    Found(Box<Found>),
    /// The deadline has passed.
    Late,
    /// There is one of another build.
    Unreadable(NatsError),
    /// Nobody waits any more.
    Unwanted,
}

impl Agent {
    pub(super) fn submit(self: &Arc<Self>, mut submission: Submission, runtime: &Handle) {
        let key = submission.key;
        let bytes = match &submission.payload.input {
            Input::Inline(bytes) => bytes.0.len(),
            Input::Arena(slice) => usize::try_from(slice.bytes).unwrap_or(usize::MAX),
        };
        let Some(room) = self.jobs.room(bytes) else {
            let refusal = Refusal::Busy(Limit::QueueBytes);
            return self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let arenas = self.arenas.lock();
        let input = std::mem::replace(&mut submission.payload.input, inline(Vec::new()));
        let (input, output) = match submission.payload.output {
            Destination::Inline => (arenas.read(input), Some(None)),
            Destination::Arena(slice) => (arenas.read(input), arenas.of(slice).map(Some)),
        };
        drop(arenas);
        let (Some(input), Some(output)) = (input, output) else {
            let refusal = Refusal::Invalid("the job lies in memory that is not lent".to_owned());
            return self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let deadline = clock::now() + submission.terms.deadline();
        let sending = Sending { submission, input: input.into(), output, deadline };
        let (agent, handle) = (Arc::clone(self), runtime.clone());
        runtime.spawn(async move { agent.run(sending, room, &handle).await });
    }

    /// Cancels a job: the verdict is CANCELLED, unless it has another.
    pub(super) fn cancel(self: &Arc<Self>, key: JobKey, runtime: &Handle) {
        let agent = Arc::clone(self);
        self.aside(runtime, "a cancellation", async move {
            let receipt = own_verdict(key, Verdict::Cancelled, CANCELLED);
            let outcome = Outcome::done(None, receipt, None);
            let until = clock::now() + VERDICT_TIMEOUT;
            let results = &agent.streams.results;
            match results.publish(key, None, &outcome, until).await {
                Ok(Published::Stored(sequence)) => {
                    agent.jobs.found(key, Found { sequence, outcome });
                }
                Ok(Published::Duplicate | Published::Taken) => {}
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

    /// Sends a job, waits for its result, and answers the client. `room` is its input's.
    async fn run(
        self: &Arc<Self>,
        mut sending: Sending,
        room: OwnedSemaphorePermit,
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
            waiting.insert(key, tell);
        }
        let refuse = |refusal| {
            self.jobs.waiting.lock().remove(&key);
            self.outbox.say(&ServerMessage::Refused { key, refusal });
        };
        let digest = Store::digest(&sending.input);
        let Submission { work, payload, .. } = &sending.submission;
        let content = match JobMessage::content(work, payload.packing, &digest) {
            Ok(content) => content,
            Err(error) => return refuse(unable(error)),
        };
        let names = Names { digest, content };
        let waited = match timeout_at(deadline.into(), self.send(&sending, &names)).await {
            // It may be in the stream all the same; the verdict then ends it there.
            Err(_) => Waited::Late,
            Ok(Err(Refusal::Unable(_))) if clock::until(deadline).is_zero() => Waited::Late,
            Ok(Err(refusal)) => return refuse(refusal),
            Ok(Ok(())) => {
                sending.input = Bytes::new();
                drop(room);
                if sending.submission.tell_acceptance {
                    self.outbox.say(&ServerMessage::Accepted { key });
                }
                self.wait(key, found, deadline).await
            }
        };
        self.jobs.identities.forget(key);
        let found = match waited {
            Waited::Found(found) => *found,
            Waited::Late => self.give_up(key, content).await,
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

    /// Puts a job into the stream.
    async fn send(&self, sending: &Sending, names: &Names) -> Result<(), Refusal> {
        let Sending { submission: Submission { key, work, payload, terms, .. }, input, .. } =
            sending;
        let &Names { digest, content } = names;
        if let Some(why) = self.streams.poison.of(content) {
            let refusal = format!(
                "POISON: a job with this program and batch was convicted on {}: {}; {}",
                why.host,
                why.reason,
                Conviction::advice(content)
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
        let put = Put {
            link: &self.streams.link,
            subject: self.streams.subjects.job(&Lane::of(work, terms.priority)),
            payload,
            key: *key,
            idempotent: terms.idempotent,
            deadline: sending.deadline,
        };
        let make_room = async {
            let room = self.jobs.looked.make_room(&self.streams);
            timeout_at(sending.deadline.into(), room).await == Ok(true)
        };
        let has_ended = || async { matches!(self.streams.results.are_there(*key).await, Ok(true)) };
        let sent = put.send(&self.jobs.identities, make_room, has_ended).await;
        match sent.map_err(unable)? {
            Published::Stored(_) | Published::Taken => {}
            // It was submitted before, perhaps by another process: its result may be there.
            Published::Duplicate => match self.streams.results.find_surely(*key).await {
                Ok(Some(found)) if !found.outcome.is_of(content) => return Err(other_job(*key)),
                Ok(Some(found)) => self.jobs.found(*key, found),
                Ok(None) => {}
                Err(error @ NatsError::Version { .. }) => return Err(other_build(*key, &error)),
                // It is looked up again.
                Err(error) => tracing::debug!(%error, %key, "looking for an earlier result"),
            },
        }
        Ok(())
    }

    /// Subscribes to what is told of results of keys beside this one.
    async fn listen(&self, key: JobKey) -> Result<(), NatsError> {
        let subject = self.streams.subjects.notes_beside(key);
        let mut subscribed = self.jobs.notes.lock().await;
        if subscribed.contains(&subject) {
            return Ok(());
        }
        // If this user may not, the log says so, and results are looked up.
        let notes = self.streams.connection.client.subscribe(subject.clone()).await;
        let notes = notes.map_err(NatsError::jetstream("results cannot be subscribed"))?;
        self.follow(notes);
        subscribed.insert(subject);
        Ok(())
    }

    /// Waits for a result until the deadline. What does not come by itself is looked up.
    async fn wait(
        &self,
        key: JobKey,
        mut found: oneshot::Receiver<Found>,
        deadline: Instant,
    ) -> Waited {
        let mut look_after = LOOK_AFTER;
        loop {
            let waiting = u32::try_from(self.jobs.waiting.lock().len()).unwrap_or(u32::MAX);
            let look_at = clock::now() + look_after.max(LOOK_AFTER_EACH * waiting);
            match timeout_at(look_at.min(deadline).into(), &mut found).await {
                Ok(Ok(found)) => return Waited::Found(Box::new(found)),
                Ok(Err(_)) => return Waited::Unwanted,
                Err(_) if clock::until(deadline).is_zero() => return Waited::Late,
                Err(_) => look_after = (look_after * 2).min(LOOK_AFTER * 4),
            }
            match timeout_at(deadline.into(), self.streams.results.find(key)).await {
                Ok(Ok(Some(found))) => return Waited::Found(Box::new(found)),
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(error @ NatsError::Version { .. })) => return Waited::Unreadable(error),
                Ok(Err(error)) => tracing::debug!(%error, "looking for a result"),
            }
        }
    }

    /// The deadline has passed: the verdict is DEADLINE, unless there is another.
    async fn give_up(&self, key: JobKey, content: ContentHash) -> Found {
        let why = timeout(READERS_TIMEOUT, self.why_unread()).await.ok().flatten();
        let verdict = own_verdict(key, Verdict::Deadline, why.as_deref().unwrap_or(LATE));
        let outcome = Outcome::done(Some(content), verdict, None);
        let results = &self.streams.results;
        let stored = async {
            let until = clock::now() + VERDICT_TIMEOUT;
            match results.publish(key, None, &outcome, until).await? {
                Published::Stored(sequence) => {
                    Ok(Some(Found { sequence, outcome: outcome.clone() }))
                }
                Published::Duplicate | Published::Taken => results.find_surely(key).await,
            }
        };
        let stored = timeout(VERDICT_TIMEOUT, stored).await;
        self.jobs.looked.is_outdated();
        match stored {
            Ok(Ok(Some(found))) => return found,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a deadline cannot be stored"),
            Err(_) => tracing::debug!("a deadline cannot be stored: no server answers"),
        }
        Found { sequence: 0, outcome }
    }

    /// Hands what is told of results to those who wait, in a task of its own.
    fn follow(&self, mut notes: async_nats::Subscriber) {
        let (subjects, jobs) = (self.streams.subjects.clone(), Arc::clone(&self.jobs.waiting));
        tokio::spawn(async move {
            while let Some(note) = notes.next().await {
                let Some(key) = subjects.key_of(&note.subject) else { continue };
                let sequence = note.headers.as_ref().and_then(|headers| {
                    headers.get("Nats-Sequence").and_then(|value| value.as_str().parse().ok())
                });
                match decode(subjects.version(), &note.payload) {
                    // The mark that this client has made, or another that reads the same result.
                    Ok(Outcome::Read { .. }) => {}
                    Ok(outcome @ Outcome::Done { .. }) => {
                        let found = Found { sequence: sequence.unwrap_or(0), outcome };
                        if let Some(tell) = jobs.lock().remove(&key) {
                            drop(tell.send(found));
                        }
                    }
                    Err(error) => tracing::warn!(%error, %key, "a result"),
                }
            }
        });
    }
}

/// Why a job was cancelled.
const CANCELLED: &str = "the client cancelled it";
/// Why a job is late.
const LATE: &str = "no host has given a result by the deadline";

/// A receipt of a job that got its verdict from this client.
fn own_verdict(key: JobKey, verdict: Verdict, reason: &str) -> Receipt {
    let reason = reason.to_owned();
    Receipt { key: key.to_string(), verdict, reason, ..Receipt::default() }
}

fn inline(bytes: Vec<u8>) -> Input {
    Input::Inline(Inline(bytes))
}

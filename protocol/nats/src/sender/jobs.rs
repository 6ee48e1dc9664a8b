//! The client's jobs: into the stream, and their results back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use gridpool_ipc::arena::ArenaMap;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{
    Destination, Inline, Limit, Packing, Refusal, ServerMessage, Submission,
};
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};

use super::Agent;
use crate::message::{Carried, JobMessage, Outcome, decode, encode};
use crate::publish::{Full, Published, publish};
use crate::{Found, Lane, NatsError, Store};
use async_nats::jetstream::message::PublishMessage;

/// How long a result may take to arrive by itself before it is looked up.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// So much longer for each job that waits, so that looking up takes a bounded share of the servers' time.
const LOOK_AFTER_EACH: Duration = Duration::from_millis(2);
/// How long the cluster may take to store a verdict that the client decides: DEADLINE, CANCELLED.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long reading a large result may take.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// The jobs that wait for results.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: Arc<Mutex<BTreeMap<JobKey, oneshot::Sender<Found>>>>,
    /// The subjects of notes that are subscribed.
    notes: tokio::sync::Mutex<BTreeSet<String>>,
}

impl Jobs {
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
struct Sending {
    submission: Submission,
    input: Bytes,
    output: Option<Arc<ArenaMap>>,
    deadline: Instant,
}

/// How waiting for a result ended.
enum Waited {
    Found(Box<Found>),
    /// The deadline has passed.
    Late,
    /// Nobody waits any more.
    Unwanted,
}

impl Agent {
    pub(super) fn submit(self: &Arc<Self>, mut submission: Submission, runtime: &Handle) {
        let key = submission.key;
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
        runtime.spawn(async move { agent.run(sending, &handle).await });
    }

    /// Cancels a job: the verdict is CANCELLED, unless it has another.
    pub(super) fn cancel(self: &Arc<Self>, key: JobKey, runtime: &Handle) {
        let agent = Arc::clone(self);
        self.aside(runtime, "a cancellation", async move {
            let outcome = Outcome::done(own_verdict(key, Verdict::Cancelled, CANCELLED), None);
            let until = clock::now() + VERDICT_TIMEOUT;
            let results = &agent.streams.results;
            match results.publish(key, "client", &outcome, until).await? {
                Published::Stored(sequence) => agent.jobs.found(key, Found { sequence, outcome }),
                Published::Duplicate | Published::Taken => {}
            }
            let payload = key.0.to_le_bytes().to_vec().into();
            let client = agent.streams.context.client();
            let told = client.publish(agent.streams.subjects.cancel(), payload).await;
            told.map_err(NatsError::jetstream("a cancellation"))
        });
    }

    /// Sends a job, waits for its result, and answers the client.
    async fn run(self: &Arc<Self>, sending: Sending, runtime: &Handle) {
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
        if let Err(refusal) = self.send(&sending).await {
            self.jobs.waiting.lock().remove(&key);
            return self.outbox.say(&ServerMessage::Refused { key, refusal });
        }
        if sending.submission.tell_acceptance {
            self.outbox.say(&ServerMessage::Accepted { key });
        }
        let found = match self.wait(key, found, deadline).await {
            Waited::Found(found) => *found,
            Waited::Late => self.give_up(key).await,
            // The client is gone, and the job goes on.
            Waited::Unwanted => return,
        };
        self.jobs.waiting.lock().remove(&key);
        self.answer(&sending, found, runtime).await;
    }

    /// Puts a job into the stream.
    async fn send(&self, sending: &Sending) -> Result<(), Refusal> {
        let Sending { submission: Submission { key, work, payload, terms, .. }, input, .. } =
            sending;
        let unable = |error: NatsError| {
            if let NatsError::Full(full) = error {
                return Refusal::Busy(limit(full));
            }
            Refusal::Unable(Chain(&error).to_string())
        };
        let digest = Store::digest(input);
        let content = JobMessage::content(work, payload.packing, &digest).map_err(unable)?;
        if let Some(why) = self.streams.poison.of(content) {
            let refusal = format!(
                "POISON: a job with this program and batch was convicted on {}: {}; `gridpool cluster release \
                 {content}` allows it again",
                why.host, why.reason
            );
            return Err(Refusal::Invalid(refusal));
        }
        if let Some(why) = self.why_unservable(work).await.map_err(unable)? {
            return Err(Refusal::Invalid(why));
        }
        let carried = match input.len() {
            ..=Carried::INLINE_BYTES_MAX => Carried::Inline(Inline(input.to_vec())),
            bytes => {
                let put = self.streams.data.put(digest, input, sending.deadline).await;
                put.map_err(unable)?;
                Carried::Pieces { digest, bytes: bytes as u64 }
            }
        };
        let output_bytes = match (payload.output, payload.packing) {
            (Destination::Arena(slice), _) => slice.bytes,
            (
                Destination::Inline,
                Packing::Grids { .. } | Packing::Search(_) | Packing::Tensors,
            ) => work.inline_bytes_max() as u64,
        };
        let message = JobMessage {
            key: *key,
            work: work.clone(),
            packing: payload.packing,
            input: carried,
            output_bytes,
            terms: *terms,
            content,
        };
        let payload = Bytes::from(encode(&message).map_err(unable)?);
        self.listen(*key).await.map_err(unable)?;
        let subject = self.streams.subjects.job(&Lane::of(work, terms.priority));
        let message =
            || PublishMessage::build().payload(payload.clone()).message_id(key.to_string());
        let sent =
            publish(&self.streams.context, &subject, message, Full::JobBytes, sending.deadline);
        match sent.await.map_err(unable)? {
            Published::Stored(_) | Published::Taken => {}
            // It was submitted before, perhaps by another process: its result may be there.
            Published::Duplicate => {
                if let Some(found) = self.streams.results.find(*key).await.map_err(unable)? {
                    self.jobs.found(*key, found);
                }
            }
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
        let client = self.streams.context.client();
        let failed = "results cannot be subscribed";
        let notes = client.subscribe(subject.clone()).await;
        let notes = notes.map_err(NatsError::jetstream(failed))?;
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
            match self.streams.results.find(key).await {
                Ok(Some(found)) => return Waited::Found(Box::new(found)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "looking for a result"),
            }
        }
    }

    /// The deadline has passed: the verdict is DEADLINE, unless there is another.
    async fn give_up(&self, key: JobKey) -> Found {
        let outcome = Outcome::done(own_verdict(key, Verdict::Deadline, LATE), None);
        let until = clock::now() + VERDICT_TIMEOUT;
        let stored = match self.streams.results.publish(key, "client", &outcome, until).await {
            Ok(Published::Stored(sequence)) => return Found { sequence, outcome },
            Ok(Published::Duplicate | Published::Taken) => self.streams.results.find(key).await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(Some(found)) => found,
            Ok(None) => Found { sequence: 0, outcome },
            Err(error) => {
                tracing::debug!(%error, "a deadline cannot be stored");
                Found { sequence: 0, outcome }
            }
        }
    }

    /// Tells the client the result, and the cluster that it was read.
    async fn answer(self: &Arc<Self>, sending: &Sending, found: Found, runtime: &Handle) {
        let key = sending.submission.key;
        let Found { sequence, outcome } = found;
        let (receipt, carried) = match outcome {
            Outcome::Read { receipt } => {
                let done = ServerMessage::Done { key, receipt, output: None, replayed: true };
                return self.outbox.say(&done);
            }
            Outcome::Done { receipt, output } => (receipt, output),
        };
        let (receipt, output) = match self.place(sending, carried).await {
            Ok(output) => (receipt, output),
            Err(error) => {
                let reason = format!("its result cannot be read: {}", Chain(&error));
                let failed = Receipt { verdict: Verdict::Failed, reason, ..*receipt };
                (Box::new(failed), None)
            }
        };
        let mark = receipt.clone();
        self.outbox.say(&ServerMessage::Done { key, receipt, output, replayed: false });
        if sequence > 0 {
            let agent = Arc::clone(self);
            self.aside(runtime, "a mark", async move {
                let until = clock::now() + VERDICT_TIMEOUT;
                agent.streams.results.mark_read(key, (sequence, &mark), until).await
            });
        }
    }

    /// Puts a packed result where the client wants it.
    async fn place(
        &self,
        sending: &Sending,
        carried: Option<Carried>,
    ) -> Result<Option<Inline>, NatsError> {
        let bytes = match carried {
            None => return Ok(None),
            Some(Carried::Inline(bytes)) => bytes.0,
            Some(Carried::Pieces { digest, bytes }) => self.fetch(digest, bytes).await?,
        };
        match (sending.submission.payload.output, &sending.output) {
            (Destination::Arena(slice), Some(map)) => {
                let size = bytes.len() as u64;
                match map.all().part(slice.offset, slice.bytes) {
                    Some(memory) if size <= slice.bytes => memory.write(0, &bytes),
                    Some(_) | None => {
                        let why = "it is larger than was asked for".to_owned();
                        return Err(NatsError::Data { bytes: size, why });
                    }
                }
                Ok(None)
            }
            (Destination::Arena(_) | Destination::Inline, _) => Ok(Some(Inline(bytes))),
        }
    }

    /// Reads a large result; tries again while the servers do not answer.
    async fn fetch(&self, digest: [u8; 32], bytes: u64) -> Result<Vec<u8>, NatsError> {
        let until = clock::now() + OUTPUT_TIMEOUT;
        loop {
            match self.streams.data.get(digest, bytes).await {
                Err(error) if !clock::until(until).is_zero() => {
                    tracing::debug!(%error, "reading a result again");
                    sleep(Duration::from_millis(500)).await;
                }
                read => return read,
            }
        }
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
                match decode(&note.payload) {
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

fn inline(bytes: Vec<u8>) -> gridpool_protocol::message::Input {
    gridpool_protocol::message::Input::Inline(Inline(bytes))
}

/// The limit as the client knows it.
fn limit(full: Full) -> Limit {
    match full {
        Full::Jobs => Limit::StreamJobs,
        Full::JobBytes => Limit::StreamJobBytes,
        Full::DataBytes | Full::ResultBytes => Limit::StreamDataBytes,
    }
}

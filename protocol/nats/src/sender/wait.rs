//! The client's jobs that are in the stream: their results come by themselves, or are looked up. What the servers lose,
//! a job or its batch, is sent again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gridpool_ipc::clock;
use gridpool_protocol::ids::{ContentHash, JobKey};
use gridpool_protocol::message::Input;
use gridpool_protocol::receipt::Verdict;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use super::Agent;
use super::jobs::{Batch, Names, Sending, VERDICT_TIMEOUT, own_verdict};
use crate::message::{Outcome, decode};
use crate::publish::Published;
use crate::streams::MISSING;
use crate::{Found, NatsError, Store};

/// How long a result may take to arrive by itself before it is looked up.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// So much longer for each job that waits, so that looking up takes a bounded share of the servers' time.
const LOOK_AFTER_EACH: Duration = Duration::from_millis(2);
/// How long the hosts may take to say of which versions they are, before a job that is late gets its verdict.
const READERS_TIMEOUT: Duration = Duration::from_millis(500);
/// Why a job is late.
const LATE: &str = "no host has given a result by the deadline";

/// How waiting for a result ended.
pub(super) enum Waited {
    Found(Box<Found>),
    /// The deadline has passed.
    Late,
    /// There is one of another build.
    Unreadable(NatsError),
    /// The servers have lost the job, and it may run only once.
    Lost,
    /// Nobody waits any more.
    Unwanted,
}

/// What the servers have of a job without a result.
enum There {
    /// It waits, or a host has it.
    Job,
    /// The result, which has just come.
    Result(Box<Found>),
    /// Nothing.
    Nothing,
}

impl Agent {
    /// Subscribes to what is told of results of keys beside this one.
    pub(super) async fn listen(self: &Arc<Self>, key: JobKey) -> Result<(), NatsError> {
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

    /// Waits for a result until the deadline. What does not come by itself is looked up; a job that the servers have
    /// lost is sent again. `place` is its number in the stream.
    pub(super) async fn wait(
        self: &Arc<Self>,
        sending: &Sending,
        names: &Names,
        (mut found, mut place): (oneshot::Receiver<Found>, u64),
    ) -> Waited {
        let (key, deadline) = (sending.submission.key, sending.deadline);
        let (mut look_after, mut again) = (LOOK_AFTER, 0);
        loop {
            let waiting = u32::try_from(self.jobs.waiting.lock().len()).unwrap_or(u32::MAX);
            let look_at = clock::now() + look_after.max(LOOK_AFTER_EACH * waiting);
            match timeout_at(look_at.min(deadline).into(), &mut found).await {
                Ok(told) => return Waited::of(told),
                Err(_) if clock::until(deadline).is_zero() => return Waited::Late,
                Err(_) => look_after = (look_after * 2).min(LOOK_AFTER * 4),
            }
            match timeout_at(deadline.into(), self.streams.results.find(key)).await {
                Ok(Ok(Some(found))) => return Waited::Found(Box::new(found)),
                Ok(Ok(None)) => {}
                Err(_) => continue,
                Ok(Err(error @ NatsError::Version { .. })) => return Waited::Unreadable(error),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "looking for a result");
                    continue;
                }
            }
            if look_after < LOOK_AFTER * 4 {
                continue;
            }
            let there = async {
                match self.there(key, place).await {
                    Ok(There::Job) => {}
                    Ok(There::Result(found)) => return Some(Waited::Found(found)),
                    Ok(There::Nothing) if !sending.submission.terms.idempotent => {
                        return Some(Waited::Lost);
                    }
                    Ok(There::Nothing) => {
                        again += 1;
                        place = self.send_again(sending, names, again).await.unwrap_or(place);
                    }
                    Err(error @ NatsError::Version { .. }) => {
                        return Some(Waited::Unreadable(error));
                    }
                    Err(error) => tracing::debug!(%error, %key, "whether the servers have it"),
                }
                None
            };
            tokio::select! {
                told = &mut found => return Waited::of(told),
                ended = timeout_at(deadline.into(), there) => {
                    if let Ok(Some(waited)) = ended {
                        return waited;
                    }
                }
            }
        }
    }

    /// What the servers have of a job, which was under this number in the stream.
    async fn there(&self, key: JobKey, place: u64) -> Result<There, NatsError> {
        // Numbers begin again in streams that were made anew.
        if place == 0 || self.streams.key_at(place).await? == Some(key) {
            return Ok(There::Job);
        }
        // It leaves the stream when its result is stored.
        let found = self.streams.results.find_surely(key).await?;
        Ok(found.map_or(There::Nothing, |found| There::Result(Box::new(found))))
    }

    /// Sends a job again that the servers have lost, and returns its number in the stream.
    async fn send_again(
        self: &Arc<Self>,
        sending: &Sending,
        names: &Names,
        again: u32,
    ) -> Option<u64> {
        let (key, input) = (sending.submission.key, &sending.submission.payload.input);
        tracing::warn!(%key, "the servers have lost a job: it is sent again");
        let _room = self.jobs.room(size(input))?;
        let input = self.input(input, names.digest)?;
        match self.send(sending, &input, names, again).await {
            Ok(place) => Some(place),
            Err(refusal) => {
                tracing::warn!(%key, %refusal, "it is not sent again");
                None
            }
        }
    }

    /// Sends a batch again that a host misses. One that is being sent again is not sent beside that.
    async fn send_batch_again(&self, batch: &Batch) {
        let Some(_room) = self.jobs.room(size(&batch.input)) else { return };
        if !self.jobs.again.lock().insert(batch.digest) {
            return;
        }
        if let Some(input) = self.input(&batch.input, batch.digest) {
            match self.streams.data.put(batch.digest, &input, batch.deadline).await {
                Ok(true) => tracing::warn!(bytes = input.len(), "a batch was sent again"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a batch is not sent again"),
            }
        }
        self.jobs.again.lock().remove(&batch.digest);
    }

    /// The bytes of an input, if they are still those of this digest.
    fn input(&self, input: &Input, digest: [u8; 32]) -> Option<Bytes> {
        let bytes = self.arenas.lock().read(input).filter(|bytes| Store::digest(bytes) == digest);
        if bytes.is_none() {
            tracing::warn!("the client has changed a batch before its job had a result");
        }
        bytes.map(Bytes::from)
    }

    /// Why a job is late.
    pub(super) async fn why_late(&self) -> String {
        let why = timeout(READERS_TIMEOUT, self.why_unread()).await.ok().flatten();
        why.unwrap_or_else(|| LATE.to_owned())
    }

    /// Nobody waits for a host any more: the job has this verdict, unless there is another.
    pub(super) async fn give_up(
        &self,
        key: JobKey,
        content: ContentHash,
        (verdict, why): (Verdict, &str),
    ) -> Found {
        let verdict = own_verdict(key, verdict, why);
        let outcome = Outcome::done(Some(content), verdict, None);
        let results = &self.streams.results;
        let stored = async {
            let until = clock::now() + VERDICT_TIMEOUT;
            match results.publish(key, "client", &outcome, until).await? {
                Published::Stored(sequence) => {
                    Ok(Some(Found { sequence, outcome: outcome.clone() }))
                }
                Published::Duplicate(_) | Published::Taken => results.find_surely(key).await,
            }
        };
        match timeout(VERDICT_TIMEOUT, stored).await {
            Ok(Ok(Some(found))) => return found,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a verdict cannot be stored"),
            Err(_) => tracing::debug!("a verdict cannot be stored: no server answers"),
        }
        Found { sequence: 0, outcome }
    }

    /// Hands what is told of jobs to those who wait, in a task of its own.
    fn follow(self: &Arc<Self>, mut notes: async_nats::Subscriber) {
        let agent = Arc::clone(self);
        tokio::spawn(async move {
            while let Some(note) = notes.next().await {
                let Some(key) = agent.streams.subjects.key_of(&note.subject) else { continue };
                let header = |name: &str| Some(note.headers.as_ref()?.get(name)?.as_str());
                if header(MISSING).is_some() {
                    agent.on_missed(key);
                    continue;
                }
                let sequence = header("Nats-Sequence").and_then(|value| value.parse().ok());
                match decode(agent.streams.subjects.version(), &note.payload) {
                    // The mark that this client has made, or another that reads the same result.
                    Ok(Outcome::Read { .. }) => {}
                    Ok(outcome @ Outcome::Done { .. }) => {
                        let found = Found { sequence: sequence.unwrap_or(0), outcome };
                        agent.jobs.found(key, found);
                    }
                    Err(error) => tracing::warn!(%error, %key, "a result"),
                }
            }
        });
    }

    /// A host misses the batch of a job.
    fn on_missed(self: &Arc<Self>, key: JobKey) {
        let waiting = self.jobs.waiting.lock();
        let batch = waiting.get(&key).and_then(|waiting| waiting.batch.clone());
        drop(waiting);
        if let Some(batch) = batch {
            let agent = Arc::clone(self);
            tokio::spawn(async move { agent.send_batch_again(&batch).await });
        }
    }
}

impl Waited {
    fn of(told: Result<Found, oneshot::error::RecvError>) -> Self {
        told.map_or(Self::Unwanted, |found| Self::Found(Box::new(found)))
    }
}

/// The size of an input.
pub(super) fn size(input: &Input) -> usize {
    match input {
        Input::Inline(bytes) => bytes.0.len(),
        Input::Arena(slice) => usize::try_from(slice.bytes).unwrap_or(usize::MAX),
    }
}

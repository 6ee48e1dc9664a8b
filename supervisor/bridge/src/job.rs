//! The life of a job on this host: taken from the stream, run in the pool, its result published, acknowledged.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use gridpool_client::{Answer, ClientError, Handle, Job, PackedInput, PackedOutput};
use gridpool_nats::{JobMessage, NatsError, decode};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::{Refusal, Work};
use gridpool_protocol::receipt::{Receipt, Verdict, parse_poison_reason};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::Bridge;
use crate::counts::count;
use crate::pool::names_of;
use crate::taken::{Done, Fate, Taken, room_of};
use crate::under_way::InHand;

/// How soon another host may have a job that this one cannot take now.
pub(crate) const GIVE_BACK_AFTER: Duration = Duration::from_millis(200);
/// How soon a job for a model is offered again, to a host that has it.
const OTHER_HOST_AFTER: Duration = Duration::from_secs(5);
/// Runs of a suspect, alone on its host, that ended with the host. One more is not made.
const ALONE_MAX: usize = 2;
/// How long a suspect waits until nothing else runs on this host, and others until it has run.
const ALONE_WAIT: Duration = Duration::from_secs(20);
/// Tries to take a note away.
const NOTE_TRIES: usize = 3;
/// How long that may take while the bridge ends.
const FORGET_TIMEOUT: Duration = Duration::from_millis(300);
/// How long the pool's answer to a job may take to be read once the bridge is to end: a pool that has drained has
/// answered them all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a result can then still be stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

impl Bridge {
    /// Runs a job that was taken from the stream.
    pub(crate) async fn run(self: &Arc<Self>, message: Message, permit: OwnedSemaphorePermit) {
        let message = Arc::new(message);
        let (delivered, published_ns) = match message.info() {
            Ok(info) => (info.delivered, info.published.unix_timestamp_nanos()),
            Err(error) => return tracing::error!(%error, "a message without a place in a stream"),
        };
        if delivered > 1 {
            count(&self.counts.redelivered);
        }
        // Those of other versions are in lanes of their own.
        let job: JobMessage = match decode(self.streams.subjects.version(), &message.payload) {
            Ok(job) => job,
            Err(error) => {
                tracing::error!(%error, "a message that is no job is removed");
                return self.acknowledge(&message, AckKind::Term).await;
            }
        };
        if !job.is_as_it_says() {
            tracing::error!(key = %job.key, "a job with the hash of another is removed");
            return self.acknowledge(&message, AckKind::Term).await;
        }
        let taken = Taken { job, delivered, published_ns };
        let Some((held, cancelled)) = self.under_way.add(&message, taken.job.key) else {
            return tracing::debug!(job = %taken.job.key, "it is delivered again to this host, which runs it");
        };
        let fate = tokio::select! {
            fate = self.judge(&taken, cancelled) => fate,
            () = self.stopped_for(ANSWER_TIMEOUT) => Fate::GiveBack(Duration::ZERO),
        };
        let room = room_of(&fate);
        tokio::select! {
            never = self.make_room(&taken, room, permit) => match never {},
            () = self.settle(&held, &taken, fate) => {}
            () = self.stopped_for(STORE_TIMEOUT) => {
                if timeout(FORGET_TIMEOUT, self.forget(&taken, false)).await.is_err() {
                    tracing::debug!(job = %taken.job.key, "the note of a run stays");
                }
                // The result may be stored already; then the job ends where it is taken next.
                self.end(&held, AckKind::Nak(None)).await;
            }
        }
    }

    /// Gives the place of a job that has its fate to another job, while its result is stored. A host whose results find
    /// no room in the streams keeps so many; from then on, each keeps the place of its job, too.
    async fn make_room(
        &self,
        taken: &Taken,
        room: u32,
        permit: OwnedSemaphorePermit,
    ) -> Infallible {
        let _room = match self.unstored.try_acquire_many(room) {
            Ok(room) => Ok(room),
            Err(_) => {
                tracing::debug!(job = %taken.job.key, "too many results wait here: it keeps its place");
                self.unstored.acquire_many(room).await
            }
        };
        drop(permit);
        std::future::pending().await
    }

    /// Waits until the bridge is to end, and so much longer.
    async fn stopped_for(&self, more: Duration) {
        self.counts.stopping().await;
        sleep(more).await;
    }

    /// Whether runs of this delivery are noted for the case that this host vanishes.
    fn is_watched(&self, taken: &Taken) -> bool {
        taken.delivered >= i64::from(self.settings.deliveries_max)
    }

    /// Takes the note of this delivery away, as the host has not vanished; or all of a job that has its result.
    async fn forget(&self, taken: &Taken, has_result: bool) {
        if !self.is_watched(taken) {
            return;
        }
        for _ in 0..NOTE_TRIES {
            let ended = match has_result {
                true => self.streams.runs.end_all(taken.job.key).await,
                false => self.streams.runs.end(taken.delivery()).await,
            };
            match ended {
                Ok(()) => return,
                Err(error) => tracing::warn!(error = Chain(&error).to_string(), "a note of a run"),
            }
            sleep(GIVE_BACK_AFTER).await;
        }
    }

    /// Runs a job: beside others, or alone if hosts have vanished with it, unless it has outlived hosts that did so.
    async fn judge(&self, taken: &Taken, cancelled: watch::Receiver<bool>) -> Fate {
        if !self.is_watched(taken) {
            let input = match self.prepare(taken, &cancelled).await {
                Ok(input) => input,
                Err(fate) => return fate,
            };
            let Ok(_beside) = timeout(ALONE_WAIT, self.under_way.beside()).await else {
                return Fate::GiveBack(GIVE_BACK_AFTER);
            };
            return self.attempt(taken, input, cancelled).await;
        }
        let left = match self.streams.runs.left(taken.job.key).await {
            Ok(left) => left,
            Err(error) => return not_noted(taken, &error),
        };
        if left.alone.len() >= ALONE_MAX {
            let hosts = left.alone.into_iter().collect::<Vec<_>>().join(" and ");
            let reason = format!("the hosts {hosts} vanished while it ran there alone");
            let (receipt, convicts) = (self.receipt(&taken.job, Verdict::Poison, reason), true);
            return Fate::Done(Done { receipt, output: None, convicts, pool: None });
        }
        let input = match self.prepare(taken, &cancelled).await {
            Ok(input) => input,
            Err(fate) => return fate,
        };
        let is_suspect = left.vanished > 0;
        let mut told = cancelled.clone();
        let _alone;
        let _beside;
        if is_suspect {
            tokio::select! {
                alone = self.under_way.alone() => _alone = alone,
                true = comes_true(&mut told) => return self.cancelled(&taken.job),
                // The jobs that run here go on, and others may come.
                () = sleep(taken.left().unwrap_or_default().min(ALONE_WAIT)) => {
                    return match taken.left() {
                        Some(_) => Fate::GiveBack(GIVE_BACK_AFTER),
                        None => self.late(&taken.job),
                    };
                }
            }
        } else {
            match timeout(ALONE_WAIT, self.under_way.beside()).await {
                Ok(beside) => _beside = beside,
                Err(_) => return Fate::GiveBack(GIVE_BACK_AFTER),
            }
        }
        let host = &self.settings.host;
        match self.streams.runs.begin(taken.delivery(), host, is_suspect).await {
            Ok(()) => self.attempt(taken, input, cancelled).await,
            Err(error) => not_noted(taken, &error),
        }
    }

    /// Runs a job.
    async fn attempt(
        &self,
        taken: &Taken,
        input: PackedInput,
        cancelled: watch::Receiver<bool>,
    ) -> Fate {
        let job = &taken.job;
        // One that ran alone just now may have been convicted.
        if let Some(fate) = self.poison(job) {
            return fate;
        }
        if taken.left().is_none() {
            return self.late(job);
        }
        // Its pool takes no more, and an answer to a note of its start would come too late.
        if self.counts.is_stopping() {
            return Fate::GiveBack(Duration::ZERO);
        }
        if !job.terms.idempotent {
            match self.streams.runs.starts_once(job.key).await {
                Ok(true) => {}
                Ok(false) => {
                    let reason = "it may run only once, and a host that had it has vanished";
                    return self.own(job, Verdict::Failed, reason.to_owned());
                }
                Err(error) => {
                    self.not_started(job).await;
                    return not_noted(taken, &error);
                }
            }
        }
        let Some(left) = taken.left() else { return self.late(job) };
        let work = (job.work.clone(), job.packing);
        let packed = Job::packed(work, input, job.output_bytes, job.terms.chaos);
        let packed = packed
            .with_deadline(left)
            .with_priority(job.terms.priority)
            .with_trace(job.trace)
            .with_trace_state(job.trace_state.clone());
        // What is given back is delivered again, and one that may run only once is not run then.
        let packed = match job.terms.idempotent {
            true => packed.refuse_if_busy(),
            false => packed.at_most_once(),
        };
        let pool = self.pool.clone();
        let handle = match spawn_blocking(move || pool.send(packed)).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return self.failed(job, error).await,
            Err(error) => {
                tracing::error!(%error, "sending a job to the pool");
                return Fate::GiveBack(GIVE_BACK_AFTER);
            }
        };
        match answer(handle, cancelled).await {
            // Its client may not have been able to store the verdict.
            (_, true) => self.cancelled(job),
            (Err(error), false) => self.failed(job, error).await,
            (Ok(answer), false) => self.answered(job, answer).await,
        }
    }

    /// The verdict of a job whose content is convicted.
    pub(crate) fn poison(&self, job: &JobMessage) -> Option<Fate> {
        let why = self.streams.poison.of(job.content)?;
        let reason = format!("convicted on {}: {}", why.host, why.reason);
        Some(self.own(job, Verdict::Poison, reason))
    }

    /// Notes that a pool has not run a job that may run only once.
    async fn not_started(&self, job: &JobMessage) {
        if job.terms.idempotent {
            return;
        }
        if let Err(error) = self.streams.runs.never_started(job.key).await {
            tracing::warn!(error = Chain(&error).to_string(), job = %job.key, "the note of a start");
        }
    }

    /// What becomes of a job that the pool has not run.
    pub(crate) async fn failed(&self, job: &JobMessage, error: ClientError) -> Fate {
        if matches!(error, ClientError::Refused(_)) {
            self.not_started(job).await;
        }
        if let ClientError::Refused(Refusal::Poison(content)) = error {
            if self.streams.poison.was_released(job.content) && self.release(content).await {
                return Fate::GiveBack(GIVE_BACK_AFTER);
            }
            let reason = "this host's pool has convicted a job like it".to_owned();
            return self.own(job, Verdict::Poison, reason);
        }
        let is_invalid = matches!(error, ClientError::Refused(Refusal::Invalid(_)));
        if let (Work::Model { name }, true) = (&job.work, is_invalid)
            && !self.has_model(name).await
        {
            // It was unloaded here; other hosts may have it.
            return Fate::GiveBack(OTHER_HOST_AFTER);
        }
        // Another try would fail, too.
        let is_wrong = matches!(
            error,
            ClientError::Batch(_)
                | ClientError::Refused(Refusal::Invalid(_) | Refusal::NotAllowed(_))
        );
        if is_wrong {
            return self.own(job, Verdict::Failed, error.to_string());
        }
        tracing::debug!(%error, job = %job.key, "the pool does not run it");
        Fate::GiveBack(GIVE_BACK_AFTER)
    }

    /// Whether the pool has a model now that is ready. If it does not say so, another host may know.
    async fn has_model(&self, name: &str) -> bool {
        let pool = self.pool.clone();
        let models = spawn_blocking(move || pool.models()).await;
        models.is_ok_and(|models| {
            models.is_ok_and(|models| names_of(&models).iter().any(|has| has == name))
        })
    }

    /// What becomes of a job that has the pool's verdict.
    async fn answered(&self, job: &JobMessage, answer: Answer<PackedOutput>) -> Fate {
        let output = answer.outputs().or_else(|| answer.partial()).cloned();
        let (receipt, _) = answer.into_parts();
        if receipt.verdict == Verdict::Cancelled {
            // Its client has not: the pool stops.
            return Fate::GiveBack(Duration::ZERO);
        }
        let mut receipt =
            Receipt { host: self.settings.host.clone(), key: job.key.to_string(), ..receipt };
        let copied = spawn_blocking(move || output.map(|output| output.to_vec()).transpose()).await;
        let output = match copied {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => {
                receipt.verdict = Verdict::Failed;
                receipt.reason = format!("its outputs cannot be read: {error}");
                None
            }
            Err(error) => {
                tracing::error!(%error, "copying a result");
                return Fate::GiveBack(GIVE_BACK_AFTER);
            }
        };
        let convicts = receipt.verdict == Verdict::Poison;
        // Who takes it back for all hosts names the cluster's hash.
        let (why, pool) = match parse_poison_reason(&receipt.reason).filter(|_| convicts) {
            Some((why, pool)) => (Some(why.to_owned()), Some(pool)),
            None => (None, None),
        };
        receipt.reason = why.unwrap_or(receipt.reason);
        Fate::Done(Done { receipt: Box::new(receipt), output, convicts, pool })
    }

    /// A verdict that the pool has no part in.
    pub(crate) fn own(&self, job: &JobMessage, verdict: Verdict, reason: String) -> Fate {
        let receipt = self.receipt(job, verdict, reason);
        Fate::Done(Done { receipt, output: None, convicts: false, pool: None })
    }

    fn receipt(&self, job: &JobMessage, verdict: Verdict, reason: String) -> Box<Receipt> {
        let (host, key) = (self.settings.host.clone(), job.key.to_string());
        Box::new(Receipt { host, key, verdict, reason, ..Receipt::default() })
    }

    pub(crate) fn late(&self, job: &JobMessage) -> Fate {
        count(&self.counts.late);
        self.own(job, Verdict::Deadline, "its deadline passed in the stream".to_owned())
    }

    pub(crate) fn cancelled(&self, job: &JobMessage) -> Fate {
        self.own(job, Verdict::Cancelled, "the client cancelled it".to_owned())
    }

    /// Carries out what becomes of a job.
    async fn settle(&self, held: &InHand<'_>, taken: &Taken, fate: Fate) {
        let has_result = matches!(fate, Fate::Done(_) | Fate::Known);
        let ack = match fate {
            Fate::Done(done) => {
                self.publish(taken, done).await;
                self.not_started(&taken.job).await;
                AckKind::Ack
            }
            Fate::Known => {
                count(&self.counts.known);
                AckKind::Ack
            }
            Fate::GiveBack(after) => {
                count(&self.counts.given_back);
                AckKind::Nak(Some(after).filter(|after| !after.is_zero()))
            }
        };
        // Before another host gets it.
        self.forget(taken, has_result).await;
        self.end(held, ack).await;
    }

    /// Acknowledges the last delivery of a job.
    async fn end(&self, held: &InHand<'_>, ack: AckKind) {
        if let Some(message) = held.message() {
            self.acknowledge(&message, ack).await;
        }
    }

    async fn acknowledge(&self, message: &Message, ack: AckKind) {
        // If it is lost, the job is delivered again, and its result found.
        if let Err(error) = message.ack_with(ack).await {
            tracing::debug!(%error, "acknowledging a job");
        }
        if self.counts.is_ending()
            && let Err(error) = self.streams.connection.client.flush().await
        {
            tracing::debug!(%error, "the last words to the servers");
        }
    }
}

/// What becomes of a job that cannot be noted.
fn not_noted(taken: &Taken, error: &NatsError) -> Fate {
    tracing::warn!(error = Chain(error).to_string(), job = %taken.job.key, "a run is not noted");
    Fate::GiveBack(GIVE_BACK_AFTER)
}

/// Waits for the pool's answer. Returns whether the client has cancelled the job meanwhile.
async fn answer(
    handle: Handle<PackedOutput>,
    mut cancelled: watch::Receiver<bool>,
) -> (Result<Answer<PackedOutput>, ClientError>, bool) {
    let canceller = handle.canceller();
    let mut answering = std::pin::pin!(handle.into_future());
    tokio::select! {
        answer = &mut answering => (answer, false),
        true = comes_true(&mut cancelled) => {
            // It may write to the pool's socket, which takes it at once.
            canceller.cancel();
            (answering.await, true)
        }
    }
}

/// Waits until it is so; `false` if it never will be.
pub(crate) async fn comes_true(told: &mut watch::Receiver<bool>) -> bool {
    told.wait_for(|is| *is).await.is_ok()
}

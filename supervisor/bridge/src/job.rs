//! The life of a job on this host: taken from the stream, run in the pool, its result published, acknowledged.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{AckKind, Message};
use gridpool_client::{Answer, ClientError, Handle, Job, PackedInput, PackedOutput};
use gridpool_ipc::clock;
use gridpool_nats::{
    Carried, Conviction, JobMessage, NatsError, Outcome, Published, Store, decode,
};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::{Inline, Packing, Refusal};
use gridpool_protocol::receipt::{Receipt, Verdict};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::batches::BatchError;
use crate::counts::count;
use crate::{Bridge, RETRY_EVERY};

/// How soon another host may have a job that this one cannot take now.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(200);
/// How soon a job of another version is offered again, to a host that knows it.
const OTHER_VERSION_AFTER: Duration = Duration::from_secs(5);
/// How long a server may take to store a result before the next try.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Runs of a suspect, alone on its host, that ended with the host. One more is not made.
const ALONE_MAX: usize = 2;

/// What becomes of a job.
enum Fate {
    /// It has its verdict.
    Done(Box<Receipt>, Option<Vec<u8>>),
    /// Another host, or this one later, gets it.
    GiveBack(Duration),
    /// Its result is there already.
    Known,
    /// It is no job.
    Broken,
}

impl Bridge {
    /// Runs a job that was taken from the stream.
    pub(crate) async fn run(
        self: &Arc<Self>,
        message: Message,
        permit: OwnedSemaphorePermit,
        slots: &Arc<Semaphore>,
    ) {
        let message = Arc::new(message);
        let (delivered, age) = match message.info() {
            Ok(info) => (info.delivered, age_of(info.published.unix_timestamp_nanos())),
            Err(error) => return tracing::error!(%error, "a message without a place in a stream"),
        };
        if delivered > 1 {
            count(&self.counts.redelivered);
        }
        let job: JobMessage = match decode(&message.payload) {
            Ok(job) => job,
            Err(error @ NatsError::Version { .. }) => {
                tracing::warn!(%error, "a job for another host");
                return self.settle(&message, None, Fate::GiveBack(OTHER_VERSION_AFTER)).await;
            }
            Err(error) => {
                tracing::error!(%error, "a message that is no job is removed");
                return self.settle(&message, None, Fate::Broken).await;
            }
        };
        let (number, cancelled) = self.under_way.add(&message, job.key);
        let is_suspect = delivered > i64::from(self.settings.deliveries_max);
        let work = async {
            if is_suspect {
                drop(permit);
                self.alone((&job, delivered), age, cancelled, slots).await
            } else {
                let fate = self.attempt(&job, delivered, age, cancelled).await;
                drop(permit);
                fate
            }
        };
        let fate = tokio::select! {
            fate = work => fate,
            () = self.counts.stopping() => Fate::GiveBack(Duration::ZERO),
        };
        tokio::select! {
            () = self.settle(&message, Some((&job, delivered)), fate) => {}
            () = self.until_stopped() => {
                // The result may be stored already; then the job ends where it is taken next.
                self.acknowledge(&message, AckKind::Nak(None)).await;
            }
        }
        self.under_way.remove(number);
    }

    /// Waits until the bridge is to end, and a little more, in which a result can still be stored.
    async fn until_stopped(&self) {
        self.counts.stopping().await;
        sleep(Duration::from_millis(800)).await;
    }

    /// Runs a suspect while nothing else runs on this host, unless it has outlived hosts that did so before.
    async fn alone(
        &self,
        (job, delivered): (&JobMessage, i64),
        age: Duration,
        cancelled: watch::Receiver<bool>,
        slots: &Arc<Semaphore>,
    ) -> Fate {
        let _alone = self.under_way.alone().await;
        let all = self.state.borrow().slots;
        let Ok(_all) = slots.acquire_many(all).await else { return Fate::GiveBack(Duration::ZERO) };
        match self.streams.poison.runs_alone(job.key, &self.settings.host).await {
            Err(error) => {
                tracing::warn!(error = Chain(&error).to_string(), job = %job.key, "a suspect");
                Fate::GiveBack(GIVE_BACK_AFTER)
            }
            Ok(before) if before.len() >= ALONE_MAX => {
                let hosts = before.join(" and ");
                let reason = format!("the hosts {hosts} vanished while it ran there alone");
                self.own(job, Verdict::Poison, reason)
            }
            Ok(_) => self.attempt(job, delivered, age, cancelled).await,
        }
    }

    /// Runs a job, if it still is to be run.
    async fn attempt(
        &self,
        job: &JobMessage,
        delivered: i64,
        age: Duration,
        cancelled: watch::Receiver<bool>,
    ) -> Fate {
        match self.streams.results.find(job.key).await {
            Ok(Some(_)) => return Fate::Known,
            Ok(None) => {}
            // The stream takes one result all the same.
            Err(error) => tracing::debug!(%error, "looking for an earlier result"),
        }
        if let Some(why) = self.streams.poison.of(job.content) {
            let reason = format!("convicted on {}: {}", why.host, why.reason);
            return self.own(job, Verdict::Poison, reason);
        }
        if !job.terms.idempotent && delivered > 1 {
            let reason = "it may run only once, and a host that had it has vanished".to_owned();
            return self.own(job, Verdict::Failed, reason);
        }
        let Some(left) = job.terms.deadline().checked_sub(age).filter(|left| !left.is_zero())
        else {
            count(&self.counts.late);
            return self.own(
                job,
                Verdict::Deadline,
                "its deadline passed in the stream".to_owned(),
            );
        };
        let input = match self.input(job).await {
            Ok(input) => input,
            Err(fate) => return fate,
        };
        let work = (job.work.clone(), job.packing);
        let packed = Job::packed(work, input, job.output_bytes, job.terms.chaos);
        let packed = packed.with_deadline(left).with_priority(job.terms.priority);
        // What is given back is delivered again, and one that may run only once is not run then.
        let packed = match job.terms.idempotent {
            true => packed.refuse_if_busy(),
            false => packed.at_most_once(),
        };
        let pool = self.pool.clone();
        let handle = match spawn_blocking(move || pool.send(packed)).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return self.failed(job, error),
            Err(error) => {
                tracing::error!(%error, "sending a job to the pool");
                return Fate::GiveBack(GIVE_BACK_AFTER);
            }
        };
        match answer(handle, cancelled).await {
            (_, true) => Fate::Known,
            (Err(error), false) => self.failed(job, error),
            (Ok(answer), false) => self.answered(job, answer).await,
        }
    }

    /// The packed input, where the pool can have it.
    async fn input(&self, job: &JobMessage) -> Result<PackedInput, Fate> {
        let loaded = match (&job.input, job.packing) {
            (Carried::Inline(bytes), _) => {
                return Ok(PackedInput::Private(Arc::new(bytes.0.clone())));
            }
            (&Carried::Pieces { digest, bytes }, Packing::Grids { items, cells }) => {
                self.batch((digest, (items, cells)), bytes).await.map(PackedInput::Loaded)
            }
            (&Carried::Pieces { digest, bytes }, Packing::Search(_) | Packing::Tensors) => {
                let fetched = self.fetch(digest, bytes).await.map_err(BatchError::Nats);
                fetched.map(|bytes| PackedInput::Private(Arc::new(bytes)))
            }
        };
        loaded.map_err(|error| match error {
            BatchError::Nats(error @ NatsError::Data { .. }) => {
                self.own(job, Verdict::Failed, error.to_string())
            }
            BatchError::Nats(error) => {
                tracing::debug!(%error, job = %job.key, "fetching a batch");
                Fate::GiveBack(GIVE_BACK_AFTER)
            }
            BatchError::Pool(error) => self.failed(job, error),
        })
    }

    /// What becomes of a job that the pool has not run.
    fn failed(&self, job: &JobMessage, error: ClientError) -> Fate {
        if let ClientError::Refused(Refusal::Poison(content)) = error {
            let reason = format!("this host's pool has convicted a job like it ({content})");
            return self.own(job, Verdict::Poison, reason);
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
        Fate::Done(Box::new(receipt), output)
    }

    /// A verdict that the pool has no part in.
    fn own(&self, job: &JobMessage, verdict: Verdict, reason: String) -> Fate {
        let (host, key) = (self.settings.host.clone(), job.key.to_string());
        Fate::Done(Box::new(Receipt { host, key, verdict, reason, ..Receipt::default() }), None)
    }

    /// Carries out what becomes of a job.
    async fn settle(&self, message: &Message, job: Option<(&JobMessage, i64)>, fate: Fate) {
        let ack = match (fate, job) {
            (Fate::Done(receipt, output), Some((job, delivered))) => {
                self.publish(job, delivered, *receipt, output).await;
                AckKind::Ack
            }
            (Fate::Known, _) => {
                count(&self.counts.known);
                AckKind::Ack
            }
            (Fate::GiveBack(after), _) => {
                count(&self.counts.given_back);
                AckKind::Nak(Some(after).filter(|after| !after.is_zero()))
            }
            (Fate::Broken | Fate::Done(..), _) => AckKind::Term,
        };
        self.acknowledge(message, ack).await;
    }

    async fn acknowledge(&self, message: &Message, ack: AckKind) {
        // If it is lost, the job is delivered again, and its result found.
        if let Err(error) = message.ack_with(ack).await {
            tracing::debug!(%error, "acknowledging a job");
        }
    }

    /// Publishes a result; tries until the stream has one, for as long as the pool lives.
    async fn publish(
        &self,
        job: &JobMessage,
        delivered: i64,
        receipt: Receipt,
        output: Option<Vec<u8>>,
    ) {
        let (host, reason) = (self.settings.host.clone(), receipt.reason.clone());
        let convicted = receipt.verdict == Verdict::Poison;
        let attempt = format!("{host}.{delivered}");
        let mut carried = None;
        loop {
            let stored = self.store(job, &attempt, (&receipt, &output, &mut carried)).await;
            match stored {
                Ok(Published::Stored(_) | Published::Duplicate) => {
                    count(&self.counts.published);
                    break;
                }
                Ok(Published::Taken) => {
                    count(&self.counts.duplicates);
                    break;
                }
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::warn!(%error, job = %job.key, "its result waits to be stored");
                    sleep(RETRY_EVERY).await;
                }
            }
        }
        if convicted && self.streams.poison.of(job.content).is_none() {
            let why = Conviction { host, job: job.key.to_string(), reason };
            if let Err(error) = self.streams.poison.convict(job.content, &why).await {
                tracing::warn!(
                    error = Chain(&error).to_string(),
                    "a conviction stays on this host"
                );
            }
        }
    }

    /// One try. Keeps in `carried` where a large result lies.
    async fn store(
        &self,
        job: &JobMessage,
        attempt: &str,
        (receipt, output, carried): (&Receipt, &Option<Vec<u8>>, &mut Option<Carried>),
    ) -> Result<Published, NatsError> {
        let until = clock::now() + PUBLISH_TIMEOUT;
        if let (None, Some(output)) = (&carried, output) {
            *carried = Some(match output.len() {
                ..=Carried::INLINE_BYTES_MAX => Carried::Inline(Inline(output.clone())),
                bytes => {
                    let (digest, packed) = (Store::digest(output), output.clone().into());
                    self.streams.data.put(digest, &packed, until).await?;
                    Carried::Pieces { digest, bytes: bytes as u64 }
                }
            });
        }
        let outcome = Outcome::done(receipt.clone(), carried.clone());
        self.streams.results.publish(job.key, attempt, &outcome, until).await
    }
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
async fn comes_true(told: &mut watch::Receiver<bool>) -> bool {
    told.wait_for(|is| *is).await.is_ok()
}

/// The time since the stream took a message, if the clocks of host and server agree.
fn age_of(published_ns: i128) -> Duration {
    let since = clock::time_of_day().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
    Duration::from_nanos(u64::try_from(now - published_ns).unwrap_or(0))
}

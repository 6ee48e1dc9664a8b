//! The shared memory of jobs: leased before they are sent, and freed of results that wait when the pool has no more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{ClientMessage, Inline, Refusal};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::shared::SharedMemory;

use super::ClientError;
use super::buffers::Buffers;
use super::bundle::Verdicted;
use super::busy::RETRY_EVERY;
use super::connection::{Connection, Outgoing};
use super::runnable::AnyJob;
use super::state::{Pending, Stage, State};
use crate::lease::{Lease, ResultMemory};

impl Connection {
    /// Leases the memory of jobs, and copies their inputs. A bundle for which there is none goes as its jobs. From the
    /// first on that would wait behind others, jobs are returned as they are.
    pub(super) fn with_memory(
        &self,
        jobs: Vec<Outgoing>,
    ) -> Result<(Vec<Outgoing>, Vec<Outgoing>), ClientError> {
        let mut ready = Vec::with_capacity(jobs.len());
        let mut jobs = VecDeque::from(jobs);
        while let Some(mut own) = jobs.pop_front() {
            let options = &own.job.options;
            let waits = options.wait_for_memory && options.wait_if_busy && own.bundle.is_none();
            let leased = match waits && ready.is_empty() {
                true => self.buffers(&own.job, own.deadline),
                false => self.buffers_now(&own.job),
            };
            match (leased, own.bundle.take()) {
                (Err(ClientError::Refused(_)), Some((_, parts))) => {
                    parts.into_iter().rev().for_each(|part| jobs.push_front(part));
                }
                (Err(ClientError::Refused(Refusal::Busy(_))), None)
                    if waits && !ready.is_empty() =>
                {
                    jobs.push_front(own);
                    return Ok((ready, jobs.into()));
                }
                (leased, bundle) => {
                    (own.buffers, own.bundle) = (leased?, bundle);
                    // Outside the lock, since that takes time.
                    own.buffers.pack(&own.job);
                    ready.push(own);
                }
            }
        }
        Ok((ready, Vec::new()))
    }

    /// Leases the shared memory for a job. If the pool has too little and the job waits for a busy pool, this
    /// waits until the job's deadline, and holds nothing meanwhile.
    pub(super) fn buffers(&self, job: &AnyJob, deadline: Instant) -> Result<Buffers, ClientError> {
        loop {
            match self.buffers_now(job) {
                Err(ClientError::Refused(Refusal::Busy(_)))
                    if job.options.wait_if_busy
                        && clock::until(deadline) > RETRY_EVERY
                        && !(self.settings.gives_up)() =>
                {
                    // One of two arenas may have been had, and is free again.
                    self.wire.give_back_free();
                    if !self.copy_untaken() {
                        self.pause_while(RETRY_EVERY, |_| true);
                        self.send_refused_again()?;
                    }
                }
                buffers => return buffers,
            }
        }
    }

    /// Frees memory of which the pool has too little: returns what nobody uses, or has a result leave it. Returns
    /// whether there was any.
    pub(super) fn free_memory(&self) -> bool {
        self.wire.give_back_free() || self.copy_untaken()
    }

    /// Sends a job again that holds memory and that the pool has refused for the moment. If it was sent together with
    /// one that waits for memory, nobody has its handle yet.
    fn send_refused_again(&self) -> Result<(), ClientError> {
        let refused = {
            let state = self.lock();
            let epoch = self.wire.epoch();
            let waits = |own: &Pending| own.is_refused_for_now() && own.epoch == epoch;
            state.jobs.iter().find(|(_, own)| waits(own)).map(|(&key, _)| key)
        };
        refused.map_or(Ok(()), |key| self.send_again(key))
    }

    /// Copies a result out of its memory that nobody has taken yet. Returns whether there was one.
    fn copy_untaken(&self) -> bool {
        let untaken = self.lock().untaken();
        let Some((key, lease, job)) = untaken else { return false };
        let copy = Inline(job.copied(&lease.bytes()));
        let mut state = self.lock();
        state.jobs.get_mut(&key).is_some_and(|pending| pending.keep(&lease, copy))
    }

    pub(super) fn buffers_now(&self, job: &AnyJob) -> Result<Buffers, ClientError> {
        if job.runnable.loaded().is_some_and(|batch| !self.wire.has_lent(&batch.lease())) {
            let why = "the batch was loaded by another client: load it by the one that submits";
            return Err(Refusal::Invalid(why.to_owned()).into());
        }
        Buffers::new(job, self.wire.epoch(), |bytes| self.lease(bytes))
    }

    /// Leases an arena of at least `bytes`: a free one, or a new one from the pool.
    pub(super) fn lease(&self, bytes: u64) -> Result<Arc<Lease>, ClientError> {
        if let Some(lease) = self.wire.lend_free(bytes) {
            return Ok(lease);
        }
        let message = |request| ClientMessage::CreateArena { request, bytes };
        let (received, epoch) = self.ask(self.settings.reply_timeout, &message)?;
        let (id, map) = received.into_arena()?;
        map.populate();
        Ok(self.wire.lend_new(id, map, epoch))
    }
}

impl State {
    /// A result in shared memory for which nobody has come yet, and its job.
    fn untaken(&self) -> Option<(JobKey, Arc<Lease>, AnyJob)> {
        let has_one = |(&key, pending): (&JobKey, &Pending)| {
            let lease = pending.buffers.output.as_ref().filter(|_| pending.is_ok())?;
            Some((key, Arc::clone(lease), pending.job.clone()))
        };
        self.jobs.iter().find_map(has_one)
    }
}

impl Pending {
    /// Whether it has a result of its own.
    fn is_ok(&self) -> bool {
        matches!(&self.stage, Stage::Done(Verdicted::Own(receipt, _)) if receipt.verdict == Verdict::Ok)
    }

    /// Gives up the memory that no worker uses any more and nobody reads, now that the pool has said its last word
    /// about the job.
    pub(super) fn spent(&mut self) -> impl Iterator<Item = Arc<Lease>> {
        let (input, output) = match &self.stage {
            Stage::Done(Verdicted::Own(receipt, _)) => {
                let is_ok = receipt.verdict == Verdict::Ok;
                if !is_ok {
                    self.buffers.spoil(&self.job);
                }
                (true, !is_ok && receipt.items_done().is_empty())
            }
            Stage::Refused(_) => (true, true),
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::Done(Verdicted::Shared(..))
            | Stage::GivenBack(_)
            | Stage::Lost
            | Stage::Sent => (false, false),
        };
        let input = if input { self.buffers.input.take() } else { None };
        let output = if output { self.buffers.output.take() } else { None };
        input.into_iter().chain(output)
    }

    /// Keeps its result as this copy of it, if it still lies there. Returns whether.
    fn keep(&mut self, lease: &Arc<Lease>, copy: Inline) -> bool {
        let lies_there = self.buffers.output.as_ref().is_some_and(|own| Arc::ptr_eq(own, lease));
        if lies_there && let Stage::Done(Verdicted::Own(_, inline)) = &mut self.stage {
            *inline = Some(copy);
            self.buffers.output = None;
            return true;
        }
        false
    }

    /// The bytes of the result: in shared memory, copied if results keep much already, or from the message.
    pub(super) fn take_result(
        &mut self,
        receipt: &Receipt,
        inline: Option<Inline>,
    ) -> Option<Bytes> {
        if receipt.verdict != Verdict::Ok {
            // A worker that the pool is killing may still write to the arenas, where other shards have their places.
            self.buffers.spoil(&self.job);
        }
        let inline = inline.map(|Inline(bytes)| Bytes::Private(Arc::new(bytes)));
        let lease = self.buffers.output.take();
        let bytes = lease.map(|lease| match lease.counted() {
            Some(_counted) => Bytes::Shared(Arc::new(ResultMemory { lease, _counted })),
            None => Bytes::Private(Arc::new(self.job.copied(&lease.bytes()))),
        });
        bytes.or(inline)
    }
}

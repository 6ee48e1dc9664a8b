//! The state of a connection that its lock guards: the reading side, jobs without a verdict, open queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::frame::FrameReader;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::HANDSHAKE_TIMEOUT;
use gridpool_protocol::message::{ClientMessage, Refusal, ServerMessage};
use gridpool_protocol::receipt::{Receipt, Verdict};

use super::ClientError;
use super::buffers::Buffers;
use super::bundle::{Bundle, Verdicted};
use super::busy::{Held, RETRY_EVERY, said_by};
use super::connection::Outgoing;
use super::link::{self, Received};
use super::runnable::AnyJob;
use super::sleepers::Sleepers;
use super::wire::Wire;
use crate::lease::Lease;

/// How long a client waits for a verdict after the job's deadline. A living pool answers much earlier.
pub(super) const VERDICT_MARGIN: Duration = Duration::from_secs(15);

/// See the module's text.
#[derive(Debug)]
pub(super) struct State {
    pub(super) wire: Arc<Wire>,
    /// The reading side; `None` while a thread reads, or without a connection.
    pub(super) reader: Option<FrameReader>,
    /// Jobs whose handles live.
    pub(super) jobs: BTreeMap<JobKey, Pending>,
    /// Those that are refused until another ends.
    pub(super) held: Held,
    /// Open queries, each with its answer once that has arrived.
    pub(super) replies: BTreeMap<u64, Option<Received>>,
    /// Why the client will not reconnect; empty if the connection was lost without a reason.
    pub(super) broken: Option<String>,
    /// The verdicts that the pool gave while it drained, once it has reported them.
    pub(super) drained: Option<Vec<(Verdict, u64)>>,
    /// Threads that sleep while another reads.
    pub(super) sleepers: Sleepers,
    /// The number of futures that wait for an answer.
    #[cfg(feature = "async")]
    pub(super) futures: usize,
    /// Who watches the socket, and reads when the reading side is given back.
    #[cfg(feature = "async")]
    pub(super) watcher: Option<Waker>,
    /// Wakers of futures whose jobs have changed. Call them after the lock is released.
    pub(super) wakers: Vec<Waker>,
    /// Memory that jobs have done with, to be dropped without the lock.
    pub(super) spent: Vec<Arc<Lease>>,
    next_request: u64,
    /// Bytes of jobs that were sent since the pool was seen to take more.
    pub(super) unread_bytes: usize,
    /// A lost connection is made again.
    pub(super) reconnects: bool,
}

/// A job without an answer, with all that is needed to submit it again.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: AnyJob,
    pub(super) deadline: Instant,
    pub(super) buffers: Buffers,
    /// The connection on which it was last submitted.
    pub(super) epoch: u64,
    pub(super) stage: Stage,
    /// The client has cancelled it. After a reconnect it is cancelled again.
    pub(super) is_cancelled: bool,
    /// The waker of the future that waits for the answer, if there is one.
    pub(super) waker: Option<Waker>,
    /// The jobs that it stands for, if they are several.
    pub(super) bundle: Option<Arc<Bundle>>,
}

/// How far a job has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its handle is gone, and the pool's last message about it has not arrived yet.
    Abandoned,
    /// The pool has accepted it.
    Accepted,
    /// It went to the pool in the bundle of this key.
    Bundled(JobKey),
    /// The verdict has arrived.
    Done(Verdicted),
    /// The pool has stopped before it was finished: the next pool gets it. If none comes, this is its receipt.
    GivenBack(Box<Receipt>),
    /// It may have run on a lost connection, and must not run again.
    Lost,
    /// The pool has refused it.
    Refused(Refusal),
    /// Sent, but not yet accepted.
    Sent,
}

impl State {
    pub(super) fn new(reader: FrameReader, reconnects: bool) -> Result<Self, ClientError> {
        let socket = reader.socket().try_clone().map_err(ClientError::System)?;
        Ok(Self {
            wire: Arc::new(Wire::new(socket)),
            reader: Some(reader),
            jobs: BTreeMap::new(),
            held: Held::default(),
            replies: BTreeMap::new(),
            broken: None,
            drained: None,
            sleepers: Sleepers::default(),
            #[cfg(feature = "async")]
            futures: 0,
            #[cfg(feature = "async")]
            watcher: None,
            wakers: Vec::new(),
            spent: Vec::new(),
            next_request: 0,
            unread_bytes: 0,
            reconnects,
        })
    }

    /// Why the client will not reconnect, if that is decided.
    pub(super) fn why_broken(&self) -> Option<ClientError> {
        let reason = self.broken.as_ref()?;
        Some(match reason.as_str() {
            "" => ClientError::Lost,
            reason => ClientError::Closed(reason.to_owned()),
        })
    }

    /// Handles a message, and those that came together with it.
    pub(super) fn on_messages(
        &mut self,
        reader: &mut FrameReader,
        first: Option<Received>,
    ) -> Result<(), ClientError> {
        let mut next = first;
        while let Some(received) = next {
            self.on_message(received);
            next = link::take(reader)?;
        }
        if !self.held.is_empty() {
            self.send_held();
        }
        Ok(())
    }

    fn on_message(&mut self, received: Received) {
        match received.message {
            ServerMessage::Accepted { key } => {
                if let Some(pending) = self.jobs.get_mut(&key)
                    && matches!(pending.stage, Stage::Sent)
                {
                    pending.stage = Stage::Accepted;
                    self.call(key);
                }
            }
            ServerMessage::Refused { key, refusal } => self.set_stage(key, Stage::Refused(refusal)),
            ServerMessage::Done { key, receipt, replayed: true, .. }
                if receipt.verdict == Verdict::Ok =>
            {
                let refusal = Refusal::Invalid(format!(
                    "job {key} was run before and its result is no longer kept: submit it under a \
                     new key"
                ));
                self.set_stage(key, Stage::Refused(refusal));
            }
            ServerMessage::Done { key, receipt, output, replayed } => {
                if replayed && let Some(pending) = self.jobs.get_mut(&key) {
                    // Its shards wrote to the memory of an earlier submission.
                    pending.buffers.output = None;
                }
                let is_given_back = |pending: &Pending| pending.is_given_back(&receipt, replayed);
                let stage = match self.reconnects && self.jobs.get(&key).is_some_and(is_given_back)
                {
                    true => Stage::GivenBack(receipt),
                    false => Stage::Done(Verdicted::Own(receipt, output)),
                };
                self.set_stage(key, stage);
            }
            ServerMessage::Reply { request, .. }
            | ServerMessage::ArenaCreated { request, .. }
            | ServerMessage::Denied { request, .. }
            | ServerMessage::Granted { request, .. } => {
                if let Some(reply) = self.replies.get_mut(&request) {
                    *reply = Some(received);
                }
            }
            ServerMessage::Closing { reason } => self.broken = Some(reason),
            ServerMessage::Drained { verdicts } => self.drained = Some(verdicts),
            ServerMessage::Welcome { .. } => {}
        }
    }

    /// Notes the pool's last message about a job.
    pub(super) fn set_stage(&mut self, key: JobKey, stage: Stage) {
        let Some(pending) = self.jobs.get_mut(&key) else { return };
        let is_abandoned = matches!(pending.stage, Stage::Abandoned);
        let is_passing = match &stage {
            Stage::Refused(Refusal::Bundled) => false,
            Stage::Refused(why) => pending.may_try_again(why),
            Stage::GivenBack(_) => true,
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::Done(..)
            | Stage::Lost
            | Stage::Sent => false,
        };
        self.held.on_last(key, pending, &stage, is_passing && !is_abandoned);
        if is_abandoned {
            self.jobs.remove(&key);
            return;
        }
        match pending.bundle.clone() {
            Some(bundle) if !is_passing => self.unbundle(key, &bundle, stage),
            Some(_) | None => pending.stage = stage,
        }
        self.call(key);
        if !is_passing && let Some(pending) = self.jobs.get_mut(&key) {
            // Who waits for the answer may come late.
            self.spent.extend(pending.spent());
            self.wakers.extend(pending.waker.take());
        }
    }

    /// Nothing will change any more: no pool takes what was given back. Wakes all futures.
    pub(super) fn give_up(&mut self) {
        let given_back = |(&key, pending): (&JobKey, &mut Pending)| {
            let Stage::GivenBack(receipt) = &mut pending.stage else { return None };
            Some((key, std::mem::take(receipt)))
        };
        let given_back: Vec<_> = self.jobs.iter_mut().filter_map(given_back).collect();
        for (key, receipt) in given_back {
            self.set_stage(key, Stage::Done(Verdicted::Own(receipt, None)));
        }
        self.wake_all();
    }

    /// Wakes whoever waits for anything.
    pub(super) fn wake_all(&mut self) {
        let wakers = self.jobs.values_mut().filter_map(|pending| pending.waker.take());
        self.wakers.extend(wakers);
        self.sleepers.call_all();
        self.wake_watcher();
    }

    /// Gives the reading side to the next who reads.
    pub(super) fn put_back(&mut self, reader: FrameReader) {
        self.reader = Some(reader);
        self.wake_watcher();
    }

    fn wake_watcher(&mut self) {
        #[cfg(feature = "async")]
        self.wakers.extend(self.watcher.take());
    }

    /// Drops the lost connection, its arenas and its open queries.
    pub(super) fn disconnect(&mut self) {
        self.wire.close();
        self.reader = None;
        self.replies.clear();
    }

    /// Uses a new connection, and submits the jobs without a verdict there.
    pub(super) fn reconnect(&mut self, reader: FrameReader) -> Result<(), ClientError> {
        self.wire.open(reader.socket().try_clone().map_err(ClientError::System)?);
        self.put_back(reader);
        self.held.on_reconnect();
        // A pool that has drained has given every verdict: it never accepted what was only sent.
        let has_drained = self.drained.take().is_some();
        self.jobs.retain(|_, pending| !matches!(pending.stage, Stage::Abandoned));
        for key in self.jobs.keys().copied().collect::<Vec<_>>() {
            let Some(pending) = self.jobs.get_mut(&key) else { continue };
            match pending.stage {
                Stage::Sent if has_drained => {}
                Stage::Accepted | Stage::Sent if !pending.job.options.idempotent => {
                    self.set_stage(key, Stage::Lost);
                    continue;
                }
                Stage::Accepted | Stage::GivenBack(_) | Stage::Sent => {}
                // It is held, or whoever waits for it sends it again after a pause.
                Stage::Refused(_) => continue,
                Stage::Abandoned | Stage::Bundled(_) | Stage::Done(..) | Stage::Lost => continue,
            }
            match self.submit_again(key) {
                Err(ClientError::Refused(refusal)) => self.set_stage(key, Stage::Refused(refusal)),
                result => result?,
            }
        }
        Ok(())
    }

    /// Submits a job on the current connection, with new arenas.
    fn submit_again(&mut self, key: JobKey) -> Result<(), ClientError> {
        let job = self.jobs[&key].job.clone();
        let buffers = Buffers::new(&job, self.wire.epoch(), |bytes| self.create_arena(bytes))?;
        buffers.pack(&job);
        let epoch = self.wire.epoch();
        let Some(pending) = self.jobs.get_mut(&key) else { return Ok(()) };
        pending.buffers = buffers;
        pending.epoch = epoch;
        pending.stage = Stage::Sent;
        let (message, is_cancelled) = (pending.submission(key), pending.is_cancelled);
        self.wire.send(&message)?;
        if is_cancelled { self.wire.send(&ClientMessage::Cancel { key }) } else { Ok(()) }
    }

    /// Requests an arena and reads until it arrives, under the lock. That is safe only on a new connection,
    /// which no other thread reads yet.
    fn create_arena(&mut self, bytes: u64) -> Result<Arc<Lease>, ClientError> {
        let request = self.ask(&|request| ClientMessage::CreateArena { request, bytes });
        let request = request.ok_or(ClientError::Lost)?;
        let mut reader = self.reader.take().ok_or(ClientError::Lost)?;
        while let Some(None) = self.replies.get(&request) {
            let received = link::receive(&mut reader, Some(HANDSHAKE_TIMEOUT))?;
            self.on_message(received.ok_or(ClientError::Silent)?);
        }
        self.reader = Some(reader);
        let received = self.replies.remove(&request).flatten();
        let (id, map) = received.ok_or(ClientError::Lost)?.into_arena()?;
        Ok(self.wire.lend_new(id, map, self.wire.epoch()))
    }

    /// Sends a query and returns its number; `None` without a connection.
    pub(super) fn ask(&mut self, message: &dyn Fn(u64) -> ClientMessage) -> Option<u64> {
        if !self.wire.is_open() {
            return None;
        }
        let request = self.next_request;
        self.next_request += 1;
        self.replies.insert(request, None);
        self.wire.send_or_hang_up(&message(request));
        Some(request)
    }

    /// Takes new jobs, and sends them, or holds them if the pool is full; `false` if memory of theirs is not of the
    /// current connection. After an error, none of them is sent.
    pub(super) fn take_in(&mut self, jobs: &mut Vec<Outgoing>) -> Result<bool, ClientError> {
        let epoch = self.wire.epoch();
        if !jobs.iter().all(|own| own.buffers.are_of(epoch)) {
            return Ok(false);
        }
        // Another thread may have used a key meanwhile.
        self.check_keys(jobs)?;
        let mut keys = Vec::with_capacity(jobs.len());
        // Also of those that are held: reading sends them.
        self.unread_bytes += jobs.iter().map(|own| own.job.message_bytes()).sum::<usize>();
        for mut own in jobs.drain(..) {
            let key = own.key;
            let (bundle, parts) = own.bundle.take().unzip();
            let pending = |own: Outgoing, stage, bundle| {
                let Outgoing { job, deadline, buffers, .. } = own;
                let (is_cancelled, waker) = (false, None);
                Pending { job, deadline, buffers, epoch, stage, is_cancelled, waker, bundle }
            };
            for part in parts.into_iter().flatten() {
                self.jobs.insert(part.key, pending(part, Stage::Bundled(key), None));
            }
            self.jobs.insert(key, pending(own, Stage::Sent, bundle));
            if !self.hold(key) {
                keys.push(key);
            }
        }
        self.send_jobs(&keys);
        Ok(true)
    }

    /// Sends jobs in `jobs` together. Without a connection, the thread that reconnects sends them.
    pub(super) fn send_jobs(&self, keys: &[JobKey]) {
        if keys.is_empty() {
            return;
        }
        let submission = |&key: &JobKey| Some(self.jobs.get(&key)?.submission(key));
        self.wire.send_all_or_hang_up(keys.iter().filter_map(submission));
    }

    /// The error if a key is that of a job whose handle lives, or of two of these.
    pub(super) fn check_keys(&self, jobs: &[Outgoing]) -> Result<(), ClientError> {
        let mut own = BTreeSet::new();
        let mut is_taken =
            |key: &JobKey| self.jobs.contains_key(key) || (jobs.len() > 1 && !own.insert(*key));
        let taken = jobs.iter().map(|job| job.key).find(|key| is_taken(key));
        taken.map_or(Ok(()), |key| Err(Refusal::KeyInUse(key).into()))
    }
}

impl Pending {
    /// Whether to submit it again after this refusal: not if it is cancelled.
    pub(super) fn may_try_again(&self, refusal: &Refusal) -> bool {
        // After a reconnect, the key may still belong to this job's earlier submission. A pool that drains
        // may be about to start again.
        let is_passing = matches!(
            refusal,
            Refusal::Bundled | Refusal::Busy(_) | Refusal::Draining | Refusal::KeyInUse(_)
        );
        let left = clock::until(self.deadline);
        let is_wanted = self.job.options.wait_if_busy && !self.is_cancelled;
        is_passing && is_wanted && left > RETRY_EVERY.max(said_by(refusal))
    }

    /// Whether the pool has refused it, and it is to be submitted again.
    pub(super) fn is_refused_for_now(&self) -> bool {
        matches!(&self.stage, Stage::Refused(why) if self.may_try_again(why))
    }

    /// Whether the pool has refused it, and it is still wanted.
    pub(super) fn waits_for_retry(&self) -> bool {
        matches!(self.stage, Stage::Refused(_)) && !self.is_cancelled
    }

    /// Whether the pool, and not this client, has cancelled it, and another pool may run it. One that must not run
    /// twice was not begun, and no pool remembers that verdict.
    fn is_given_back(&self, receipt: &Receipt, replayed: bool) -> bool {
        let is_unbegun = receipt.attempts.is_empty() && !replayed;
        receipt.verdict == Verdict::Cancelled
            && !self.is_cancelled
            && (self.job.options.idempotent || is_unbegun)
            && self.job.options.outlives_pool
    }

    /// Whether its verdict is overdue.
    #[cfg(feature = "async")]
    pub(super) fn is_late(&self) -> bool {
        clock::until(self.deadline + VERDICT_MARGIN).is_zero()
    }

    /// The message that submits the job.
    pub(super) fn submission(&self, key: JobKey) -> ClientMessage {
        // Round up, so that the job does not expire early.
        let left = clock::until(self.deadline).as_micros().div_ceil(1_000);
        let deadline_ms = u64::try_from(left).unwrap_or(u64::MAX);
        let named = self.buffers.named(&self.job);
        let submission = self.job.submission(key, deadline_ms, self.count(), named);
        ClientMessage::Submit(Box::new(submission))
    }
}

//! When jobs are sent again that a busy pool has refused: after a pause, or as soon as another of the client has ended,
//! if it has as many under way as the pool allows. And how much is sent before the client reads.

mod held;

use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Packing, Refusal, Work};

use super::ClientError;
use super::buffers::Buffers;
use super::connection::{Connection, Outgoing};
use super::link::SEND_TIMEOUT;
use super::runnable::AnyJob;
use super::state::{Pending, Stage, State};
pub(super) use held::{Held, Lane};

/// Bytes of jobs that are sent before the client looks whether the pool takes more: it takes nothing from a client that
/// does not read. Twice as much, and a message, fit what is free of a socket's buffer that has room.
pub(super) const UNREAD_BYTES_MAX: usize = 32 << 10;
/// What a message takes besides the input, at most in most cases, bytes.
const MESSAGE_BYTES: usize = 1 << 10;
/// How often a sender looks, if no answer comes meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often what has arrived is read at once: what is sent then brings more.
pub(super) const READS_MAX: u32 = 8;
/// Pause between two attempts to connect, and between two submissions to a busy pool.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(20);
/// The same into a stream of a cluster that is full, which many clients share.
const STREAM_RETRY_EVERY: Duration = Duration::from_millis(200);
/// Longest pause between two submissions, if the pool has said when to come again.
const RETRY_EVERY_MAX: Duration = Duration::from_secs(1);

/// The least time after which the job may be accepted.
pub(super) fn said_by(refusal: &Refusal) -> Duration {
    match refusal {
        Refusal::Busy(Limit::StreamDataBytes | Limit::StreamJobBytes | Limit::StreamJobs) => {
            STREAM_RETRY_EVERY
        }
        Refusal::Busy(limit) => limit.again_in().unwrap_or(Duration::ZERO),
        Refusal::Bundled
        | Refusal::Draining
        | Refusal::Invalid(_)
        | Refusal::KeyInUse(_)
        | Refusal::NotAllowed(_)
        | Refusal::Poison(_)
        | Refusal::Unable(_) => Duration::ZERO,
    }
}

/// The pause before a refused job is submitted again. What the pool says may change meanwhile.
pub(super) fn pause_after(refusal: &Refusal) -> Duration {
    said_by(refusal).clamp(RETRY_EVERY, RETRY_EVERY_MAX)
}

impl State {
    /// Whether the pool takes more. Looks after each [`UNREAD_BYTES_MAX`].
    pub(super) fn has_room(&mut self) -> bool {
        if self.unread_bytes >= UNREAD_BYTES_MAX && self.wire.has_room() {
            self.unread_bytes = 0;
        }
        self.unread_bytes < UNREAD_BYTES_MAX
    }

    /// Sends the held jobs whose turn it is, as many as the pool takes without being read. The next message brings the
    /// others.
    pub(super) fn send_held(&mut self) {
        while self.has_room() {
            let keys = self.take_due();
            if keys.is_empty() {
                return;
            }
            self.send_jobs(&keys);
        }
    }

    /// Takes held jobs of up to [`UNREAD_BYTES_MAX`], to be sent together.
    fn take_due(&mut self) -> Vec<JobKey> {
        let epoch = self.wire.epoch();
        let mut keys = Vec::new();
        while self.unread_bytes < UNREAD_BYTES_MAX
            && let Some(key) = self.held.pop_due()
        {
            let Some(pending) = self.jobs.get_mut(&key) else { continue };
            // Memory of a lost connection is replaced by who waits for the job.
            if pending.is_refused_for_now() && pending.buffers.are_of(epoch) {
                (pending.stage, pending.epoch) = (Stage::Sent, epoch);
                self.unread_bytes += pending.job.message_bytes();
                keys.push(key);
            } else {
                let lane = pending.lane();
                self.held.on_refused(&lane);
            }
        }
        keys
    }

    /// Keeps a new job, unless the pool may take it. One that may not wait, or not for long, is always tried.
    pub(super) fn hold(&mut self, key: JobKey) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let Some(pending) = self.jobs.get_mut(&key).filter(|own| own.may_be_held()) else {
            return false;
        };
        let refused = self.held.admit(clock::now(), &pending.lane(), key);
        if let Err(why) = refused {
            pending.stage = Stage::Refused(why);
            return true;
        }
        false
    }

    /// Sends a refused job again.
    pub(super) fn send_refused(&mut self, key: JobKey) {
        let Some(pending) = self.jobs.get_mut(&key) else { return };
        pending.stage = Stage::Sent;
        self.unread_bytes += pending.job.message_bytes();
        let lane = pending.lane();
        self.held.remove(&lane, key);
        self.held.on_try(clock::now(), &lane);
        self.send_jobs(&[key]);
    }
}

impl Held {
    /// What the pool's last message about a job means for those that are held. `is_wanted`: it is to be sent again.
    pub(super) fn on_last(&mut self, key: JobKey, job: &Pending, stage: &Stage, is_wanted: bool) {
        match stage {
            Stage::Refused(why @ Refusal::Busy(_)) => {
                let lane = job.lane();
                if is_wanted && (Self::takes(why) || self.has(&lane)) {
                    self.insert(clock::now(), lane, key, why.clone());
                }
            }
            Stage::Refused(_) if !self.is_empty() => self.on_refused(&job.lane()),
            Stage::Done(..) if !self.is_empty() => {
                (0..job.count()).for_each(|_| self.on_end(clock::now(), &job.lane()));
            }
            Stage::Abandoned
            | Stage::Accepted
            | Stage::Bundled(_)
            | Stage::Done(..)
            | Stage::GivenBack(_)
            | Stage::Lost
            | Stage::Refused(_)
            | Stage::Sent => {}
        }
    }
}

impl Pending {
    /// Whether it may be kept while the pool is known to be full.
    fn may_be_held(&self) -> bool {
        let is_patient = clock::until(self.deadline) > RETRY_EVERY_MAX;
        self.job.options.wait_if_busy && !self.is_cancelled && is_patient
    }

    /// Whether the end of another sends it.
    fn is_held(&self, held: &Held) -> bool {
        let is_own = matches!(&self.stage, Stage::Refused(why) if Held::takes(why));
        is_own && self.may_be_held() && held.is_full(clock::now(), &self.lane())
    }

    /// Where the pool counts it.
    pub(super) fn lane(&self) -> Lane {
        // The text of a program is long.
        let has_tensors = matches!(self.job.runnable.packing(), Packing::Tensors);
        match has_tensors.then(|| self.job.runnable.work()) {
            Some(Work::Model { name }) => Lane(Some(name)),
            Some(Work::Program { .. } | Work::Search { .. }) | None => Lane(None),
        }
    }
}

impl AnyJob {
    /// About what its message takes, bytes.
    pub(super) fn message_bytes(&self) -> usize {
        let inline = if self.shares_input() { 0 } else { self.runnable.input_bytes() };
        MESSAGE_BYTES + inline
    }
}

impl Connection {
    /// Reads until the pool takes more, if this client has sent much.
    pub(super) fn make_room(self: &Arc<Self>) -> Result<(), ClientError> {
        if self.lock().unread_bytes < UNREAD_BYTES_MAX {
            return Ok(());
        }
        self.try_for(|_| None::<()>)?;
        let give_up = clock::now() + SEND_TIMEOUT;
        loop {
            let look_at = clock::now() + LOOK_EVERY;
            match self.wait_for(look_at, |state| state.has_room().then_some(())) {
                Err(ClientError::Silent) if !clock::until(give_up).is_zero() => {}
                waited => return waited,
            }
        }
    }

    /// Sends a job if no part of that waits, and returns whether: there is a connection, the pool reads, and has lent
    /// enough memory already.
    pub(super) fn try_send(&self, mut own: Outgoing) -> Result<bool, ClientError> {
        let lease = |bytes| self.wire.lend_free(bytes).ok_or(());
        // A loaded batch of a lost connection would be copied, however large it is.
        let leased = match own.job.runnable.loaded() {
            None => Buffers::new(&own.job, self.wire.epoch(), lease),
            Some(_) => Err(()),
        };
        let Ok(buffers) = leased else { return Ok(false) };
        buffers.pack(&own.job);
        own.buffers = buffers;
        // Who reconnects has the lock for as long as the pool takes to lend memory.
        let Some(mut state) = self.lock_soon() else { return Ok(false) };
        if !self.wire.is_open() || !state.has_room() {
            return Ok(false);
        }
        state.take_in(&mut vec![own])
    }

    /// Sends a job again that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        loop {
            let mut state = self.lock();
            let epoch = self.wire.epoch();
            // It may have been sent meanwhile, by the end of another.
            let Some((key, pending)) = state.sent_for(key).filter(|(_, own)| own.waits_for_retry())
            else {
                return Ok(());
            };
            if pending.epoch == epoch {
                // Otherwise the next pause is for it, too.
                if !pending.is_held(&state.held) && state.has_room() {
                    state.send_refused(key);
                }
                return Ok(());
            }
            // Its arenas belong to a lost connection.
            let (job, deadline) = (pending.job.clone(), pending.deadline);
            drop(state);
            let buffers = self.buffers(&job, deadline)?;
            buffers.pack(&job);
            // Several threads may wait for a bundle: another may have sent it meanwhile.
            if let Some(pending) = self.lock().jobs.get_mut(&key)
                && pending.waits_for_retry()
                && pending.epoch != epoch
                && buffers.are_of(epoch)
            {
                (pending.buffers, pending.epoch) = (buffers, epoch);
            }
        }
    }

    /// Whether to send a refused job again.
    pub(super) fn may_try_again(&self, key: JobKey, refusal: &Refusal) -> bool {
        self.lock().sent_for(key).is_some_and(|(_, pending)| pending.may_try_again(refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_stream_is_tried_less_often_than_a_full_pool() {
        for full in [Limit::StreamDataBytes, Limit::StreamJobBytes, Limit::StreamJobs] {
            assert_eq!(pause_after(&Refusal::Busy(full)), Duration::from_millis(200));
        }
        assert_eq!(pause_after(&Refusal::Busy(Limit::QueueJobs)), Duration::from_millis(20));
    }
}

//! When jobs are sent again that a busy pool has refused: after a pause, or as soon as another of the client has ended,
//! if it has as many under way as the pool allows. And how much is sent before the client reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Refusal, Work};

use super::ClientError;
use super::connection::Connection;
use super::link::SEND_TIMEOUT;
use super::runnable::AnyJob;
use super::state::{Pending, Stage, State};

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
        Refusal::Draining
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

/// What the pool counts apart: the jobs of each model, and all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane(Option<String>);

/// Jobs that wait until others of their lane have ended: the oldest is sent then.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<Lane, Waiting>);

/// Those of one lane.
#[derive(Debug)]
struct Waiting {
    keys: BTreeSet<JobKey>,
    /// So many may be sent.
    due: usize,
    /// When the pool last refused one.
    refused_at: Instant,
}

impl Held {
    /// Whether the end of a job of this client helps.
    pub(super) fn takes(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Busy(limit) if limit.is_own())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, lane: Lane, key: JobKey) {
        let refused_at = clock::now();
        let none = || Waiting { keys: BTreeSet::new(), due: 0, refused_at };
        let waiting = self.0.entry(lane).or_insert_with(none);
        waiting.keys.insert(key);
        waiting.refused_at = refused_at;
    }

    pub(super) fn remove(&mut self, lane: &Lane, key: JobKey) {
        if let Some(waiting) = self.0.get_mut(lane) {
            waiting.keys.remove(&key);
            if waiting.keys.is_empty() {
                self.0.remove(lane);
            }
        }
    }

    /// A job of the lane has ended. If the pool has refused none for a while, it may take one more than before.
    pub(super) fn on_end(&mut self, lane: &Lane) {
        if let Some(waiting) = self.0.get_mut(lane) {
            let is_open = waiting.refused_at.elapsed() > RETRY_EVERY;
            waiting.due += if is_open { 2 } else { 1 };
        }
    }

    /// A job of the lane that was sent in its turn will not run: the next has that turn.
    pub(super) fn on_refused(&mut self, lane: &Lane) {
        if let Some(waiting) = self.0.get_mut(lane) {
            waiting.due += 1;
        }
    }

    /// Takes a job that may be sent, the oldest of its lane. Keys that the caller chose are in their own order.
    pub(super) fn pop_due(&mut self) -> Option<JobKey> {
        let (lane, waiting) = self.0.iter_mut().find(|(_, waiting)| waiting.due > 0)?;
        let (lane, key) = (lane.clone(), waiting.keys.pop_first()?);
        waiting.due -= 1;
        if waiting.keys.is_empty() {
            self.0.remove(&lane);
        }
        Some(key)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
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
            let is_wanted =
                matches!(&pending.stage, Stage::Refused(why) if pending.may_try_again(why));
            if is_wanted && pending.epoch == epoch {
                pending.stage = Stage::Sent;
                self.unread_bytes += pending.job.message_bytes();
                keys.push(key);
            } else {
                let lane = pending.lane();
                self.held.on_refused(&lane);
            }
        }
        keys
    }

    /// Sends a refused job again.
    pub(super) fn send_refused(&mut self, key: JobKey) {
        let Some(pending) = self.jobs.get_mut(&key) else { return };
        pending.stage = Stage::Sent;
        self.unread_bytes += pending.job.message_bytes();
        self.held.remove(&pending.lane(), key);
        self.send_jobs(&[key]);
    }
}

impl Pending {
    /// Where the pool counts it.
    pub(super) fn lane(&self) -> Lane {
        match self.job.runnable.work() {
            Work::Model { name } => Lane(Some(name)),
            Work::Program { .. } | Work::Search { .. } => Lane(None),
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

    /// Sends a job again that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        loop {
            let mut state = self.lock();
            let epoch = self.wire.epoch();
            // It may have been sent meanwhile, by the end of another.
            let refused = |pending: &&mut Pending| pending.waits_for_retry();
            let Some(pending) = state.jobs.get_mut(&key).filter(refused) else { return Ok(()) };
            if pending.epoch == epoch {
                // Without room the next pause is for it, too.
                if state.has_room() {
                    state.send_refused(key);
                }
                return Ok(());
            }
            // Its arenas belong to a lost connection.
            let (job, deadline) = (pending.job.clone(), pending.deadline);
            drop(state);
            let buffers = self.buffers(&job, deadline)?;
            buffers.pack(&job);
            if let Some(pending) = self.lock().jobs.get_mut(&key)
                && buffers.are_of(epoch)
            {
                (pending.buffers, pending.epoch) = (buffers, epoch);
            }
        }
    }

    /// Whether to send a refused job again.
    pub(super) fn may_try_again(&self, key: JobKey, refusal: &Refusal) -> bool {
        self.lock().jobs.get(&key).is_some_and(|pending| pending.may_try_again(refusal))
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

    fn held(lane: &Lane, keys: std::ops::Range<u128>) -> Held {
        let mut held = Held::default();
        keys.for_each(|key| held.insert(lane.clone(), JobKey(key)));
        held
    }

    #[test]
    fn an_end_sends_the_oldest_of_its_lane_and_one_more_if_none_was_refused_for_a_while() {
        let (grids, model) = (Lane(None), Lane(Some("m".into())));
        let mut held = held(&grids, 1..6);
        held.on_end(&model);
        assert_eq!(held.pop_due(), None);
        held.on_end(&grids);
        assert_eq!([held.pop_due(), held.pop_due()], [Some(JobKey(1)), None]);
        let waiting = held.0.get_mut(&grids).unwrap();
        waiting.refused_at = waiting.refused_at.checked_sub(2 * RETRY_EVERY).unwrap();
        held.on_end(&grids);
        let sent = [(); 3].map(|()| held.pop_due());
        assert_eq!(sent, [Some(JobKey(2)), Some(JobKey(3)), None]);
        held.insert(grids.clone(), JobKey(2));
        held.on_end(&grids);
        assert_eq!([held.pop_due(), held.pop_due()], [Some(JobKey(2)), None]);
        held.remove(&grids, JobKey(4));
        held.remove(&grids, JobKey(5));
        assert!(held.is_empty());
    }
}

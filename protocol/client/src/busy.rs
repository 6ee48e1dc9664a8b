//! When jobs are sent again that a busy pool has refused: after a pause, or as soon as another of the client has ended,
//! if it has as many under way as the pool allows. And how much is sent before the client reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Packing, Refusal, Work};

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
pub(super) struct Held(BTreeMap<Lane, Full>);

/// A lane of which the pool has lately refused a job.
#[derive(Debug)]
struct Full {
    keys: BTreeSet<JobKey>,
    /// So many may be sent.
    due: usize,
    /// With so many more the pool is tried next.
    step: usize,
    /// When it was last tried with more than it was known to take.
    tried_at: Instant,
    /// What it said when it last refused one.
    why: Refusal,
}

impl Full {
    /// Whether to try with more: what the pool takes may have grown.
    fn is_stale(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.tried_at) > RETRY_EVERY
    }

    /// Whether the pool would surely refuse one more, whatever its size: only the ends of this connection's jobs
    /// make room.
    fn is_sure(&self, now: Instant) -> bool {
        matches!(self.why, Refusal::Busy(Limit::ClientJobs)) && !self.is_stale(now)
    }
}

impl Held {
    /// Whether the end of a job of this client helps.
    fn takes(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Busy(limit) if limit.is_own())
    }

    /// Whether no lane is full.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the pool would refuse a job of this lane, as it has said a moment ago.
    fn is_full(&self, now: Instant, lane: &Lane) -> bool {
        self.0.get(lane).is_some_and(|full| full.is_sure(now))
    }

    /// A job of the lane is sent although none is due.
    fn is_tried(&mut self, now: Instant, lane: &Lane) {
        if let Some(full) = self.0.get_mut(lane) {
            full.tried_at = now;
        }
    }

    /// A new job: whether to send it, or why the pool would refuse it. Then it is held.
    fn admit(&mut self, now: Instant, lane: &Lane, key: JobKey) -> Result<(), Refusal> {
        let Some(full) = self.0.get_mut(lane) else { return Ok(()) };
        if full.is_sure(now) && (full.due == 0 || !full.keys.is_empty()) {
            full.keys.insert(key);
            return Err(full.why.clone());
        }
        match full.due.checked_sub(1) {
            Some(due) if full.keys.is_empty() => full.due = due,
            _ => full.tried_at = now,
        }
        Ok(())
    }

    /// The pool has refused a job for the moment: whether the end of another sends it. If the limit is of this
    /// connection's jobs, there are as many, whatever had ended before.
    fn insert(&mut self, now: Instant, lane: Lane, key: JobKey, why: Refusal) {
        self.0.retain(|_, full| !full.keys.is_empty() || !full.is_stale(now));
        let is_sure = matches!(why, Refusal::Busy(Limit::ClientJobs));
        let none =
            || Full { keys: BTreeSet::new(), due: 0, step: 1, tried_at: now, why: why.clone() };
        let full = self.0.entry(lane).or_insert_with(none);
        full.keys.insert(key);
        (full.step, full.tried_at) = (1, now);
        if is_sure {
            full.due = 0;
        }
        if Self::takes(&why) {
            full.why = why;
        }
    }

    pub(super) fn remove(&mut self, lane: &Lane, key: JobKey) {
        if let Some(full) = self.0.get_mut(lane) {
            full.keys.remove(&key);
        }
    }

    /// A job of the lane has ended. If the pool has refused none for a while, it is tried with more than before.
    fn on_end(&mut self, now: Instant, lane: &Lane) {
        let Some(full) = self.0.get_mut(lane) else { return };
        if full.is_stale(now) && full.keys.is_empty() {
            self.0.remove(lane);
            return;
        }
        // Those that were due before have been sent.
        if full.is_stale(now) && full.due == 0 {
            full.due = full.step;
            full.step *= 2;
            full.tried_at = now;
        }
        full.due += 1;
    }

    /// A job of the lane that was sent in its turn will not run: the next has that turn.
    fn on_refused(&mut self, lane: &Lane) {
        if let Some(full) = self.0.get_mut(lane) {
            full.due += 1;
        }
    }

    /// Takes a job that may be sent, the oldest of its lane. Keys that the caller chose are in their own order.
    fn pop_due(&mut self) -> Option<JobKey> {
        let full = self.0.values_mut().find(|full| full.due > 0 && !full.keys.is_empty())?;
        full.due -= 1;
        full.keys.pop_first()
    }

    /// There is a new connection, without jobs under way.
    pub(super) fn on_reconnect(&mut self) {
        for full in self.0.values_mut() {
            (full.due, full.step) = (0, 1);
        }
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
            // Memory of a lost connection is replaced by who waits for the job.
            if is_wanted && pending.buffers.are_of(epoch) {
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
        self.held.is_tried(clock::now(), &lane);
        self.send_jobs(&[key]);
    }

    /// What the pool's last message about a job means for those that are held.
    pub(super) fn on_last(&mut self, key: JobKey, stage: &Stage) {
        let Some(pending) = self.jobs.get(&key) else { return };
        match stage {
            Stage::Refused(why @ Refusal::Busy(_)) => {
                let is_wanted = pending.may_try_again(why) && !pending.is_abandoned();
                let lane = pending.lane();
                if is_wanted && (Held::takes(why) || self.held.0.contains_key(&lane)) {
                    self.held.insert(clock::now(), lane, key, why.clone());
                }
            }
            Stage::Refused(_) if !self.held.is_empty() => self.held.on_refused(&pending.lane()),
            Stage::Done(..) if !self.held.is_empty() => {
                self.held.on_end(clock::now(), &pending.lane());
            }
            Stage::Abandoned
            | Stage::Accepted
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

    /// Whether its handle is gone.
    fn is_abandoned(&self) -> bool {
        matches!(self.stage, Stage::Abandoned)
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

    /// Sends a job again that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        loop {
            let mut state = self.lock();
            let epoch = self.wire.epoch();
            // It may have been sent meanwhile, by the end of another.
            let refused = |pending: &&Pending| pending.waits_for_retry();
            let Some(pending) = state.jobs.get(&key).filter(refused) else { return Ok(()) };
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

    fn busy() -> Refusal {
        Refusal::Busy(Limit::ClientJobs)
    }

    fn held(now: Instant, lane: &Lane, keys: std::ops::Range<u128>) -> Held {
        let mut held = Held::default();
        keys.for_each(|key| held.insert(now, lane.clone(), JobKey(key), busy()));
        held
    }

    #[test]
    fn an_end_sends_the_oldest_of_its_lane_and_more_each_time_if_none_was_refused_for_a_while() {
        let (grids, model) = (Lane(None), Lane(Some("m".into())));
        let mut now = clock::now();
        let mut held = held(now, &grids, 1..20);
        held.on_end(now, &model);
        assert_eq!(held.pop_due(), None);
        held.on_end(now, &grids);
        assert_eq!([held.pop_due(), held.pop_due()], [Some(JobKey(1)), None]);
        let mut next = 2;
        for more in [1, 2, 4] {
            now += 2 * RETRY_EVERY;
            held.on_end(now, &grids);
            let sent: Vec<_> = std::iter::from_fn(|| held.pop_due()).collect();
            assert_eq!(sent, (next..=next + more).map(JobKey).collect::<Vec<_>>());
            next += more + 1;
        }
        // What is due and not sent is no reason for more.
        held.on_end(now, &grids);
        now += 2 * RETRY_EVERY;
        held.on_end(now, &grids);
        let sent = [(); 3].map(|()| held.pop_due());
        assert_eq!(sent, [Some(JobKey(next)), Some(JobKey(next + 1)), None]);
        next += 2;
        // It was too much. What had ended before is in what the pool counted.
        held.on_end(now, &grids);
        held.insert(now, grids.clone(), JobKey(next - 1), busy());
        assert_eq!(held.pop_due(), None);
        now += 2 * RETRY_EVERY;
        held.on_end(now, &grids);
        let sent = [(); 3].map(|()| held.pop_due());
        assert_eq!(sent, [Some(JobKey(next - 1)), Some(JobKey(next)), None]);
    }

    #[test]
    fn a_job_over_a_limit_of_bytes_holds_back_no_other() {
        let (grids, now) = (Lane(None), clock::now());
        let mut held = held(now, &grids, 1..2);
        held.on_end(now, &grids);
        held.insert(now, grids.clone(), JobKey(2), Refusal::Busy(Limit::PrincipalBytes));
        assert!(!held.is_full(now, &grids));
        assert_eq!(held.admit(now, &grids, JobKey(3)), Ok(()));
        assert_eq!([held.pop_due(), held.pop_due()], [Some(JobKey(1)), None], "it is still due");
    }

    #[test]
    fn a_new_job_is_sent_if_another_has_ended_or_the_pool_was_not_tried_for_a_while() {
        let grids = Lane(None);
        let mut now = clock::now();
        let mut held = held(now, &grids, 1..2);
        assert_eq!(held.admit(now, &Lane(Some("m".into())), JobKey(9)), Ok(()));
        assert_eq!(held.admit(now, &grids, JobKey(2)), Err(busy()));
        held.on_end(now, &grids);
        held.on_end(now, &grids);
        held.on_end(now, &grids);
        // Those before it go first.
        let sent = [(); 3].map(|()| held.pop_due());
        assert_eq!(sent, [Some(JobKey(1)), Some(JobKey(2)), None]);
        assert_eq!(held.admit(now, &grids, JobKey(3)), Ok(()));
        assert_eq!(held.admit(now, &grids, JobKey(4)), Err(busy()));
        now += 2 * RETRY_EVERY;
        assert_eq!(held.admit(now, &grids, JobKey(5)), Ok(()));
        // No lane is full once all are sent and none was refused for a while.
        held.remove(&grids, JobKey(4));
        now += 2 * RETRY_EVERY;
        held.on_end(now, &grids);
        assert!(held.is_empty());
    }
}

//! Jobs that the pool has refused, or would refuse, until others of this client end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Limit, Refusal};

use super::RETRY_EVERY;

/// What the pool counts apart: the jobs of each model, and all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(pub(super) Option<String>);

/// Jobs that wait until others of their lane have ended: the oldest is sent then.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<Lane, Full>);

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
    fn new(now: Instant, why: Refusal) -> Self {
        Self { keys: BTreeSet::new(), due: 0, step: 1, tried_at: now, why }
    }

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
    pub(super) fn takes(refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Busy(limit) if limit.is_own())
    }

    /// Whether no lane is full.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the pool has lately refused a job of this lane.
    pub(super) fn has(&self, lane: &Lane) -> bool {
        self.0.contains_key(lane)
    }

    /// Whether the pool would refuse a job of this lane, as it has said a moment ago.
    pub(super) fn is_full(&self, now: Instant, lane: &Lane) -> bool {
        self.0.get(lane).is_some_and(|full| full.is_sure(now))
    }

    /// A job of the lane is sent although none is due.
    pub(super) fn on_try(&mut self, now: Instant, lane: &Lane) {
        if let Some(full) = self.0.get_mut(lane) {
            full.tried_at = now;
        }
    }

    /// A new job: whether to send it, or why the pool would refuse it. Then it is held.
    pub(super) fn admit(&mut self, now: Instant, lane: &Lane, key: JobKey) -> Result<(), Refusal> {
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
    pub(super) fn insert(&mut self, now: Instant, lane: Lane, key: JobKey, why: Refusal) {
        self.0.retain(|_, full| !full.keys.is_empty() || !full.is_stale(now));
        let is_sure = matches!(why, Refusal::Busy(Limit::ClientJobs));
        let full = self.0.entry(lane).or_insert_with(|| Full::new(now, why.clone()));
        full.keys.insert(key);
        (full.step, full.tried_at) = (1, now);
        if is_sure {
            full.due = 0;
        }
        if Self::takes(&why) {
            full.why = why;
        }
    }

    /// A job was given back that the pool had taken in a bundle: it is sent next.
    pub(crate) fn give_back(&mut self, now: Instant, lane: &Lane, key: JobKey) {
        let full = self.0.entry(lane.clone()).or_insert_with(|| Full::new(now, Refusal::Bundled));
        full.keys.insert(key);
        full.due += 1;
    }

    pub(crate) fn remove(&mut self, lane: &Lane, key: JobKey) {
        if let Some(full) = self.0.get_mut(lane) {
            full.keys.remove(&key);
        }
    }

    /// A job of the lane has ended. If the pool has refused none for a while, it is tried with more than before.
    pub(super) fn on_end(&mut self, now: Instant, lane: &Lane) {
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
    pub(super) fn on_refused(&mut self, lane: &Lane) {
        if let Some(full) = self.0.get_mut(lane) {
            full.due += 1;
        }
    }

    /// Takes a job that may be sent, the oldest of its lane. Keys that the caller chose are in their own order.
    pub(super) fn pop_due(&mut self) -> Option<JobKey> {
        let full = self.0.values_mut().find(|full| full.due > 0 && !full.keys.is_empty())?;
        full.due -= 1;
        full.keys.pop_first()
    }

    /// There is a new connection, where nothing has ended yet.
    pub(crate) fn on_reconnect(&mut self) {
        for full in self.0.values_mut() {
            (full.due, full.step) = (0, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_ipc::clock;

    use super::*;

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

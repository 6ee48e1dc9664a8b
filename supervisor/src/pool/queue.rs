//! Who waits, and who is next: a fair share of the devices for every client, whatever it submits.
//!
//! Each client has a clock that runs with the work done for it. The client whose clock is furthest
//! behind goes next. One that comes back from idleness starts where the others are: no earlier than
//! the job that went last, nor than any client that waits, so that nobody saves up a claim (start-time
//! fair queueing). Within a client: priority, then order of acceptance.

use std::collections::BTreeMap;

use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;

/// The place of one job in its client's queue. A retried job takes its old place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) priority: Priority,
    pub(super) job: JobId,
}

#[derive(Debug, Default)]
struct Share {
    waiting: BTreeMap<Place, u64>,
    clock: u64,
}

/// All waiting jobs.
#[derive(Debug, Default)]
pub(super) struct Queue {
    shares: BTreeMap<ClientId, Share>,
    jobs: usize,
    /// Where the clock of a client stood when its job was taken; the furthest so far.
    reached: u64,
}

impl Queue {
    /// Jobs waiting.
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    /// Adds a job of a given cost.
    pub(super) fn insert(&mut self, client: ClientId, place: Place, cost: u64) {
        let slowest = self
            .shares
            .values()
            .filter(|share| !share.waiting.is_empty())
            .map(|share| share.clock)
            .min();
        let share = self.shares.entry(client).or_default();
        if share.waiting.is_empty() {
            share.clock = share.clock.max(slowest.unwrap_or(0)).max(self.reached);
        }
        let replaced = share.waiting.insert(place, cost);
        assert_eq!(replaced, None, "{} is already waiting", place.job);
        self.jobs += 1;
    }

    /// Takes a job out, wherever it stands; `false` if it is not waiting.
    pub(super) fn remove(&mut self, client: ClientId, place: Place) -> bool {
        let share = self.shares.get_mut(&client);
        let removed = share.is_some_and(|share| share.waiting.remove(&place).is_some());
        self.jobs -= usize::from(removed);
        removed
    }

    /// Takes the next job that `may_go` and charges its client.
    pub(super) fn take(&mut self, may_go: impl Fn(JobId) -> bool) -> Option<JobId> {
        let mut order: Vec<(u64, ClientId)> = self
            .shares
            .iter()
            .filter(|(_, share)| !share.waiting.is_empty())
            .map(|(&client, share)| (share.clock, client))
            .collect();
        order.sort_unstable();
        for (_, client) in order {
            let share = self.shares.get_mut(&client).expect("the client was just listed");
            let next = share.waiting.iter().find(|(place, _)| may_go(place.job));
            if let Some((&place, &cost)) = next {
                share.waiting.remove(&place);
                self.reached = self.reached.max(share.clock);
                share.clock = share.clock.saturating_add(cost);
                self.jobs -= 1;
                return Some(place.job);
            }
        }
        None
    }

    /// Every waiting job.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.shares.values().flat_map(|share| share.waiting.keys().map(|place| place.job))
    }

    /// Forgets the clock of a client that is gone and has nothing waiting.
    pub(super) fn forget(&mut self, client: ClientId) {
        let share = self.shares.remove(&client);
        assert!(share.is_none_or(|share| share.waiting.is_empty()), "{client} still has jobs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(job: u64) -> Place {
        Place { priority: Priority::Normal, job: JobId(job) }
    }

    #[test]
    fn a_client_with_many_jobs_does_not_hold_up_one_with_few() {
        let mut queue = Queue::default();
        for job in 0..100 {
            queue.insert(ClientId(1), place(job), 10);
        }
        for _ in 0..50 {
            queue.take(|_| true).unwrap();
        }
        queue.insert(ClientId(2), place(1_000), 10);
        queue.insert(ClientId(2), place(1_001), 10);
        let next: Vec<_> = (0..4).map(|_| queue.take(|_| true).unwrap().0).collect();
        // The newcomer starts level: it neither waits for the other's backlog nor may it catch up
        // on the fifty jobs that ran before it came.
        assert_eq!(next, [50, 1_000, 51, 1_001]);
    }

    #[test]
    fn clients_share_by_cost_and_not_by_number_of_jobs() {
        let mut queue = Queue::default();
        for job in 0..10 {
            queue.insert(ClientId(1), place(job), 100);
            queue.insert(ClientId(2), place(100 + job), 25);
        }
        let first: Vec<_> = (0..10).map(|_| queue.take(|_| true).unwrap().0).collect();
        assert_eq!(first.iter().filter(|&&job| job < 100).count(), 2);
    }

    #[test]
    fn a_retried_job_takes_its_old_place_and_priority_goes_first() {
        let mut queue = Queue::default();
        let client = ClientId(1);
        queue.insert(client, place(1), 1);
        queue.insert(client, place(2), 1);
        assert_eq!(queue.take(|_| true), Some(JobId(1)));
        queue.insert(client, place(1), 1);
        queue.insert(client, Place { priority: Priority::High, job: JobId(3) }, 1);
        let next: Vec<_> = (0..3).map(|_| queue.take(|_| true).unwrap().0).collect();
        assert_eq!(next, [3, 1, 2]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_job_that_may_not_go_yet_does_not_block_the_next() {
        let mut queue = Queue::default();
        queue.insert(ClientId(1), place(1), 1);
        queue.insert(ClientId(1), place(2), 1);
        assert_eq!(queue.take(|job| job != JobId(1)), Some(JobId(2)));
        assert!(queue.remove(ClientId(1), place(1)));
        assert!(!queue.remove(ClientId(1), place(1)));
    }
}

//! Who waits, and who is next: a fair share of the devices for every client, whatever it submits.
//!
//! Each client has a clock that runs with the work done for it. The client whose clock is furthest
//! behind goes next. One that comes back from idleness starts where the others are: no earlier than
//! the job that went last, nor than any client that waits, so that nobody saves up a claim (start-time
//! fair queueing). Within a client: priority, then order of acceptance, then the order of a job's parts.
//!
//! Whoever joins a launch goes out of turn and is charged all the same. So that this delays nobody for
//! long, a client joins only while its clock is not too far ahead of whoever waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;

/// The place of one part of a job in its client's queue. A retried part takes its old place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) priority: Priority,
    pub(super) job: JobId,
    pub(super) part: u32,
}

impl Place {
    /// Before every other.
    const FIRST: Self = Self { priority: Priority::High, job: JobId(0), part: 0 };
}

/// Jobs that shared a launch when its worker was lost, or half of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suspects(pub(super) u32);

/// Jobs that say the same here may share a launch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Joining {
    /// Of workers that run one launch after the other; others run jobs beside each other whatever they
    /// are.
    pub(super) program: Option<Arc<str>>,
    pub(super) suspects: Option<Suspects>,
}

/// What the queue knows of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) cost: u64,
    /// Whom it may join, if anybody.
    pub(super) joins: Option<Joining>,
}

#[derive(Debug, Default)]
struct Share {
    waiting: BTreeMap<Place, Waiting>,
    clock: u64,
}

impl Share {
    /// Whether a part of `job` waits.
    fn has(&self, place: Place) -> bool {
        let (first, last) = (Place { part: 0, ..place }, Place { part: u32::MAX, ..place });
        self.waiting.range(first..=last).next().is_some()
    }
}

/// All that waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    shares: BTreeMap<ClientId, Share>,
    /// The clocks of all clients that wait for something.
    order: BTreeSet<(u64, ClientId)>,
    /// What may join others, by what those must have in common.
    joiners: BTreeSet<(Joining, ClientId, Place)>,
    /// Jobs of which a part waits.
    jobs: usize,
    /// Where the clock of a client stood when its job was taken in its turn; the furthest so far.
    reached: u64,
}

impl Queue {
    /// Jobs of which a part waits.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a part.
    pub(super) fn insert(&mut self, client: ClientId, place: Place, waiting: Waiting) {
        let share = self.shares.entry(client).or_default();
        if share.waiting.is_empty() {
            let slowest = self.order.first().map_or(0, |&(clock, _)| clock);
            share.clock = share.clock.max(slowest).max(self.reached);
            self.order.insert((share.clock, client));
        }
        self.jobs += usize::from(!share.has(place));
        if let Some(joining) = &waiting.joins {
            self.joiners.insert((joining.clone(), client, place));
        }
        let replaced = share.waiting.insert(place, waiting);
        assert_eq!(replaced, None, "{place:?} is already waiting");
    }

    /// Takes a part out, wherever it stands.
    pub(super) fn remove(&mut self, client: ClientId, place: Place) {
        let share = self.shares.get_mut(&client).expect("whoever waits has a share");
        let clock = share.clock;
        self.take_out(client, place, clock);
    }

    /// Takes the next part that `may_go` and charges its client.
    pub(super) fn take(&mut self, may_go: impl Fn(Place) -> bool) -> Option<Place> {
        let (client, place) = self.order.iter().find_map(|&(_, client)| {
            let mut places = self.shares[&client].waiting.keys();
            places.find(|place| may_go(**place)).map(|&place| (client, place))
        })?;
        self.reached = self.reached.max(self.shares[&client].clock);
        self.charge(client, place);
        Some(place)
    }

    /// Takes the very next part and charges its client, if that part `may_go`.
    pub(super) fn take_first(&mut self, may_go: impl Fn(Place) -> bool) -> Option<Place> {
        let first = self.in_order().next()?;
        self.take(|place| place == first && may_go(place))
    }

    /// All that waits: whoever goes next comes first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Place> {
        self.order.iter().flat_map(|(_, client)| self.shares[client].waiting.keys().copied())
    }

    /// Takes a part that may join others that say `with` and that `fits`, in fair order, and charges
    /// its client. Clients that are ahead by more than `lead_max` are passed over.
    pub(super) fn take_joining(
        &mut self,
        with: &Joining,
        lead_max: u64,
        fits: impl Fn(Place) -> bool,
    ) -> Option<Place> {
        let &(slowest, _) = self.order.first()?;
        self.joining(with, ClientId(0)).next()?;
        let near = self.order.iter().take_while(|(clock, _)| clock - slowest <= lead_max);
        let (client, place) = { near }.find_map(|&(_, client)| {
            let mut own = self.joining(with, client).take_while(|&(owner, _)| owner == client);
            own.find(|&(_, place)| fits(place))
        })?;
        self.charge(client, place);
        Some(place)
    }

    /// What may join those that say `with`, from `client` on.
    fn joining(&self, with: &Joining, client: ClientId) -> impl Iterator<Item = (ClientId, Place)> {
        let from = (with.clone(), client, Place::FIRST);
        let same = self.joiners.range(from..).take_while(move |(other, ..)| other == with);
        same.map(|&(_, client, place)| (client, place))
    }

    fn charge(&mut self, client: ClientId, place: Place) {
        let share = &self.shares[&client];
        let clock = share.clock.saturating_add(share.waiting[&place].cost);
        self.take_out(client, place, clock);
    }

    /// Takes a part out and sets its client's clock.
    fn take_out(&mut self, client: ClientId, place: Place, clock: u64) {
        let share = self.shares.get_mut(&client).expect("whoever waits has a share");
        self.order.remove(&(share.clock, client));
        share.clock = clock;
        let waiting = share.waiting.remove(&place).expect("only what waits is taken out");
        self.jobs -= usize::from(!share.has(place));
        if !share.waiting.is_empty() {
            self.order.insert((clock, client));
        }
        if let Some(joining) = waiting.joins {
            self.joiners.remove(&(joining, client, place));
        }
    }

    /// Forgets the clock of a client that is gone and has nothing waiting.
    pub(super) fn forget(&mut self, client: ClientId) {
        let share = self.shares.remove(&client);
        assert!(share.is_none_or(|share| share.waiting.is_empty()), "{client} still has jobs");
    }

    /// Every job of which a part waits.
    pub(super) fn all_jobs(&self) -> BTreeSet<JobId> {
        self.shares.values().flat_map(|share| share.waiting.keys().map(|place| place.job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(job: u64) -> Place {
        Place { priority: Priority::Normal, job: JobId(job), part: 0 }
    }

    fn costs(cost: u64) -> Waiting {
        Waiting { cost, joins: None }
    }

    fn joining(program: &str) -> Joining {
        Joining { program: Some(program.into()), suspects: None }
    }

    fn joins(cost: u64, program: &str) -> Waiting {
        Waiting { cost, joins: Some(joining(program)) }
    }

    /// The next job, whoever's it is.
    fn next(queue: &mut Queue) -> u64 {
        queue.take(|_| true).unwrap().job.0
    }

    #[test]
    fn a_client_with_many_jobs_does_not_hold_up_one_with_few() {
        let mut queue = Queue::default();
        for job in 0..100 {
            queue.insert(ClientId(1), place(job), costs(10));
        }
        for _ in 0..50 {
            next(&mut queue);
        }
        queue.insert(ClientId(2), place(1_000), costs(10));
        queue.insert(ClientId(2), place(1_001), costs(10));
        let next: Vec<_> = (0..4).map(|_| next(&mut queue)).collect();
        // The newcomer starts level: it neither waits for the other's backlog nor may it catch up
        // on the fifty jobs that ran before it came.
        assert_eq!(next, [50, 1_000, 51, 1_001]);
    }

    #[test]
    fn clients_share_by_cost_and_not_by_number_of_jobs() {
        let mut queue = Queue::default();
        for job in 0..10 {
            queue.insert(ClientId(1), place(job), costs(100));
            queue.insert(ClientId(2), place(100 + job), costs(25));
        }
        let first: Vec<_> = (0..10).map(|_| next(&mut queue)).collect();
        assert_eq!(first.iter().filter(|&&job| job < 100).count(), 2);
    }

    #[test]
    fn a_retried_job_takes_its_old_place_and_priority_goes_first() {
        let mut queue = Queue::default();
        let client = ClientId(1);
        queue.insert(client, place(1), costs(1));
        queue.insert(client, place(2), costs(1));
        assert_eq!(next(&mut queue), 1);
        queue.insert(client, place(1), costs(1));
        queue.insert(client, Place { priority: Priority::High, ..place(3) }, costs(1));
        let next: Vec<_> = (0..3).map(|_| next(&mut queue)).collect();
        assert_eq!(next, [3, 1, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_that_may_not_go_yet_does_not_block_the_next() {
        let mut queue = Queue::default();
        queue.insert(ClientId(1), place(1), costs(1));
        queue.insert(ClientId(1), place(2), costs(1));
        assert_eq!(queue.take_first(|place| place.job != JobId(1)), None);
        assert_eq!(queue.take(|place| place.job != JobId(1)), Some(place(2)));
        queue.remove(ClientId(1), place(1));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_waits_as_long_as_one_of_its_parts_does() {
        let mut queue = Queue::default();
        for part in 0..3 {
            queue.insert(ClientId(1), Place { part, ..place(1) }, costs(1));
            assert_eq!(queue.jobs(), 1);
        }
        queue.insert(ClientId(1), place(2), costs(1));
        assert_eq!(queue.jobs(), 2);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [1; 3]);
        assert_eq!(queue.jobs(), 1);
    }

    #[test]
    fn whoever_joins_has_the_same_program_and_is_charged() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(ClientId(1), place(1), joins(10, "b"));
        queue.insert(ClientId(1), place(2), joins(10, "a"));
        queue.insert(ClientId(2), place(3), costs(10));
        queue.insert(ClientId(2), place(4), joins(10, "a"));
        queue.insert(ClientId(3), place(5), costs(10));
        let mut join = || queue.take_joining(&program, 10, |_| true);
        assert_eq!([join(), join(), join()], [Some(place(2)), Some(place(4)), None]);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [5, 1, 3]);
    }

    #[test]
    fn a_client_that_is_far_ahead_of_one_that_waits_joins_nothing() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(ClientId(2), place(9), costs(1));
        for job in 0..10 {
            queue.insert(ClientId(1), place(job), joins(10, "a"));
        }
        let joined = std::iter::from_fn(|| queue.take_joining(&program, 25, |_| true));
        assert_eq!(joined.count(), 3, "at 0, 10 and 20 ahead");
    }
}

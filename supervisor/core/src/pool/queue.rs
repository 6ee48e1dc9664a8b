//! The jobs that wait for workers of one role, and which is next. Every client gets a fair share of the
//! devices, whatever it submits.
//!
//! Each client has a clock that advances with the cost of its jobs. The client with the lowest clock goes
//! next. The clock of a client that was idle moves up: to where the last job was taken, or to the lowest
//! clock of a client that waits, if that is later. So no client saves up a claim (start-time fair
//! queueing). Within a client the order is priority, then acceptance, then the job's shards.
//!
//! A job that joins a dispatch goes out of turn, and its client still pays. A client joins only while its
//! clock is not too far ahead of those that wait, so that joining delays no client for long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;

/// The position of one shard of a job in its client's queue. A retried shard takes its old position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) priority: Priority,
    pub(super) job: JobId,
    pub(super) shard: u32,
}

impl Position {
    /// The position before all others.
    const FIRST: Self = Self { priority: Priority::High, job: JobId(0), shard: 0 };
}

/// Jobs that ran in one dispatch when its worker was lost, or one half of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SuspectGroup(pub(super) u32);

/// Jobs for which this is equal may run in one dispatch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Joining {
    /// The program that jobs in one dispatch to an exclusive worker share. A concurrent worker runs any
    /// jobs beside each other.
    pub(super) program: Option<Arc<str>>,
    pub(super) suspects: Option<SuspectGroup>,
}

/// What the queue knows of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) cost: u64,
    /// The jobs that it may join; `None` if it must run alone.
    pub(super) joins: Option<Joining>,
}

#[derive(Debug, Default)]
struct Share {
    waiting: BTreeMap<Position, Entry>,
    clock: u64,
}

impl Share {
    /// Whether a shard of `job` waits.
    fn has(&self, position: Position) -> bool {
        let (first, last) =
            (Position { shard: 0, ..position }, Position { shard: u32::MAX, ..position });
        self.waiting.range(first..=last).next().is_some()
    }
}

/// All waiting shards.
#[derive(Debug, Default)]
pub(super) struct Queue {
    shares: BTreeMap<ClientId, Share>,
    /// The clocks of all clients with waiting shards.
    order: BTreeSet<(u64, ClientId)>,
    /// Shards that may join others, by what they must have in common.
    joiners: BTreeSet<(Joining, ClientId, Position)>,
    /// Jobs with a shard that waits.
    jobs: usize,
    /// The highest clock of a client at the moment when its job was taken in its turn.
    reached: u64,
}

impl Queue {
    /// Jobs with a shard that waits.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a shard.
    pub(super) fn insert(&mut self, client: ClientId, position: Position, entry: Entry) {
        let share = self.shares.entry(client).or_default();
        if share.waiting.is_empty() {
            let slowest = self.order.first().map_or(0, |&(clock, _)| clock);
            share.clock = share.clock.max(slowest).max(self.reached);
            self.order.insert((share.clock, client));
        }
        self.jobs += usize::from(!share.has(position));
        if let Some(joining) = &entry.joins {
            self.joiners.insert((joining.clone(), client, position));
        }
        let replaced = share.waiting.insert(position, entry);
        assert_eq!(replaced, None, "{position:?} is already waiting");
    }

    /// Takes a shard out, whatever its position.
    pub(super) fn remove(&mut self, client: ClientId, position: Position) {
        let share = self.shares.get_mut(&client).expect("a client that waits has a share");
        let clock = share.clock;
        self.take_out(client, position, clock);
    }

    /// Takes the next shard that `may_go` and charges its client.
    pub(super) fn take(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        let (client, position) = self.order.iter().find_map(|&(_, client)| {
            let mut positions = self.shares[&client].waiting.keys();
            positions.find(|position| may_go(**position)).map(|&position| (client, position))
        })?;
        self.reached = self.reached.max(self.shares[&client].clock);
        self.charge(client, position);
        Some(position)
    }

    /// Takes the very next shard and charges its client, if that shard `may_go`.
    pub(super) fn take_first(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        let first = self.in_order().next()?;
        self.take(|position| position == first && may_go(position))
    }

    /// Every shard that waits; the next to go comes first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Position> {
        self.order.iter().flat_map(|(_, client)| self.shares[client].waiting.keys().copied())
    }

    /// Takes the next shard, in fair order, that may join `with` and `fits`, and charges its client. Skips
    /// clients that are ahead by more than `lead_max`.
    pub(super) fn take_joining(
        &mut self,
        with: &Joining,
        lead_max: u64,
        fits: impl Fn(Position) -> bool,
    ) -> Option<Position> {
        let &(slowest, _) = self.order.first()?;
        self.joining(with, ClientId(0)).next()?;
        let near = self.order.iter().take_while(|(clock, _)| clock - slowest <= lead_max);
        let (client, position) = { near }.find_map(|&(_, client)| {
            let mut own = self.joining(with, client).take_while(|&(owner, _)| owner == client);
            own.find(|&(_, position)| fits(position))
        })?;
        self.charge(client, position);
        Some(position)
    }

    /// Shards that may join `with`, from `client` on.
    fn joining(
        &self,
        with: &Joining,
        client: ClientId,
    ) -> impl Iterator<Item = (ClientId, Position)> {
        let from = (with.clone(), client, Position::FIRST);
        let same = self.joiners.range(from..).take_while(move |(other, ..)| other == with);
        same.map(|&(_, client, position)| (client, position))
    }

    fn charge(&mut self, client: ClientId, position: Position) {
        let share = &self.shares[&client];
        let clock = share.clock.saturating_add(share.waiting[&position].cost);
        self.take_out(client, position, clock);
    }

    /// Takes a shard out and sets its client's clock.
    fn take_out(&mut self, client: ClientId, position: Position, clock: u64) {
        let share = self.shares.get_mut(&client).expect("a client that waits has a share");
        self.order.remove(&(share.clock, client));
        share.clock = clock;
        let entry = share.waiting.remove(&position).expect("only what waits is taken out");
        self.jobs -= usize::from(!share.has(position));
        if !share.waiting.is_empty() {
            self.order.insert((clock, client));
        }
        if let Some(joining) = entry.joins {
            self.joiners.remove(&(joining, client, position));
        }
    }

    /// Forgets the clock of a client that is gone and has no waiting shards.
    pub(super) fn forget(&mut self, client: ClientId) {
        let share = self.shares.remove(&client);
        assert!(share.is_none_or(|share| share.waiting.is_empty()), "{client} still has jobs");
    }

    /// Every job with a shard that waits.
    pub(super) fn all_jobs(&self) -> BTreeSet<JobId> {
        self.shares
            .values()
            .flat_map(|share| share.waiting.keys().map(|position| position.job))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(job: u64) -> Position {
        Position { priority: Priority::Normal, job: JobId(job), shard: 0 }
    }

    fn costs(cost: u64) -> Entry {
        Entry { cost, joins: None }
    }

    fn joining(program: &str) -> Joining {
        Joining { program: Some(program.into()), suspects: None }
    }

    fn joins(cost: u64, program: &str) -> Entry {
        Entry { cost, joins: Some(joining(program)) }
    }

    /// The next job of any client.
    fn next(queue: &mut Queue) -> u64 {
        queue.take(|_| true).unwrap().job.0
    }

    #[test]
    fn a_client_with_many_jobs_does_not_hold_up_one_with_few() {
        let mut queue = Queue::default();
        for job in 0..100 {
            queue.insert(ClientId(1), position(job), costs(10));
        }
        for _ in 0..50 {
            next(&mut queue);
        }
        queue.insert(ClientId(2), position(1_000), costs(10));
        queue.insert(ClientId(2), position(1_001), costs(10));
        let next: Vec<_> = (0..4).map(|_| next(&mut queue)).collect();
        // The newcomer starts level: it does not wait for the other's backlog, and gets nothing for the
        // fifty jobs that ran before it came.
        assert_eq!(next, [50, 1_000, 51, 1_001]);
    }

    #[test]
    fn clients_share_by_cost_and_not_by_number_of_jobs() {
        let mut queue = Queue::default();
        for job in 0..10 {
            queue.insert(ClientId(1), position(job), costs(100));
            queue.insert(ClientId(2), position(100 + job), costs(25));
        }
        let first: Vec<_> = (0..10).map(|_| next(&mut queue)).collect();
        assert_eq!(first.iter().filter(|&&job| job < 100).count(), 2);
    }

    #[test]
    fn a_retried_job_takes_its_old_place_and_priority_goes_first() {
        let mut queue = Queue::default();
        let client = ClientId(1);
        queue.insert(client, position(1), costs(1));
        queue.insert(client, position(2), costs(1));
        assert_eq!(next(&mut queue), 1);
        queue.insert(client, position(1), costs(1));
        queue.insert(client, Position { priority: Priority::High, ..position(3) }, costs(1));
        let next: Vec<_> = (0..3).map(|_| next(&mut queue)).collect();
        assert_eq!(next, [3, 1, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_that_must_wait_does_not_block_the_next() {
        let mut queue = Queue::default();
        queue.insert(ClientId(1), position(1), costs(1));
        queue.insert(ClientId(1), position(2), costs(1));
        assert_eq!(queue.take_first(|position| position.job != JobId(1)), None);
        assert_eq!(queue.take(|position| position.job != JobId(1)), Some(position(2)));
        queue.remove(ClientId(1), position(1));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_waits_as_long_as_one_of_its_shards_does() {
        let mut queue = Queue::default();
        for shard in 0..3 {
            queue.insert(ClientId(1), Position { shard, ..position(1) }, costs(1));
            assert_eq!(queue.jobs(), 1);
        }
        queue.insert(ClientId(1), position(2), costs(1));
        assert_eq!(queue.jobs(), 2);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [1; 3]);
        assert_eq!(queue.jobs(), 1);
    }

    #[test]
    fn a_job_that_joins_has_the_same_program_and_is_charged() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(ClientId(1), position(1), joins(10, "b"));
        queue.insert(ClientId(1), position(2), joins(10, "a"));
        queue.insert(ClientId(2), position(3), costs(10));
        queue.insert(ClientId(2), position(4), joins(10, "a"));
        queue.insert(ClientId(3), position(5), costs(10));
        let mut join = || queue.take_joining(&program, 10, |_| true);
        assert_eq!([join(), join(), join()], [Some(position(2)), Some(position(4)), None]);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [5, 1, 3]);
    }

    #[test]
    fn a_client_that_is_far_ahead_of_one_that_waits_joins_nothing() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(ClientId(2), position(9), costs(1));
        for job in 0..10 {
            queue.insert(ClientId(1), position(job), joins(10, "a"));
        }
        let joined = std::iter::from_fn(|| queue.take_joining(&program, 25, |_| true));
        assert_eq!(joined.count(), 3, "at 0, 10 and 20 ahead");
    }
}

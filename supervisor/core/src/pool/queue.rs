//! The jobs that wait for workers of one group, and which is next. Every principal gets a fair share of the
//! devices, whatever it submits and over how many connections.
//!
//! Principals take turns by the cost of their jobs ([`Turns`]), and so do the clients of one principal. Within
//! a client the order is priority, then acceptance, then the job's shards.
//!
//! A job that joins a dispatch goes out of turn, and its client and principal still pay. They join only while
//! their clocks are not too far ahead of those that wait, so that joining delays nobody for long.
//!
//! A principal that is held gets no turn: its shards wait aside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;
use gridpool_protocol::principal::Principal;

use super::turns::Turns;

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

/// Whose a shard is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) principal: Principal,
    pub(super) client: ClientId,
}

/// The waiting shards of one client for one principal.
type Waiting = BTreeMap<Position, Entry>;

/// What waits of one principal.
#[derive(Debug, Default)]
struct Share {
    clients: Turns<ClientId, Waiting>,
    /// Jobs with a shard that waits.
    jobs: usize,
}

impl Share {
    fn in_order(&self) -> impl Iterator<Item = (ClientId, Position)> {
        self.clients.in_order().flat_map(|(_, &client, waiting)| {
            waiting.keys().map(move |&position| (client, position))
        })
    }
}

/// All waiting shards.
#[derive(Debug, Default)]
pub(super) struct Queue {
    shares: Turns<Principal, Share>,
    /// The principals that are held, and what waits of them.
    held: BTreeMap<Principal, Share>,
    /// Shards that may join others, by what they must have in common.
    joiners: BTreeSet<(Joining, Owner, Position)>,
    /// Jobs with a shard that waits.
    jobs: usize,
}

impl Queue {
    /// Jobs with a shard that waits.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// The same of one principal.
    pub(super) fn jobs_of(&self, principal: &Principal) -> usize {
        let share = self.held.get(principal).or_else(|| self.shares.get(principal));
        share.map_or(0, |share| share.jobs)
    }

    /// Principals that have a shard that waits; `principal` counts in any case.
    pub(super) fn principals_with(&self, principal: &Principal) -> usize {
        let waiting = self.shares.waiting() + self.held().count();
        waiting + usize::from(self.jobs_of(principal) == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    /// Holds these principals, and no others.
    pub(super) fn hold(&mut self, held: &BTreeSet<Principal>) {
        let back: Vec<_> =
            self.held.extract_if(.., |principal, _| !held.contains(principal)).collect();
        for (principal, share) in back.into_iter().filter(|(_, share)| share.jobs > 0) {
            *self.shares.wait(&principal) = share;
        }
        for principal in held {
            if !self.held.contains_key(principal) {
                let share = self.shares.get_mut(principal).map(std::mem::take);
                self.held.insert(principal.clone(), share.unwrap_or_default());
                self.shares.rest(principal);
            }
        }
    }

    /// Principals that are held and have a shard that waits.
    pub(super) fn held(&self) -> impl Iterator<Item = &Principal> {
        self.held.iter().filter(|(_, share)| share.jobs > 0).map(|(principal, _)| principal)
    }

    /// Adds a shard.
    pub(super) fn insert(&mut self, owner: &Owner, position: Position, entry: Entry) {
        let share = match self.held.get_mut(&owner.principal) {
            Some(share) => share,
            None => self.shares.wait(&owner.principal),
        };
        let waiting = share.clients.wait(&owner.client);
        let is_new = usize::from(!has_job(waiting, position));
        if let Some(joining) = &entry.joins {
            self.joiners.insert((joining.clone(), owner.clone(), position));
        }
        let replaced = waiting.insert(position, entry);
        assert_eq!(replaced, None, "{position:?} is already waiting");
        share.jobs += is_new;
        self.jobs += is_new;
    }

    /// Takes a shard out, whatever its position.
    pub(super) fn remove(&mut self, owner: &Owner, position: Position) {
        self.take_out(owner, position);
    }

    /// Takes the next shard that `may_go` and charges its client and principal.
    pub(super) fn take(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        let found = self.owned().find(|&(_, _, position)| may_go(position));
        let (owner, position) = found.map(|(principal, client, position)| {
            (Owner { principal: principal.clone(), client }, position)
        })?;
        self.shares.reach(&owner.principal);
        self.share_mut(&owner).clients.reach(&owner.client);
        self.charge(&owner, position);
        Some(position)
    }

    /// Takes the very next shard and charges its client and principal, if that shard `may_go`.
    pub(super) fn take_first(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        // Asked once: `take` would ask of every shard that waits.
        let first = self.in_order().next().filter(|&first| may_go(first))?;
        self.take(|position| position == first)
    }

    /// Every shard that waits for its turn; the next to go comes first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Position> {
        self.owned().map(|(_, _, position)| position)
    }

    fn owned(&self) -> impl Iterator<Item = (&Principal, ClientId, Position)> {
        self.shares.in_order().flat_map(|(_, principal, share)| {
            share.in_order().map(move |(client, position)| (principal, client, position))
        })
    }

    /// Takes the next shard, in fair order, that may join `with` and `fits`, and charges its client and
    /// principal. Skips principals, and clients of one, that are ahead by more than `lead_max`.
    pub(super) fn take_joining(
        &mut self,
        with: &Joining,
        lead_max: u64,
        fits: impl Fn(Position) -> bool,
    ) -> Option<Position> {
        self.joining(with, &Owner::FIRST).next()?;
        let near = self.shares.in_order().take_while(|&(lead, ..)| lead <= lead_max);
        let mut owners = near.flat_map(|(_, principal, share)| {
            let near = share.clients.in_order().take_while(|&(lead, ..)| lead <= lead_max);
            near.map(|(_, &client, _)| Owner { principal: principal.clone(), client })
        });
        let (owner, position) = owners.find_map(|owner| {
            let mut own = self.joining(with, &owner).take_while(|&(other, _)| *other == owner);
            let position = own.find(|&(_, position)| fits(position))?.1;
            Some((owner.clone(), position))
        })?;
        drop(owners);
        self.charge(&owner, position);
        Some(position)
    }

    /// Shards that may join `with`, from `owner` on.
    fn joining(&self, with: &Joining, owner: &Owner) -> impl Iterator<Item = (&Owner, Position)> {
        let from = (with.clone(), owner.clone(), Position::FIRST);
        let same = self.joiners.range(from..).take_while(move |(other, ..)| other == with);
        same.map(|(_, owner, position)| (owner, *position))
    }

    fn charge(&mut self, owner: &Owner, position: Position) {
        let share = self.share_mut(owner);
        let cost = share.clients.get(&owner.client).map_or(0, |waiting| waiting[&position].cost);
        share.clients.charge(&owner.client, cost);
        self.shares.charge(&owner.principal, cost);
        self.take_out(owner, position);
    }

    fn share_mut(&mut self, owner: &Owner) -> &mut Share {
        let held = self.held.get_mut(&owner.principal);
        let share = held.or_else(|| self.shares.get_mut(&owner.principal));
        share.expect("a principal that waits has a share")
    }

    fn take_out(&mut self, owner: &Owner, position: Position) {
        let share = self.share_mut(owner);
        let waiting = share.clients.get_mut(&owner.client).expect("a client that waits is known");
        let entry = waiting.remove(&position).expect("only what waits is taken out");
        let was_last = usize::from(!has_job(waiting, position));
        if waiting.is_empty() {
            share.clients.rest(&owner.client);
        }
        share.jobs -= was_last;
        if share.clients.is_empty() && !self.held.contains_key(&owner.principal) {
            self.shares.rest(&owner.principal);
        }
        self.jobs -= was_last;
        if let Some(joining) = entry.joins {
            self.joiners.remove(&(joining, owner.clone(), position));
        }
    }

    /// Every job with a shard that waits, those of held principals too.
    pub(super) fn all_jobs(&self) -> BTreeSet<JobId> {
        let held = self.held.values().flat_map(Share::in_order);
        let held = held.map(|(_, position)| position);
        self.in_order().chain(held).map(|position| position.job).collect()
    }
}

impl Owner {
    /// The owner before all others.
    const FIRST: Self = Self { principal: Principal::Uid(0), client: ClientId(0) };
}

/// Whether a shard of the job waits.
fn has_job(waiting: &Waiting, position: Position) -> bool {
    let (first, last) =
        (Position { shard: 0, ..position }, Position { shard: u32::MAX, ..position });
    waiting.range(first..=last).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only client of a principal.
    fn client(number: u32) -> Owner {
        Owner { principal: Principal::Uid(number), client: ClientId(number.into()) }
    }

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
            queue.insert(&client(1), position(job), costs(10));
        }
        for _ in 0..50 {
            next(&mut queue);
        }
        queue.insert(&client(2), position(1_000), costs(10));
        queue.insert(&client(2), position(1_001), costs(10));
        let next: Vec<_> = (0..4).map(|_| next(&mut queue)).collect();
        // The newcomer starts level: it does not wait for the other's backlog, and gets nothing for the
        // fifty jobs that ran before it came.
        assert_eq!(next, [50, 1_000, 51, 1_001]);
    }

    #[test]
    fn twenty_connections_of_one_principal_do_not_hold_up_another() {
        let mut queue = Queue::default();
        for job in 0..200 {
            let owner = Owner { principal: Principal::Uid(1), client: ClientId(job % 20) };
            queue.insert(&owner, position(job), costs(10));
        }
        for _ in 0..20 {
            next(&mut queue);
        }
        for job in 1_000..1_010 {
            queue.insert(&client(2), position(job), costs(10));
        }
        let next: Vec<_> = (0..20).map(|_| next(&mut queue)).collect();
        let others = next.iter().filter(|&&job| job < 1_000).count();
        assert_eq!(others, 10, "{next:?}");
        let connections: BTreeSet<_> =
            next.iter().filter(|&&job| job < 1_000).map(|job| job % 20).collect();
        assert_eq!(connections.len(), 10, "connections of one principal take turns: {next:?}");
        assert_eq!((queue.jobs_of(&Principal::Uid(1)), queue.jobs()), (170, 170));
    }

    #[test]
    fn clients_share_by_cost_and_not_by_number_of_jobs() {
        let mut queue = Queue::default();
        for job in 0..10 {
            queue.insert(&client(1), position(job), costs(100));
            queue.insert(&client(2), position(100 + job), costs(25));
        }
        let first: Vec<_> = (0..10).map(|_| next(&mut queue)).collect();
        assert_eq!(first.iter().filter(|&&job| job < 100).count(), 2);
    }

    #[test]
    fn a_retried_job_takes_its_old_place_and_priority_goes_first() {
        let mut queue = Queue::default();
        let client = client(1);
        queue.insert(&client, position(1), costs(1));
        queue.insert(&client, position(2), costs(1));
        assert_eq!(next(&mut queue), 1);
        queue.insert(&client, position(1), costs(1));
        queue.insert(&client, Position { priority: Priority::High, ..position(3) }, costs(1));
        let next: Vec<_> = (0..3).map(|_| next(&mut queue)).collect();
        assert_eq!(next, [3, 1, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_jobs_of_a_held_principal_wait_aside_and_keep_their_order() {
        let mut queue = Queue::default();
        let program = joining("a");
        for job in 1..=3 {
            queue.insert(&client(1), position(job), joins(10, "a"));
        }
        queue.insert(&client(2), position(9), joins(10, "a"));
        let held = BTreeSet::from([client(1).principal]);
        queue.hold(&held);
        queue.insert(&client(1), position(4), joins(10, "a"));
        assert_eq!(queue.in_order().collect::<Vec<_>>(), [position(9)]);
        assert_eq!((queue.jobs(), queue.jobs_of(&client(1).principal)), (5, 4));
        assert_eq!(queue.principals_with(&client(1).principal), 2);
        assert_eq!(queue.all_jobs(), [1, 2, 3, 4, 9].map(JobId).into());
        assert_eq!(next(&mut queue), 9);
        assert_eq!(queue.take(|_| true), None);
        assert_eq!(queue.take_joining(&program, 100, |_| true), None);
        queue.remove(&client(1), position(2));
        assert!(queue.held().eq(&held) && !queue.is_empty());
        queue.hold(&BTreeSet::new());
        assert_eq!([(); 3].map(|()| next(&mut queue)), [1, 3, 4]);
        assert!(queue.is_empty() && queue.held().next().is_none());
        // The last one may end while it is held.
        queue.insert(&client(1), position(5), costs(1));
        queue.hold(&held);
        queue.remove(&client(1), position(5));
        assert!(queue.is_empty() && queue.held().next().is_none());
    }

    #[test]
    fn a_job_that_must_wait_does_not_block_the_next() {
        let mut queue = Queue::default();
        queue.insert(&client(1), position(1), costs(1));
        queue.insert(&client(1), position(2), costs(1));
        assert_eq!(queue.take_first(|position| position.job != JobId(1)), None);
        assert_eq!(queue.take(|position| position.job != JobId(1)), Some(position(2)));
        queue.remove(&client(1), position(1));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_job_waits_as_long_as_one_of_its_shards_does() {
        let mut queue = Queue::default();
        for shard in 0..3 {
            queue.insert(&client(1), Position { shard, ..position(1) }, costs(1));
            assert_eq!(queue.jobs(), 1);
        }
        queue.insert(&client(1), position(2), costs(1));
        assert_eq!(queue.jobs(), 2);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [1; 3]);
        assert_eq!(queue.jobs(), 1);
    }

    #[test]
    fn a_job_that_joins_has_the_same_program_and_is_charged() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(&client(1), position(1), joins(10, "b"));
        queue.insert(&client(1), position(2), joins(10, "a"));
        queue.insert(&client(2), position(3), costs(10));
        queue.insert(&client(2), position(4), joins(10, "a"));
        queue.insert(&client(3), position(5), costs(10));
        let mut join = || queue.take_joining(&program, 10, |_| true);
        assert_eq!([join(), join(), join()], [Some(position(2)), Some(position(4)), None]);
        assert_eq!([(); 3].map(|()| next(&mut queue)), [5, 1, 3]);
    }

    #[test]
    fn a_client_that_is_far_ahead_of_one_that_waits_joins_nothing() {
        let mut queue = Queue::default();
        let program = joining("a");
        queue.insert(&client(2), position(9), costs(1));
        for job in 0..10 {
            queue.insert(&client(1), position(job), joins(10, "a"));
        }
        let joined = std::iter::from_fn(|| queue.take_joining(&program, 25, |_| true));
        assert_eq!(joined.count(), 3, "at 0, 10 and 20 ahead");
    }
}

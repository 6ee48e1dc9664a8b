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
    /// Shards that may join others, by what they must have in common and whose they are. None is empty.
    joiners: BTreeMap<Joining, BTreeMap<Owner, BTreeSet<Position>>>,
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
            let same = match self.joiners.get_mut(joining) {
                Some(same) => same,
                None => self.joiners.entry(joining.clone()).or_default(),
            };
            same.entry(owner.clone()).or_default().insert(position);
        }
        let replaced = waiting.insert(position, entry);
        assert_eq!(replaced, None, "{position:?} is already waiting");
        share.jobs += is_new;
        self.jobs += is_new;
    }

    /// Takes a shard out, whatever its position.
    pub(super) fn remove(&mut self, owner: &Owner, position: Position) {
        self.take_out(owner, position, false);
    }

    /// Takes the next shard that `may_go` and charges its client and principal.
    pub(super) fn take(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        let found = self.owned().find(|&(_, _, position)| may_go(position));
        let (owner, position) = found.map(|(principal, client, position)| {
            (Owner { principal: principal.clone(), client }, position)
        })?;
        self.shares.reach(&owner.principal);
        self.share_mut(&owner).clients.reach(&owner.client);
        self.take_out(&owner, position, true);
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
        let same = self.joiners.get(with)?;
        let near = self.shares.in_order().take_while(|&(lead, ..)| lead <= lead_max);
        let mut owners = near.flat_map(|(_, principal, share)| {
            let near = share.clients.in_order().take_while(|&(lead, ..)| lead <= lead_max);
            near.map(|(_, &client, _)| Owner { principal: principal.clone(), client })
        });
        let (owner, position) = owners.find_map(|owner| {
            let position = same.get(&owner)?.iter().copied().find(|&position| fits(position))?;
            Some((owner, position))
        })?;
        drop(owners);
        self.take_out(&owner, position, true);
        Some(position)
    }

    fn share_mut(&mut self, owner: &Owner) -> &mut Share {
        let held = self.held.get_mut(&owner.principal);
        let share = held.or_else(|| self.shares.get_mut(&owner.principal));
        share.expect("a principal that waits has a share")
    }

    /// Takes a shard out. If it takes its turn, its client and its principal pay.
    fn take_out(&mut self, owner: &Owner, position: Position, pays: bool) {
        let share = self.share_mut(owner);
        let waiting = share.clients.get_mut(&owner.client).expect("a client that waits is known");
        let Entry { cost, joins } =
            waiting.remove(&position).expect("only what waits is taken out");
        let was_last = usize::from(!has_job(waiting, position));
        let client_rests = waiting.is_empty();
        if pays {
            share.clients.charge(&owner.client, cost);
        }
        if client_rests {
            share.clients.rest(&owner.client);
        }
        share.jobs -= was_last;
        let principal_rests = share.clients.is_empty();
        self.jobs -= was_last;
        if pays {
            self.shares.charge(&owner.principal, cost);
        }
        if principal_rests && !self.held.contains_key(&owner.principal) {
            self.shares.rest(&owner.principal);
        }
        if let Some(joining) = joins {
            self.take_joiner(&joining, owner, position);
        }
    }

    fn take_joiner(&mut self, joining: &Joining, owner: &Owner, position: Position) {
        let same = self.joiners.get_mut(joining).expect("what may join is among the joiners");
        let own = same.get_mut(owner).expect("and its owner");
        own.remove(&position);
        if !own.is_empty() {
            return;
        }
        same.remove(owner);
        if same.is_empty() {
            self.joiners.remove(joining);
        }
    }

    /// The job with the lowest number that has a shard that waits, held or not: the first of one priority of a client.
    pub(super) fn oldest(&self) -> Option<JobId> {
        let shares = self.shares.in_order().map(|(_, _, share)| share).chain(self.held.values());
        let clients = shares.flat_map(|share| share.clients.in_order());
        let firsts = clients.flat_map(|(_, _, waiting)| {
            let first = |priority| waiting.range(Position { priority, ..Position::FIRST }..).next();
            Priority::ALL.into_iter().filter_map(first)
        });
        firsts.map(|(position, _)| position.job).min()
    }

    /// Every job with a shard that waits, those of held principals too.
    pub(super) fn all_jobs(&self) -> BTreeSet<JobId> {
        let held = self.held.values().flat_map(Share::in_order);
        let held = held.map(|(_, position)| position);
        self.in_order().chain(held).map(|position| position.job).collect()
    }
}

/// Whether a shard of the job waits.
fn has_job(waiting: &Waiting, position: Position) -> bool {
    let (first, last) =
        (Position { shard: 0, ..position }, Position { shard: u32::MAX, ..position });
    waiting.range(first..=last).next().is_some()
}

#[cfg(test)]
mod tests;

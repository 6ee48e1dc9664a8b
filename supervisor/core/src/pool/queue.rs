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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::Priority;
use gridpool_protocol::principal::Principal;

use super::ordered::Ordered;
use super::turns::{Spent, Turns};

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
    /// How many jobs its job stands for.
    pub(super) jobs: usize,
    /// The jobs that it may join; `None` if it must run alone. One that may join is all of its job.
    pub(super) joins: Option<Joining>,
}

/// Whose a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) principal: Principal,
    pub(super) client: ClientId,
}

/// Shards for which a client without any keeps the room.
const ROOM_KEPT: usize = 64;

/// The waiting shards of one client for one principal.
#[derive(Debug, Default)]
struct Waiting {
    /// In order. Nearly all come at the end and go from the beginning.
    shards: VecDeque<(Position, Entry)>,
    /// Those that may join others, by what they must have in common. None is empty.
    joiners: BTreeMap<Joining, Ordered<Position>>,
}

/// A shard that was taken out.
struct Taken {
    cost: u64,
    /// The jobs that its job stands for, if no other shard of that waits.
    ended: usize,
    /// Its client has no more that may join these.
    ends_joining: Option<Joining>,
}

impl Waiting {
    /// Where the shards from a position on begin.
    fn from(&self, position: Position) -> usize {
        self.shards.partition_point(|&(other, _)| other < position)
    }

    /// Whether a shard of the job waits.
    fn has_job(&self, position: Position) -> bool {
        let first = self.shards.get(self.from(Position { shard: 0, ..position }));
        first.is_some_and(|(first, _)| Position { shard: position.shard, ..*first } == position)
    }

    /// Adds a shard; gives what it may join if it is the first such.
    fn insert(&mut self, position: Position, entry: Entry) -> Option<Joining> {
        let begins = entry.joins.as_ref().and_then(|joining| {
            if let Some(same) = self.joiners.get_mut(joining) {
                same.insert(position);
                return None;
            }
            self.joiners.entry(joining.clone()).or_default().insert(position);
            Some(joining.clone())
        });
        let at = self.from(position);
        let is_there = self.shards.get(at).is_some_and(|&(other, _)| other == position);
        assert!(!is_there, "{position:?} is already waiting");
        self.shards.insert(at, (position, entry));
        begins
    }

    fn take_out(&mut self, position: Position) -> Taken {
        let at = self.shards.binary_search_by_key(&position, |&(position, _)| position);
        let taken = self.shards.remove(at.expect("only what waits is taken out"));
        let (_, Entry { cost, jobs, joins }) = taken.expect("it was just found");
        let is_whole = joins.is_some();
        let ends_joining = joins.filter(|joining| {
            let same = self.joiners.get_mut(joining).expect("what may join is among the joiners");
            same.remove(&position);
            same.is_empty()
        });
        if let Some(joining) = &ends_joining {
            self.joiners.remove(joining);
        }
        if self.shards.is_empty() && self.shards.capacity() > ROOM_KEPT {
            self.shards = VecDeque::new();
        }
        let ended = if is_whole || !self.has_job(position) { jobs } else { 0 };
        Taken { cost, ended, ends_joining }
    }
}

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
            waiting.shards.iter().map(move |&(position, _)| (client, position))
        })
    }

    /// Takes a shard out. If it takes its turn, its client pays.
    fn take_out(&mut self, client: ClientId, position: Position, pays: bool) -> Taken {
        let taken = self.clients.spend(&client, |waiting| {
            let taken = waiting.take_out(position);
            let cost = if pays { taken.cost } else { 0 };
            (taken, Spent { cost, rests: waiting.shards.is_empty() })
        });
        self.jobs -= taken.ended;
        taken
    }
}

/// All waiting shards.
#[derive(Debug, Default)]
pub(super) struct Queue {
    shares: Turns<Principal, Share>,
    /// The principals that are held, and what waits of them.
    held: BTreeMap<Principal, Share>,
    /// How many clients have shards that may join others, by what they must have in common. None is 0.
    joining: BTreeMap<Joining, usize>,
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
        let is_new = entry.joins.is_some() || !waiting.has_job(position);
        let jobs = if is_new { entry.jobs } else { 0 };
        let begins = waiting.insert(position, entry);
        share.jobs += jobs;
        self.jobs += jobs;
        if let Some(joining) = begins {
            *self.joining.entry(joining).or_default() += 1;
        }
    }

    /// Takes a shard out, whatever its position.
    pub(super) fn remove(&mut self, owner: &Owner, position: Position) {
        let taken = match self.held.get_mut(&owner.principal) {
            Some(share) => share.take_out(owner.client, position, false),
            None => self.shares.spend(&owner.principal, |share| {
                let taken = share.take_out(owner.client, position, false);
                (taken, Spent { cost: 0, rests: share.clients.is_empty() })
            }),
        };
        self.note(taken);
    }

    /// Takes the next shard that `may_go` and charges its client and principal.
    pub(super) fn take(&mut self, may_go: impl Fn(Position) -> bool) -> Option<Position> {
        let (principal, client, position) =
            self.owned().find(|&(_, _, position)| may_go(position))?;
        let principal = principal.clone();
        self.shares.reach(&principal);
        let share = self.shares.get_mut(&principal).expect("a principal that waits has a share");
        share.clients.reach(&client);
        self.take_turn(&principal, client, position);
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
        let clients = *self.joining.get(with)?;
        let near = self.shares.in_order().take_while(|&(lead, ..)| lead <= lead_max);
        let near = near.flat_map(|(_, principal, share)| {
            let near = share.clients.in_order().take_while(|&(lead, ..)| lead <= lead_max);
            near.map(move |(_, &client, waiting)| (principal, client, waiting))
        });
        let same = near.filter_map(|(principal, client, waiting)| {
            Some((principal, client, waiting.joiners.get(with)?))
        });
        let (principal, client, position) =
            same.take(clients).find_map(|(principal, client, same)| {
                let position = same.iter().copied().find(|&position| fits(position))?;
                Some((principal.clone(), client, position))
            })?;
        self.take_turn(&principal, client, position);
        Some(position)
    }

    /// Whether a shard waits that may join these.
    pub(super) fn has_joining(&self, with: &Joining) -> bool {
        self.joining.contains_key(with)
    }

    /// Takes a shard out, and its client and its principal pay.
    fn take_turn(&mut self, principal: &Principal, client: ClientId, position: Position) {
        let taken = self.shares.spend(principal, |share| {
            let taken = share.take_out(client, position, true);
            let cost = taken.cost;
            (taken, Spent { cost, rests: share.clients.is_empty() })
        });
        self.note(taken);
    }

    /// A shard was taken out.
    fn note(&mut self, taken: Taken) {
        self.jobs -= taken.ended;
        if let Some(joining) = taken.ends_joining {
            let clients = self.joining.get_mut(&joining).expect("the client had some");
            *clients -= 1;
            if *clients == 0 {
                self.joining.remove(&joining);
            }
        }
    }

    /// The job with the lowest number that has a shard that waits, held or not: the first of one priority of a client.
    pub(super) fn oldest(&self) -> Option<JobId> {
        let shares = self.shares.in_order().map(|(_, _, share)| share).chain(self.held.values());
        let clients = shares.flat_map(|share| share.clients.in_order());
        let firsts = clients.flat_map(|(_, _, waiting)| {
            let first = |priority| {
                let from = waiting.from(Position { priority, ..Position::FIRST });
                waiting.shards.get(from)
            };
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

#[cfg(test)]
mod tests;

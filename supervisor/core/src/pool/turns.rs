//! Whose turn it is among several that share something (start-time fair queueing).
//!
//! Each has a clock that advances with the cost of what it gets. The one that waits with the lowest clock goes
//! next. The clock of one that did not wait moves up when it waits again: to where the last turn was taken, or
//! to the lowest clock of one that waits, if that is later. So none saves up a claim.

use std::collections::BTreeMap;

use super::ordered::Ordered;

/// The most that do not wait and whose clocks are still kept: those that are ahead of the others. If there
/// are more, the one that is least ahead is forgotten, and newcomers start where it was.
const IDLE_MAX: usize = 256;

/// Several that share something; each has a `V`.
#[derive(Debug)]
pub(super) struct Turns<K, V> {
    members: BTreeMap<K, Member<V>>,
    /// The clocks of all that wait.
    waiting: Ordered<(u64, K)>,
    /// The clocks of those that do not wait. Each is later than `reached`.
    idle: Ordered<(u64, K)>,
    /// The highest clock of one that took its turn, at that moment.
    reached: u64,
}

#[derive(Debug)]
struct Member<V> {
    clock: u64,
    waits: bool,
    value: V,
}

/// What a turn comes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) cost: u64,
    /// It has nothing left.
    pub(super) rests: bool,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        let (waiting, idle) = (Ordered::default(), Ordered::default());
        Self { members: BTreeMap::new(), waiting, idle, reached: 0 }
    }
}

impl<K: Ord + Clone, V: Default> Turns<K, V> {
    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// All that wait, the next to go first, each with how far it is ahead of the first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (u64, &K, &V)> {
        let first = self.waiting.first().map_or(0, |&(clock, _)| clock);
        self.waiting.iter().map(move |(clock, key)| (clock - first, key, &self.members[key].value))
    }

    /// The values of all that are known.
    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.members.values().map(|member| &member.value)
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.members.get(key).map(|member| &member.value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.members.get_mut(key).map(|member| &mut member.value)
    }

    /// It waits from now on, if it does not already. Returns its value.
    pub(super) fn wait(&mut self, key: &K) -> &mut V {
        let first = self.waiting.first().map_or(0, |&(clock, _)| clock);
        let new = || Member { clock: 0, waits: false, value: V::default() };
        let member = self.members.entry(key.clone()).or_insert_with(new);
        if !member.waits {
            self.idle.remove(&(member.clock, key.clone()));
            member.clock = member.clock.max(first).max(self.reached);
            member.waits = true;
            self.waiting.insert((member.clock, key.clone()));
        }
        &mut member.value
    }

    /// It waits no more.
    pub(super) fn rest(&mut self, key: &K) {
        if self.members.get(key).is_some_and(|member| member.waits) {
            self.spend(key, |_| ((), Spent { cost: 0, rests: true }));
        }
    }

    /// One that waits takes its turn.
    pub(super) fn reach(&mut self, key: &K) {
        self.reached = self.reached.max(self.members[key].clock);
        self.forget();
    }

    /// Changes the value of one that waits: it pays for what it gets, and waits no more if it has nothing left.
    pub(super) fn spend<R>(&mut self, key: &K, what: impl FnOnce(&mut V) -> (R, Spent)) -> R {
        let member = self.members.get_mut(key).expect("one that waits is known");
        assert!(member.waits, "only one that waits has something to change");
        let (result, Spent { cost, rests }) = what(&mut member.value);
        let before = member.clock;
        member.clock = before.saturating_add(cost);
        member.waits = !rests;
        let place = (member.clock, key.clone());
        if rests {
            self.waiting.remove(&(before, key.clone()));
            self.idle.insert(place);
            if self.idle.len() > IDLE_MAX {
                let least = self.idle.first().map_or(0, |&(clock, _)| clock);
                self.reached = self.reached.max(least);
            }
            self.forget();
        } else if cost > 0 {
            self.waiting.remove(&(before, key.clone()));
            self.waiting.insert(place);
        }
        result
    }

    /// Forgets those that have no advantage to pay back.
    fn forget(&mut self) {
        while let Some((clock, _)) = self.idle.first()
            && *clock <= self.reached
            && let Some((_, key)) = self.idle.pop_first()
        {
            self.members.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Some = Turns<u32, ()>;

    fn charge(turns: &mut Some, key: u32, cost: u64) {
        turns.spend(&key, |()| ((), Spent { cost, rests: false }));
    }

    fn first(turns: &Some) -> Option<u32> {
        turns.in_order().next().map(|(_, &key, ())| key)
    }

    #[test]
    fn one_that_rests_keeps_its_clock_until_others_have_reached_it() {
        let mut turns = Some::default();
        turns.wait(&1);
        turns.wait(&2);
        turns.reach(&1);
        charge(&mut turns, 1, 10);
        turns.rest(&1);
        turns.wait(&1);
        assert_eq!(first(&turns), Some(2), "it rested, and still has to pay");
        turns.rest(&1);
        charge(&mut turns, 2, 10);
        turns.reach(&2);
        assert_eq!(turns.values().count(), 1, "nothing is left to pay");
        turns.wait(&1);
        assert_eq!(first(&turns), Some(1));
    }

    #[test]
    fn many_that_come_once_are_forgotten() {
        let mut turns = Some::default();
        for key in 0..10_000 {
            turns.wait(&key);
            turns.reach(&key);
            charge(&mut turns, key, 10);
            turns.rest(&key);
        }
        assert!(turns.values().count() <= IDLE_MAX, "{}", turns.values().count());
    }
}

//! The descriptors that connections and arenas may take together. The rest is for workers and for the supervisor's
//! own files, and must never run out: ipc-channel panics then.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridpool_protocol::tensor::options::ModelPlan;

use super::{Shell, clients, seats};

/// Descriptors reserved for files, logs, accepting connections, and connections that may not submit.
const DESCRIPTORS_RESERVED: usize = 48 + clients::DESCRIPTORS_PER_CLIENT * seats::OTHERS_MAX;
/// Least descriptors for clients.
const CLIENT_DESCRIPTORS_MIN: usize = 64;
/// Descriptors reserved for the workers of one slot: the old worker and the next one.
const DESCRIPTORS_PER_SLOT: usize = 32;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Descriptors {
    max: usize,
    taken: AtomicUsize,
}

/// Some of them. Dropping this gives them back.
#[derive(Debug)]
pub(super) struct Taken {
    from: Arc<Descriptors>,
    count: usize,
}

impl Descriptors {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: AtomicUsize::new(0) })
    }

    /// How many there are, taken ones included.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// How many are not taken.
    pub(super) fn left(&self) -> usize {
        self.max - self.taken.load(Ordering::Relaxed)
    }

    /// As many as asked for, or none.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Option<Taken> {
        let more = |taken: usize| taken.checked_add(count).filter(|&sum| sum <= self.max);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Taken { from: Arc::clone(self), count })
    }
}

impl Taken {
    /// Parts with so many of them, at most all.
    pub(super) fn split(&mut self, count: usize) -> Self {
        let count = count.min(self.count);
        self.count -= count;
        Self { from: Arc::clone(&self.from), count }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// The most workers that a group has at a time.
fn slots_of_group(devices: usize, standbys: u32) -> usize {
    devices * (1 + standbys as usize)
}

/// The groups of a pool that starts with these models: those of the models, and that of programs.
pub(super) fn groups_of(models: &[ModelPlan]) -> usize {
    1 + models.iter().map(ModelPlan::group).collect::<BTreeSet<_>>().len()
}

/// Descriptors for the workers of one group.
pub(super) fn of_group(devices: usize, standbys: u32) -> usize {
    DESCRIPTORS_PER_SLOT * slots_of_group(devices, standbys)
}

impl Shell {
    /// Descriptors that a pool with these models over this many devices keeps for itself and its workers.
    pub(super) fn descriptors_needed(models: &[ModelPlan], devices: usize, standbys: u32) -> usize {
        let slots = groups_of(models) * slots_of_group(devices, standbys);
        DESCRIPTORS_RESERVED + DESCRIPTORS_PER_SLOT * slots
    }

    /// Descriptors without which such a pool does not start: it would have none for clients.
    #[must_use]
    pub fn descriptors_min(models: &[ModelPlan], devices: usize, standbys: u32) -> usize {
        Self::descriptors_needed(models, devices, standbys) + CLIENT_DESCRIPTORS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_taken_than_there_are() {
        let all = Descriptors::new(5);
        let mut some = all.take(3).unwrap();
        assert!(all.take(3).is_none() && all.take(usize::MAX).is_none());
        let one = some.split(1);
        assert!(all.take(3).is_none());
        drop(one);
        let others = all.take(3).unwrap();
        assert!(all.take(1).is_none());
        drop((some, others));
        assert!(all.take(5).is_some());
    }
}

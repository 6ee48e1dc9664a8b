//! The descriptors that connections and arenas may take together. The rest is for workers and for the supervisor's
//! own files, and must never run out: ipc-channel panics then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// As many as asked for, or none.
    pub(super) fn take(self: &Arc<Self>, count: usize) -> Option<Taken> {
        let more = |taken: usize| taken.checked_add(count).filter(|&sum| sum <= self.max);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Taken { from: Arc::clone(self), count })
    }
}

impl Taken {
    /// Gives all back but so many.
    pub(super) fn keep(&mut self, count: usize) {
        let given_back = self.count.saturating_sub(count);
        self.from.taken.fetch_sub(given_back, Ordering::Relaxed);
        self.count -= given_back;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.keep(0);
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
        some.keep(2);
        let others = all.take(3).unwrap();
        assert!(all.take(1).is_none());
        drop((some, others));
        assert!(all.take(5).is_some());
    }
}

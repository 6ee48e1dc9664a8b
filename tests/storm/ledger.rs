//! Where every client of a storm puts what it found.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::checker::{Broken, Rules, Tally, Violation, check, tally};
use super::history::Event;

/// Violations that are kept word for word; the others are counted.
const KEPT_MAX: usize = 50;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Ledger {
    inner: Mutex<Found>,
}

/// What all clients together have found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Sums of all histories.
    pub tally: Tally,
    /// How many violations of each kind.
    pub broken: BTreeMap<Broken, u64>,
    /// The first of them.
    pub violations: Vec<Violation>,
    /// Client processes that were killed: what they saw is lost.
    pub died: u64,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a history and notes what came of it.
    pub fn judge(&self, history: &[Event], rules: Rules) {
        self.add(tally(history), check(history, rules));
    }

    /// Notes sums and violations.
    pub fn add(&self, tally: Tally, violations: Vec<Violation>) {
        let mut found = self.lock();
        found.tally += tally;
        for violation in violations {
            *found.broken.entry(violation.kind).or_default() += 1;
            if found.violations.len() < KEPT_MAX {
                found.violations.push(violation);
            }
        }
    }

    /// Notes something that went wrong beside any history.
    pub fn complain(&self, seen: String) {
        self.add(Tally::default(), vec![Violation { kind: Broken::Broke, key: None, seen }]);
    }

    /// A client process was killed.
    pub fn died(&self) {
        self.lock().died += 1;
    }

    /// All so far.
    #[must_use]
    pub fn found(&self) -> Found {
        self.lock().clone()
    }
}

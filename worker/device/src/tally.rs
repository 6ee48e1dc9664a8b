//! Adds up launches by kernel, in order of first launch, with counts and times.

use gridpool_protocol::receipt::KernelUse;
use gridpool_protocol::search::SearchReport;

use crate::device::{AttemptRefusal, AttemptReport, DispatchReport, GridDispatch};

/// Launches counted and timed by kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    uses: Vec<KernelUse>,
}

impl Tally {
    /// Adds one launch of `name` that took `device_us` microseconds.
    pub(crate) fn add(&mut self, name: &str, device_us: f64) {
        match self.uses.iter_mut().find(|kernel| kernel.name == name) {
            // Every chunk comes here: only the first of a dispatch needs a name of its own.
            Some(kernel) => {
                kernel.launches += 1;
                kernel.device_us += device_us;
            }
            None => self.uses.push(KernelUse { name: name.to_owned(), launches: 1, device_us }),
        }
    }

    /// Adds another tally's launches.
    pub(crate) fn merged(mut self, other: Self) -> Self {
        other.uses.into_iter().for_each(|kernel| self.add_use(kernel));
        self
    }

    /// Microseconds of all launches.
    pub(crate) fn device_us(&self) -> f64 {
        self.uses.iter().map(|kernel| kernel.device_us).sum()
    }

    pub(crate) fn into_uses(self) -> Vec<KernelUse> {
        self.uses
    }

    fn add_use(&mut self, more: KernelUse) {
        match self.uses.iter_mut().find(|kernel| kernel.name == more.name) {
            Some(kernel) => {
                kernel.launches += more.launches;
                kernel.device_us += more.device_us;
            }
            None => self.uses.push(more),
        }
    }
}

/// The results of a dispatch so far.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) tally: Tally,
    /// In the order of the dispatch's attempts.
    pub(crate) attempts: Vec<Result<AttemptReport, AttemptRefusal>>,
}

impl Totals {
    pub(crate) fn of(dispatch: &GridDispatch<'_>) -> Self {
        let attempts = vec![Ok(AttemptReport::default()); dispatch.attempts.len()];
        Self { tally: Tally::default(), attempts }
    }

    pub(crate) fn of_searches(attempts: usize) -> Self {
        let none =
            AttemptReport { search: Some(SearchReport::default()), ..AttemptReport::default() };
        let attempts = vec![Ok(none); attempts];
        Self { tally: Tally::default(), attempts }
    }

    /// Joins the results of two threads of the same dispatch.
    pub(crate) fn merged(mut self, other: Self) -> Self {
        for (attempt, of_other) in self.attempts.iter_mut().zip(other.attempts) {
            match (&mut *attempt, of_other) {
                (Ok(sum), Ok(more)) => {
                    sum.item_errors += more.item_errors;
                    sum.search = sum.search.zip(more.search).map(|(one, two)| one.plus(two));
                }
                (Ok(_), Err(refusal)) => *attempt = Err(refusal),
                (Err(_), Ok(_) | Err(_)) => {}
            }
        }
        Self { tally: self.tally.merged(other.tally), attempts: self.attempts }
    }

    pub(crate) fn into_report(self, allocations: u32) -> DispatchReport {
        DispatchReport { kernels: self.tally.into_uses(), allocations, attempts: self.attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_add_up_in_order_of_the_first() {
        let mut tally = Tally::default();
        for name in ["validate", "rot90", "replace", "rot90"] {
            tally.add(name, 1.5);
        }
        let uses = tally.clone().merged(tally).into_uses();
        let rows: Vec<_> =
            uses.iter().map(|k| (k.name.as_str(), k.launches, k.device_us)).collect();
        assert_eq!(rows, [("validate", 2, 3.0), ("rot90", 4, 6.0), ("replace", 2, 3.0)]);
    }
}

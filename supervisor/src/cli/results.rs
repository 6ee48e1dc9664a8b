//! The results of all items: answers to jobs, each with a range of consecutive items.
//!
//! Finds an item's result by its number, and the worst of several verdicts. May not know inputs, files or
//! JSON.

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the grids of tests are small"
)]
pub(super) mod fixtures;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use gridpool_client::{Answer, Outputs};
use gridpool_protocol::output::{ItemError, MalformedOutput, Output};
use gridpool_protocol::receipt::{Receipt, Verdict};

/// All jobs of one command, in the order of their items.
#[derive(Debug)]
pub struct Results {
    jobs: Vec<Answer<Outputs>>,
    /// For every job, the number of the item after its last.
    ends: Vec<usize>,
    /// Whether there may be items without a job.
    may_lack: bool,
}

impl Results {
    /// The answers to jobs that held all items in order; a receipt's `items` is the number of items in its
    /// job.
    #[must_use]
    pub fn new(jobs: Vec<Answer<Outputs>>) -> Self {
        let ends = jobs.iter().scan(0, |end, job| {
            *end += job.receipt.items as usize;
            Some(*end)
        });
        let ends = ends.collect();
        Self { jobs, ends, may_lack: false }
    }

    /// The answers to jobs that held the first items; the other items have no answer.
    #[must_use]
    pub fn of_the_first(jobs: Vec<Answer<Outputs>>) -> Self {
        Self { may_lack: true, ..Self::new(jobs) }
    }

    /// The receipts of all jobs.
    pub fn receipts(&self) -> impl ExactSizeIterator<Item = &Receipt> {
        self.jobs.iter().map(|job| &job.receipt)
    }

    /// How long the first job that was dispatched had waited for that: its pool may have started meanwhile.
    #[must_use]
    pub fn queued(&self) -> Duration {
        let first = self.receipts().find(|receipt| !receipt.attempts.is_empty());
        Duration::from_micros(first.map_or(0, |receipt| receipt.queue_us))
    }

    /// The worst verdict of the jobs that hold these items, without those that have results for all of them; `None`
    /// if an item has no answer.
    #[must_use]
    pub fn verdict(&self, items: Range<usize>) -> Option<Verdict> {
        if self.may_lack && self.ends.last().is_none_or(|&end| end < items.end) {
            return None;
        }
        Some(self.worst_receipt(items).map_or(Verdict::Ok, |receipt| receipt.verdict))
    }

    /// The receipt with the worst verdict of the jobs that hold these items and lack the result of one.
    #[must_use]
    pub fn worst_receipt(&self, items: Range<usize>) -> Option<&Receipt> {
        let last = items.end.saturating_sub(1).max(items.start);
        let jobs = self.job_of(items.start)..=self.job_of(last);
        let lacking = jobs.filter(|&job| {
            let own = self.items_of(job);
            let mut asked = own.start.max(items.start)..own.end.min(items.end);
            asked.any(|item| self.lacks(item))
        });
        worst(lacking.filter_map(|job| self.jobs.get(job)))
    }

    /// Whether an item has no result because its job did not end OK and had not done it, or because it has no job.
    #[must_use]
    pub fn lacks(&self, item: usize) -> bool {
        let number = self.job_of(item);
        let Some(job) = self.jobs.get(number) else { return self.may_lack };
        let is_done = |partial: &Outputs| partial.has(item - self.items_of(number).start);
        job.outputs().is_none() && !job.partial().is_some_and(is_done)
    }

    /// Whether some items of a job have a result and others have not.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        self.jobs.iter().any(|job| job.partial().is_some())
    }

    /// How many of these items have a result.
    #[must_use]
    pub fn done(&self, items: Range<usize>) -> usize {
        items.filter(|&item| !self.lacks(item)).count()
    }

    /// The result of one item, which must not be [lacking](Results::lacks).
    ///
    /// # Errors
    /// The outer error means that the result cannot be read, which is a fault of gridpool; the inner error
    /// means that the program has no result for this item.
    pub fn item(&self, item: usize) -> Result<Result<Output, ItemError>, MalformedOutput> {
        let job = self.job_of(item);
        let missing = MalformedOutput { item, what: "no job holds it" };
        let answer = self.jobs.get(job);
        let outputs =
            answer.and_then(|job| job.outputs().or_else(|| job.partial())).ok_or(missing)?;
        let start = self.items_of(job).start;
        if item - start >= outputs.len() {
            return Err(MalformedOutput { item, what: "its job has too few results" });
        }
        outputs.item(item - start)
    }

    /// The number of items without a result, by the name of their error.
    ///
    /// # Errors
    /// As the outer error of [`Results::item`].
    pub fn item_errors(&self) -> Result<BTreeMap<&'static str, u64>, MalformedOutput> {
        let mut counts = BTreeMap::new();
        // Skips jobs whose receipt counts no errors.
        let with_errors = self.jobs.iter().filter(|job| job.receipt.item_errors > 0);
        for outputs in with_errors.filter_map(|job| job.outputs().or_else(|| job.partial())) {
            for item in (0..outputs.len()).filter(|&item| outputs.has(item)) {
                if let Some(error) = outputs.item_error(item)? {
                    *counts.entry(error.code.name()).or_default() += 1;
                }
            }
        }
        Ok(counts)
    }

    fn job_of(&self, item: usize) -> usize {
        self.ends.partition_point(|&end| end <= item)
    }

    /// The items of a job; none if there is no such job.
    fn items_of(&self, job: usize) -> Range<usize> {
        let end = self.ends.get(job).copied().unwrap_or(0);
        let items = self.jobs.get(job).map_or(0, |job| job.receipt.items as usize);
        end - items..end
    }
}

/// The first of the receipts with the worst verdict.
fn worst<'a>(jobs: impl Iterator<Item = &'a Answer<Outputs>>) -> Option<&'a Receipt> {
    jobs.map(|job| &job.receipt).min_by_key(|receipt| Reverse(severity(receipt.verdict)))
}

/// How bad a verdict is: verdicts that blame the job itself are the worst.
fn severity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Ok => 0,
        Verdict::Cancelled => 1,
        Verdict::Deadline => 2,
        Verdict::DeviceLost => 3,
        Verdict::Failed => 4,
        Verdict::Poison => 5,
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::ItemRange;

    use super::fixtures::{failed, grid, identity, partial};
    use super::*;

    #[test]
    fn an_item_is_found_in_the_job_that_holds_it() {
        let jobs =
            vec![identity(&[grid(1), grid(2)]), failed(Verdict::Deadline, 1), identity(&[grid(4)])];
        let results = Results::new(jobs);
        for (number, color) in [(0, 1), (1, 2), (3, 4)] {
            assert_eq!(results.item(number).unwrap().unwrap(), Output::Grid(grid(color)));
        }
        assert!(results.item(2).is_err());
        assert!(results.item(4).is_err());
        assert_eq!(results.verdict(0..2), Some(Verdict::Ok));
        assert_eq!(results.verdict(1..3), Some(Verdict::Deadline));
        assert_eq!(results.verdict(2..4), Some(Verdict::Deadline));
        assert_eq!(results.verdict(3..4), Some(Verdict::Ok));
        assert_eq!(results.verdict(0..4), Some(Verdict::Deadline));
    }

    #[test]
    fn what_the_first_job_that_ran_has_waited_for_is_the_start_of_the_pool() {
        let (mut first, mut second) = (identity(&[grid(1)]), identity(&[grid(2)]));
        (first.receipt.queue_us, second.receipt.queue_us) = (7, 9);
        let waited = Duration::from_micros(7);
        let never = failed(Verdict::Deadline, 1);
        assert_eq!(Results::new(vec![never, first, second]).queued(), waited);
        assert!(Results::new(Vec::new()).queued().is_zero());
    }

    #[test]
    fn items_without_an_answer_have_no_verdict_and_those_before_them_keep_theirs() {
        let results = Results::of_the_first(vec![identity(&[grid(1), grid(2)])]);
        assert_eq!(results.verdict(0..2), Some(Verdict::Ok));
        assert_eq!(results.verdict(1..3), None);
        assert_eq!(results.verdict(2..3), None);
        assert_eq!(Results::of_the_first(Vec::new()).verdict(0..1), None);
    }

    #[test]
    fn items_that_were_done_before_their_job_ended_have_results() {
        let done = vec![ItemRange { start: 0, end: 1 }, ItemRange { start: 2, end: 3 }];
        let cut = partial(Verdict::Cancelled, &[grid(3), grid(4), grid(5)], done);
        let results = Results::new(vec![identity(&[grid(1), grid(2)]), cut]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|item| results.lacks(item)),
            [false, false, false, true, false]
        );
        assert_eq!(results.item(4).unwrap().unwrap(), Output::Grid(grid(5)));
        assert!(results.item(3).is_err());
        let verdicts = [0..3, 4..5, 2..4].map(|items| results.verdict(items));
        assert_eq!(verdicts, [Some(Verdict::Ok), Some(Verdict::Ok), Some(Verdict::Cancelled)]);
        assert_eq!((results.done(0..5), results.has_partial()), (4, true));
        assert_eq!(results.worst_receipt(0..5).unwrap().verdict, Verdict::Cancelled);
    }

    #[test]
    fn the_worst_verdict_does_not_depend_on_the_order() {
        use Verdict::{Cancelled, Failed, Poison};
        for verdicts in [[Cancelled, Failed, Poison], [Poison, Cancelled, Failed]] {
            let jobs = verdicts.map(|verdict| failed(verdict, 1)).into();
            assert_eq!(Results::new(jobs).worst_receipt(0..1_000).unwrap().verdict, Poison);
        }
    }
}

//! What came of the programs of a job, side by side: a job may have millions.

use std::ops::Range;

use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::search::PairStatus;
use memchr::memchr;

use super::SearchOutcome;
use super::job::SearchOutputs;
use super::verdict::Verdicts;
use crate::ClientError;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Outcomes {
    pairs: usize,
    /// A byte for each program and pair.
    statuses: Vec<u8>,
    /// As many scores, if they are wanted.
    scores: Option<Vec<u16>>,
    /// Programs without a verdict, and why.
    failed: Vec<(Range<usize>, Verdict, String)>,
}

impl Outcomes {
    /// Of so many programs, before anything came.
    pub(super) fn new(programs: usize, pairs: usize, scored: bool) -> Self {
        let scores = scored.then(|| vec![0; programs * pairs]);
        Self { pairs, statuses: vec![0; programs * pairs], scores, failed: Vec::new() }
    }

    /// Takes the verdicts of some programs out of a job's outputs, as those from `first` on.
    pub(super) fn take(
        &mut self,
        outputs: &SearchOutputs,
        programs: &Range<usize>,
        first: usize,
    ) -> Result<(), ClientError> {
        let places = self.pairs * first..self.pairs * (first + programs.len());
        let statuses = &mut self.statuses[places.clone()];
        outputs.statuses(programs, statuses);
        let scores = self.scores.as_mut().map(|scores| &mut scores[places]);
        let are_scores = scores.is_none_or(|scores| outputs.scores(programs, scores));
        if are_scores && PairStatus::are_known(statuses) {
            return Ok(());
        }
        let is_odd = |row: &[u8]| !PairStatus::are_known(row);
        let program = statuses.chunks(self.pairs).position(is_odd).unwrap_or(0);
        Err(ClientError::WrongVerdict {
            program: first + program,
            why: "the pool gave bytes that are no verdict".to_owned(),
        })
    }

    /// Copies the verdicts of some programs of a part of the job, which begins with its program `first`.
    pub(super) fn copy(&mut self, part: &Self, programs: &Range<usize>, first: usize) {
        let from = self.pairs * programs.start..self.pairs * programs.end;
        let to = self.pairs * first + from.start..self.pairs * first + from.end;
        self.statuses[to.clone()].copy_from_slice(&part.statuses[from.clone()]);
        if let (Some(scores), Some(of_part)) = (&mut self.scores, &part.scores) {
            scores[to].copy_from_slice(&of_part[from]);
        }
    }

    /// Some programs have no verdict.
    pub(super) fn fail(&mut self, programs: Range<usize>, verdict: Verdict, reason: &str) {
        self.failed.push((programs, verdict, reason.to_owned()));
    }

    /// Keeps those of the first programs.
    pub(super) fn truncate(&mut self, programs: usize) {
        self.statuses.truncate(self.pairs * programs);
        if let Some(scores) = &mut self.scores {
            scores.truncate(self.pairs * programs);
        }
        self.failed.retain(|(failed, ..)| failed.start < programs);
        for (failed, ..) in &mut self.failed {
            failed.end = failed.end.min(programs);
        }
    }

    /// Programs.
    pub(super) fn len(&self) -> usize {
        self.statuses.len() / self.pairs
    }

    /// Of one program.
    pub(super) fn of(&self, at: usize) -> SearchOutcome {
        if let Some((_, verdict, reason)) =
            self.failed.iter().find(|(programs, ..)| programs.contains(&at))
        {
            return SearchOutcome::Failed { verdict: *verdict, reason: reason.clone() };
        }
        let places = self.pairs * at..self.pairs * (at + 1);
        let scores = self.scores.as_ref().map(|scores| &scores[places.clone()]);
        SearchOutcome::Done(Verdicts::new(&self.statuses[places], scores))
    }

    /// Programs without a verdict.
    pub(super) fn failed(&self) -> u64 {
        self.failed.iter().map(|(programs, ..)| programs.len() as u64).sum()
    }

    /// The statuses of all programs that have verdicts.
    pub(super) fn statuses(&self) -> impl Iterator<Item = &[u8]> {
        let mut failed: Vec<_> =
            self.failed.iter().map(|(programs, ..)| programs.clone()).collect();
        failed.sort_by_key(|programs| programs.start);
        failed.push(self.len()..self.len());
        let mut start = 0;
        failed.into_iter().map(move |Range { start: end, end: behind }| {
            let statuses = &self.statuses[self.pairs * start..self.pairs * end];
            start = behind;
            statuses
        })
    }

    /// The first program from `from` on that solves a pair, or has no verdict; their number if there is none.
    pub(super) fn next_of_note(&self, from: usize) -> usize {
        let equal = memchr(PairStatus::EQUAL, &self.statuses[self.pairs * from..]);
        let solving = equal.map_or(self.len(), |at| from + at / self.pairs);
        let failing = self.failed.iter().filter(|(programs, ..)| programs.end > from);
        failing.map(|(programs, ..)| programs.start.max(from)).fold(solving, usize::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFFERS: u8 = PairStatus::DIFFERS;

    fn outcomes() -> Outcomes {
        let mut outcomes = Outcomes::new(200, 3, false);
        outcomes.statuses.fill(DIFFERS);
        for solving in [5, 77, 199] {
            outcomes.statuses[3 * solving + solving % 3] = PairStatus::EQUAL;
        }
        // What failed has no statuses.
        outcomes.statuses[3 * 40..3 * 42].fill(PairStatus::EQUAL);
        outcomes.fail(40..42, Verdict::Poison, "it kills");
        outcomes
    }

    #[test]
    fn those_of_note_solve_a_pair_or_have_no_verdict() {
        let (outcomes, mut from, mut found) = (outcomes(), 0, Vec::new());
        loop {
            let next = outcomes.next_of_note(from);
            if next == outcomes.len() {
                break;
            }
            found.push(next);
            from = next + 1;
        }
        assert_eq!(found, [5, 40, 41, 77, 199]);
        assert_eq!((outcomes.next_of_note(200), outcomes.failed()), (200, 2));
        assert!(matches!(outcomes.of(41), SearchOutcome::Failed { verdict: Verdict::Poison, .. }));
        let SearchOutcome::Done(verdicts) = outcomes.of(77) else { panic!("no verdict") };
        assert_eq!(verdicts.bytes(), [DIFFERS, DIFFERS, PairStatus::EQUAL]);
    }

    #[test]
    fn statuses_are_those_of_programs_with_verdicts() {
        let lengths = |of: &Outcomes| of.statuses().map(<[u8]>::len).collect::<Vec<_>>();
        let mut outcomes = outcomes();
        assert_eq!((lengths(&outcomes), outcomes.failed()), (vec![120, 474], 2));
        outcomes.truncate(41);
        assert_eq!((lengths(&outcomes), outcomes.failed(), outcomes.len()), (vec![120, 0], 1, 41));
        outcomes.truncate(40);
        assert_eq!((lengths(&outcomes), outcomes.failed()), (vec![120], 0));
    }
}

//! What a search has found so far: the best programs of each task.

use std::ops::Range;

use gridpool_client::{PairStatus, SearchOutcome, SearchResult, Verdicts};

use super::tasks::Tasks;

/// Programs that are kept for the table at the end, unless --top says otherwise.
const BEST_KEPT: usize = 1;

/// How well a program does on a task; better is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) equal_pairs: usize,
    pub(super) equal_shapes: usize,
    pub(super) equal_cells: usize,
}

/// A program on a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) rank: Rank,
}

/// What is known of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfTask {
    /// Programs that solve all its pairs, duplicates included.
    pub(super) solved_by: u64,
    /// The best programs, the best first, of equals the first.
    pub(super) best: Vec<Found>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Tally {
    kept: usize,
    pub(super) tasks: Vec<OfTask>,
}

impl Tally {
    pub(super) fn new(tasks: &Tasks, top: Option<u32>) -> Self {
        let kept = top.map_or(BEST_KEPT, |top| top as usize);
        Self { kept, tasks: vec![OfTask::default(); tasks.list().len()] }
    }

    /// Adds a result.
    pub(super) fn add(&mut self, tasks: &Tasks, result: &SearchResult) {
        let SearchOutcome::Done(verdicts) = &result.outcome else { return };
        // Without scores only tasks with an equal pair have a rank: few of many.
        let all = verdicts.scores().is_some().then(|| tasks.list().iter().enumerate());
        let some = all.is_none().then(|| tasks.with_equal(verdicts.bytes()));
        for (at, task) in all.into_iter().flatten().chain(some.into_iter().flatten()) {
            let rank = rank(verdicts, &task.pairs);
            let of = &mut self.tasks[at];
            of.solved_by += u64::from(rank.equal_pairs == task.pairs.len());
            let is_worth =
                of.best.len() < self.kept || of.best.last().is_some_and(|last| rank > last.rank);
            if rank > Rank::default() && is_worth {
                let place = of.best.partition_point(|known| known.rank >= rank);
                of.best.insert(place, Found { id: result.id.clone(), rank });
                of.best.truncate(self.kept);
            }
        }
    }

    /// Tasks that a program solves on all pairs.
    pub(super) fn solved(&self) -> usize {
        self.tasks.iter().filter(|of| of.solved_by > 0).count()
    }
}

/// How well a program does on the pairs of a task.
pub(super) fn rank(verdicts: &Verdicts, pairs: &Range<usize>) -> Rank {
    let of_task = &verdicts.bytes()[pairs.clone()];
    let equal_pairs = of_task.iter().filter(|byte| **byte == PairStatus::EQUAL).count();
    let mut rank = Rank { equal_pairs, ..Rank::default() };
    for score in verdicts.scores().into_iter().flatten().skip(pairs.start).take(pairs.len()) {
        rank.equal_shapes += usize::from(score.equal_shape);
        rank.equal_cells += usize::from(score.equal_cells);
    }
    rank
}

//! The pairs of all tasks in one batch, and which of them are whose.

use std::ops::Range;

use gridpool_client::PairStatus;
use gridpool_protocol::batch::{Grid, GridBatch};
use memchr::memchr;

use crate::cli::error::CommandError;
use crate::cli::input::{Body, Input, Pair};

/// Which pairs of a task count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Which {
    /// Those to learn from.
    #[default]
    Train,
    /// All that have an output.
    All,
}

/// A task and its pairs among all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) pairs: Range<usize>,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    list: Vec<Task>,
    batch: GridBatch,
}

impl Tasks {
    /// The pairs of the inputs.
    pub(super) fn of(inputs: &[Input], which: Which) -> Result<Self, CommandError> {
        let (mut list, mut batch) = (Vec::new(), GridBatch::of_items(2));
        for input in inputs {
            let pairs: Vec<&Pair> = match (&input.body, which) {
                (Body::Task(task), Which::Train) => task.train.iter().collect(),
                (Body::Task(task), Which::All) => task.train.iter().chain(&task.test).collect(),
                (Body::Pairs(pairs), _) => pairs.iter().collect(),
                (Body::Grids(_), _) => {
                    let name = &input.name;
                    return Err(CommandError::Usage(format!(
                        "{name} has plain grids: search takes ARC task files, with train and test, or arrays of pairs"
                    )));
                }
            };
            let start = batch.len();
            for pair in pairs {
                if let Some(output) = &pair.output {
                    batch
                        .push_pair(&pair.input, Some(output))
                        .map_err(|error| CommandError::Usage(error.to_string()))?;
                }
            }
            let short = input.name.rsplit('/').next().unwrap_or(&input.name);
            let name = short.strip_suffix(".json").unwrap_or(short).to_owned();
            // A task without such pairs has nothing to search for.
            if batch.len() > start {
                list.push(Task { name, pairs: start..batch.len() });
            }
        }
        if list.is_empty() {
            let help = match which {
                Which::Train => "; with --pairs all test pairs count too",
                Which::All => "",
            };
            return Err(CommandError::Usage(format!(
                "no task has a pair with an expected output{help}"
            )));
        }
        Ok(Self { list, batch })
    }

    pub(super) fn list(&self) -> &[Task] {
        &self.list
    }

    /// The tasks of which a pair has the status *equal*, each with its number.
    pub(super) fn with_equal<'t>(
        &'t self,
        statuses: &'t [u8],
    ) -> impl Iterator<Item = (usize, &'t Task)> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let equal = memchr(PairStatus::EQUAL, statuses.get(start..)?)?;
            let at = self.list.partition_point(|task| task.pairs.end <= start + equal);
            let task = self.list.get(at)?;
            start = task.pairs.end;
            Some((at, task))
        })
    }

    pub(super) fn batch(&self) -> &GridBatch {
        &self.batch
    }

    /// Pairs of all tasks.
    pub(super) fn pairs(&self) -> usize {
        self.batch.len()
    }

    /// The input and the output of a pair.
    pub(super) fn pair(&self, at: usize) -> [Grid; 2] {
        [2 * at, 2 * at + 1].map(|grid| self.batch.grid(grid))
    }
}

//! From inputs to results: cuts the items of all inputs into jobs, keeps a bounded number of them
//! under way, and puts the answers back in order.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use gridpool_protocol::batch::{BatchLayout, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job, JobAnswer, JobHandle};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;

use super::input::{Inputs, Item, Pair};
use super::progress::Progress;
use super::results::Results;

/// Jobs under way at a time; below what the pool allows one client.
const JOBS_UNDER_WAY_MAX: usize = 32;
/// Cells of one job; a job is cut earlier where its grids are large.
const JOB_CELLS_MAX: usize = 16 << 20;
/// Bytes of the results of one job, which is cut earlier where they may be large.
const RESULT_BYTES_MAX: usize = 64 << 20;

/// How the jobs are made.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) program: Program,
    pub(super) deadline: Duration,
    pub(super) batch_items: usize,
    pub(super) wait_if_busy: bool,
}

/// Why not every item was run.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}; {done} of {all} items have a verdict, {} have none: submit what has none again{}",
    Chain(.cause),
    all - done,
    self.advice()
)]
pub(super) struct Unfinished {
    /// Said by this error itself, before the rest, and so not its source.
    pub(super) cause: ClientError,
    /// Items whose jobs have a verdict: the first ones.
    done: u64,
    all: u64,
}

impl Unfinished {
    /// Whether nothing was done.
    pub(super) fn is_bare(&self) -> bool {
        self.done == 0
    }

    fn advice(&self) -> &'static str {
        match &self.cause {
            ClientError::Refused(Refusal::Busy(_)) => {
                ", without --no-wait to wait for room, or raise the pool's limit"
            }
            ClientError::Refused(Refusal::Draining) => ", to another pool",
            ClientError::Arena(_)
            | ClientError::Batch(_)
            | ClientError::Closed(_)
            | ClientError::Frame(_)
            | ClientError::Lost
            | ClientError::Malformed(_)
            | ClientError::NoPool { .. }
            | ClientError::Refused(
                Refusal::Invalid(_) | Refusal::KeyInUse(_) | Refusal::Poison(_),
            )
            | ClientError::Silent
            | ClientError::Tensors(_)
            | ClientError::Unexpected(_)
            | ClientError::Version { .. } => "",
        }
    }
}

/// Runs the plan over all inputs. If that cannot be done, the results are those of the first items, and
/// the other value says why there are no more.
pub(super) fn run(
    client: &Client,
    plan: &Plan,
    inputs: &Inputs,
    progress: &Progress,
) -> (Results, Option<Unfinished>) {
    let (under_way, answers) = (VecDeque::new(), Vec::new());
    let mut desk = Desk { progress, under_way, answers, has_gap: false };
    let submitted = desk.submit_all(client, plan, inputs);
    // What was accepted is waited for even if the pool takes no more: a handle that is dropped cancels
    // its job.
    let taken = desk.take_all();
    let ended = submitted.and(taken);
    let answers = desk.answers;
    match ended {
        Ok(()) => (Results::new(answers), None),
        Err(cause) => {
            let done = answers.iter().map(|answer| u64::from(answer.receipt.items)).sum();
            let unfinished = Unfinished { cause, done, all: inputs.item_count() as u64 };
            (Results::of_the_first(answers), Some(unfinished))
        }
    }
}

/// Jobs that are accepted and have no answer yet, and the answers so far, both in order.
struct Desk<'a> {
    progress: &'a Progress,
    under_way: VecDeque<JobHandle>,
    answers: Vec<JobAnswer>,
    /// An answer is missing: none that comes after it is of use.
    has_gap: bool,
}

impl Desk<'_> {
    /// Waits for the answer to the oldest job.
    fn take(&mut self, handle: JobHandle, keep: fn(Outputs) -> Outputs) -> Result<(), ClientError> {
        let answer = handle.wait().inspect_err(|_| self.has_gap = true)?;
        self.progress.advance(u64::from(answer.receipt.items));
        self.answers.push(JobAnswer { outputs: answer.outputs.map(keep), ..answer });
        Ok(())
    }

    /// Waits for all answers. Only now does nobody else need the shared memory that results lie in.
    fn take_all(&mut self) -> Result<(), ClientError> {
        while !self.has_gap
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.take(oldest, |outputs| outputs)?;
        }
        Ok(())
    }

    /// Submits all items, taking answers only where that makes room for more.
    fn submit_all(
        &mut self,
        client: &Client,
        plan: &Plan,
        inputs: &Inputs,
    ) -> Result<(), ClientError> {
        let mut items = inputs.items().peekable();
        while items.peek().is_some() {
            let batch = next_batch(&mut items, &plan.program, plan.batch_items)?;
            if self.under_way.len() == JOBS_UNDER_WAY_MAX
                && let Some(oldest) = self.under_way.pop_front()
            {
                self.take(oldest, Outputs::into_private)?;
            }
            let job = Job::new(plan.program.clone(), batch)?.with_deadline(plan.deadline);
            loop {
                // Room that our own earlier jobs take is got back from them, not waited for.
                let patient = self.under_way.is_empty() && plan.wait_if_busy;
                let job = if patient { job.clone() } else { job.clone().refuse_if_busy() };
                match client.submit(job) {
                    Err(ClientError::Refused(Refusal::Busy(limit)))
                        if plan.wait_if_busy || limit.is_own() =>
                    {
                        match self.under_way.pop_front() {
                            Some(oldest) => self.take(oldest, Outputs::into_private)?,
                            None => return Err(Refusal::Busy(limit).into()),
                        }
                    }
                    submitted => {
                        self.under_way.push_back(submitted?);
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The items of one job, at least one.
fn next_batch<'a>(
    items: &mut Peekable<impl Iterator<Item = Item<'a>>>,
    program: &Program,
    items_max: usize,
) -> Result<GridBatch, ClientError> {
    let mut batch = GridBatch::of_items(program.grids_per_item());
    while let Some(item) = items.next_if(|item| {
        let cells = batch.cells().len() + item.cells();
        batch.is_empty() || batch.len() < items_max && fits(program, cells, batch.len() + 1)
    }) {
        match item {
            Item::Grid(grid) => batch.push(grid)?,
            Item::Pair(Pair { input, output }) => batch.push_pair(input, output.as_ref())?,
        }
    }
    Ok(batch)
}

/// Whether so many items of so many cells, and what the program makes of them, fit one job.
fn fits(program: &Program, cells: usize, items: usize) -> bool {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let batch = BatchLayout::new(number(items), program.grids_per_item(), number(cells));
    let result = batch.and_then(|batch| OutputLayout::new(program, batch));
    cells <= JOB_CELLS_MAX && result.is_ok_and(|result| result.bytes() <= RESULT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid;
    use gridpool_protocol::program::Ties;

    use super::*;

    /// The sizes of the batches that the items are cut into.
    fn sizes<'a>(items: impl Iterator<Item = Item<'a>>, program: &str, max: usize) -> Vec<usize> {
        let program = Program::compile(program, Ties::Cpython).unwrap();
        let mut rest = items.peekable();
        let mut sizes = Vec::new();
        while rest.peek().is_some() {
            sizes.push(next_batch(&mut rest, &program, max).unwrap().len());
        }
        sizes
    }

    #[test]
    fn items_are_cut_into_jobs_in_order_and_none_is_lost() {
        let grids: Vec<Grid> =
            (0..10).map(|n| Grid::new(1, n + 1, vec![0; n + 1]).unwrap()).collect();
        assert_eq!(sizes(grids.iter().map(Item::Grid), "rot90", 4), [4, 4, 2]);
        let pair = |grid: &Grid| Pair { input: grid.clone(), output: Some(grid.clone()) };
        let pairs: Vec<Pair> = grids.iter().map(pair).collect();
        assert_eq!(sizes(pairs.iter().map(Item::Pair), "first", 4), [4, 4, 2]);
    }

    #[test]
    fn a_job_is_cut_where_its_results_may_be_large() {
        let grid = Grid::new(64, 64, vec![1; 4_096]).unwrap();
        let items = || std::iter::repeat_n(Item::Grid(&grid), 10_000);
        assert_eq!(sizes(items(), "rot90", usize::MAX), [4_096, 4_096, 1_808]);
        // 27,000 cells of room for 30 canvases, and 8 bytes for each of status, shape and offset.
        let canvases = "hsplit(30) | apply(canvas(0, 30, 30))";
        assert_eq!(sizes(items(), canvases, usize::MAX)[..2], [2_463, 2_463]);
        let small = Grid::new(1, 1, vec![1]).unwrap();
        let items = std::iter::repeat_n(Item::Grid(&small), 100_000);
        // 900 cells of room, and 8 bytes of status, shape and offset.
        assert_eq!(sizes(items, "upscale(30)", usize::MAX), [73_908, 26_092]);
    }
}

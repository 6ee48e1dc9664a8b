//! From inputs to results: cuts the grids of all inputs into jobs, keeps a bounded number of them
//! under way, and puts the answers back in order.

use std::collections::VecDeque;
use std::time::Duration;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job, JobAnswer, JobHandle};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::program::Program;

use super::input::Input;
use super::progress::Progress;
use super::results::Results;

/// Jobs under way at a time; below what the pool allows one client.
const JOBS_UNDER_WAY_MAX: usize = 32;
/// Cells of one job; a job is cut earlier where its grids are large.
const JOB_CELLS_MAX: usize = 16 << 20;

/// How the jobs are made.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) program: Program,
    pub(super) deadline: Duration,
    pub(super) batch_items: usize,
    pub(super) wait_if_busy: bool,
}

/// Why not every grid was run.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}; {done} of {all} grids were done and are not shown: submit them all again{}",
    Chain(.cause),
    self.advice()
)]
pub(super) struct Unfinished {
    /// Said by this error itself, before the rest, and so not its source.
    pub(super) cause: ClientError,
    /// Grids whose jobs have a verdict.
    done: u64,
    all: u64,
}

impl Unfinished {
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
            | ClientError::Refused(Refusal::Invalid(_) | Refusal::KeyInUse(_))
            | ClientError::Silent
            | ClientError::Unexpected(_)
            | ClientError::Version { .. } => "",
        }
    }
}

/// Runs the plan over all inputs.
pub(super) fn run(
    client: &Client,
    plan: &Plan,
    inputs: &[Input],
    progress: &Progress,
) -> Result<Results, Unfinished> {
    let mut answers = Vec::new();
    match submit_all(client, plan, inputs, progress, &mut answers) {
        Ok(()) => Ok(Results::new(answers)),
        Err(cause) => Err(Unfinished {
            cause,
            done: answers.iter().map(|answer| u64::from(answer.receipt.items)).sum(),
            all: inputs.iter().map(Input::grid_count).sum::<usize>() as u64,
        }),
    }
}

fn submit_all(
    client: &Client,
    plan: &Plan,
    inputs: &[Input],
    progress: &Progress,
    answers: &mut Vec<JobAnswer>,
) -> Result<(), ClientError> {
    let mut under_way: VecDeque<JobHandle> = VecDeque::new();
    let mut take = |handle: JobHandle| -> Result<(), ClientError> {
        let answer = handle.wait()?;
        progress.advance(u64::from(answer.receipt.items));
        answers.push(answer);
        Ok(())
    };
    let mut grids = inputs.iter().flat_map(Input::grids).peekable();
    while grids.peek().is_some() {
        let batch = next_batch(&mut grids, plan.batch_items)?;
        if under_way.len() == JOBS_UNDER_WAY_MAX
            && let Some(oldest) = under_way.pop_front()
        {
            take(oldest)?;
        }
        let job = Job::new(plan.program.clone(), batch)?.with_deadline(plan.deadline);
        loop {
            // Room that our own earlier jobs take is got back from them, not waited for.
            let patient = under_way.is_empty() && plan.wait_if_busy;
            let job = if patient { job.clone() } else { job.clone().refuse_if_busy() };
            match client.submit(job) {
                Err(ClientError::Refused(Refusal::Busy(limit)))
                    if plan.wait_if_busy || limit.is_own() =>
                {
                    match under_way.pop_front() {
                        Some(oldest) => take(oldest)?,
                        None => return Err(Refusal::Busy(limit).into()),
                    }
                }
                submitted => {
                    under_way.push_back(submitted?);
                    break;
                }
            }
        }
    }
    under_way.into_iter().try_for_each(take)
}

/// The grids of one job, at least one.
fn next_batch<'a>(
    grids: &mut std::iter::Peekable<impl Iterator<Item = &'a Grid>>,
    items_max: usize,
) -> Result<GridBatch, ClientError> {
    let mut batch = GridBatch::default();
    while let Some(grid) = grids.next_if(|grid| {
        batch.is_empty()
            || batch.len() < items_max && batch.cells().len() + grid.cells().len() <= JOB_CELLS_MAX
    }) {
        batch.push(grid)?;
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_cut_into_jobs_in_order_and_none_is_lost() {
        let grids: Vec<Grid> =
            (0..10).map(|n| Grid::new(1, n + 1, vec![0; n + 1]).unwrap()).collect();
        let mut rest = grids.iter().peekable();
        let mut sizes = Vec::new();
        while rest.peek().is_some() {
            sizes.push(next_batch(&mut rest, 4).unwrap().len());
        }
        assert_eq!(sizes, [4, 4, 2]);
    }
}

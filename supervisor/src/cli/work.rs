//! From inputs to results: cuts the items of all inputs into jobs, keeps a bounded number of jobs in flight,
//! and puts the answers back in order.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use gridpool_client::{Answer, Canceller, Client, ClientError, Handle, Job, Outputs};
use gridpool_protocol::batch::{BatchLayout, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::message::{Limit, Priority, Refusal};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::Verdict;

use super::error::exit_code_of;
use super::input::{Inputs, Item, Pair};
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::results::Results;
use super::traceparent;

/// Jobs in flight; less than the pool allows one client.
const JOBS_IN_FLIGHT_MAX: usize = 32;
/// Most cells of one job.
const JOB_CELLS_MAX: usize = 16 << 20;
/// Most bytes that the results of one job may take.
const RESULT_BYTES_MAX: usize = 64 << 20;
/// How often a full stream of a cluster is tried while jobs of this run are in it: others' jobs leave it, too.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// What jobs have a verdict on.
const ITEMS: &str = "items";

/// What all jobs have in common.
#[derive(Clone, Debug)]
pub(super) struct JobPlan {
    pub(super) program: Program,
    pub(super) deadline: Duration,
    pub(super) priority: Priority,
    pub(super) batch_items: usize,
    pub(super) wait_if_busy: bool,
}

/// What ended the work.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("{}", Chain(.0))]
    Client(#[from] ClientError),
    /// While these ran.
    #[error("stopped by Ctrl-C or SIGTERM, and what was under way is cancelled")]
    Interrupted(&'static str),
}

/// Why some items have no verdict.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}; {done} of {all} {} have a verdict, {} have none{}",
    .cause,
    self.what(),
    all - done,
    self.advice()
)]
pub(super) struct Unfinished {
    /// Not the error's source, since the error's own text begins with it.
    cause: Cause,
    /// The first, whose jobs have a verdict.
    done: u32,
    all: u32,
    /// It has waited for room.
    waited: bool,
}

impl JobPlan {
    /// Whether a refused job may be accepted once the answers of others are taken.
    fn may_wait_after(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Busy(limit) => self.wait_if_busy || limit.is_own(),
            Refusal::Draining => self.wait_if_busy,
            Refusal::Bundled
            | Refusal::Invalid(_)
            | Refusal::KeyInUse(_)
            | Refusal::NotAllowed(_)
            | Refusal::Poison(_)
            | Refusal::Unable(_) => false,
        }
    }
}

impl Unfinished {
    /// Ctrl-C, when so many of all had a verdict.
    pub(super) fn interrupted(what: &'static str, done: usize, all: usize) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (done, all) = (number(done), number(all));
        Self { cause: Cause::Interrupted(what), done, all, waited: false }
    }

    fn what(&self) -> &'static str {
        match self.cause {
            Cause::Client(_) => ITEMS,
            Cause::Interrupted(what) => what,
        }
    }

    /// Whether no item has a verdict.
    pub(super) fn is_bare(&self) -> bool {
        self.done == 0
    }

    pub(super) fn exit_code(&self) -> u8 {
        match &self.cause {
            Cause::Client(error) => exit_code_of(error),
            Cause::Interrupted(_) => exit::INTERRUPTED,
        }
    }

    fn advice(&self) -> &'static str {
        let refusal = match &self.cause {
            Cause::Client(ClientError::Refused(refusal)) => refusal,
            Cause::Client(_) => return ": submit those again",
            Cause::Interrupted(_) => return "",
        };
        match refusal {
            Refusal::Busy(_) if self.waited => {
                ": submit those again; there was no room by the deadline: raise that limit, or --deadline"
            }
            Refusal::Draining if self.waited => {
                ": submit those again; no other pool has come by the deadline: name another with --socket"
            }
            refusal if is_of_stream(refusal) => {
                ": submit those again; leave out --no-wait to wait until the stream has room; hosts make it, and its \
                 limit is that of `nats stream edit`"
            }
            Refusal::Busy(_) => {
                ": submit those again; leave out --no-wait to wait until the pool has room, or raise the pool's limit"
            }
            Refusal::Draining => {
                ": submit those again; leave out --no-wait to wait for the next pool, or name another with --socket"
            }
            Refusal::Bundled | Refusal::KeyInUse(_) | Refusal::Unable(_) => ": submit those again",
            // It would be refused again.
            Refusal::Invalid(_) | Refusal::NotAllowed(_) | Refusal::Poison(_) => "",
        }
    }
}

/// Runs the plan over all inputs. After an error, the results are those of the first items, and the second
/// value is the error.
pub(super) fn run(
    client: &Client,
    plan: &JobPlan,
    inputs: &Inputs,
    progress: &Progress,
    interrupt: &Interrupt,
) -> (Results, Option<Unfinished>) {
    let (in_flight, answers) = (VecDeque::new(), Vec::new());
    let mut jobs = Jobs { progress, interrupt, in_flight, answers, has_gap: false };
    let submitted = jobs.submit_all(client, plan, inputs);
    // Wait for the accepted jobs even after an error: dropping a handle cancels its job.
    let taken = jobs.take_all();
    let ended = submitted.and(taken);
    interrupt.ends();
    let answers = jobs.answers;
    match ended {
        Ok(()) => (Results::new(answers), None),
        Err(cause) => {
            let done = answers.iter().map(|answer| answer.receipt.items).sum();
            let all = u32::try_from(inputs.item_count()).unwrap_or(u32::MAX);
            if done == all {
                // It came too late to stop anything.
                return (Results::new(answers), None);
            }
            let waited = plan.wait_if_busy;
            let unfinished = Unfinished { cause, done, all, waited };
            (Results::of_the_first(answers), Some(unfinished))
        }
    }
}

/// Accepted jobs without an answer, and the answers so far, both in order.
struct Jobs<'a> {
    progress: &'a Progress,
    interrupt: &'a Interrupt,
    in_flight: VecDeque<Handle<Outputs>>,
    answers: Vec<Answer<Outputs>>,
    /// An answer is missing, so that later answers are of no use.
    has_gap: bool,
}

impl Jobs<'_> {
    /// Waits for the answer to the oldest job.
    fn take(&mut self, handle: Handle<Outputs>, keep: fn(Outputs) -> Outputs) -> Result<(), Cause> {
        let canceller = handle.canceller();
        self.interrupt.stops(move || canceller.cancel());
        let answer = handle.wait().inspect_err(|_| self.has_gap = true);
        let answer = answer.map_err(|error| self.cause(error))?;
        if !self.interrupt.has_come() || answer.verdict() != Verdict::Cancelled {
            self.put(answer.map(keep));
        }
        self.go_on()
    }

    /// Ctrl-C, if it has come: the error of a job that it has cancelled says less.
    fn cause(&self, error: ClientError) -> Cause {
        if self.interrupt.has_come() { Cause::Interrupted(ITEMS) } else { Cause::Client(error) }
    }

    /// An error if Ctrl-C has come: then nothing more is submitted or waited for.
    fn go_on(&mut self) -> Result<(), Cause> {
        self.has_gap |= self.interrupt.has_come();
        if self.has_gap { Err(Cause::Interrupted(ITEMS)) } else { Ok(()) }
    }

    fn put(&mut self, answer: Answer<Outputs>) {
        self.progress.advance(u64::from(answer.receipt.items));
        self.answers.push(answer);
    }

    /// Waits for all answers. These last results can stay in shared memory, since no job follows that
    /// needs it.
    fn take_all(&mut self) -> Result<(), Cause> {
        while !self.has_gap
            && let Some(oldest) = self.in_flight.pop_front()
        {
            self.take(oldest, |outputs| outputs)?;
        }
        Ok(())
    }

    /// Takes an answer after a refusal. Returns whether another try may help: not if there is none to take, nor if the
    /// stream of a cluster is full and no job of this run has come out of it by its deadline. Another deadline in which
    /// nothing moves would be a second one. Until then it is tried from time to time.
    fn makes_room(&mut self, refusal: &Refusal) -> Result<bool, Cause> {
        while let Some(mut oldest) = self.in_flight.pop_front() {
            if !is_of_stream(refusal) {
                self.take(oldest, Outputs::into_private)?;
                return Ok(true);
            }
            let answer = oldest.wait_for(TRY_EVERY).inspect_err(|_| self.has_gap = true)?;
            let Some(answer) = answer else {
                self.in_flight.push_front(oldest);
                return Ok(true);
            };
            let verdict = answer.verdict();
            self.put(answer.map(Outputs::into_private));
            if verdict != Verdict::Deadline {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Submits all items. Takes answers only to make room for more jobs.
    fn submit_all(
        &mut self,
        client: &Client,
        plan: &JobPlan,
        inputs: &Inputs,
    ) -> Result<(), Cause> {
        let mut items = inputs.items().peekable();
        let (trace, trace_state) = traceparent::of_environment();
        while items.peek().is_some() {
            let batch = next_batch(&mut items, &plan.program, plan.batch_items)?;
            if self.in_flight.len() == JOBS_IN_FLIGHT_MAX
                && let Some(oldest) = self.in_flight.pop_front()
            {
                self.take(oldest, Outputs::into_private)?;
            }
            let job = Job::program(plan.program.clone(), batch).map_err(ClientError::from)?;
            let job = job
                .with_deadline(plan.deadline)
                .with_priority(plan.priority)
                .with_trace(trace)
                .with_trace_state(trace_state.clone());
            loop {
                self.interrupt.stops(|| ());
                self.go_on()?;
                // While we have jobs in flight, taking their answers makes room: do not wait in the pool then.
                let waits = self.in_flight.is_empty() && plan.wait_if_busy;
                let job = if waits { job.clone() } else { job.clone().refuse_if_busy() };
                let cancels = |canceller: Canceller| {
                    self.interrupt.stops(move || canceller.cancel());
                };
                match client.submit_with(job, cancels) {
                    Err(ClientError::Refused(refusal)) if plan.may_wait_after(&refusal) => {
                        self.go_on()?;
                        if !self.makes_room(&refusal)? {
                            return Err(ClientError::Refused(refusal).into());
                        }
                    }
                    submitted => {
                        self.in_flight.push_back(submitted.map_err(|error| self.cause(error))?);
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a stream of a cluster has no room.
fn is_of_stream(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Busy(Limit::StreamDataBytes | Limit::StreamJobBytes | Limit::StreamJobs)
    )
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

/// Whether items with this many cells, and their results, fit one job.
fn fits(program: &Program, cells: usize, items: usize) -> bool {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let batch = BatchLayout::new(number(items), program.grids_per_item(), number(cells));
    let result = batch.and_then(|batch| OutputLayout::new(program, batch));
    cells <= JOB_CELLS_MAX && result.is_ok_and(|result| result.bytes() <= RESULT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid;
    use gridpool_protocol::ids::ContentHash;
    use gridpool_protocol::program::Ties;

    use super::*;

    /// Cuts the items into batches, and gives the size of each.
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
    fn what_waited_for_room_is_not_told_to_wait() {
        let advice = |refusal: Refusal, waited| {
            let cause = Cause::Client(refusal.into());
            let unfinished = Unfinished { cause, done: 0, all: 1, waited };
            unfinished.to_string()
        };
        for refusal in [Refusal::Busy(Limit::StreamJobs), Refusal::Draining] {
            let [at_once, late] = [false, true].map(|waited| advice(refusal.clone(), waited));
            assert!(at_once.contains("leave out --no-wait"), "{at_once}");
            assert!(late.contains("by the deadline") && !late.contains("--no-wait"), "{late}");
        }
        for (refusal, is_passing) in [
            (Refusal::Poison(ContentHash([7; 32])), false),
            (Refusal::Invalid("POISON: a job like it".into()), false),
            (Refusal::Unable("no thread".into()), true),
        ] {
            let said = advice(refusal, true);
            assert_eq!(said.contains("submit those again"), is_passing, "{said}");
            assert!(said.contains("0 of 1 items have a verdict, 1 have none"), "{said}");
        }
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
        // 27,000 bytes for the cells of 30 canvases, and 8 bytes each for status, shape and offset.
        let canvases = "hsplit(30) | apply(canvas(0, 30, 30))";
        assert_eq!(sizes(items(), canvases, usize::MAX)[..2], [2_463, 2_463]);
        let small = Grid::new(1, 1, vec![1]).unwrap();
        let items = std::iter::repeat_n(Item::Grid(&small), 100_000);
        // 900 bytes for cells, and 8 bytes for status, shape and offset.
        assert_eq!(sizes(items, "upscale(30)", usize::MAX), [73_908, 26_092]);
    }
}

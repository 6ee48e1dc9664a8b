//! Every op at every size, through a pool, against the reference in this process.
//!
//! - `programs` names what tries an op, `grids` makes what it is tried on.
//! - `differ` says how a result differs, `course` what becomes of an op.
//!
//! Several ops are under way at a time, and of each one job alone: so no other job joins its launch, and a
//! batch of 33 is a launch of 33.

mod course;
mod differ;
mod grids;
mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use gridpool_protocol::batch::{BatchError, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job};
use gridpool_protocol::clock;
use gridpool_protocol::diagnose::{Check, Group, Plan};
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::limits::{INLINE_BYTES_MAX, JOB_ITEMS_MAX};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;

use super::pooled::trouble;
use super::{DiagnoseError, Report, us_since};
use crate::bench::load::Trouble;
use crate::bench::memory::room_for;
use crate::bench::native;
use course::{Behind, Course};
use differ::differ;
use grids::{Grids, first_of};
use programs::{Trial, trials};

/// Ops under way at a time: enough that the pool works while this process compares.
const CALLERS: usize = 4;
/// How long a job may take: a large batch on one busy core is no fault.
const DEADLINE: Duration = Duration::from_secs(600);

/// A larger batch or result goes as several jobs: a client's share of a small machine is not much more.
const JOB_BYTES_MAX: usize = 256 << 20;

/// What must come of a program over a batch.
type Reference = fn(&Program, Arc<GridBatch>) -> Result<Outputs, BatchError>;

/// Tries every op that the plan wants.
pub(super) fn look(
    plan: &Plan,
    socket: &Path,
    device: DeviceId,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let trials = trials(&plan.ops)?;
    let looker = Looker {
        socket,
        device,
        sizes: plan.sizes(),
        grids: Grids::new(),
        reference: native::outputs,
        is_lost: AtomicBool::new(false),
    };
    let next = AtomicUsize::new(0);
    let (sender, said) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..CALLERS.min(trials.len()) {
            let (looker, next, trials, sender) = (&looker, &next, &trials, sender.clone());
            scope.spawn(move || looker.take(trials, next, &sender));
        }
        drop(sender);
        tell(said, report)
    })
}

/// What a caller says about the op of a number.
enum Said {
    Begins(&'static str),
    Found(usize, Check),
}

/// Reports what callers say, the checks in the order of the ops.
fn tell(said: Receiver<Said>, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let (mut waiting, mut next) = (BTreeMap::new(), 0);
    for word in said {
        match word {
            Said::Begins(op) => report.doing(format!("op {op}"))?,
            Said::Found(number, check) => drop(waiting.insert(number, check)),
        }
        while let Some(check) = waiting.remove(&next) {
            report.check(check)?;
            next += 1;
        }
    }
    Ok(())
}

/// What all callers share.
struct Looker<'a> {
    socket: &'a Path,
    device: DeviceId,
    sizes: Vec<u32>,
    grids: Grids,
    reference: Reference,
    /// Whether the pool went away: no op is tried after that.
    is_lost: AtomicBool,
}

/// The programs that a program builds on, the shortest first: what comes before its last op, and of ops
/// that are applied to the elements of pairs, the same ops on grids.
fn parts_of(program: &Program) -> Vec<Program> {
    let compiled = |steps: &[String]| Program::compile(&steps.join(" | "), program.ties()).ok();
    let steps: Vec<String> = program.steps().iter().map(ToString::to_string).collect();
    let mut parts: Vec<Program> =
        (1..steps.len()).filter_map(|count| compiled(&steps[..count])).collect();
    if program.steps().iter().all(|step| step.applied) {
        let ops: Vec<String> = program.steps().iter().map(|step| step.op.to_string()).collect();
        let on_grids = (1..=ops.len()).filter_map(|count| compiled(&ops[..count]));
        parts.splice(0..0, on_grids.collect::<Vec<_>>());
    }
    parts
}

/// In the place of items that fit no job, the two halves of them.
fn halve(parts: &mut Vec<(u32, u32)>, start: u32, items: u32) {
    let half = items / 2;
    parts.push((start + half, items - half));
    parts.push((start, half));
}

impl Looker<'_> {
    /// Tries one op after the other, until there is none left or nobody listens.
    fn take(&self, trials: &[Trial], next: &AtomicUsize, sender: &Sender<Said>) {
        let mut client = None;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(number) else { return };
            if sender.send(Said::Begins(trial.op)).is_err() {
                return;
            }
            let started = clock::now();
            let check = match connected(&mut client, self.socket) {
                Ok(client) => self.check(client, trial),
                Err(error) => self.lost(trial, 0, &error),
            };
            let check = check.on(self.device).took(us_since(started));
            if sender.send(Said::Found(number, check)).is_err() {
                return;
            }
        }
    }

    /// One op at every size, the least first, until one is wrong.
    fn check(&self, client: &Client, trial: &Trial) -> Check {
        let mut course = Course::default();
        for &size in &self.sizes {
            for tried in trial.programs.iter().filter(|tried| size <= tried.items_max) {
                let text = tried.program.text();
                if course.behind.iter().any(|behind| behind.program == text) {
                    continue;
                }
                if self.is_lost.load(Ordering::Relaxed) {
                    return self.not_tried(trial);
                }
                match self.size(client, &tried.program, size, &mut course) {
                    Ok(()) => {}
                    Err(Trouble::Skipped(why)) => course.untried.push((size, why)),
                    Err(Trouble::Wrong(what)) => match self.culprit(client, &tried.program, size) {
                        Some(culprit) => {
                            let program = text.to_owned();
                            course.behind.push(Behind { program, culprit, size });
                        }
                        None => {
                            let says = format!("`{text}`: {what}{}", course.proof.by());
                            return course.failed(trial, self.device, size, says);
                        }
                    },
                    Err(Trouble::Lost(error)) => return self.lost(trial, size, &error),
                }
            }
        }
        course.ended(trial, &self.sizes)
    }

    /// The part of a program that is wrong already without the op under test: what comes before it, or
    /// what is applied.
    fn culprit(&self, client: &Client, program: &Program, size: u32) -> Option<String> {
        let is_wrong = |part: &Program| {
            let tried = self.size(client, part, size, &mut Course::default());
            matches!(tried, Err(Trouble::Wrong(_)))
        };
        parts_of(program).into_iter().find(is_wrong).map(|part| part.text().to_owned())
    }

    /// A program over so many items: as one job, or as several if they fit none.
    fn size(
        &self,
        client: &Client,
        program: &Program,
        size: u32,
        course: &mut Course,
    ) -> Result<(), Trouble> {
        let first = first_of(size);
        let mut parts = vec![(0, size)];
        while let Some((start, items)) = parts.pop() {
            let number = first + u64::from(start);
            let too_many = items > JOB_ITEMS_MAX;
            let made = if too_many {
                Err(BatchError::Items { items: items as usize })
            } else {
                self.grids.batch(program.grids_per_item(), number, items)
            };
            let laid = made.and_then(|batch| {
                let layout = batch.layout()?;
                let result_bytes = OutputLayout::new(program, layout)?.bytes();
                Ok((batch, layout.bytes(), result_bytes))
            });
            let is_large = |bytes: usize| items > 1 && bytes > JOB_BYTES_MAX;
            match laid {
                Ok((_, bytes, result_bytes)) if is_large(bytes.max(result_bytes)) => {
                    halve(&mut parts, start, items);
                    course.is_split(size);
                }
                Ok((batch, _, result_bytes)) => {
                    let place = Place { start, items, size };
                    self.job(client, program, &batch, result_bytes, place, course)?;
                }
                Err(
                    BatchError::Items { .. }
                    | BatchError::Cells { .. }
                    | BatchError::Values { .. }
                    | BatchError::Room { .. },
                ) if items > 1 => {
                    halve(&mut parts, start, items);
                    course.is_split(size);
                }
                Err(error) => return Err(Trouble::Wrong(error.to_string())),
            }
        }
        Ok(())
    }

    /// A job over one batch, compared with the reference item by item.
    fn job(
        &self,
        client: &Client,
        program: &Program,
        batch: &Arc<GridBatch>,
        result_bytes: usize,
        place: Place,
        course: &mut Course,
    ) -> Result<(), Trouble> {
        let layout = batch.layout().map_err(ClientError::from)?;
        // Here and in the arenas there is one of each.
        let needs = 2 * (layout.bytes() as u64 + result_bytes as u64);
        room_for(needs.saturating_mul(CALLERS as u64)).map_err(Trouble::Skipped)?;
        let job = if layout.bytes().max(result_bytes) <= INLINE_BYTES_MAX {
            Job::new(program.clone(), GridBatch::clone(batch)).map_err(ClientError::from)?
        } else {
            Job::over(program.clone(), &client.load(batch).map_err(trouble)?)
                .map_err(ClientError::from)?
        };
        let handle = client.submit(job.with_deadline(DEADLINE)).map_err(trouble)?;
        // While the pool works.
        let want = (self.reference)(program, Arc::clone(batch)).map_err(ClientError::from)?;
        let answer = handle.wait()?;
        let at = |what: String| Trouble::Wrong(format!("{what}{}", place.within()));
        course.proof.add(&answer.receipt, self.device).map_err(at)?;
        let Some(got) = &answer.outputs else {
            return Err(at("it ended OK without results".to_owned()));
        };
        compare(got, &want, place).map_err(Trouble::Wrong)?;
        let errors = errors(&want);
        let said = u64::from(answer.receipt.item_errors);
        if said != errors {
            return Err(at(format!("its receipt has {said} item errors, must have {errors}")));
        }
        Ok(())
    }

    /// The pool went away under this op.
    fn lost(&self, trial: &Trial, size: u32, error: &ClientError) -> Check {
        if self.is_lost.swap(true, Ordering::Relaxed) {
            return self.not_tried(trial);
        }
        let says = format!("the pool was lost: {}", Chain(error));
        let next = "look at the pool's log for what ended it";
        let check = Check::fail(Group::Batches, format!("op {}", trial.op), says, next);
        if size == 0 { check } else { check.at(size.into()) }
    }

    fn not_tried(&self, trial: &Trial) -> Check {
        let says = "not tried: the pool was lost while another op was";
        Check::skip(Group::Batches, format!("op {}", trial.op), says, "see that op first")
    }
}

/// A connection that is made once.
fn connected<'a>(client: &'a mut Option<Client>, socket: &Path) -> Result<&'a Client, ClientError> {
    match client {
        Some(client) => Ok(client),
        None => Ok(client.insert(Client::connect(socket)?)),
    }
}

/// Items of one job among those of its size.
#[derive(Clone, Copy)]
struct Place {
    start: u32,
    items: u32,
    size: u32,
}

impl Place {
    fn item(self, item: usize) -> String {
        format!("item {} of {}", self.start as usize + item, self.size)
    }

    fn within(self) -> String {
        if self.items == self.size {
            return format!(" (a job of {})", self.size);
        }
        let end = self.start + self.items - 1;
        format!(" (items {} to {end} of {})", self.start, self.size)
    }
}

/// The error names the first item that is not as it must be, and what differs in it.
fn compare(got: &Outputs, want: &Outputs, place: Place) -> Result<(), String> {
    match got.first_difference(want) {
        Ok(None) => Ok(()),
        Ok(Some(item)) => Err(format!("{}: {}", place.item(item), differ(got, want, item))),
        Err(malformed) => {
            let item = place.item(malformed.item);
            Err(format!("{item}: its result is none: {}", malformed.what))
        }
    }
}

/// How many items have an error in place of a result.
fn errors(outputs: &Outputs) -> u64 {
    let is_error = |&item: &usize| matches!(outputs.item_error(item), Ok(Some(_)));
    (0..outputs.len()).filter(is_error).count() as u64
}

#[cfg(test)]
mod tests;

//! Every op at every size, through a pool, against the reference in this process.
//!
//! - `programs` lists the programs that test an op, `grids` makes their grids.
//! - `differ` describes how a result differs, `findings` collects what was found of an op.
//!
//! Several ops are in flight at a time, but only one job of each. So no other job joins its launch, and a
//! batch of 33 is a launch of 33.

mod differ;
mod findings;
mod grids;
mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use gridpool_bench::failure::Failure;
use gridpool_bench::memory::check_available;
use gridpool_bench::native;
use gridpool_client::{Client, ClientError, Job};
use gridpool_ipc::clock;
use gridpool_protocol::batch::{BatchError, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::diagnose::{Check, Group, Plan};
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::limits::{INLINE_BYTES_MAX, JOB_ITEMS_MAX};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;

use super::pooled::failure;
use super::{DiagnoseError, Report, us_since};
use differ::differ;
use findings::{BrokenPrefix, OpFindings};
use grids::{Grids, first_of};
use programs::{OpTest, op_tests};

/// Ops in flight at a time: enough that the pool works while this process compares.
const CALLERS: usize = 4;
/// The deadline of a job: a large batch on one busy core may take long.
const DEADLINE: Duration = Duration::from_secs(600);

/// A larger batch or result is split into several jobs, to fit a client's share of a small machine.
const JOB_BYTES_MAX: usize = 256 << 20;

/// Computes the right results of a program over a batch.
type Reference = fn(&Program, Arc<GridBatch>) -> Result<Outputs, BatchError>;

/// Tests every op that the plan asks for.
pub(super) fn run(
    plan: &Plan,
    socket: &Path,
    device: DeviceId,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let op_tests = op_tests(&plan.ops)?;
    let looker = OpChecker {
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
        for _ in 0..CALLERS.min(op_tests.len()) {
            let (looker, next, op_tests, sender) = (&looker, &next, &op_tests, sender.clone());
            scope.spawn(move || looker.take(op_tests, next, &sender));
        }
        drop(sender);
        report_all(said, report)
    })
}

/// A message of a caller about the op with a number.
enum CallerMessage {
    Begins(&'static str),
    Found(usize, Check),
}

/// Reports the callers' messages, with the checks in the order of the ops.
fn report_all(said: Receiver<CallerMessage>, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let (mut waiting, mut next) = (BTreeMap::new(), 0);
    for word in said {
        match word {
            CallerMessage::Begins(op) => report.doing(format!("op {op}"))?,
            CallerMessage::Found(number, check) => drop(waiting.insert(number, check)),
        }
        while let Some(check) = waiting.remove(&next) {
            report.check(check)?;
            next += 1;
        }
    }
    Ok(())
}

/// Shared by all callers.
struct OpChecker<'a> {
    socket: &'a Path,
    device: DeviceId,
    sizes: Vec<u32>,
    grids: Grids,
    reference: Reference,
    /// Whether the pool was lost: no op is tested after that.
    is_lost: AtomicBool,
}

/// The programs that a program builds on, the shortest first: the steps before its last op; and if ops are
/// applied to the elements of pairs, those ops on grids.
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

/// Replaces items that do not fit one job by their two halves.
fn halve(parts: &mut Vec<(u32, u32)>, start: u32, items: u32) {
    let half = items / 2;
    parts.push((start + half, items - half));
    parts.push((start, half));
}

impl OpChecker<'_> {
    /// Tests one op after the other, until all are done or the receiver is gone.
    fn take(&self, op_tests: &[OpTest], next: &AtomicUsize, sender: &Sender<CallerMessage>) {
        let mut client = None;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(op_test) = op_tests.get(number) else { return };
            if sender.send(CallerMessage::Begins(op_test.op)).is_err() {
                return;
            }
            let started = clock::now();
            let check = match connected(&mut client, self.socket) {
                Ok(client) => self.check(client, op_test),
                Err(error) => self.lost(op_test, 0, &error),
            };
            let check = check.on(self.device).took(us_since(started));
            if sender.send(CallerMessage::Found(number, check)).is_err() {
                return;
            }
        }
    }

    /// Tests one op at every size, the smallest first, until one is wrong.
    fn check(&self, client: &Client, op_test: &OpTest) -> Check {
        let mut findings = OpFindings::default();
        for &size in &self.sizes {
            for tried in op_test.programs.iter().filter(|tried| size <= tried.items_max) {
                let text = tried.program.text();
                if findings
                    .broken_prefixes
                    .iter()
                    .any(|broken_prefixes| broken_prefixes.program == text)
                {
                    continue;
                }
                if self.is_lost.load(Ordering::Relaxed) {
                    return self.not_tried(op_test);
                }
                match self.size(client, &tried.program, size, &mut findings) {
                    Ok(()) => {}
                    Err(Failure::Skipped(why)) => findings.untried.push((size, why)),
                    Err(Failure::Wrong(what)) => match self.culprit(client, &tried.program, size) {
                        Some(culprit) => {
                            let program = text.to_owned();
                            findings.broken_prefixes.push(BrokenPrefix { program, culprit, size });
                        }
                        None => {
                            let says = format!("`{text}`: {what}{}", findings.proof.by());
                            return findings.failed(op_test, self.device, size, says);
                        }
                    },
                    Err(Failure::Lost(error)) => return self.lost(op_test, size, &error),
                }
            }
        }
        findings.ended(op_test, &self.sizes)
    }

    /// The part of a program that is wrong even without the op under test: the steps before it, or the ops that
    /// are applied.
    fn culprit(&self, client: &Client, program: &Program, size: u32) -> Option<String> {
        let is_wrong = |part: &Program| {
            let tried = self.size(client, part, size, &mut OpFindings::default());
            matches!(tried, Err(Failure::Wrong(_)))
        };
        parts_of(program).into_iter().find(is_wrong).map(|part| part.text().to_owned())
    }

    /// Runs a program over `items` items, as one job or as several if they do not fit one.
    fn size(
        &self,
        client: &Client,
        program: &Program,
        size: u32,
        findings: &mut OpFindings,
    ) -> Result<(), Failure> {
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
                    findings.is_split(size);
                }
                Ok((batch, _, result_bytes)) => {
                    let place = JobItems { start, items, size };
                    self.job(client, program, &batch, result_bytes, place, findings)?;
                }
                Err(
                    BatchError::Items { .. }
                    | BatchError::Cells { .. }
                    | BatchError::Values { .. }
                    | BatchError::Capacity { .. },
                ) if items > 1 => {
                    halve(&mut parts, start, items);
                    findings.is_split(size);
                }
                Err(error) => return Err(Failure::Wrong(error.to_string())),
            }
        }
        Ok(())
    }

    /// Runs a job over one batch, and compares it with the reference item by item.
    fn job(
        &self,
        client: &Client,
        program: &Program,
        batch: &Arc<GridBatch>,
        result_bytes: usize,
        place: JobItems,
        findings: &mut OpFindings,
    ) -> Result<(), Failure> {
        let layout = batch.layout().map_err(ClientError::from)?;
        // This process and the arenas each hold one batch and one result.
        let needs = 2 * (layout.bytes() as u64 + result_bytes as u64);
        check_available(needs.saturating_mul(CALLERS as u64)).map_err(Failure::Skipped)?;
        let job = if layout.bytes().max(result_bytes) <= INLINE_BYTES_MAX {
            Job::program(program.clone(), GridBatch::clone(batch)).map_err(ClientError::from)?
        } else {
            Job::over(program.clone(), &client.load(batch).map_err(failure)?)
                .map_err(ClientError::from)?
        };
        let handle = client.submit(job.with_deadline(DEADLINE)).map_err(failure)?;
        // Computed while the pool works.
        let want = (self.reference)(program, Arc::clone(batch)).map_err(ClientError::from)?;
        let answer = handle.wait()?;
        let at = |what: String| Failure::Wrong(format!("{what}{}", place.within()));
        findings.proof.add(&answer.receipt, self.device).map_err(at)?;
        let Some(got) = answer.outputs() else {
            return Err(at("it ended OK without results".to_owned()));
        };
        compare(got, &want, place).map_err(Failure::Wrong)?;
        let errors = errors(&want);
        let said = u64::from(answer.receipt.item_errors);
        if said != errors {
            return Err(at(format!("its receipt has {said} item errors, must have {errors}")));
        }
        Ok(())
    }

    /// The check of an op during which the pool was lost.
    fn lost(&self, op_test: &OpTest, size: u32, error: &ClientError) -> Check {
        if self.is_lost.swap(true, Ordering::Relaxed) {
            return self.not_tried(op_test);
        }
        let says = format!("the pool was lost: {}", Chain(error));
        let next = "look at the pool's log for what ended it";
        let check = Check::fail(Group::Batches, format!("op {}", op_test.op), says, next);
        if size == 0 { check } else { check.at(size.into()) }
    }

    fn not_tried(&self, op_test: &OpTest) -> Check {
        let says = "not tried: the pool was lost while another op was";
        Check::skip(Group::Batches, format!("op {}", op_test.op), says, "see that op first")
    }
}

/// The connection, made at the first call.
fn connected<'a>(client: &'a mut Option<Client>, socket: &Path) -> Result<&'a Client, ClientError> {
    match client {
        Some(client) => Ok(client),
        None => Ok(client.insert(Client::connect(socket)?)),
    }
}

/// Items of one job among those of its size.
#[derive(Clone, Copy)]
struct JobItems {
    start: u32,
    items: u32,
    size: u32,
}

impl JobItems {
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

/// Compares results; the error names the first item that differs, and how.
fn compare(got: &Outputs, want: &Outputs, place: JobItems) -> Result<(), String> {
    match got.first_difference(want) {
        Ok(None) => Ok(()),
        Ok(Some(item)) => Err(format!("{}: {}", place.item(item), differ(got, want, item))),
        Err(malformed) => {
            let item = place.item(malformed.item);
            Err(format!("{item}: its result is malformed: {}", malformed.what))
        }
    }
}

/// How many items have an error instead of a result.
fn errors(outputs: &Outputs) -> u64 {
    let is_error = |&item: &usize| matches!(outputs.item_error(item), Ok(Some(_)));
    (0..outputs.len()).filter(is_error).count() as u64
}

#[cfg(test)]
mod tests;

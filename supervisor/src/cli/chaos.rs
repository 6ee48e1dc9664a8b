//! `gridpool chaos`: has a worker of a running pool meet a fault, and looks whether the pool recovers
//! as it should.
//!
//! The fault comes with a small job whose result this file knows. Which worker meets it is the pool's
//! choice: a job names no device. The same fault for as many attempts comes with the same job, so a pool
//! that has convicted it refuses it from then on, as it would any job; with `--random`, and for the
//! ordinary jobs that follow, cells are drawn.

mod report;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{Chaos, ChaosFault, DeviceFault, HostFault, ReplyFault};
use gridpool_protocol::client::{Client, ClientError, Job, JobAnswer};
use gridpool_protocol::clock;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Verdict};
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use sha2::{Digest, Sha512};

use super::arguments::parse_seconds;
use super::{CommandError, connect, system};
use report::{Replaced, ServedAgain};

pub(super) use report::Report;

/// What every job here runs.
const PROGRAM: &str = "rot90";
/// Rows and columns of its one grid.
const SIDE: usize = 6;
/// Deadline of the job that meets the fault, where none is named; a kernel that never ends is ended by
/// nothing else, so its job has less time.
const DEADLINE: Duration = Duration::from_secs(30);
const DEADLINE_ENDLESS: Duration = Duration::from_secs(2);
/// How long a pool may take to recover, where nobody says.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at the pool.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between two jobs that are sent to a pool that had no device for the last one.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// What may be typed after `gridpool chaos`.
#[derive(Debug, Args)]
pub(super) struct ChaosFlags {
    /// What happens to the worker: see the list below.
    #[arg(required_unless_present = "list")]
    fault: Option<ChaosFault>,
    /// So many attempts of the job meet the fault. From two on a job that kills its workers is POISON, and
    /// refused when it comes again, until it is released.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    attempts: u32,
    /// Seconds from the job's submission to its verdict; without it 30, and 2 for `endless`.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    deadline: Option<Duration>,
    /// Seconds in which the pool must have recovered after the verdict. A worker with wrong results is
    /// found out by its next known-answer test: see `known_answer_every_s` of the config.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_seconds)]
    patience: Duration,
    /// Have a job meet the fault that no pool has seen before. Without this it is always the same job.
    #[arg(long)]
    random: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// List the faults.
    #[arg(long, conflicts_with = "fault")]
    list: bool,
}

/// The faults, as `--help` ends.
pub(super) fn help() -> String {
    format!(
        "Faults:\n{}\nThe pool must have been started with --allow-chaos. Which worker meets the \
         fault is the pool's\nchoice: a job names no device. The exit code is 0 if the pool \
         recovered as it should, else 1.",
        report::list()
    )
}

pub(super) fn run(flags: &ChaosFlags, socket: Option<PathBuf>) -> Result<u8, CommandError> {
    let Some(fault) = flags.fault else {
        return if flags.json {
            super::say_json(&report::faults())
        } else {
            super::say(report::list().trim_end())
        };
    };
    let client = connect(socket)?;
    let chaos = Chaos { fault, attempts: flags.attempts };
    let report = inflict(&client, chaos, flags)?;
    if flags.json {
        super::say_json(&report)?;
    } else {
        super::say(report.text().trim_end())?;
    }
    Ok(if report.recovered { exit::OK } else { exit::JOB })
}

/// Has one job that no pool has seen meet a fault, and waits until the pool is as it was.
pub(super) fn trial(client: &Client, fault: ChaosFault) -> Result<Report, CommandError> {
    let flags = ChaosFlags {
        fault: Some(fault),
        attempts: 1,
        deadline: None,
        patience: PATIENCE,
        random: true,
        json: true,
        list: false,
    };
    inflict(client, Chaos { fault, attempts: 1 }, &flags)
}

/// Sends the job, then waits until the pool is as it was.
fn inflict(client: &Client, chaos: Chaos, flags: &ChaosFlags) -> Result<Report, CommandError> {
    let is_endless = chaos.fault == ChaosFault::Device(DeviceFault::Endless);
    let default = if is_endless { DEADLINE_ENDLESS } else { DEADLINE };
    let cells = if flags.random { drawn_cells()? } else { cells_of(chaos) };
    let trial = Trial::new(cells, flags.deadline.unwrap_or(default));
    let answer = match client.submit(trial.job.clone().with_chaos(chaos)) {
        Err(ClientError::Refused(refusal @ Refusal::Poison(_))) => {
            return Err(CommandError::Convicted(refusal));
        }
        submitted => submitted?.wait()?,
    };
    let verdict_at = clock::now();
    let right = trial.is_right(&answer);
    let lost = lost_workers(&answer.receipt.attempts, right);
    let mut report = Report::new(chaos, right, answer.receipt);
    let give_up = verdict_at + flags.patience;
    let mut watch = Watch::new(client, &lost, flags, give_up);
    // A worker that lies would answer the next job too.
    let lies = chaos.fault == ChaosFault::Reply(ReplyFault::Wrong);
    if lies {
        report.replaced = until_replaced(&mut watch, verdict_at)?;
    }
    report.served_again = until_served(&mut watch, verdict_at)?;
    if !lies {
        report.replaced = until_replaced(&mut watch, verdict_at)?;
    }
    report.quarantined = watch.quarantined;
    report.judge(expected(chaos), lies, &lost);
    Ok(report)
}

/// The verdicts that a fault may bring about in a pool that does what it should.
fn expected(chaos: Chaos) -> &'static [Verdict] {
    let often = chaos.attempts > 1;
    match chaos.fault {
        ChaosFault::Device(DeviceFault::Endless) => &[Verdict::Deadline],
        ChaosFault::Reply(ReplyFault::Slow | ReplyFault::Wrong) => &[Verdict::Ok],
        // No evidence against the job.
        ChaosFault::Device(DeviceFault::Memory)
        | ChaosFault::Host(HostFault::Exit)
        | ChaosFault::Reply(ReplyFault::Corrupt)
            if often =>
        {
            &[Verdict::Ok, Verdict::Failed]
        }
        ChaosFault::Device(_) | ChaosFault::Host(_) | ChaosFault::Reply(_) if often => {
            &[Verdict::Ok, Verdict::Poison]
        }
        ChaosFault::Device(_) | ChaosFault::Host(_) | ChaosFault::Reply(_) => &[Verdict::Ok],
    }
}

// ---- jobs whose results are known ----

/// Bytes that the cells of a job's grid are made of.
type Cells = [u8; SIDE * SIDE];

/// Those of the one job that meets this fault in so many attempts.
fn cells_of(chaos: Chaos) -> Cells {
    let hash = Sha512::digest(format!("{} {}", chaos.fault, chaos.attempts));
    std::array::from_fn(|at| hash[at])
}

/// Those of a job that there has never been.
fn drawn_cells() -> Result<Cells, CommandError> {
    let mut cells = [0; SIDE * SIDE];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut cells));
    drawn.map_err(system("drawing the cells of a grid"))?;
    Ok(cells)
}

/// A job, and what it must give.
struct Trial {
    job: Job,
    want: Output,
}

impl Trial {
    fn new(cells: Cells, deadline: Duration) -> Self {
        let cells = cells.map(|cell| cell % (COLOR_MAX + 1));
        let turned = |at: usize| cells[SIDE * (SIDE - 1 - at % SIDE) + at / SIDE];
        let grid = |cells: Vec<u8>| Grid::new(SIDE, SIDE, cells).expect("a small grid of colours");
        let batch = GridBatch::from_grids([&grid(cells.to_vec())]).expect("one grid fits a job");
        let program = Program::compile(PROGRAM, Ties::Cpython).expect("the program compiles");
        let job = Job::new(program, batch).expect("the program takes a grid");
        let want = Output::Grid(grid((0..cells.len()).map(turned).collect()));
        Self { job: job.with_deadline(deadline), want }
    }

    /// Whether the result is what it must be; `None` if there is none.
    fn is_right(&self, answer: &JobAnswer) -> Option<bool> {
        let item = answer.outputs.as_ref()?.item(0);
        Some(item.is_ok_and(|item| item.as_ref() == Ok(&self.want)))
    }
}

/// Sends ordinary jobs, one after the other, until one has its right result.
fn until_served(
    watch: &mut Watch<'_>,
    since: Instant,
) -> Result<Option<ServedAgain>, CommandError> {
    loop {
        let left = clock::until(watch.give_up);
        if left.is_zero() {
            return Ok(None);
        }
        let trial = Trial::new(drawn_cells()?, left);
        let answer = watch.client.submit(trial.job.clone())?.wait()?;
        if trial.is_right(&answer) == Some(true) {
            let JobAnswer { receipt, .. } = answer;
            return Ok(Some(ServedAgain { after_ms: report::ms(since.elapsed()), receipt }));
        }
        watch.look()?;
        // A pool without a device says so at once, and says the same for a while.
        let lost_at_once = answer.receipt.attempts.is_empty();
        thread::park_timeout(if lost_at_once { RETRY_EVERY } else { LOOK_EVERY });
    }
}

// ---- workers that must be replaced ----

/// A worker that met the fault and must not serve any more.
#[derive(Debug)]
struct Lost {
    worker: WorkerId,
    /// It may have come to its end in time, and serve on.
    may_live: bool,
}

/// Those that the attempts of a job were lost on, and the one that gave a wrong result.
fn lost_workers(attempts: &[Attempt], right: Option<bool>) -> Vec<Lost> {
    let lost = |attempt: &Attempt| {
        let worker = attempt.worker.parse().ok()?;
        let may_live = match attempt.outcome {
            AttemptOutcome::Hang | AttemptOutcome::Preempted | AttemptOutcome::WorkerDied => false,
            AttemptOutcome::Ok if right == Some(false) => false,
            AttemptOutcome::Cancelled | AttemptOutcome::Deadline => true,
            AttemptOutcome::DeviceError | AttemptOutcome::Ok | AttemptOutcome::Refused => {
                return None;
            }
        };
        Some(Lost { worker, may_live })
    };
    let mut lost: Vec<Lost> = attempts.iter().filter_map(lost).collect();
    lost.dedup_by_key(|lost| lost.worker);
    lost
}

impl Lost {
    /// Whether `row` shows that its device is served as it should.
    fn is_replaced_by(&self, row: &WorkerStatus) -> bool {
        let Ok(worker) = row.name.parse::<WorkerId>() else { return false };
        let serves = matches!(row.state, WorkerState::Busy | WorkerState::Ready);
        let lives = self.may_live && worker == self.worker && row.state == WorkerState::Ready;
        let follows = worker.generation > self.worker.generation && serves;
        worker.device == self.worker.device && (follows || lives)
    }
}

/// Looks at a pool whose workers were lost, and says at once why it may take its time.
struct Watch<'a> {
    client: &'a Client,
    lost: &'a [Lost],
    give_up: Instant,
    /// For a machine: nothing is said meanwhile.
    is_silent: bool,
    /// Devices that the loss has put out of service, whether or not they are back.
    quarantined: Vec<String>,
}

impl<'a> Watch<'a> {
    fn new(client: &'a Client, lost: &'a [Lost], flags: &ChaosFlags, give_up: Instant) -> Self {
        Self { client, lost, give_up, is_silent: flags.json, quarantined: Vec::new() }
    }

    fn look(&mut self) -> Result<Vec<WorkerStatus>, CommandError> {
        let rows = self.client.status()?.workers;
        for row in rows.iter().filter(|row| row.state == WorkerState::Quarantined) {
            let Ok(worker) = row.name.parse::<WorkerId>() else { continue };
            let device = worker.device.to_string();
            let by_this = self.lost.iter().any(|lost| lost.worker.device == worker.device);
            if by_this && !self.quarantined.contains(&device) {
                if !self.is_silent {
                    let text = report::waits(&device, clock::until(self.give_up));
                    writeln!(io::stderr(), "{text}").map_err(CommandError::Output)?;
                }
                self.quarantined.push(device);
            }
        }
        Ok(rows)
    }
}

/// Looks at the pool until all that was lost is replaced.
fn until_replaced(watch: &mut Watch<'_>, since: Instant) -> Result<Vec<Replaced>, CommandError> {
    let mut replaced: Vec<Replaced> = Vec::new();
    loop {
        let rows = watch.look()?;
        let lost = watch.lost;
        for lost in lost {
            let worker = lost.worker.to_string();
            if replaced.iter().all(|known| known.worker != worker)
                && let Some(row) = rows.iter().find(|row| lost.is_replaced_by(row))
            {
                let after_ms = report::ms(since.elapsed());
                let fault = &row.last_fault;
                let is_its_own = fault.starts_with(&format!("{worker} "));
                let fault = if is_its_own { fault.clone() } else { String::new() };
                replaced.push(Replaced { worker, fault, by: row.name.clone(), after_ms });
            }
        }
        if replaced.len() == lost.len() || clock::until(watch.give_up).is_zero() {
            return Ok(replaced);
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests;

//! `gridpool chaos`: injects a fault into a worker of a running pool, and checks that the pool recovers as it
//! should.
//!
//! The fault comes with a small job whose result this file knows. A job names no device, so the pool chooses
//! the worker. The job depends only on the fault and the number of attempts, so a pool that has denylisted
//! it refuses it from then on. With `--random`, and for the ordinary jobs that follow, cells are random.

mod report;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use gridpool_client::{Answer, Client, ClientError, Job, Outputs};
use gridpool_ipc::clock;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{Chaos, ChaosFault, DeviceFault, HostFault, ReplyFault};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::WorkerName;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Verdict};
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use sha2::{Digest, Sha512};

use super::flags::{parse_seconds, whole};
use super::{CommandError, connect, system};
use report::{Replaced, ServedAgain};

pub(super) use report::Report;

/// The program of every job here.
const PROGRAM: &str = "rot90";
/// Rows and columns of its one grid.
const SIDE: usize = 6;
/// Default deadline of the job that meets the fault. Only the deadline ends an endless kernel, so its job
/// has less time.
const DEADLINE: Duration = Duration::from_secs(30);
const DEADLINE_ENDLESS: Duration = Duration::from_secs(2);
/// How long a pool may take to recover, by default.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two polls of the pool's status.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// Between two jobs, while the pool has no device for them.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Flags of `gridpool chaos`.
#[derive(Debug, Args)]
pub(super) struct ChaosFlags {
    /// The fault to inject: see the list below.
    #[arg(required_unless_present = "list")]
    fault: Option<ChaosFault>,
    /// How many attempts of the job meet the fault. From two on, a job that kills its workers gets the
    /// verdict POISON, and the pool refuses it until you release it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole::<u32>(1..=1_000))]
    attempts: u32,
    /// Seconds from the job's submission to its verdict; the default is 30, for `endless` 2.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    deadline: Option<Duration>,
    /// Seconds in which the pool must recover after the verdict. The pool finds wrong results by its next
    /// known-answer test: see `known_answer_every_s` of the config file.
    #[arg(long = "patience", value_name = "SECONDS", default_value = "120", value_parser = parse_seconds)]
    recovery_timeout: Duration,
    /// Inject the fault with a job of random cells, which no pool has seen. By default it is always the
    /// same job.
    #[arg(long)]
    random: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// List the faults.
    #[arg(long, conflicts_with = "fault")]
    list: bool,
}

/// The last lines of `--help`.
pub(super) fn help() -> String {
    format!(
        "Faults:\n{}\nStart the pool with --allow-chaos. A job names no device, so the pool chooses the \
         worker that\nmeets the fault. The exit code is 0 if the pool recovered as it should, else 1.",
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
    let report = inject(&client, chaos, flags)?;
    if flags.json {
        super::say_json(&report)?;
    } else {
        super::say(report.text().trim_end())?;
    }
    Ok(if report.recovered { exit::OK } else { exit::JOB })
}

/// Injects a fault with one random job, and waits until the pool has recovered.
pub(super) fn inject_once(client: &Client, fault: ChaosFault) -> Result<Report, CommandError> {
    let flags = ChaosFlags {
        fault: Some(fault),
        attempts: 1,
        deadline: None,
        recovery_timeout: RECOVERY_TIMEOUT,
        random: true,
        json: true,
        list: false,
    };
    inject(client, Chaos { fault, attempts: 1 }, &flags)
}

/// Sends the job, then waits until the pool has recovered.
fn inject(client: &Client, chaos: Chaos, flags: &ChaosFlags) -> Result<Report, CommandError> {
    let is_endless = chaos.fault == ChaosFault::Device(DeviceFault::Endless);
    let default = if is_endless { DEADLINE_ENDLESS } else { DEADLINE };
    let cells = if flags.random { random_cells()? } else { cells_of(chaos) };
    let known = KnownJob::new(cells, flags.deadline.unwrap_or(default));
    let answer = match client.submit(known.job.clone().with_chaos(chaos)) {
        Err(ClientError::Refused(refusal @ Refusal::Poison(_))) => {
            return Err(CommandError::Denylisted(refusal));
        }
        submitted => submitted?.wait()?,
    };
    let verdict_at = clock::now();
    let right = known.is_right(&answer);
    let lost = lost_workers(&answer.receipt.attempts, right);
    let mut report = Report::new(chaos, right, answer.receipt);
    let give_up = verdict_at + flags.recovery_timeout;
    let mut watch = Watch::new(client, &lost, flags, give_up);
    // A worker with wrong results would answer the next job too.
    let is_wrong = chaos.fault == ChaosFault::Reply(ReplyFault::Wrong);
    if is_wrong {
        report.replaced = until_replaced(&mut watch, verdict_at)?;
    }
    report.served_again = until_served(&mut watch, verdict_at)?;
    if !is_wrong {
        report.replaced = until_replaced(&mut watch, verdict_at)?;
    }
    report.quarantined = watch.quarantined;
    report.judge(expected(chaos), is_wrong, &lost);
    Ok(report)
}

/// The verdicts that a sound pool may give a job with this fault.
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

/// Bytes from which the cells of a job's grid are made.
type Cells = [u8; SIDE * SIDE];

/// The cells of the job with this fault and number of attempts.
fn cells_of(chaos: Chaos) -> Cells {
    let hash = Sha512::digest(format!("{} {}", chaos.fault, chaos.attempts));
    std::array::from_fn(|at| hash[at])
}

fn random_cells() -> Result<Cells, CommandError> {
    let mut cells = [0; SIDE * SIDE];
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut cells));
    drawn.map_err(system("random cells of a grid"))?;
    Ok(cells)
}

/// A job whose result is known.
struct KnownJob {
    job: Job<Outputs>,
    want: Output,
}

impl KnownJob {
    fn new(cells: Cells, deadline: Duration) -> Self {
        let cells = cells.map(|cell| cell % (COLOR_MAX + 1));
        let turned = |at: usize| cells[SIDE * (SIDE - 1 - at % SIDE) + at / SIDE];
        let grid = |cells: Vec<u8>| Grid::new(SIDE, SIDE, cells).expect("a small grid of colours");
        let batch = GridBatch::from_grids([&grid(cells.to_vec())]).expect("one grid fits a job");
        let program = Program::compile(PROGRAM, Ties::Cpython).expect("the program compiles");
        let job = Job::program(program, batch).expect("the program takes a grid");
        let want = Output::Grid(grid((0..cells.len()).map(turned).collect()));
        Self { job: job.with_deadline(deadline), want }
    }

    /// Whether the result is right; `None` without a result.
    fn is_right(&self, answer: &Answer<Outputs>) -> Option<bool> {
        let item = answer.outputs()?.item(0);
        Some(item.is_ok_and(|item| item.as_ref() == Ok(&self.want)))
    }
}

/// Sends ordinary jobs, one after the other, until the pool answers one with the right result.
fn until_served(
    watch: &mut Watch<'_>,
    since: Instant,
) -> Result<Option<ServedAgain>, CommandError> {
    loop {
        let left = clock::until(watch.give_up);
        if left.is_zero() {
            return Ok(None);
        }
        let known = KnownJob::new(random_cells()?, left);
        let answer = watch.client.submit(known.job.clone())?.wait()?;
        if known.is_right(&answer) == Some(true) {
            let (after_ms, receipt) = (report::ms(since.elapsed()), answer.receipt);
            return Ok(Some(ServedAgain { after_ms, receipt }));
        }
        watch.poll()?;
        // A pool without a device answers at once, and gives the same answer for a while.
        let lost_at_once = answer.receipt.attempts.is_empty();
        thread::park_timeout(if lost_at_once { RETRY_EVERY } else { POLL_EVERY });
    }
}

// ---- workers that must be replaced ----

/// A worker that met the fault and must not serve any more.
#[derive(Debug)]
struct Lost {
    worker: WorkerName,
    /// It may have finished in time, and serve on.
    may_live: bool,
}

/// The workers that lost an attempt of the job, and the worker that gave a wrong result.
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
    /// Whether `row` shows a worker that serves its device again.
    fn is_replaced_by(&self, row: &WorkerStatus) -> bool {
        let Ok(worker) = row.name.parse::<WorkerName>() else { return false };
        let serves = matches!(row.state, WorkerState::Busy | WorkerState::Ready);
        let lives = self.may_live && worker == self.worker && row.state == WorkerState::Ready;
        let follows = worker.generation > self.worker.generation && serves;
        worker.device == self.worker.device && (follows || lives)
    }
}

/// Polls a pool that has lost workers, and reports devices out of service, for which it must wait.
struct Watch<'a> {
    client: &'a Client,
    lost: &'a [Lost],
    give_up: Instant,
    /// With `--json` there is no progress report.
    is_silent: bool,
    /// Devices that the fault has put out of service, including those that are back.
    quarantined: Vec<String>,
}

impl<'a> Watch<'a> {
    fn new(client: &'a Client, lost: &'a [Lost], flags: &ChaosFlags, give_up: Instant) -> Self {
        Self { client, lost, give_up, is_silent: flags.json, quarantined: Vec::new() }
    }

    fn poll(&mut self) -> Result<Vec<WorkerStatus>, CommandError> {
        let rows = self.client.status()?.workers;
        for row in rows.iter().filter(|row| row.state == WorkerState::Quarantined) {
            let Ok(worker) = row.name.parse::<WorkerName>() else { continue };
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

/// Polls the pool until it has replaced all lost workers.
fn until_replaced(watch: &mut Watch<'_>, since: Instant) -> Result<Vec<Replaced>, CommandError> {
    let mut replaced: Vec<Replaced> = Vec::new();
    loop {
        let rows = watch.poll()?;
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
        thread::park_timeout(POLL_EVERY);
    }
}

#[cfg(test)]
mod tests;

//! How long a pool takes to recover: it kills workers while they run a job, sends endless jobs, and measures
//! the time to the next right answer.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gridpool_client::{Answer, Client, ClientError, Job, Outputs};
use gridpool_ipc::clock;
use gridpool_protocol::bench::{Row, Section, Spread, Unit, Workload};
use gridpool_protocol::chaos::{Chaos, ChaosFault, DeviceFault};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::evidence::Evidence;
use super::failure::Failure;
use super::repeat::latency;
use super::workload::Source;
use super::{BenchError, Report, native};

/// The program: one 30x30 grid, in and out within the messages.
const PROGRAM: &str = "rot90";
/// The deadline of an endless job.
const ENDLESS_DEADLINE: Duration = Duration::from_millis(50);
/// A kill may come before the worker has the job, or after the answer: then it is tried again, up to this
/// often.
const MISSES_MAX: u32 = 100;
/// How long a new worker may take to be ready.
const BACK_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval of status polls while waiting for it.
const POLL_EVERY: Duration = Duration::from_millis(2);
/// Jobs before measuring: nothing is warm for the first jobs of a client.
const WARM_UP: u32 = 100;

/// A pool whose workers may be killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery<'a> {
    pub(super) source: &'a Source,
    pub(super) socket: &'a Path,
    pub(super) devices: u32,
    pub(super) kind: DeviceKind,
    /// Standbys of every device.
    pub(super) standbys: u32,
    /// Workers to kill for a row.
    pub(super) kills: u32,
}

/// The times of a row in microseconds.
#[derive(Debug, Default)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, span: Duration) {
        self.0.push(span.as_secs_f64() * 1e6);
    }
}

impl Recovery<'_> {
    /// Measures all rows.
    pub(super) fn measure(&self, report: &mut Report<'_>) -> Result<(), BenchError> {
        report.doing(&self.row("killed while it runs a job"))?;
        match self.rows(report)? {
            Ok(()) => Ok(()),
            Err(failure) => report.measured(self.row("recovery"), Err(failure)),
        }
    }

    /// The outer error is about the report, the inner one about the pool.
    fn rows(&self, report: &mut Report<'_>) -> Result<Result<(), Failure>, BenchError> {
        let patient = match TestClient::new(self) {
            Ok(patient) => patient,
            Err(failure) => return Ok(Err(failure)),
        };
        let killed = match patient.killed() {
            Ok(killed) => killed,
            Err(failure) => return Ok(Err(failure)),
        };
        report.row(self.timed("killed while it runs a job", killed.answers))?;
        report.row(self.timed("  its process, from then to its end", killed.ends))?;
        report.row(self.timed("  the next process, order to READY", killed.starts))?;
        report.doing(&self.row("endless jobs"))?;
        let endless = match patient.endless() {
            Ok(endless) => endless,
            Err(failure) => return Ok(Err(failure)),
        };
        report.row(self.timed("DEADLINE of an endless job, late by", endless.late))?;
        report.row(self.timed("  from that to the next answer", endless.answers))?;
        Ok(Ok(()))
    }

    fn row(&self, name: &str) -> Row {
        let runner = match self.standbys {
            0 => "no standby".to_owned(),
            count => format!("{count} standby"),
        };
        Row {
            program: Some(PROGRAM.to_owned()),
            workload: Some(Workload::Square),
            batch: Some(1),
            jobs: Some(1),
            devices: self.devices,
            ..Row::new(Section::Recovery, name, &runner, Unit::Microseconds)
        }
    }

    fn timed(&self, name: &str, Times(times): Times) -> Row {
        Row { value: Spread::of(times.clone()), latency: latency(times), ..self.row(name) }
    }
}

/// The times of the kills.
#[derive(Debug, Default)]
struct KillTimes {
    answers: Times,
    ends: Times,
    starts: Times,
}

/// The times of the endless jobs.
#[derive(Debug, Default)]
struct EndlessTimes {
    late: Times,
    answers: Times,
}

/// A client of the pool that submits one job over and over.
struct TestClient<'a> {
    recovery: &'a Recovery<'a>,
    client: Client,
    job: Job<Outputs>,
    want: Outputs,
}

impl<'a> TestClient<'a> {
    fn new(recovery: &'a Recovery<'a>) -> Result<Self, Failure> {
        let client = Client::connect(recovery.socket)?;
        let program = Program::compile(PROGRAM, Ties::Cpython).expect("it is an op");
        let batch = recovery.source.batch(Workload::Square, 0..1);
        let job = Job::program(program.clone(), batch.clone()).map_err(ClientError::from)?;
        let want = native::outputs(&program, Arc::new(batch)).map_err(ClientError::from)?;
        let patient = Self { recovery, client, job, want };
        for _ in 0..WARM_UP {
            patient.right(&patient.client.run(patient.job.clone())?)?;
        }
        Ok(patient)
    }

    /// Kills workers in the middle of a job.
    fn killed(&self) -> Result<KillTimes, Failure> {
        let mut killed = KillTimes::default();
        for _ in 0..self.recovery.kills {
            let (answer, dead) = self.kill_one()?;
            killed.answers.add(answer);
            let rows = self.until_whole()?;
            let next = rows.iter().filter(|row| row.generation > dead.generation);
            let next = next.max_by_key(|row| row.generation);
            let span = |us: Option<u64>| us.map(Duration::from_micros);
            if let Some(row) = next {
                span(row.end_us).into_iter().for_each(|span| killed.ends.add(span));
                span(row.start_us).into_iter().for_each(|span| killed.starts.add(span));
            }
        }
        Ok(killed)
    }

    /// Kills a worker that runs a job. Returns the time until that job's answer, and the worker.
    fn kill_one(&self) -> Result<(Duration, WorkerStatus), Failure> {
        for miss in 0..MISSES_MAX {
            let rows = self.until_whole()?;
            let serves = |row: &&WorkerStatus| row.state == WorkerState::Ready;
            let victim = rows.iter().find(serves).expect("a whole pool serves");
            let pid = Pid::from_raw(i32::try_from(victim.pid).expect("process numbers fit"));
            let handle = self.client.submit(self.job.clone())?;
            // A little later each time, so that kills hit every moment of a job.
            spin(Duration::from_micros(u64::from(miss % 10)));
            let at = clock::now();
            kill(pid, Signal::SIGKILL).map_err(|errno| wrong(&format!("kill: {errno}")))?;
            let answer = handle.wait()?;
            let took = at.elapsed();
            self.right(&answer)?;
            self.until_gone(&victim.name)?;
            if answer.receipt.attempts.iter().any(|attempt| *attempt.worker == *victim.name)
                && answer.receipt.attempts.len() > 1
            {
                return Ok((took, victim.clone()));
            }
        }
        Err(wrong(&format!("{MISSES_MAX} kills in a row met no job")))
    }

    /// Sends endless jobs, and other jobs behind them.
    fn endless(&self) -> Result<EndlessTimes, Failure> {
        let mut endless = EndlessTimes::default();
        let fault = ChaosFault::Device(DeviceFault::Endless);
        for _ in 0..self.recovery.kills {
            self.until_whole()?;
            let job = self.job.clone().with_deadline(ENDLESS_DEADLINE);
            let handle = self.client.submit(job.with_chaos(Chaos { fault, attempts: u32::MAX }))?;
            let accepted = clock::now();
            let answer = handle.wait()?;
            let heard = clock::now();
            if answer.verdict() != Verdict::Deadline {
                return Err(wrong(&format!("an endless job ended {}", answer.verdict())));
            }
            endless.late.add((heard - accepted).saturating_sub(ENDLESS_DEADLINE));
            let answer = self.client.run(self.job.clone())?;
            endless.answers.add(heard.elapsed());
            self.right(&answer)?;
        }
        self.until_whole()?;
        Ok(endless)
    }

    /// Checks an answer.
    fn right(&self, answer: &Answer<Outputs>) -> Result<(), Failure> {
        Evidence::default().add(&answer.receipt, self.recovery.kind).map_err(Failure::Wrong)?;
        let outputs = answer.outputs().ok_or_else(|| wrong("an answer without results"))?;
        match outputs.first_difference(&self.want) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(wrong("a result differs from the reference's")),
            Err(malformed) => Err(wrong(&malformed.to_string())),
        }
    }

    /// Waits until every device has an active worker and all its standbys.
    fn until_whole(&self) -> Result<Vec<WorkerStatus>, Failure> {
        let Recovery { devices, standbys, .. } = *self.recovery;
        self.until(|rows| {
            let count = |state| rows.iter().filter(|row| row.state == state).count();
            rows.len() == (devices * (1 + standbys)) as usize
                && count(WorkerState::Ready) == devices as usize
                && count(WorkerState::Standby) == (devices * standbys) as usize
        })
    }

    /// Waits until the pool has noticed the end of a killed process.
    fn until_gone(&self, name: &str) -> Result<Vec<WorkerStatus>, Failure> {
        let is_it = |row: &WorkerStatus| {
            let live = [WorkerState::Busy, WorkerState::Ready, WorkerState::Stopping];
            row.name == name && live.contains(&row.state)
        };
        self.until(|rows| !rows.iter().any(is_it))
    }

    fn until(&self, is_so: impl Fn(&[WorkerStatus]) -> bool) -> Result<Vec<WorkerStatus>, Failure> {
        let until = clock::now() + BACK_TIMEOUT;
        loop {
            let rows = self.client.status()?.workers;
            if is_so(&rows) {
                return Ok(rows);
            }
            if clock::until(until).is_zero() {
                return Err(wrong(&format!("not all workers are back: {rows:?}")));
            }
            // Only the status tells when a worker is ready, so it is polled.
            thread::park_timeout(POLL_EVERY);
        }
    }
}

fn wrong(why: &str) -> Failure {
    Failure::Wrong(why.to_owned())
}

fn spin(span: Duration) {
    let until = clock::now() + span;
    while !clock::until(until).is_zero() {
        std::hint::spin_loop();
    }
}

//! What a model of a pool feels of another on the same device: the latency of its requests while the neighbour is idle,
//! busy, killed, stopped, and loaded again and again. All of these take turns, so that a machine that changes its speed
//! affects all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_client::{Client, Job, ModelInput, TensorOutputs};
use gridpool_ipc::clock;
use gridpool_protocol::bench::{Line, ModelSubject, Plan, Row, Section, Spread, Unit};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::pipeline::Step;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::direct::Direct;
use super::load_generator::Caller;
use super::pooled::Pooled;
use super::test_input::{TestInput, test_inputs};
use crate::failure::Failure;
use crate::repeat::latency;
use crate::{BenchError, Report};

/// How long a model is asked in one turn.
const TURN: Duration = Duration::from_secs(2);
const TURN_QUICK: Duration = Duration::from_millis(50);
/// The deadline of requests to a neighbour that is stopped.
const HANG_DEADLINE: Duration = Duration::from_millis(50);
/// How long the neighbour may take to serve again.
const BACK_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval of status polls while waiting for it.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// What happens to the neighbour meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Idle,
    /// It has a request at all times.
    Busy,
    /// Its worker is killed as soon as it has answered a request.
    Killed,
    /// Its worker is stopped while it has a request, until the pool kills it.
    Stopped,
    /// It is unloaded and loaded.
    Loaded,
}

impl Trouble {
    const ALL: [Self; 5] = [Self::Idle, Self::Busy, Self::Killed, Self::Stopped, Self::Loaded];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "its neighbour is idle",
            Self::Busy => "its neighbour is busy",
            Self::Killed => "its neighbour is killed",
            Self::Stopped => "its neighbour hangs",
            Self::Loaded => "its neighbour is loaded",
        }
    }
}

/// Measures a row for each trouble.
pub(crate) fn measure(
    plan: &Plan,
    subject: &ModelSubject,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let name = &subject.model.name;
    let cannot = |why: String| BenchError::Model { name: name.clone(), why };
    let direct = Direct::load(subject)?.map_err(|error| cannot(Chain(&error).to_string()))?;
    let pool = Pooled::find(subject, &direct.info)?.map_err(cannot)?;
    let row = |trouble: Trouble| Row {
        contexts: Some(direct.info.contexts),
        ..Row::new(Section::Isolation, trouble.name(), name, Unit::Microseconds)
    };
    let asked = test_inputs(&direct.info, subject.device.kind, 1)
        .and_then(|all| direct.answer_all(&all).map(|()| Arc::clone(&all[0])))
        .and_then(|input| Ok((pool.caller(&input)?, Neighbour::new(subject, &input)?)));
    let (mut caller, neighbour) = match asked {
        Ok(asked) => asked,
        Err(failure) => return report.measured(row(Trouble::Idle), Err(failure)),
    };
    let turn = if plan.quick { TURN_QUICK } else { TURN };
    let mut times = Trouble::ALL.map(|_| (Vec::new(), 0));
    for number in 1..=plan.repetitions {
        for (trouble, (times, troubles)) in Trouble::ALL.into_iter().zip(&mut times) {
            let what = format!("{name}: {}, turn {number}", trouble.name());
            report.line(&Line::Doing(what))?;
            match neighbour.beside(trouble, turn, caller.as_mut()) {
                Ok((took, count)) => {
                    times.extend(took);
                    *troubles += count;
                }
                Err(failure) => return report.measured(row(trouble), Err(failure)),
            }
        }
    }
    for (trouble, (times, troubles)) in Trouble::ALL.into_iter().zip(times) {
        let troubles = (trouble != Trouble::Idle).then_some(troubles);
        let (value, latency) = (Spread::of(times.clone()), latency(times));
        report.row(Row { value, latency, jobs: troubles, ..row(trouble) })?;
    }
    Ok(())
}

/// The other model.
struct Neighbour {
    client: Client,
    plan: ModelPlan,
    job: Job<TensorOutputs>,
}

impl Neighbour {
    fn new(subject: &ModelSubject, input: &TestInput) -> Result<Self, Failure> {
        let mut plan = subject.neighbour();
        // An order of a client names whole paths.
        let steps = plan.options.pipeline.iter_mut().flat_map(|pipeline| &mut pipeline.steps);
        let files = steps.filter_map(Step::model_mut).map(|model| &mut model.path);
        for path in std::iter::once(&mut plan.path).chain(files) {
            *path = std::path::absolute(&path).map_err(|error| wrong(&error.to_string()))?;
        }
        let inputs = ModelInput::from_tensors(input.tensors.iter().cloned());
        let job = inputs.and_then(|inputs| Job::model(&*plan.name, inputs));
        let job = job.map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { client: Client::connect(&subject.socket)?, plan, job })
    }

    /// The times of a caller's requests in a turn, in microseconds, while the neighbour is in trouble; and how often it
    /// was.
    fn beside(
        &self,
        trouble: Trouble,
        turn: Duration,
        caller: &mut dyn Caller,
    ) -> Result<(Vec<f64>, u32), Failure> {
        self.until_it_serves()?;
        let (is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|threads| {
            let troubled = threads.spawn(|| {
                let troubled = self.trouble(trouble, &has_begun, &is_over);
                has_begun.store(true, Ordering::Release);
                troubled
            });
            while !has_begun.load(Ordering::Acquire) {
                thread::park_timeout(POLL_EVERY);
            }
            let until = clock::now() + turn;
            let mut times = Vec::new();
            let mut asked = Ok(());
            while asked.is_ok() && !clock::until(until).is_zero() {
                asked = caller.call().map(|(took_us, _)| times.push(took_us));
            }
            is_over.store(true, Ordering::Release);
            let troubles = troubled.join().expect("a trouble does not panic")?;
            asked.map(|()| (times, troubles))
        })
    }

    /// Makes trouble until it is to end.
    fn trouble(
        &self,
        trouble: Trouble,
        has_begun: &AtomicBool,
        is_over: &AtomicBool,
    ) -> Result<u32, Failure> {
        let mut count = 0;
        while !is_over.load(Ordering::Acquire) {
            match trouble {
                Trouble::Idle => return Ok(0),
                Trouble::Busy => drop(self.client.run(self.job.clone())?),
                Trouble::Killed => self.signal(Signal::SIGKILL)?,
                Trouble::Stopped => {
                    self.signal(Signal::SIGSTOP)?;
                    has_begun.store(true, Ordering::Release);
                    self.client.run(self.job.clone().with_deadline(HANG_DEADLINE))?;
                    self.until_it_serves()?;
                }
                Trouble::Loaded => {
                    self.client.unload_model(&self.plan.name)?;
                    self.client.load_model(self.plan.clone())?;
                }
            }
            has_begun.store(true, Ordering::Release);
            count += 1;
        }
        Ok(count)
    }

    /// Sends a signal to the worker that has just answered a request: such a one is replaced without a wait.
    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        self.until_it_serves()?;
        let answer = self.client.run(self.job.clone())?;
        let name = answer.receipt.attempts.last().map(|attempt| attempt.worker.clone());
        let rows = self.client.status()?.workers;
        let worker = rows.into_iter().find(|row| name.as_deref() == Some(&row.name));
        let worker = worker.ok_or_else(|| wrong("the neighbour's worker ended by itself"))?;
        let pid = Pid::from_raw(i32::try_from(worker.pid).expect("process numbers fit"));
        kill(pid, signal).map_err(|errno| wrong(&format!("{signal} to {}: {errno}", worker.name)))
    }

    /// Waits for a worker that serves the neighbour.
    fn until_it_serves(&self) -> Result<(), Failure> {
        let until = clock::now() + BACK_TIMEOUT;
        loop {
            let rows = self.client.status()?.workers;
            let serves =
                |row: &WorkerStatus| row.group == self.plan.name && row.state == WorkerState::Ready;
            if rows.iter().any(serves) {
                return Ok(());
            }
            if clock::until(until).is_zero() {
                return Err(wrong("the neighbour does not serve again"));
            }
            // Only the status tells when a worker is ready, so it is polled.
            thread::park_timeout(POLL_EVERY);
        }
    }
}

fn wrong(why: &str) -> Failure {
    Failure::Wrong(why.to_owned())
}

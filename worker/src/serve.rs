//! The worker's loop: one thread reads a message, runs it on the device, and answers. In between it
//! tests the device.
//!
//! No hand-over lies between the message and the launch. Signs of life come from a thread of their
//! own, so a long kernel is not taken for a dead worker; arenas come on the lifeline.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_protocol::arena::ArenaMap;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{self, ChannelError, Receiver, Sender};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId, WorkerId};
use gridpool_protocol::limits::{HEARTBEAT_EVERY, PROTOCOL_VERSION};
use gridpool_protocol::message::{AttemptError, FromWorker, Member, Run, ToWorker};
use gridpool_protocol::program::{Program, Programs};
use nix::libc;

use crate::arenas::Arenas;
use crate::attempts::{Hold, run_together};
use crate::between::{Between, STEP_MAX};
use crate::chaos::{self, Saboteur};
use crate::checkup::Checkup;
use crate::device::Device;
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::process;
use crate::self_test::self_test;
use crate::wear::{GrowthMax, Holding, Wear};

/// Who this worker is and who started it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerId,
    /// Where the supervisor listens for its channel.
    pub bootstrap: String,
    /// The supervisor's process.
    pub supervisor_pid: u32,
    /// How long it may look for a message before it sleeps.
    pub spin: Duration,
    /// How often it tests its device while it serves.
    pub known_answer_every: Duration,
    /// How far it may grow.
    pub growth_max: GrowthMax,
}

/// Serves until the supervisor says stop or is gone. `open` opens the device.
pub fn serve(
    identity: &Identity,
    lifeline: OwnedFd,
    open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
) -> ! {
    let code = match connect(identity, lifeline) {
        Ok(Some((mut worker, mut requests))) => match worker.start(open) {
            Ok(mut device) => {
                let mut checkup = Checkup::new(identity.known_answer_every, clock::now());
                worker.serve(&mut requests, &mut device, &mut checkup)
            }
            Err(fault) => worker.last_words(&fault, None),
        },
        Ok(None) => exit::OK,
        Err(error) => {
            tracing::error!(worker = %identity.worker, error, "worker cannot start");
            exit::PROTOCOL
        }
    };
    end_process(code)
}

/// Ends the process without running any destructor: after a sticky fault even a destructor's driver
/// call may block for ever.
pub fn end_process(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit is the end that runs nothing")]
    // SAFETY: the call takes a number and does not return.
    unsafe {
        libc::_exit(code)
    }
}

/// Sets the process up and connects. `None` if the supervisor is gone already.
fn connect(
    identity: &Identity,
    lifeline: OwnedFd,
) -> Result<Option<(Worker, Receiver<ToWorker>)>, String> {
    let lives = process::die_with(identity.supervisor_pid).map_err(|errno| errno.to_string())?;
    if !lives {
        return Ok(None);
    }
    if let Err(error) = process::volunteer_for_the_oom_killer() {
        tracing::warn!(%error, "the kernel may take the supervisor for this worker's memory");
    }
    process::mark_descriptors().map_err(|error| format!("close_range: {error}"))?;
    let (replies, mut requests) =
        channel::connect(&identity.bootstrap).map_err(|error| Chain(&error).to_string())?;
    requests.set_spin(identity.spin);
    let hello = FromWorker::Hello {
        version: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        worker: identity.worker,
    };
    replies.send(&hello).map_err(|error| Chain(&error).to_string())?;
    let arenas = Arenas::take_from(UnixStream::from(lifeline))?;
    let (programs, adopted) = (Programs::default(), BTreeMap::new());
    let between = Arc::default();
    let growth_max = identity.growth_max;
    let worker =
        Worker { replies, arenas, programs, adopted, between, growth_max, wear: Arc::default() };
    Ok(Some((worker, requests)))
}

struct Worker {
    replies: Sender<FromWorker>,
    arenas: Arenas,
    programs: Programs,
    /// Arenas that the device knows.
    adopted: BTreeMap<ArenaId, Arc<ArenaMap>>,
    /// The step between jobs that is being made.
    between: Arc<Between>,
    growth_max: GrowthMax,
    wear: Arc<Wear>,
}

/// Why an attempt is not run.
enum Failure {
    /// It is not what was said.
    Attempt(AttemptError),
    /// The device says no.
    Fault(Fault),
}

impl From<AttemptError> for Failure {
    fn from(error: AttemptError) -> Self {
        Self::Attempt(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Worker {
    /// Opens and tests the device, then says READY.
    fn start(
        &mut self,
        open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
    ) -> Result<Saboteur, Fault> {
        let gauges = Arc::default();
        let stop_beating = self.beat(Arc::clone(&gauges))?;
        process::check_contamination()?;
        let mut device = Saboteur::new(open()?);
        gauges.get_or_init(|| device.gauges());
        self_test(&mut device)?;
        match Holding::now() {
            Ok(fresh) => self.wear.start(fresh),
            Err(error) => tracing::warn!(%error, "how far this worker grows is not known"),
        }
        self.say(&FromWorker::Ready { device: device.info().clone() });
        // The heart beats as long as the process lives.
        std::mem::forget(stop_beating);
        Ok(device)
    }

    /// Starts the thread that gives signs of life, and says in them what the device holds once there is
    /// one. It ends a worker whose device does not come back from a step between jobs.
    fn beat(&self, gauges: Arc<OnceLock<Arc<Gauges>>>) -> Result<mpsc::Sender<()>, Fault> {
        let (replies, between) = (self.replies.clone(), Arc::clone(&self.between));
        let (wear, growth_max) = (Arc::clone(&self.wear), self.growth_max);
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = move || {
            while stopped.recv_timeout(HEARTBEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
                let memory = gauges.get().map_or_else(Default::default, |gauges| gauges.memory());
                if replies.send(&FromWorker::Heartbeat { memory }).is_err() {
                    return;
                }
                if let Ok(now) = Holding::now() {
                    wear.note(now, growth_max);
                }
                if between.is_stuck(clock::now()) {
                    let message = format!(
                        "the device has not come back from a step between jobs in {} s",
                        STEP_MAX.as_secs()
                    );
                    let code = exit::DEVICE_LOST;
                    let last = FromWorker::Dying { code, fault: None, message, attempt: None };
                    // Whether that arrives or not, the worker is of no more use.
                    drop(replies.send(&last));
                    end_process(code);
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(beat);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(stop)
    }

    fn serve(
        &mut self,
        requests: &mut Receiver<ToWorker>,
        device: &mut Saboteur,
        checkup: &mut Checkup,
    ) -> i32 {
        loop {
            let request = match requests.recv_until(checkup.due()) {
                Ok(request) => request,
                Err(ChannelError::Disconnected) => return exit::OK,
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "the supervisor's message");
                    return exit::PROTOCOL;
                }
            };
            let arrived = clock::now();
            let is_idle = request.is_none();
            let is_run = matches!(request, Some(ToWorker::Run(_)));
            let ended = match request {
                Some(ToWorker::Run(run)) => self.run(device, *run, arrived),
                Some(ToWorker::Forget { arenas }) => self.forget(device, &arenas),
                Some(ToWorker::Stop) => return exit::OK,
                None => Ok(()),
            };
            match ended {
                Err((fault, attempt)) if is_run => return self.last_words(&fault, attempt),
                Err((fault, _)) => return self.last_words_between_jobs(&fault),
                Ok(()) => {}
            }
            if let Some(why) = self.wear.worn() {
                let (code, message) = (Wear::EXIT, why.to_owned());
                self.say(&FromWorker::Dying { code, fault: None, message, attempt: None });
                return code;
            }
            if is_idle || checkup.is_late(arrived) {
                let step = self.between.step(arrived, || checkup.step(device, arrived));
                if let Err(fault) = step {
                    return self.last_words_between_jobs(&fault);
                }
            }
        }
    }

    /// Runs attempts together and answers each, in their order. The error is a fault that ends the
    /// worker.
    fn run(
        &mut self,
        device: &mut Saboteur,
        run: Run,
        arrived: Instant,
    ) -> Result<(), (Fault, Option<AttemptId>)> {
        let Run { program, ties, members } = run;
        let attempts: Vec<_> = members.iter().map(|member| member.attempt).collect();
        let chaos = members.iter().find_map(|member| member.chaos);
        device.arm(chaos);
        // Of several that ran together none is the one that was running.
        let suspect = if let [only] = attempts.as_slice() { Some(*only) } else { None };
        let results = match self.programs.compile(&program, ties) {
            Ok(program) => {
                let fatal = |fault| (fault, suspect);
                let mut holds = Vec::with_capacity(members.len());
                for member in members {
                    holds.push(self.hold(device, &program, member).map_err(fatal)?);
                }
                run_together(device, &program, holds, arrived).map_err(fatal)?
            }
            Err(error) => {
                let refused = AttemptError::Refused(error.to_string());
                attempts.iter().map(|_| Err(refused.clone())).collect()
            }
        };
        match chaos::before_the_answer(chaos, &self.replies) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => tracing::debug!(error = %Chain(&error), "the supervisor does not listen"),
        }
        for (attempt, result) in attempts.into_iter().zip(results) {
            self.say(&FromWorker::Answer { attempt, result });
        }
        Ok(())
    }

    /// Holds what an attempt works on. The outer error is a fault that ends the worker.
    fn hold(
        &mut self,
        device: &mut dyn Device,
        program: &Program,
        member: Member,
    ) -> Result<Result<Hold, AttemptError>, Fault> {
        let held = Hold::new(program, member, |slice| self.adopt(device, slice.arena));
        match held {
            Ok(hold) => Ok(Ok(hold)),
            Err(Failure::Attempt(error)) => Ok(Err(error)),
            Err(Failure::Fault(fault)) if fault.ends_worker() => Err(fault),
            Err(Failure::Fault(fault)) => Ok(Err(fault.attempt_error(true))),
        }
    }

    /// An arena that the device knows.
    fn adopt(&mut self, device: &mut dyn Device, id: ArenaId) -> Result<Arc<ArenaMap>, Failure> {
        if let Some(map) = self.adopted.get(&id) {
            return Ok(Arc::clone(map));
        }
        let map = self.arenas.find(id);
        let map = map.ok_or_else(|| AttemptError::Refused(format!("{id} never arrived")))?;
        device.adopt(map.all())?;
        self.adopted.insert(id, Arc::clone(&map));
        Ok(map)
    }

    fn forget(
        &mut self,
        device: &mut dyn Device,
        ids: &[ArenaId],
    ) -> Result<(), (Fault, Option<AttemptId>)> {
        for &id in ids {
            if let Some(map) = self.adopted.remove(&id)
                && let Err(fault) = self.between.step(clock::now(), || device.release(map.all()))
            {
                if fault.ends_worker() {
                    return Err((fault, None));
                }
                tracing::warn!(%fault, %id, "an arena could not be released");
            }
            drop(self.arenas.forget(id));
        }
        self.say(&FromWorker::Forgot);
        Ok(())
    }

    /// Says why the worker ends; gives its exit code.
    fn last_words(&self, fault: &Fault, attempt: Option<AttemptId>) -> i32 {
        let (code, message) = (fault.exit_code(), fault.to_string());
        self.say(&FromWorker::Dying { code, fault: Some(fault.code()), message, attempt });
        code
    }

    /// The same where no job has met the fault: whatever waits in the channel has not begun, and no job
    /// is to be held to account for what the device does by itself.
    fn last_words_between_jobs(&self, fault: &Fault) -> i32 {
        let (code, message) = (exit::DEVICE_LOST, fault.to_string());
        let named = (fault.exit_code() == code).then(|| fault.code());
        self.say(&FromWorker::Dying { code, fault: named, message, attempt: None });
        code
    }

    /// Sends a message. If that fails the supervisor is gone, and the lifeline ends this process.
    fn say(&self, message: &FromWorker) {
        if let Err(error) = self.replies.send(message) {
            tracing::debug!(error = %Chain(&error), "the supervisor does not listen");
        }
    }
}

#[cfg(test)]
mod tests;

//! The loop of a grid worker: one thread reads a message, runs it on the device, and answers. In between it
//! tests the device.
//!
//! The thread that reads a message also launches it. Another thread sends heartbeats, so a long kernel is not
//! taken for a dead worker. Arenas arrive on the lifeline.

#[cfg(feature = "infer")]
pub mod models;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_device::chaos::FaultInjector;
use gridpool_device::chaos::corrupt::Corruption;
use gridpool_device::chaos::deadly::Deadly;
use gridpool_device::device::Device;
use gridpool_device::fault::Fault;
use gridpool_device::self_test::self_test;
use gridpool_ipc::arena::ArenaMap;
use gridpool_ipc::channel::Receiver;
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId};
use gridpool_protocol::message::{
    Answers, Assignment, AttemptError, Dispatch, FromWorker, Inline, JoinedAnswer, ToWorker, Work,
};
use gridpool_protocol::program::Programs;
use gridpool_protocol::receipt::RunReport;
use tracing::field::display;

use crate::attempts::{Hold, Task, run_together};
use crate::chaos;
use crate::checkup::Checkup;
use crate::link::{self, Identity, Link};
use crate::process;

/// Serves until the supervisor sends stop or is gone. `open` opens the device, which is tested regularly.
pub fn serve(
    identity: &Identity,
    known_answer_every: Duration,
    open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
) -> ! {
    link::serve(identity, |link, requests| {
        let mut worker = Worker { link, programs: Programs::default(), adopted: BTreeMap::new() };
        match worker.start(open) {
            Ok(mut device) => {
                let mut checkup = Checkup::new(known_answer_every, clock::now());
                worker.serve(requests, &mut device, &mut checkup)
            }
            Err(fault) => worker.link.report_fault(&fault, None),
        }
    })
}

struct Worker {
    link: Link,
    programs: Programs,
    /// Arenas that the device knows.
    adopted: BTreeMap<ArenaId, Arc<ArenaMap>>,
}

/// Why an attempt does not run.
enum AttemptFailure {
    /// The assignment is wrong.
    Attempt(AttemptError),
    /// The device failed.
    Fault(Fault),
}

impl From<AttemptError> for AttemptFailure {
    fn from(error: AttemptError) -> Self {
        Self::Attempt(error)
    }
}

impl From<Fault> for AttemptFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Worker {
    /// Opens and tests the device, then says READY.
    fn start(
        &mut self,
        open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
    ) -> Result<FaultInjector, Fault> {
        let gauges = Arc::default();
        self.link.start_heartbeat(Arc::clone(&gauges))?;
        process::check_contamination()?;
        let mut device = FaultInjector::new(open()?);
        let of_device = gauges.get_or_init(|| device.gauges());
        match self.link.arenas.find(ArenaId::POSITION) {
            Some(memory) => of_device.position.record_in(memory),
            None => tracing::warn!("no memory came to record the position in"),
        }
        self_test(&mut device)?;
        device.corrupt(Corruption::of_this_process());
        device.dies_of(Deadly::of_this_process());
        self.link.mark_ready();
        self.link.send(&FromWorker::Ready { device: device.info().clone() });
        Ok(device)
    }

    fn serve(
        &mut self,
        requests: &mut Receiver,
        device: &mut FaultInjector,
        checkup: &mut Checkup,
    ) -> i32 {
        loop {
            let request = match link::next(requests, checkup.due()) {
                Ok(request) => request,
                Err(code) => return code,
            };
            let arrived = clock::now();
            let is_idle = request.is_none();
            match request {
                Some(ToWorker::Dispatch(dispatch)) => {
                    let Dispatch { work, assignments } = *dispatch;
                    if let Work::Model { .. } = work {
                        tracing::error!("a model was sent to a worker that runs programs");
                        return exit::PROTOCOL;
                    }
                    let ran = self.run(device, &work, assignments, arrived);
                    if let Err((fault, attempt)) = ran {
                        return self.link.report_fault(&fault, attempt);
                    }
                }
                Some(ToWorker::Forget { arenas }) => {
                    if let Err(fault) = self.forget(device, &arenas) {
                        return self.link.report_idle_fault(&fault);
                    }
                }
                Some(ToWorker::Stop) => return exit::OK,
                Some(ToWorker::Model { .. }) => {
                    tracing::error!("inference requests were sent to a worker that runs programs");
                    return exit::PROTOCOL;
                }
                None => {}
            }
            if let Some(code) = self.link.recycle() {
                return code;
            }
            if is_idle || checkup.is_late(arrived) {
                let step = self.link.idle_step.step(arrived, || checkup.step(device, arrived));
                if let Err(fault) = step {
                    return self.link.report_idle_fault(&fault);
                }
            }
        }
    }

    /// Runs attempts together and answers each, in order. The error is a fault that ends the worker.
    fn run(
        &mut self,
        device: &mut FaultInjector,
        work: &Work,
        assignments: Vec<Assignment>,
        arrived: Instant,
    ) -> Result<(), (Fault, Option<AttemptId>)> {
        let chaos = assignments.iter().find_map(|a| Some((a, a.chaos?)));
        if let Some((&Assignment { attempt, trace, .. }, fault)) = chaos {
            let (AttemptId { job, number: attempt }, trace_id) = (attempt, trace.map(display));
            tracing::warn!(%job, attempt, trace_id, %fault, "injected fault");
        }
        let chaos = chaos.map(|(_, fault)| fault);
        device.arm(chaos);
        // If several attempts ran together, it is unknown which one met the fault.
        let suspect = if let [only] = assignments.as_slice() { Some(only.attempt) } else { None };
        let attempts = assignments.iter().map(|assignment| assignment.attempt);
        let stops = self.link.cancels.begin_together(attempts.collect());
        let answers = match self.task(work) {
            Ok(task) => {
                let fatal = |fault| (fault, suspect);
                let mut holds = Vec::with_capacity(assignments.len());
                for assignment in assignments {
                    let attempt = assignment.attempt;
                    holds.push((attempt, self.hold(device, &task, assignment).map_err(fatal)?));
                }
                run_together(device, &task, holds, &stops, arrived).map_err(fatal)?
            }
            Err(error) => refuse_all(&assignments, &AttemptError::Refused(error)),
        };
        match chaos::before_the_answer(chaos, &self.link.replies) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => tracing::debug!(error = %Chain(&error), "the supervisor does not listen"),
        }
        self.link.cancels.end_together();
        self.link.answer(answers);
        Ok(())
    }

    /// What attempts of that work run; the error is a sentence.
    fn task(&mut self, work: &Work) -> Result<Task, String> {
        match work {
            Work::Program { text, ties, steps } => {
                let program = self.programs.compile(text, *ties, *steps);
                program.map(Task::Program).map_err(|error| error.to_string())
            }
            Work::Search { score } => Ok(Task::Search(*score)),
            Work::Model { name } => Err(format!("this worker runs no models: {name}")),
        }
    }

    /// Holds the memory of an attempt. The outer error is a fault that ends the worker.
    fn hold(
        &mut self,
        device: &mut dyn Device,
        task: &Task,
        assignment: Assignment,
    ) -> Result<Result<Hold, AttemptError>, Fault> {
        let held = Hold::new(task, assignment, |slice| self.adopt(device, slice.arena));
        match held {
            Ok(hold) => Ok(Ok(hold)),
            Err(AttemptFailure::Attempt(error)) => Ok(Err(error)),
            Err(AttemptFailure::Fault(fault)) if fault.ends_worker() => Err(fault),
            Err(AttemptFailure::Fault(fault)) => Ok(Err(fault.attempt_error(true))),
        }
    }

    /// An arena that the device knows.
    fn adopt(
        &mut self,
        device: &mut dyn Device,
        id: ArenaId,
    ) -> Result<Arc<ArenaMap>, AttemptFailure> {
        if let Some(map) = self.adopted.get(&id) {
            return Ok(Arc::clone(map));
        }
        let map = self.link.arenas.find(id);
        let map = map.ok_or_else(|| AttemptError::Refused(format!("{id} never arrived")))?;
        device.adopt(map.all())?;
        self.adopted.insert(id, Arc::clone(&map));
        Ok(map)
    }

    /// Releases arenas. The error is a fault that ends the worker.
    fn forget(&mut self, device: &mut dyn Device, ids: &[ArenaId]) -> Result<(), Fault> {
        for &id in ids {
            if let Some(map) = self.adopted.remove(&id)
                && let Err(fault) =
                    self.link.idle_step.step(clock::now(), || device.release(map.all()))
            {
                if fault.ends_worker() {
                    return Err(fault);
                }
                tracing::warn!(%fault, %id, "an arena could not be released");
            }
            drop(self.link.arenas.forget(id));
        }
        self.link.send(&FromWorker::Forgot);
        Ok(())
    }
}

/// Answers each with the error.
fn refuse_all(assignments: &[Assignment], error: &AttemptError) -> Answers {
    let refused = |assignment: &Assignment| {
        let (attempt, result) = (assignment.attempt, Err(error.clone()));
        JoinedAnswer { attempt, result }
    };
    let attempts = assignments.iter().map(refused).collect();
    Answers { report: RunReport::default(), attempts, outputs: Inline::default() }
}

#[cfg(test)]
mod tests;

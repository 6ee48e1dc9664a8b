//! The worker's loop: one thread reads a message, runs it on the device, and answers. In between it
//! tests the device.
//!
//! No hand-over lies between the message and the launch. Signs of life come from a thread of their
//! own, so a long kernel is not taken for a dead worker; arenas come on the lifeline.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridpool_protocol::arena::ArenaMap;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{ChannelError, Receiver};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId};
use gridpool_protocol::message::{AttemptError, FromWorker, Member, Run, ToWorker};
use gridpool_protocol::program::{Program, Programs};

use crate::attempts::{Hold, run_together};
use crate::chaos::corrupt::Corruption;
use crate::chaos::{self, Saboteur};
use crate::checkup::Checkup;
use crate::device::Device;
use crate::fault::Fault;
use crate::link::{self, Identity, Link, end_process};
use crate::process;
use crate::self_test::self_test;

/// Serves until the supervisor says stop or is gone. `open` opens the device, which is tested again every
/// so often.
pub fn serve(
    identity: &Identity,
    known_answer_every: Duration,
    lifeline: OwnedFd,
    open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
) -> ! {
    let code = match link::connect(identity, lifeline) {
        Ok(Some((link, mut requests))) => {
            let mut worker = Worker::new(link);
            match worker.start(open) {
                Ok(mut device) => {
                    let mut checkup = Checkup::new(known_answer_every, clock::now());
                    worker.serve(&mut requests, &mut device, &mut checkup)
                }
                Err(fault) => worker.link.last_words(&fault, None),
            }
        }
        Ok(None) => exit::OK,
        Err(error) => {
            tracing::error!(worker = %identity.worker, error, "worker cannot start");
            exit::PROTOCOL
        }
    };
    end_process(code)
}

struct Worker {
    link: Link,
    programs: Programs,
    /// Arenas that the device knows.
    adopted: BTreeMap<ArenaId, Arc<ArenaMap>>,
}

impl Worker {
    fn new(link: Link) -> Self {
        Self { link, programs: Programs::default(), adopted: BTreeMap::new() }
    }
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
        let stop_beating = self.link.beat(Arc::clone(&gauges))?;
        process::check_contamination()?;
        let mut device = Saboteur::new(open()?);
        gauges.get_or_init(|| device.gauges());
        self_test(&mut device)?;
        device.corrupt(Corruption::of_this_process());
        self.link.is_fresh();
        self.link.say(&FromWorker::Ready { device: device.info().clone() });
        // The heart beats as long as the process lives.
        std::mem::forget(stop_beating);
        Ok(device)
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
            match request {
                Some(ToWorker::Run(run)) => {
                    if let Err((fault, attempt)) = self.run(device, *run, arrived) {
                        return self.link.last_words(&fault, attempt);
                    }
                }
                Some(ToWorker::Forget { arenas }) => {
                    if let Err(fault) = self.forget(device, &arenas) {
                        return self.link.last_words_between_jobs(&fault);
                    }
                }
                Some(ToWorker::Stop) => return exit::OK,
                Some(ToWorker::Cancel { .. } | ToWorker::Infer(_) | ToWorker::Model { .. }) => {
                    tracing::error!("requests of models for a worker that runs programs");
                    return exit::PROTOCOL;
                }
                None => {}
            }
            if let Some(code) = self.link.worn_out() {
                return code;
            }
            if is_idle || checkup.is_late(arrived) {
                let step = self.link.between.step(arrived, || checkup.step(device, arrived));
                if let Err(fault) = step {
                    return self.link.last_words_between_jobs(&fault);
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
        let chaos = members.iter().find_map(|member| Some((member.attempt, member.chaos?)));
        if let Some((AttemptId { job, number: attempt }, fault)) = chaos {
            tracing::warn!(%job, attempt, %fault, "a fault on purpose");
        }
        let chaos = chaos.map(|(_, fault)| fault);
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
        match chaos::before_the_answer(chaos, &self.link.replies) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => tracing::debug!(error = %Chain(&error), "the supervisor does not listen"),
        }
        for (attempt, result) in attempts.into_iter().zip(results) {
            self.link.say(&FromWorker::Answer { attempt, result });
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
        let map = self.link.arenas.find(id);
        let map = map.ok_or_else(|| AttemptError::Refused(format!("{id} never arrived")))?;
        device.adopt(map.all())?;
        self.adopted.insert(id, Arc::clone(&map));
        Ok(map)
    }

    /// Lets go of arenas. The error is a fault that ends the worker.
    fn forget(&mut self, device: &mut dyn Device, ids: &[ArenaId]) -> Result<(), Fault> {
        for &id in ids {
            if let Some(map) = self.adopted.remove(&id)
                && let Err(fault) =
                    self.link.between.step(clock::now(), || device.release(map.all()))
            {
                if fault.ends_worker() {
                    return Err(fault);
                }
                tracing::warn!(%fault, %id, "an arena could not be released");
            }
            drop(self.link.arenas.forget(id));
        }
        self.link.say(&FromWorker::Forgot);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

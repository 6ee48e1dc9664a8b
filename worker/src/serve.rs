//! The worker's loop: one thread reads a message, runs it on the device, and answers.
//!
//! No hand-over lies between the message and the launch. Signs of life come from a thread of their
//! own, so a long kernel is not taken for a dead worker; arenas come on the lifeline.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use gridpool_protocol::arena::ArenaMap;
use gridpool_protocol::batch::{BatchLayout, Tables};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{self, ChannelError, Receiver, Sender};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId, WorkerId};
use gridpool_protocol::limits::{HEARTBEAT_EVERY, PROTOCOL_VERSION};
use gridpool_protocol::message::{
    Answer, AttemptError, Call, Destination, FromWorker, Inline, Input, Run, Slice, ToWorker,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{KernelUse, RunReport};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::status::WorkerMemory;
use nix::libc;

use crate::arenas::Arenas;
use crate::device::{Device, Task};
use crate::fault::Fault;
use crate::process;
use crate::self_test::self_test;

/// Who this worker is and who started it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its name.
    pub worker: WorkerId,
    /// Where the supervisor listens for its channel.
    pub bootstrap: String,
    /// The supervisor's process.
    pub supervisor_pid: u32,
}

/// Serves until the supervisor says stop or is gone. `open` opens the device.
pub fn serve(
    identity: &Identity,
    lifeline: OwnedFd,
    open: impl FnOnce() -> Result<Box<dyn Device>, Fault>,
) -> ! {
    let code = match connect(identity, lifeline) {
        Ok(Some((mut worker, requests))) => match worker.start(open) {
            Ok(mut device) => worker.serve(&requests, device.as_mut()),
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
    process::mark_descriptors().map_err(|error| format!("close_range: {error}"))?;
    let (replies, requests) =
        channel::connect(&identity.bootstrap).map_err(|error| Chain(&error).to_string())?;
    let hello = FromWorker::Hello {
        version: PROTOCOL_VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        worker: identity.worker,
    };
    replies.send(&hello).map_err(|error| Chain(&error).to_string())?;
    let arenas = Arenas::take_from(UnixStream::from(lifeline))?;
    let worker = Worker { replies, arenas, adopted: BTreeMap::new() };
    Ok(Some((worker, requests)))
}

struct Worker {
    replies: Sender<FromWorker>,
    arenas: Arenas,
    /// Arenas that the device knows.
    adopted: BTreeMap<ArenaId, Arc<ArenaMap>>,
}

/// Why a run gave no answer.
enum Failure {
    /// The batch is not what was said.
    Refused(String),
    /// The device says no.
    Fault(Fault),
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
    ) -> Result<Box<dyn Device>, Fault> {
        let stop_beating = self.beat()?;
        process::check_contamination()?;
        let mut device = open()?;
        self_test(device.as_mut())?;
        self.say(&FromWorker::Ready { device: device.info().clone() });
        // The heart beats as long as the process lives.
        std::mem::forget(stop_beating);
        Ok(device)
    }

    /// Starts the thread that gives signs of life.
    fn beat(&self) -> Result<mpsc::Sender<()>, Fault> {
        let replies = self.replies.clone();
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = move || {
            while stopped.recv_timeout(HEARTBEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
                if replies.send(&FromWorker::Heartbeat { memory: WorkerMemory::default() }).is_err()
                {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(beat);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(stop)
    }

    fn serve(&mut self, requests: &Receiver<ToWorker>, device: &mut dyn Device) -> i32 {
        loop {
            let request = match requests.recv() {
                Ok(request) => request,
                Err(ChannelError::Disconnected) => return exit::OK,
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "the supervisor's message");
                    return exit::PROTOCOL;
                }
            };
            let arrived = clock::now();
            let ended = match request {
                ToWorker::Run(run) => self.run(device, *run, arrived),
                ToWorker::Forget { arenas } => self.forget(device, &arenas),
                ToWorker::Stop => return exit::OK,
            };
            if let Err((fault, attempt)) = ended {
                return self.last_words(&fault, attempt);
            }
        }
    }

    /// Runs one attempt and answers. The error is a fault that ends the worker.
    fn run(
        &mut self,
        device: &mut dyn Device,
        run: Run,
        arrived: Instant,
    ) -> Result<(), (Fault, Option<AttemptId>)> {
        let Run { program, ties, members } = run;
        for member in members {
            let attempt = member.attempt;
            let call = Call { program: program.clone(), ties, payload: member.payload };
            self.run_one(device, attempt, call, arrived)?;
        }
        Ok(())
    }

    fn run_one(
        &mut self,
        device: &mut dyn Device,
        attempt: AttemptId,
        call: Call,
        arrived: Instant,
    ) -> Result<(), (Fault, Option<AttemptId>)> {
        let result = match self.compute(device, call, arrived) {
            Ok(answer) => Ok(answer),
            Err(Failure::Fault(fault)) if fault.ends_worker() => {
                return Err((fault, Some(attempt)));
            }
            Err(Failure::Fault(fault)) => Err(AttemptError::Device(fault.to_string())),
            Err(Failure::Refused(why)) => Err(AttemptError::Refused(why)),
        };
        self.say(&FromWorker::Answer { attempt, result });
        Ok(())
    }

    fn compute(
        &mut self,
        device: &mut dyn Device,
        call: Call,
        arrived: Instant,
    ) -> Result<Answer, Failure> {
        let refused = |error: &dyn std::error::Error| Failure::Refused(error.to_string());
        let program =
            Program::compile(&call.program, call.ties).map_err(|error| refused(&error))?;
        let batch =
            BatchLayout::new(call.payload.items, program.grids_per_item(), call.payload.cells)
                .map_err(|error| refused(&error))?;
        let output_layout = OutputLayout::new(&program, batch).map_err(|error| refused(&error))?;

        // The maps live until the run is over, whatever is forgotten meanwhile.
        let in_arena = match &call.payload.input {
            Input::Arena(slice) => Some((self.adopt(device, slice.arena)?, *slice)),
            Input::Inline(_) => None,
        };
        let out_arena = match &call.payload.output {
            Destination::Arena(slice) => Some((self.adopt(device, slice.arena)?, *slice)),
            Destination::Inline => None,
        };
        let mut in_bytes = match call.payload.input {
            Input::Arena(_) => Vec::new(),
            Input::Inline(Inline(bytes)) => bytes,
        };
        let mut out_bytes = match out_arena {
            Some(_) => Vec::new(),
            None => vec![0; output_layout.bytes()],
        };
        let input = match &in_arena {
            Some((map, slice)) => part(map, slice)?,
            None => SharedSlice::private(&mut in_bytes),
        };
        let output = match &out_arena {
            Some((map, slice)) => part(map, slice)?,
            None => SharedSlice::private(&mut out_bytes),
        };
        if output.bytes() != output_layout.bytes() {
            return Err(Failure::Refused("the place for the result has another size".to_owned()));
        }
        let tables = Tables::read(batch, &input).map_err(|error| refused(&error))?;
        let task = Task { program: &program, batch, tables: &tables, input, output_layout, output };
        let work = device.run(&task)?;
        let report = RunReport {
            module_hash: device.module_hash().to_owned(),
            joined_items: call.payload.items,
            item_errors: work.item_errors,
            kernels: work.kernels.into_iter().map(rounded).collect(),
            h2d_bytes: work.h2d_bytes,
            d2h_bytes: work.d2h_bytes,
            service_us: u64::try_from(arrived.elapsed().as_micros()).unwrap_or(u64::MAX),
            allocations: 0,
        };
        Ok(Answer { report, output: out_arena.is_none().then_some(Inline(out_bytes)) })
    }

    /// An arena that the device knows.
    fn adopt(&mut self, device: &mut dyn Device, id: ArenaId) -> Result<Arc<ArenaMap>, Failure> {
        if let Some(map) = self.adopted.get(&id) {
            return Ok(Arc::clone(map));
        }
        let map = self.arenas.find(id);
        let map = map.ok_or_else(|| Failure::Refused(format!("{id} never arrived")))?;
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
                && let Err(fault) = device.release(map.all())
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
        let code = fault.exit_code();
        self.say(&FromWorker::Dying { code, message: fault.to_string(), attempt });
        code
    }

    /// Sends a message. If that fails the supervisor is gone, and the lifeline ends this process.
    fn say(&self, message: &FromWorker) {
        if let Err(error) = self.replies.send(message) {
            tracing::debug!(error = %Chain(&error), "the supervisor does not listen");
        }
    }
}

/// The part of an arena that a slice names.
fn part<'a>(map: &'a ArenaMap, slice: &Slice) -> Result<SharedSlice<'a>, Failure> {
    let part = map.all().part(slice.offset, slice.bytes);
    part.ok_or_else(|| Failure::Refused(format!("{slice:?} does not lie in its arena")))
}

/// The time in whole nanoseconds: no clock here is finer.
fn rounded(kernel: KernelUse) -> KernelUse {
    KernelUse { device_us: (kernel.device_us * 1e3).round() / 1e3, ..kernel }
}

//! The loop of an inference worker: it loads its models, passes requests to the engine as they come, and
//! answers each when it is done, in any order.
//!
//! Model commands run beside that, in `commands`. The loop never waits for a run or a load: it takes the next
//! message at once.
//!
//! Requests run on the engine's threads. A fault that leaves the device unusable ends the process from
//! there; the supervisor handles the other requests in flight.

mod answer;
mod commands;
mod in_flight;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridpool_device::chaos::deadly::Deadly;
use gridpool_device::cpu::CpuDevice;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::Device;
use gridpool_device::fault::Fault;
use gridpool_device::gauges::Gauges;
use gridpool_infer::{
    ArenaPart, Destination, Engine, LockedArenas, Places, Progress, Request, Runtime, Source,
};
use gridpool_ipc::channel::Receiver;
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId, DeviceKind};
use gridpool_protocol::message::{
    self, Assignment, AttemptError, Dispatch, FromWorker, Inline, Input, Packing, Payload, Slice,
    ToWorker, Work,
};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::tensor::options::ModelPlan;
use tracing::field::display;

use self::answer::{answer, not_accepted};
use self::commands::{Commands, LoadedModels, end_on_panic};
use self::in_flight::{IN_FLIGHT_MAX, InFlight};
use crate::link::{self, Identity, Link};
use crate::{growth, process};

/// How often an idle worker checks whether it has grown too far. It also checks after every message.
const IDLE_LOOK: Duration = Duration::from_secs(60);

/// How often it looks whether the last request is done with an arena that is forgotten.
const SWEEP_EVERY: Duration = Duration::from_millis(20);

/// The configuration of an inference worker.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The GPU that it must find; `None` for a CPU device.
    pub uuid: Option<String>,
    /// Threads of a CPU device.
    pub threads: usize,
    /// ONNX Runtime's library, if it is named.
    pub library: Option<PathBuf>,
    /// The models.
    pub models: Vec<ModelPlan>,
}

/// Serves until the supervisor sends stop or is gone.
pub fn serve(identity: &Identity, plan: &Plan) -> ! {
    growth::limit_kept_memory();
    link::serve(identity, |link, requests| {
        match Server::start(link, identity, plan, identity.worker.device.kind) {
            Ok(server) => server.serve(requests),
            Err(code) => code,
        }
    })
}

struct Server {
    link: Link,
    engine: Arc<Engine>,
    kind: DeviceKind,
    in_flight: InFlight,
    commands: Commands,
    locked: RefCell<LockedArenas>,
}

impl Server {
    /// Loads the models and says READY. The error is the exit code of a worker that cannot serve and has
    /// reported why.
    fn start(link: Link, identity: &Identity, plan: &Plan, kind: DeviceKind) -> Result<Self, i32> {
        let fails = |fault: Fault| link.report_fault(&fault, None);
        end_on_panic(link.replies.clone());
        let gauges = Arc::<Gauges>::default();
        link.start_heartbeat(Arc::new(OnceLock::from(Arc::clone(&gauges)))).map_err(fails)?;
        process::check_contamination().map_err(fails)?;
        let device = find_device(identity, plan).map_err(fails)?;
        let runtime = Runtime::find(&Places::here(plan.library.as_deref()), plan.threads);
        let runtime = runtime
            .map_err(|error| link.ends(error.exit_code(), None, Chain(&error).to_string(), None))?;
        let replies = link.replies.clone();
        let progress = Progress::new(move |model, phase| {
            link::send(&replies, &FromWorker::Loading { model: model.to_owned(), phase });
        });
        let engine = Engine::new(runtime, kind).telling(progress);
        let engine = Arc::new(engine.dying_of(Deadly::of_this_process()));
        let mut loaded = LoadedModels::default();
        for ModelPlan { name, path, options } in &plan.models {
            match loaded.adds(name, || engine.load(name, path, options)) {
                Ok(model) => tracing::debug!(name, contexts = model.contexts, "model loaded"),
                Err(error) => match error.end_of_device() {
                    Some(fault) => return Err(fails(fault.to_fault())),
                    // The list of all models below tells the supervisor, which logs it once.
                    None => tracing::debug!(name, error = %Chain(&error), "model not loaded"),
                },
            }
        }
        let commands = Commands::start(&link, Arc::clone(&engine), loaded).map_err(fails)?;
        link.mark_ready();
        link.send(&FromWorker::Models { models: engine.list() });
        link.send(&FromWorker::Ready { device });
        let in_flight = InFlight::new(link.cancels.clone());
        let locked = RefCell::new(LockedArenas::counted_in(gauges));
        Ok(Self { link, engine, kind, in_flight, commands, locked })
    }

    fn serve(&self, requests: &mut Receiver) -> i32 {
        loop {
            let look = match self.locked.borrow_mut().sweep() {
                true => SWEEP_EVERY,
                false => IDLE_LOOK,
            };
            let request = match link::next(requests, clock::now() + look) {
                Ok(request) => request,
                Err(code) => return code,
            };
            match request {
                Some(ToWorker::Dispatch(dispatch)) => {
                    let Dispatch { work: Work::Model { name }, assignments } = *dispatch else {
                        tracing::error!("a program was sent to a worker that serves models");
                        return exit::PROTOCOL;
                    };
                    assignments.into_iter().for_each(|assignment| self.submit(&name, assignment));
                }
                Some(ToWorker::Model { number, command }) => {
                    if let Err(why) = self.commands.take(number, *command, &self.engine) {
                        self.link.send(&FromWorker::CommandEnded { number, result: Err(why) });
                    }
                }
                Some(ToWorker::Forget { arenas }) => {
                    // A request that still runs keeps the map of its arena.
                    for id in arenas {
                        self.locked.borrow_mut().forget(id);
                        drop(self.link.arenas.forget(id));
                    }
                    self.link.send(&FromWorker::Forgot);
                }
                // Running requests and a model that is being loaded end with the process.
                Some(ToWorker::Stop) => return exit::OK,
                None => {}
            }
            if self.in_flight.is_empty()
                && !self.commands.is_busy()
                && let Some(code) = self.link.recycle()
            {
                return code;
            }
        }
    }

    /// Passes a request to the engine, or answers at once why not.
    fn submit(&self, model: &str, assignment: Assignment) {
        let attempt = assignment.attempt;
        let taken = match self.in_flight.take(attempt) {
            true => self
                .accept(model, assignment)
                .inspect_err(|_| drop(self.in_flight.answers(attempt))),
            false => Err(AttemptError::Device(format!(
                "{IN_FLIGHT_MAX} requests are in flight already, the most that a worker accepts"
            ))),
        };
        if let Err(error) = taken {
            self.link.send(&FromWorker::Answer { attempt, result: Err(error) });
        }
    }

    fn accept(&self, model: &str, assignment: Assignment) -> Result<(), AttemptError> {
        let arrived = clock::now();
        let Assignment { attempt, client, priority, payload, deadline_ms, trace, .. } = assignment;
        let (inputs, outputs) = self.places(model, &payload).map_err(AttemptError::Refused)?;
        let (replies, kind, in_flight) =
            (self.link.replies.clone(), self.kind, self.in_flight.clone());
        let done = Box::new(move |result| {
            let _answering = in_flight.answers(attempt);
            answer(&replies, kind, attempt, arrived, result);
        });
        // The time left when it was sent is counted from its arrival here.
        let deadline = arrived.checked_add(Duration::from_millis(deadline_ms));
        let (model, client) = (model.to_owned(), client.0);
        let request = Request { model, client, priority, inputs, outputs, deadline, done };
        let ticket = self.engine.submit(request).map_err(|error| not_accepted(&error))?;
        // What is cancelled on the lifeline, before or from now on, is withdrawn.
        self.link.cancels.on_cancel(attempt, move || {
            let is_open = ticket.cancel();
            let (AttemptId { job, number: attempt }, trace_id) = (attempt, trace.map(display));
            tracing::debug!(%job, attempt, trace_id, is_open, "withdrawn");
        });
        Ok(())
    }

    fn places(&self, model: &str, payload: &Payload) -> Result<(Source, Destination), String> {
        if payload.packing != Packing::Tensors {
            return Err("a model runs over tensors, not over grids".to_owned());
        }
        let inputs = match &payload.input {
            Input::Inline(Inline(bytes)) => Source::Inline(bytes.as_slice().into()),
            Input::Arena(slice) => Source::Arena(self.input_part(model, *slice)?),
        };
        let outputs = match payload.output {
            message::Destination::Inline => Destination::Answer,
            message::Destination::Arena(slice) => Destination::Arena(self.part(slice)?),
        };
        Ok((inputs, outputs))
    }

    /// A part of an arena that is an input: a GPU copies it by itself if it can.
    fn input_part(&self, model: &str, slice: Slice) -> Result<ArenaPart, String> {
        let part = self.part(slice)?;
        if !self.engine.can_lend(model) {
            return Ok(part);
        }
        let locked = self.locked.borrow_mut().of_input(slice.arena, part.map(), slice.bytes);
        Ok(part.with_lock(locked))
    }

    fn part(&self, slice: Slice) -> Result<ArenaPart, String> {
        let Slice { arena, offset, bytes } = slice;
        let never = |id: ArenaId| format!("{id} never arrived");
        let map = self.link.arenas.find(arena).ok_or_else(|| never(arena))?;
        ArenaPart::new(map, offset, bytes)
            .ok_or_else(|| format!("{bytes} bytes at {offset} do not lie in {arena}"))
    }
}

/// Describes the device without making anything on it: ONNX Runtime does that.
fn find_device(identity: &Identity, plan: &Plan) -> Result<DeviceInfo, Fault> {
    let device = identity.worker.device;
    match device.kind {
        DeviceKind::Cpu => Ok(CpuDevice::open(device.index, plan.threads)?.info().clone()),
        DeviceKind::Gpu => CudaDevice::describe(device.index, plan.uuid.as_deref()),
    }
}

/// Reads a model from the command line.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_model(text: &str) -> Result<ModelPlan, String> {
    let model: ModelPlan = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match model.path.as_os_str().is_empty() {
        true => Err(format!("the model `{}` has no file", model.name)),
        false => Ok(model),
    }
}

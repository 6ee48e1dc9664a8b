//! The loop of an inference worker: it loads its models, hands requests to the engine as they come, and
//! answers each when it is done, in whatever order that is.
//!
//! Requests run on the engine's threads. One that meets a fault after which the device is of no use ends
//! the process from there: whatever else was in hand is the supervisor's matter.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{ChannelError, Receiver, Sender};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, AttemptId, DeviceKind};
use gridpool_protocol::limits::INFER_INLINE_BYTES_MAX;
use gridpool_protocol::message::{
    self, AttemptError, FromWorker, InferMember, Inline, Input, ModelCall, Slice, ToWorker,
};
use gridpool_protocol::receipt::{DeviceInfo, KernelUse, RunReport};
use gridpool_protocol::tensor::options::ModelPlan;

use super::engine::{Engine, Request};
use super::job::{Answer, InferError};
use super::library::Places;
use super::place::{ArenaPart, Destination, Placed, Source};
use super::runtime::Runtime;
use super::{LoadError, RunError, RuntimeFault};
use crate::cpu::CpuDevice;
use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::fault::Fault;
use crate::link::{self, Identity, Link, end_process};
use crate::process;

/// A worker looks so often whether it has grown too far, and after every message.
const IDLE_LOOK: Duration = Duration::from_secs(60);

/// What an inference worker is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The GPU that it must find; of a CPU device, none.
    pub uuid: Option<String>,
    /// Threads of a CPU device.
    pub threads: usize,
    /// ONNX Runtime's library, if it is named.
    pub library: Option<PathBuf>,
    /// The models.
    pub models: Vec<ModelPlan>,
}

/// Serves until the supervisor says stop or is gone.
pub fn serve(identity: &Identity, lifeline: OwnedFd, plan: &Plan) -> ! {
    let code = match link::connect(identity, lifeline) {
        Ok(Some((link, mut requests))) => {
            let kind = identity.worker.device.kind;
            match Server::start(link, identity, plan, kind) {
                Ok(server) => server.serve(&mut requests),
                Err(code) => code,
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

struct Server {
    link: Link,
    engine: Engine,
    kind: DeviceKind,
    /// Requests that the engine has and has not answered.
    in_hand: Arc<AtomicUsize>,
}

impl Server {
    /// Loads the models and says READY; the error is the exit code of a worker that cannot serve, which
    /// has said why.
    fn start(link: Link, identity: &Identity, plan: &Plan, kind: DeviceKind) -> Result<Self, i32> {
        let fails = |fault: Fault| link.last_words(&fault, None);
        let stop_beating = link.beat(Arc::new(OnceLock::new())).map_err(fails)?;
        process::check_contamination().map_err(fails)?;
        let device = find_device(identity, plan).map_err(fails)?;
        let runtime = Runtime::find(&Places::here(plan.library.as_deref()), plan.threads);
        let runtime = runtime
            .map_err(|error| link.ends(error.exit_code(), None, Chain(&error).to_string(), None))?;
        let engine = Engine::new(runtime, kind);
        for ModelPlan { name, path, options } in &plan.models {
            match engine.load(name, path, options) {
                Ok(model) => tracing::debug!(name, contexts = model.contexts, "model loaded"),
                Err(LoadError::Session(fault)) if !fault.leaves_device_usable() => {
                    return Err(fails(fault.to_fault()));
                }
                Err(error) => tracing::warn!(name, error = %Chain(&error), "model not loaded"),
            }
        }
        link.is_fresh();
        link.say(&FromWorker::Models { models: engine.list() });
        link.say(&FromWorker::Ready { device });
        // The heart beats as long as the process lives.
        std::mem::forget(stop_beating);
        Ok(Self { link, engine, kind, in_hand: Arc::default() })
    }

    fn serve(&self, requests: &mut Receiver<ToWorker>) -> i32 {
        loop {
            let request = match requests.recv_until(clock::now() + IDLE_LOOK) {
                Ok(request) => request,
                Err(ChannelError::Disconnected) => return exit::OK,
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "the supervisor's message");
                    return exit::PROTOCOL;
                }
            };
            match request {
                Some(ToWorker::Infer(members)) => {
                    members.into_iter().for_each(|member| self.submit(member));
                }
                Some(ToWorker::Forget { arenas }) => {
                    // Whoever still runs over one keeps its map.
                    arenas.into_iter().for_each(|id| drop(self.link.arenas.forget(id)));
                    self.link.say(&FromWorker::Forgot);
                }
                Some(ToWorker::Stop) => return exit::OK,
                Some(ToWorker::Cancel { .. } | ToWorker::Model { .. }) => {
                    tracing::error!("an order that is not known here");
                    return exit::PROTOCOL;
                }
                Some(ToWorker::Run(_)) => {
                    tracing::error!("a program over grids for a worker that holds models");
                    return exit::PROTOCOL;
                }
                None => {}
            }
            if self.in_hand.load(Ordering::Acquire) == 0
                && let Some(code) = self.link.worn_out()
            {
                return code;
            }
        }
    }

    /// Hands a request to the engine, or answers at once why not.
    fn submit(&self, member: InferMember) {
        let arrived = clock::now();
        let InferMember { attempt, client, call, deadline_ms } = member;
        let (replies, kind) = (self.link.replies.clone(), self.kind);
        let in_hand = Arc::clone(&self.in_hand);
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        let accepted = self.request(&call).and_then(|(inputs, outputs)| {
            let done = Box::new(move |result| {
                answer(&replies, kind, attempt, arrived, result);
                in_hand.fetch_sub(1, Ordering::AcqRel);
            });
            let deadline = arrived.checked_add(Duration::from_millis(deadline_ms));
            let (model, client) = (call.model, client.0);
            let request = Request { model, client, inputs, outputs, deadline, done };
            self.engine.submit(request).map_err(|error| Chain(&error).to_string())
        });
        if let Err(why) = accepted {
            self.in_hand.fetch_sub(1, Ordering::AcqRel);
            let result = Err(AttemptError::Refused(why));
            self.link.say(&FromWorker::Answer { attempt, result });
        }
    }

    fn request(&self, call: &ModelCall) -> Result<(Source, Destination), String> {
        let inputs = match &call.input {
            Input::Inline(Inline(bytes)) => Source::Inline(bytes.as_slice().into()),
            Input::Arena(slice) => Source::Arena(self.part(*slice)?),
        };
        let outputs = match call.output {
            message::Destination::Inline => Destination::Answer,
            message::Destination::Arena(slice) => Destination::Arena(self.part(slice)?),
        };
        Ok((inputs, outputs))
    }

    fn part(&self, slice: Slice) -> Result<ArenaPart, String> {
        let Slice { arena, offset, bytes } = slice;
        let never = |id: ArenaId| format!("{id} never arrived");
        let map = self.link.arenas.find(arena).ok_or_else(|| never(arena))?;
        ArenaPart::new(map, offset, bytes)
            .ok_or_else(|| format!("{bytes} bytes at {offset} do not lie in {arena}"))
    }
}

/// The device as this process finds it. Nothing is made on it here: that is ONNX Runtime's part.
fn find_device(identity: &Identity, plan: &Plan) -> Result<DeviceInfo, Fault> {
    let device = identity.worker.device;
    match device.kind {
        DeviceKind::Cpu => Ok(CpuDevice::open(device.index, plan.threads)?.info().clone()),
        DeviceKind::Gpu => CudaDevice::describe(device.index, plan.uuid.as_deref()),
    }
}

/// Sends the answer to an attempt, from the thread that ran it. After a fault that leaves the device of
/// no use, the process ends here.
fn answer(
    replies: &Sender<FromWorker>,
    kind: DeviceKind,
    attempt: AttemptId,
    arrived: Instant,
    result: Result<Answer, InferError>,
) {
    let result = match result {
        Ok(answer) => report(answer, arrived),
        Err(InferError::Run(RunError::Fault(fault))) => match ends_worker(&fault, kind) {
            Some(fault) => {
                let (code, message) = (fault.exit_code(), fault.to_string());
                let (fault, attempt) = (Some(fault.code()), Some(attempt));
                drop(replies.send(&FromWorker::Dying { code, fault, message, attempt }));
                end_process(code)
            }
            None if fault.leaves_device_usable() && kind == DeviceKind::Cpu => {
                Err(AttemptError::Refused(fault.to_string()))
            }
            None => Err(fault.to_fault().attempt_error(true)),
        },
        Err(
            error @ (InferError::Cancelled
            | InferError::Late
            | InferError::Outputs(_)
            | InferError::Parts { .. }
            | InferError::Run(RunError::Output { .. })),
        ) => Err(AttemptError::Refused(Chain(&error).to_string())),
    };
    if let Err(error) = replies.send(&FromWorker::Answer { attempt, result }) {
        tracing::debug!(error = %Chain(&error), "the supervisor does not listen");
    }
}

/// The fault, if the policy has the worker replaced. What ONNX Runtime says on a CPU is about the request:
/// there is no context that could be lost.
fn ends_worker(fault: &RuntimeFault, kind: DeviceKind) -> Option<Fault> {
    let on_gpu = kind == DeviceKind::Gpu;
    Some(fault.to_fault()).filter(|fault| on_gpu && fault.ends_worker())
}

fn report(answer: Answer, arrived: Instant) -> Result<message::Answer, AttemptError> {
    let Answer { outputs, report } = answer;
    let output = match outputs {
        Placed::Inline(bytes) if bytes.len() > INFER_INLINE_BYTES_MAX => {
            let got = bytes.len();
            return Err(AttemptError::Refused(format!(
                "the outputs have no room: they take {got} bytes, and at most \
                 {INFER_INLINE_BYTES_MAX} travel inline"
            )));
        }
        Placed::Inline(bytes) => Some(Inline(bytes)),
        Placed::InArena(_) => None,
    };
    let service = arrived.elapsed().as_micros();
    let runs = KernelUse {
        name: report.model.clone(),
        launches: report.runs,
        device_us: report.device_us,
    };
    let report = RunReport {
        module_hash: report.sha256.clone(),
        joined_items: report.joined_rows,
        item_errors: 0,
        kernels: vec![runs],
        h2d_bytes: report.h2d_bytes,
        d2h_bytes: report.d2h_bytes,
        service_us: u64::try_from(service).unwrap_or(u64::MAX),
        allocations: 0,
        infer: Some(report),
    };
    Ok(message::Answer { report, output })
}

/// Reads the models of a command line.
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

//! The loop of an inference worker: it loads its models, hands requests to the engine as they come, and
//! answers each when it is done, in whatever order that is.
//!
//! What is to be done about the models themselves is done beside that, in `orders`. Nothing here waits for
//! a run or a load: the loop takes the next message at once.
//!
//! Requests run on the engine's threads. One that meets a fault after which the device is of no use ends
//! the process from there: whatever else was in hand is the supervisor's matter.

mod answer;
mod in_hand;
mod orders;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::{ChannelError, Receiver};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::ids::{ArenaId, DeviceKind};
use gridpool_protocol::message::{
    self, AttemptError, FromWorker, InferMember, Inline, Input, ModelCall, Slice, ToWorker,
};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::tensor::options::ModelPlan;

use self::answer::{answer, not_accepted};
use self::in_hand::{IN_HAND_MAX, InHand};
use self::orders::{LoadedHere, Orders, end_on_panic};
use super::engine::{Engine, Request};
use super::library::Places;
use super::place::{ArenaPart, Destination, Source};
use super::runtime::Runtime;
use crate::cpu::CpuDevice;
use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::fault::Fault;
use crate::link::{self, Identity, Link, end_process};
use crate::{process, wear};

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
    wear::keep_little();
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
    engine: Arc<Engine>,
    kind: DeviceKind,
    in_hand: InHand,
    orders: Orders,
}

impl Server {
    /// Loads the models and says READY; the error is the exit code of a worker that cannot serve, which
    /// has said why.
    fn start(link: Link, identity: &Identity, plan: &Plan, kind: DeviceKind) -> Result<Self, i32> {
        let fails = |fault: Fault| link.last_words(&fault, None);
        end_on_panic(link.replies.clone());
        let stop_beating = link.beat(Arc::new(OnceLock::new())).map_err(fails)?;
        process::check_contamination().map_err(fails)?;
        let device = find_device(identity, plan).map_err(fails)?;
        let runtime = Runtime::find(&Places::here(plan.library.as_deref()), plan.threads);
        let runtime = runtime
            .map_err(|error| link.ends(error.exit_code(), None, Chain(&error).to_string(), None))?;
        let engine = Arc::new(Engine::new(runtime, kind));
        let mut loaded = LoadedHere::default();
        for ModelPlan { name, path, options } in &plan.models {
            match loaded.adds(name, || engine.load(name, path, options)) {
                Ok(model) => tracing::debug!(name, contexts = model.contexts, "model loaded"),
                Err(error) => match error.end_of_device() {
                    Some(fault) => return Err(fails(fault.to_fault())),
                    // The supervisor is told of it with all others below, and says it once.
                    None => tracing::debug!(name, error = %Chain(&error), "model not loaded"),
                },
            }
        }
        let orders = Orders::start(&link, Arc::clone(&engine), loaded).map_err(fails)?;
        link.is_fresh();
        link.say(&FromWorker::Models { models: engine.list() });
        link.say(&FromWorker::Ready { device });
        // The heart beats as long as the process lives.
        std::mem::forget(stop_beating);
        Ok(Self { link, engine, kind, in_hand: InHand::default(), orders })
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
                Some(ToWorker::Cancel { attempts }) => self.in_hand.withdraw(&attempts),
                Some(ToWorker::Model { order, what }) => {
                    if let Err(why) = self.orders.take(order, what, &self.engine) {
                        self.link.say(&FromWorker::Ordered { order, result: Err(why) });
                    }
                }
                Some(ToWorker::Forget { arenas }) => {
                    // Whoever still runs over one keeps its map.
                    arenas.into_iter().for_each(|id| drop(self.link.arenas.forget(id)));
                    self.link.say(&FromWorker::Forgot);
                }
                // What runs, and a model that is being loaded, end with the process.
                Some(ToWorker::Stop) => return exit::OK,
                Some(ToWorker::Run(_)) => {
                    tracing::error!("a program over grids for a worker that holds models");
                    return exit::PROTOCOL;
                }
                None => {}
            }
            if self.in_hand.is_empty()
                && !self.orders.are_under_way()
                && let Some(code) = self.link.worn_out()
            {
                return code;
            }
        }
    }

    /// Hands a request to the engine, or answers at once why not.
    fn submit(&self, member: InferMember) {
        let attempt = member.attempt;
        let taken = match self.in_hand.take(attempt) {
            true => self.accept(member).inspect_err(|_| drop(self.in_hand.answers(attempt))),
            false => Err(AttemptError::Device(format!(
                "{IN_HAND_MAX} requests are in hand already, the most that a worker has"
            ))),
        };
        if let Err(error) = taken {
            self.link.say(&FromWorker::Answer { attempt, result: Err(error) });
        }
    }

    fn accept(&self, member: InferMember) -> Result<(), AttemptError> {
        let arrived = clock::now();
        let InferMember { attempt, client, call, deadline_ms } = member;
        let (inputs, outputs) = self.request(&call).map_err(AttemptError::Refused)?;
        let (replies, kind, in_hand) = (self.link.replies.clone(), self.kind, self.in_hand.clone());
        let done = Box::new(move |result| {
            let _answering = in_hand.answers(attempt);
            answer(&replies, kind, attempt, arrived, result);
        });
        // What was left of its time when it was sent is counted from its arrival here.
        let deadline = arrived.checked_add(Duration::from_millis(deadline_ms));
        let (model, client) = (call.model, client.0);
        let request = Request { model, client, inputs, outputs, deadline, done };
        let ticket = self.engine.submit(request).map_err(|error| not_accepted(&error))?;
        self.in_hand.waits(attempt, ticket);
        Ok(())
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

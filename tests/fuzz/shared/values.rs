//! A value of every variant of every message, by name. The names come from matches without a wildcard,
//! so that a message that is added is a compile error here, and then a seed.

use gridpool_protocol::chaos::{Chaos, ChaosFault, HostFault};
use gridpool_protocol::fault::{FaultClass, FaultCode, Response};
use gridpool_protocol::ids::{
    ArenaId, AttemptId, ClientId, ContentHash, DeviceId, DeviceKind, JobId, JobKey, Role, WorkerId,
};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{
    Answer, AttemptError, Call, ClientMessage, Destination, DeviceModel, FromWorker, InferMember,
    InferSubmission, Inline, Input, Lifeline, Limit, Member, ModelCall, ModelOrder, Payload,
    Priority, Refusal, Run, ServerMessage, Slice, Submission, ToWorker,
};
use gridpool_protocol::metrics::{
    DeviceMetrics, Metrics, RestartReason, RoleMetrics, Spread, Work,
};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::{
    Attempt, AttemptOutcome, DeviceInfo, ItemRange, KernelUse, Receipt, RunReport, Verdict,
};
use gridpool_protocol::status::{
    Counters, DeviceStatus, HttpStatus, MonitorStatus, PolicyRule, QuarantineStatus, QueueStatus,
    RunStatus, SlotDevice, Status, SupervisorStatus, WorkerMemory, WorkerState, WorkerStatus,
};
use gridpool_protocol::tensor::model::{InferReport, ModelInfo, ModelState, ProviderNodes};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan, Provider};
use gridpool_protocol::tensor::{DataType, TensorSpec};

const KEY: JobKey = JobKey(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

/// Client to supervisor.
pub(crate) fn client_messages() -> Vec<(&'static str, ClientMessage)> {
    let name = |message: &ClientMessage| match message {
        ClientMessage::Hello { .. } => "hello",
        ClientMessage::Submit(job) => match job.call.payload.input {
            Input::Arena(_) => "submit-arena",
            Input::Inline(_) => "submit-inline",
        },
        ClientMessage::Cancel { .. } => "cancel",
        ClientMessage::CreateArena { .. } => "create-arena",
        ClientMessage::DropArena { .. } => "drop-arena",
        ClientMessage::Status { .. } => "status",
        ClientMessage::Kill { .. } => "kill",
        ClientMessage::Infer(_) => "infer",
        ClientMessage::Model { .. } => "model",
        ClientMessage::Models { .. } => "models",
        ClientMessage::Policy { .. } => "policy",
        ClientMessage::Release { .. } => "release",
        ClientMessage::Drain { .. } => "drain",
        ClientMessage::Metrics { .. } => "metrics",
    };
    let all = [
        ClientMessage::Hello { version: PROTOCOL_VERSION },
        ClientMessage::Submit(Box::new(submission(inline()))),
        ClientMessage::Submit(Box::new(submission(in_arena()))),
        ClientMessage::Cancel { key: KEY },
        ClientMessage::CreateArena { request: 1, bytes: 70_000 },
        ClientMessage::DropArena { arena: ArenaId(3) },
        ClientMessage::Status { request: 300 },
        ClientMessage::Kill { request: 4, worker: "gpu0#4".to_owned(), signal: -9 },
        ClientMessage::Infer(Box::new(infer_submission())),
        ClientMessage::Model { request: 6, order: order() },
        ClientMessage::Models { request: 7, from: 1 },
        ClientMessage::Policy { request: 6 },
        ClientMessage::Release { request: 5, what: "jobs".to_owned() },
        ClientMessage::Drain { request: u64::MAX },
        ClientMessage::Metrics { request: 8 },
    ];
    all.into_iter().map(|message| (name(&message), message)).collect()
}

/// Supervisor to client.
pub(crate) fn server_messages() -> Vec<(&'static str, ServerMessage)> {
    let name = |message: &ServerMessage| match message {
        ServerMessage::Welcome { .. } => "welcome",
        ServerMessage::Accepted { .. } => "accepted",
        ServerMessage::Refused { refusal, .. } => match refusal {
            Refusal::Busy(_) => "refused-busy",
            Refusal::Draining => "refused-draining",
            Refusal::Invalid(_) => "refused-invalid",
            Refusal::Poison(_) => "refused-poison",
            Refusal::KeyInUse(_) => "refused-key",
        },
        ServerMessage::Done { .. } => "done",
        ServerMessage::ArenaCreated { .. } => "arena-created",
        ServerMessage::Status { .. } => "status",
        ServerMessage::Policy { .. } => "policy",
        ServerMessage::Granted { .. } => "granted",
        ServerMessage::Denied { .. } => "denied",
        ServerMessage::Closing { .. } => "closing",
        ServerMessage::Drained { .. } => "drained",
        ServerMessage::Models { .. } => "models",
        ServerMessage::Metrics { .. } => "metrics",
    };
    let refused = |refusal| ServerMessage::Refused { key: KEY, refusal };
    let output = Some(Inline(vec![1, 2, 3, 255]));
    let all = [
        ServerMessage::Welcome { version: PROTOCOL_VERSION },
        ServerMessage::Accepted { key: KEY },
        refused(Refusal::Busy(Limit::QueueJobs)),
        refused(Refusal::Draining),
        refused(Refusal::Invalid("no".to_owned())),
        refused(Refusal::Poison(ContentHash([7; 32]))),
        refused(Refusal::KeyInUse(KEY)),
        ServerMessage::Done { key: KEY, receipt: Box::new(receipt()), output, replayed: false },
        ServerMessage::ArenaCreated { request: 1, arena: ArenaId(9), bytes: 1 << 20 },
        ServerMessage::Status { request: 2, status: Box::new(status()) },
        ServerMessage::Policy { request: 9, rules: vec![rule()] },
        ServerMessage::Granted { request: 3, what: "draining".to_owned() },
        ServerMessage::Denied { request: 4, refusal: Refusal::Busy(Limit::Arenas) },
        ServerMessage::Closing { reason: "no hello within 5s".to_owned() },
        ServerMessage::Drained { verdicts: vec![(Verdict::Ok, 3), (Verdict::Cancelled, 1)] },
        ServerMessage::Models {
            request: 11,
            models: vec![DeviceModel { worker: "gpu0#2".to_owned(), model: model() }],
            total: 2,
        },
        ServerMessage::Metrics { request: 12, metrics: Box::new(metrics()) },
    ];
    all.into_iter().map(|message| (name(&message), message)).collect()
}

/// Supervisor to worker.
pub(crate) fn to_workers() -> Vec<(&'static str, ToWorker)> {
    let name = |message: &ToWorker| match message {
        ToWorker::Cancel { .. } => "cancel",
        ToWorker::Infer(_) => "infer",
        ToWorker::Model { .. } => "model",
        ToWorker::Run(_) => "run",
        ToWorker::Forget { .. } => "forget",
        ToWorker::Stop => "stop",
    };
    let part = ItemRange { start: 0, end: 2 };
    let member = |payload| Member { attempt: attempt(), payload, part, chaos: None };
    let members = vec![member(inline()), member(in_arena())];
    let run = Run { program: "rot90".to_owned(), ties: Ties::Lowest, members };
    let forget = ToWorker::Forget { arenas: vec![ArenaId(1), ArenaId(1 << 40)] };
    let (client, deadline_ms) = (ClientId(300), 30_000);
    let infer = InferMember { attempt: attempt(), client, call: model_call(), deadline_ms };
    let infer = ToWorker::Infer(vec![infer]);
    let cancel = ToWorker::Cancel { attempts: vec![attempt()] };
    let model = ToWorker::Model { order: 3, what: order() };
    let all = [cancel, infer, model, ToWorker::Run(Box::new(run)), forget, ToWorker::Stop];
    all.into_iter().map(|message| (name(&message), message)).collect()
}

/// Worker to supervisor.
pub(crate) fn from_workers() -> Vec<(&'static str, FromWorker)> {
    let name = |message: &FromWorker| match message {
        FromWorker::Hello { .. } => "hello",
        FromWorker::Ready { .. } => "ready",
        FromWorker::Heartbeat { .. } => "heartbeat",
        FromWorker::Answer { result: Ok(_), .. } => "answer",
        FromWorker::Answer { result: Err(AttemptError::Device(_)), .. } => "device-error",
        FromWorker::Answer { result: Err(AttemptError::Refused(_)), .. } => "refused",
        FromWorker::Forgot => "forgot",
        FromWorker::Models { .. } => "models",
        FromWorker::Ordered { .. } => "ordered",
        FromWorker::Dying { .. } => "dying",
    };
    let device = DeviceId { kind: DeviceKind::Gpu, index: 3 };
    let worker = WorkerId { device, generation: 70_000 };
    let answered = |result| FromWorker::Answer { attempt: attempt(), result };
    let all = [
        FromWorker::Hello { version: PROTOCOL_VERSION, build: "0.1.0".to_owned(), worker },
        FromWorker::Ready { device: device_info() },
        FromWorker::Heartbeat {
            memory: WorkerMemory { device_bytes: 5, ..WorkerMemory::default() },
        },
        answered(Ok(Answer { report: report(), output: Some(Inline(vec![0; 40])) })),
        answered(Err(AttemptError::Device("out of memory".to_owned()))),
        answered(Err(AttemptError::Refused("not a batch".to_owned()))),
        FromWorker::Forgot,
        FromWorker::Models { models: vec![model()] },
        FromWorker::Ordered { order: 3, result: Err("no such file".to_owned()) },
        FromWorker::Dying {
            code: 70,
            message: "sticky".to_owned(),
            attempt: Some(attempt()),
            fault: Some(FaultCode::Cuda(700)),
        },
    ];
    all.into_iter().map(|message| (name(&message), message)).collect()
}

fn infer_submission() -> InferSubmission {
    InferSubmission {
        key: KEY,
        call: model_call(),
        deadline_ms: 30_000,
        priority: Priority::High,
        idempotent: true,
    }
}

fn model_call() -> ModelCall {
    let output = Destination::Arena(Slice { arena: ArenaId(3), offset: 64, bytes: 4_096 });
    let input = Input::Inline(Inline(vec![9; 20]));
    ModelCall { model: "resnet".to_owned(), input, output }
}

fn order() -> ModelOrder {
    let options = ModelOptions {
        contexts: 4,
        device_bytes: Some(1 << 30),
        warm_up: vec![[("x".to_owned(), vec![8, 3])].into()],
        providers: vec![Provider::Cuda],
        ..ModelOptions::default()
    };
    ModelOrder::Load(ModelPlan { name: "resnet".to_owned(), path: "/m/r.onnx".into(), options })
}

fn model() -> ModelInfo {
    let x = TensorSpec { name: "x".to_owned(), datatype: DataType::Fp32, shape: vec![-1, 3] };
    ModelInfo {
        name: "resnet".to_owned(),
        sha256: "00ff".to_owned(),
        onnxruntime: "1.31.1".to_owned(),
        inputs: vec![x.clone()],
        outputs: vec![x],
        max_batch: 32,
        contexts: 4,
        nodes: vec![nodes()],
        device_bytes: 1 << 33,
        trial_shapes: vec![vec![1, 3]],
        state: ModelState::Unavailable,
        reason: "no file".to_owned(),
    }
}

fn infer_report() -> InferReport {
    InferReport {
        model: "resnet".to_owned(),
        sha256: "00ff".to_owned(),
        onnxruntime: "1.31.1".to_owned(),
        nodes: vec![nodes()],
        runs: 2,
        joined_rows: 33,
        device_us: 0.5,
        h2d_bytes: 12,
        d2h_bytes: 13,
    }
}

fn nodes() -> ProviderNodes {
    ProviderNodes { provider: "CPUExecutionProvider".to_owned(), nodes: 7 }
}

/// Over the lifeline.
pub(crate) fn lifelines() -> [(&'static str, Lifeline); 2] {
    let name = |message: &Lifeline| match message {
        Lifeline::Connected => "connected",
        Lifeline::Arena { .. } => "arena",
    };
    let all = [Lifeline::Connected, Lifeline::Arena { arena: ArenaId(7), bytes: 1 << 33 }];
    all.map(|message| (name(&message), message))
}

fn attempt() -> AttemptId {
    AttemptId { job: JobId(12_345), number: 2 }
}

fn inline() -> Payload {
    let input = Input::Inline(Inline((0..48).collect()));
    Payload { items: 2, cells: 9, input, output: Destination::Inline }
}

fn in_arena() -> Payload {
    let slice = |offset, bytes| Slice { arena: ArenaId(4), offset, bytes };
    let (input, output) = (Input::Arena(slice(0, 4_096)), Destination::Arena(slice(4_096, 9_000)));
    Payload { items: 300, cells: 1 << 20, input, output }
}

fn submission(payload: Payload) -> Submission {
    let program = "rot90 | replace(1, 7)".to_owned();
    let call = Call { program, ties: Ties::Cpython, payload };
    let (priority, idempotent) = (Priority::Low, false);
    let fault = ChaosFault::Host(HostFault::Segv);
    let chaos = Some(Chaos { fault, attempts: 1 });
    Submission { key: KEY, call, deadline_ms: 60_000, priority, idempotent, chaos }
}

fn device_info() -> DeviceInfo {
    DeviceInfo {
        kind: DeviceKind::Cpu,
        index: 1,
        name: "a processor".to_owned(),
        uuid: String::new(),
        driver: String::new(),
    }
}

fn report() -> RunReport {
    let kernels = vec![KernelUse { name: "rot90".to_owned(), launches: 1, device_us: 1.5 }];
    RunReport {
        module_hash: "ab".to_owned(),
        items: 1,
        joined_items: 7,
        item_errors: 1,
        kernels,
        h2d_bytes: 1 << 33,
        d2h_bytes: 5,
        service_us: 77,
        allocations: 0,
        infer: Some(infer_report()),
    }
}

fn receipt() -> Receipt {
    let part = ItemRange { start: 0, end: 5 };
    let (name, lost) = ("cpu0#1".to_owned(), AttemptOutcome::WorkerDied);
    let detail = "signal 9 (SIGKILL)".to_owned();
    let first = Attempt::unreported(name.clone(), device_info(), part, lost, detail);
    let second = Attempt::answered(name, device_info(), part, report());
    Receipt {
        job: "job7".to_owned(),
        key: KEY.to_string(),
        program_hash: "cd".to_owned(),
        items: 5,
        item_errors: 1,
        verdict: Verdict::Ok,
        reason: String::new(),
        queue_us: 3,
        total_us: 4_000,
        attempts: vec![first, second],
    }
}

fn status() -> Status {
    let device = SlotDevice {
        kind: DeviceKind::Cpu,
        index: 0,
        name: "a processor".to_owned(),
        uuid: String::new(),
    };
    let run = RunStatus {
        job: "job17".to_owned(),
        what: "rot90 | fill(5)".to_owned(),
        jobs: 2,
        items: 64,
        for_us: 1_500_000,
    };
    let worker = WorkerStatus {
        name: "cpu0#2".to_owned(),
        pid: 4_242,
        role: "grid".to_owned(),
        device,
        state: WorkerState::Busy,
        generation: 2,
        jobs_done: 5,
        items_done: 160,
        restarts: 1,
        last_fault: "cpu0#1 died".to_owned(),
        start_us: Some(5_000),
        end_us: None,
        arena_bytes: 0,
        memory: WorkerMemory::default(),
        run: Some(run),
        cpu_us: 1_000,
        resident_bytes: 9 << 20,
    };
    let supervisor = SupervisorStatus {
        pid: 1,
        version: "0.1.0".to_owned(),
        uptime_s: 2.5,
        socket: "/run/pool.sock".to_owned(),
        cuda_mapped: false,
        draining: false,
        clients: 3,
        arena_bytes: 9,
        arena_bytes_high: 10,
        outbox_bytes_high: 11,
    };
    let counters = Counters { accepted: 9, ok: 8, ..Counters::default() };
    let monitor = Some(MonitorStatus { pid: 7, up: true, restarts: 0 });
    let gpu = DeviceStatus {
        name: "gpu0".to_owned(),
        uuid: "GPU-1".to_owned(),
        memory_used: 1,
        memory_total: 2,
        busy_percent: Some(97),
        power_mw: Some(700_000),
        processes: vec![4_242],
        recovery: None,
        last_xid: Some(31),
        xids: 1,
        nvml_error: None,
    };
    let (workers, devices, queue) = (vec![worker], vec![gpu], QueueStatus::default());
    let [device, why] = ["gpu1", "gpu1#5 died"].map(str::to_owned);
    let (role, tried_in_us) = ("grid".to_owned(), Some(41_000_001));
    let quarantines = vec![QuarantineStatus { device, role, why, tried_in_us }];
    let address = "127.0.0.1:8000".to_owned();
    let http = Some(HttpStatus { address, pid: 8, up: true, restarts: 1 });
    Status { supervisor, monitor, http, devices, quarantines, workers, queue, counters }
}

fn rule() -> PolicyRule {
    let fault = FaultCode::Cuda(700);
    PolicyRule {
        fault: fault.to_string(),
        name: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
        class: FaultClass::Sticky,
        response: Response::Restart,
        configured: false,
        meaning: "a bad address".to_owned(),
    }
}

fn metrics() -> Metrics {
    let mut spread = Spread::default();
    spread.failover.observe(0.000_7);
    let role = RoleMetrics {
        role: Role::Grid,
        counters: status().counters,
        queue: QueueStatus::default(),
        restarts: vec![(RestartReason::Killed, 3)],
        ended: vec![(AttemptOutcome::WorkerDied, 3)],
        retries: 3,
        spread,
    };
    let device = DeviceMetrics {
        device: DeviceId { kind: DeviceKind::Gpu, index: 0 },
        role: Role::Grid,
        generation: 4,
        is_out: false,
        quarantines: 1,
        work: Work { attempts: 9, launches: 2.5, busy_s: 0.25, ..Work::default() },
    };
    let faults = vec![(FaultCode::Cuda(700), 2), (FaultCode::Hang, 0)];
    Metrics { status: status(), roles: vec![role], devices: vec![device], faults }
}

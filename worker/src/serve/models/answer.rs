//! Answers a request that has ended, on the thread that ran it.

use std::time::Instant;

use gridpool_device::fault::{Fault, end_process};
use gridpool_infer::{Answer, InferError, Placed, RequestError, RunError, RuntimeFault};
use gridpool_ipc::channel::Replies;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::{AttemptId, DeviceKind};
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::message::{AttemptAnswer, AttemptError, FromWorker, Inline};
use gridpool_protocol::receipt::{KernelUse, RunReport};

use crate::link::send;

/// Sends the answer to an attempt, on the thread that ran it. After a fault that leaves the device
/// unusable, the process ends here.
pub(super) fn answer(
    replies: &Replies,
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
            | InferError::Run(
                RunError::Grid { .. }
                | RunError::Input { .. }
                | RunError::Output { .. }
                | RunError::Wire(_),
            )),
        ) => Err(AttemptError::Refused(Chain(&error).to_string())),
    };
    send(replies, &FromWorker::Answer { attempt, result });
}

/// The fault, if the policy replaces the worker for it. On a CPU, ONNX Runtime's errors concern the request:
/// there is no context that could be lost.
fn ends_worker(fault: &RuntimeFault, kind: DeviceKind) -> Option<Fault> {
    let on_gpu = kind == DeviceKind::Gpu;
    Some(fault.to_fault()).filter(|fault| on_gpu && fault.ends_worker())
}

fn report(answer: Answer, arrived: Instant) -> Result<AttemptAnswer, AttemptError> {
    let Answer { outputs, rows, report } = answer;
    let output = match outputs {
        Placed::Inline(bytes) if bytes.len() > INLINE_BYTES_MAX => {
            let got = bytes.len();
            return Err(AttemptError::Refused(format!(
                "the outputs do not fit: they take {got} bytes, and at most \
                 {INLINE_BYTES_MAX} travel inline"
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
        module_hash: report.sha256.as_str().into(),
        items: rows,
        joined_items: report.joined_rows,
        item_errors: 0,
        kernels: [runs].into(),
        h2d_bytes: report.h2d_bytes,
        d2h_bytes: report.d2h_bytes,
        service_us: u64::try_from(service).unwrap_or(u64::MAX),
        allocations: 0,
        infer: Some(Box::new(report)),
        search: None,
    };
    Ok(AttemptAnswer { report, output })
}

/// The answer to a request that the engine did not accept. If the cause is this worker and not the request,
/// another worker may run it.
pub(super) fn not_accepted(error: &RequestError) -> AttemptError {
    let why = Chain(error).to_string();
    match error {
        RequestError::Queue(_)
        | RequestError::Unavailable { .. }
        | RequestError::Unknown { .. } => AttemptError::Device(why),
        RequestError::Inputs(_) | RequestError::Tensors(_) => AttemptError::Refused(why),
    }
}

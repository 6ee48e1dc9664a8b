//! The pool's responses to faults: the default and the possible ones.

use std::str::FromStr;

use super::{FaultClass, FaultCode};
use crate::exit;
use crate::named::named;

named! {
    /// A response of the pool to a fault. Each treats the job, the worker and the device in its own way.
    pub enum Response {
        /// The job fails; the worker stays.
        FailJob = "fail_job",
        /// The job gets one more attempt; the worker stays.
        RetryJob = "retry_job",
        /// The worker is replaced. The job that ran there alone is suspect. If the worker has done no work, so is
        /// the device.
        Suspect = "suspect",
        /// The worker is replaced. Neither job nor device is suspect.
        Retry = "retry",
        /// The worker is replaced. If it has done no work, the device is suspect.
        Restart = "restart",
        /// The device is quarantined and probed later. Its workers end, and their jobs lose an attempt.
        Quarantine = "quarantine",
        /// As `restart`. A second time within ten minutes is `quarantine`.
        QuarantineOnRepeat = "quarantine_on_repeat",
        /// The device is quarantined until an operator releases it. Its workers end, and their jobs lose an attempt.
        Halt = "halt",
        /// The fault is logged.
        Ignore = "ignore",
        /// The fault is expected after the pool has killed a worker of the device. Otherwise it is logged.
        ExpectedAfterKill = "expected_after_kill",
        /// The worker gets the fault from CUDA and reports it. The pool responds to that report.
        AwaitWorker = "await_worker",
    }
}

/// The responses to a result that the worker may survive.
const CALL: &[Response] = &[
    Response::FailJob,
    Response::RetryJob,
    Response::Suspect,
    Response::Retry,
    Response::Restart,
    Response::Quarantine,
    Response::Halt,
];
/// The responses to a death that the job may have caused.
const DEATH: &[Response] =
    &[Response::Suspect, Response::Retry, Response::Restart, Response::Quarantine, Response::Halt];
/// The responses to a death without a job.
const START: &[Response] =
    &[Response::Retry, Response::Restart, Response::Quarantine, Response::Halt];
/// The responses to a fault that another process would have, too.
const FINAL: &[Response] = &[Response::Quarantine, Response::Halt];
/// The responses to a process that cannot be replaced before it is gone.
const STUCK: &[Response] = &[Response::Quarantine];
/// The responses to a fault that the driver reports about a device.
const XID: &[Response] = &[
    Response::Ignore,
    Response::ExpectedAfterKill,
    Response::AwaitWorker,
    Response::Restart,
    Response::QuarantineOnRepeat,
    Response::Quarantine,
    Response::Halt,
];
/// The responses to a fault that NVML reports about a device.
const NVML: &[Response] =
    &[Response::Ignore, Response::AwaitWorker, Response::Quarantine, Response::Halt];

impl Response {
    /// A short description.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::FailJob => "the job fails, the worker stays",
            Self::RetryJob => "one more attempt, the worker stays",
            Self::Suspect => "the worker is replaced; the job is suspect",
            Self::Retry => "the worker is replaced; nothing is suspect",
            Self::Restart => "the worker is replaced; the device is suspect",
            Self::Quarantine => "the device is out of service and probed later",
            Self::QuarantineOnRepeat => {
                "as restart; a second time within ten minutes, as quarantine"
            }
            Self::Halt => "the device is out of service until it is released",
            Self::Ignore => "written to the log",
            Self::ExpectedAfterKill => "expected after a kill, else logged",
            Self::AwaitWorker => "the worker gets it from CUDA and reports it",
        }
    }

    /// Whether the worker that met the fault keeps running.
    #[must_use]
    pub fn keeps_worker(self) -> bool {
        match self {
            Self::AwaitWorker
            | Self::ExpectedAfterKill
            | Self::FailJob
            | Self::Ignore
            | Self::RetryJob => true,
            Self::Halt
            | Self::Quarantine
            | Self::QuarantineOnRepeat
            | Self::Restart
            | Self::Retry
            | Self::Suspect => false,
        }
    }
}

/// A text that does not name a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a response: write one of {}", Response::ALL.map(Response::name).join(", "))]
pub struct ParseResponseError {
    text: String,
}

impl FromStr for Response {
    type Err = ParseResponseError;

    fn from_str(text: &str) -> Result<Self, ParseResponseError> {
        Self::from_name(text).ok_or_else(|| ParseResponseError { text: text.to_owned() })
    }
}

/// Xids that a program on the device may have caused: its own exceptions and faults, engines and contexts that
/// hang, firmware that stops answering.
const OF_A_PROGRAM: [u32; 11] = [8, 11, 13, 31, 32, 46, 68, 69, 109, 119, 120];

impl FaultCode {
    /// Whether a program on the device may have caused the fault. If so, the job that ran there alone is suspect.
    #[must_use]
    pub fn may_be_a_jobs_doing(self) -> bool {
        matches!(self, Self::Xid(number) if OF_A_PROGRAM.contains(&number))
    }

    /// The possible responses.
    #[must_use]
    pub fn allowed(self) -> &'static [Response] {
        match self {
            // A worker whose context is lost cannot stay.
            Self::Cuda(_) | Self::Onnx(_) if self.class() == FaultClass::Sticky => DEATH,
            Self::Cuda(_) | Self::Onnx(_) => CALL,
            Self::Exit(_) | Self::Hang | Self::Signal(_) | Self::WrongAnswer => DEATH,
            Self::NotReady | Self::Rejected | Self::SpawnFailed => START,
            Self::Incompatible | Self::NoBinary => FINAL,
            Self::Unkillable => STUCK,
            Self::Xid(_) => XID,
            Self::Nvml(_) | Self::Recovery(_) => NVML,
        }
    }

    /// The default response.
    #[must_use]
    pub fn default_response(self) -> Response {
        match self {
            Self::Cuda(code) => of_cuda(code, self.class()),
            Self::Onnx(_) => match self.class() {
                FaultClass::Program => Response::FailJob,
                FaultClass::Device
                | FaultClass::Notice
                | FaultClass::Process
                | FaultClass::Setup
                | FaultClass::Sticky
                | FaultClass::Transient => Response::Suspect,
            },
            Self::Exit(exit::worker::STICKY) => Response::Suspect,
            Self::Exit(exit::worker::CONFIG | exit::worker::DRIVER) => Response::Halt,
            // ILL, ABRT, BUS, FPE, SEGV: a program causes these itself.
            Self::Signal(4 | 6 | 7 | 8 | 11) => Response::Suspect,
            // It comes from outside: the supervisor knows the signals that it sends.
            Self::Exit(exit::worker::WORN) | Self::Signal(9) => Response::Retry,
            Self::Exit(_)
            | Self::NotReady
            | Self::Rejected
            | Self::Signal(_)
            | Self::WrongAnswer => Response::Restart,
            Self::Hang => Response::Suspect,
            Self::Incompatible | Self::NoBinary => Response::Halt,
            Self::SpawnFailed => Response::Retry,
            Self::Unkillable => Response::Quarantine,
            Self::Xid(number) => of_xid(number),
            Self::Nvml(15 | 16) => Response::Halt,
            // Running workers continue. The next one to start gets it from CUDA, as 803.
            Self::Nvml(18) => Response::AwaitWorker,
            Self::Nvml(_) => Response::Ignore,
            // No action, or one that concerns work across GPUs. An operator must know about the others.
            Self::Recovery(0 | 3 | 5) => Response::Ignore,
            Self::Recovery(_) => Response::Halt,
        }
    }
}

fn of_cuda(code: u32, class: FaultClass) -> Response {
    const STUB_LIBRARY: u32 = 34;
    const CALL_REQUIRES_NEWER_DRIVER: u32 = 36;
    const DEVICE_NOT_LICENSED: u32 = 102;
    const ECC_UNCORRECTABLE: u32 = 214;
    const NVLINK_UNCORRECTABLE: u32 = 220;
    const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    const COMPAT_NOT_SUPPORTED_ON_DEVICE: u32 = 804;
    match code {
        CALL_REQUIRES_NEWER_DRIVER
        | COMPAT_NOT_SUPPORTED_ON_DEVICE
        | DEVICE_NOT_LICENSED
        | STUB_LIBRARY
        | SYSTEM_DRIVER_MISMATCH => return Response::Halt,
        // No job wears out memory or a link.
        ECC_UNCORRECTABLE | NVLINK_UNCORRECTABLE => return Response::Restart,
        _ => {}
    }
    match class {
        FaultClass::Device | FaultClass::Notice | FaultClass::Process | FaultClass::Setup => {
            Response::Restart
        }
        FaultClass::Program | FaultClass::Transient => Response::RetryJob,
        FaultClass::Sticky => Response::Suspect,
    }
}

/// From NVIDIA's Xid catalog. If it asks to restart the application, the worker gets the fault from CUDA and
/// names its job. If it asks for a reset, the device is quarantined.
fn of_xid(number: u32) -> Response {
    match number {
        8 | 11 | 13 | 31 | 32 | 68 | 69 | 94 => Response::AwaitWorker,
        43 | 45 => Response::ExpectedAfterKill,
        74 | 109 => Response::QuarantineOnRepeat,
        46 | 48 | 61 | 62 | 64 | 95 | 110 | 119 | 120 | 140 | 143 | 156 | 158 => {
            Response::Quarantine
        }
        79 => Response::Halt,
        _ => Response::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> impl Iterator<Item = FaultCode> {
        FaultCode::listed().chain(FaultCode::others().map(|other| other.0))
    }

    #[test]
    fn every_default_is_a_possible_response() {
        for fault in faults() {
            let response = fault.default_response();
            assert!(fault.allowed().contains(&response), "{fault}: {response}");
        }
    }

    #[test]
    fn every_response_is_allowed_somewhere_and_reads_back() {
        for response in Response::ALL {
            assert_eq!(response.name().parse(), Ok(response));
            assert!(faults().any(|fault| fault.allowed().contains(&response)), "{response}");
        }
        let error = "kill".parse::<Response>().unwrap_err().to_string();
        assert!(error.starts_with("`kill` is not a response: write one of fail_job, "), "{error}");
    }

    #[test]
    fn a_worker_whose_context_is_lost_cannot_be_kept() {
        for number in (1..=1_100).chain([u32::MAX]) {
            let fault = FaultCode::Cuda(number);
            let may_stay = fault.allowed().iter().any(|response| response.keeps_worker());
            assert_eq!(may_stay, fault.class() != FaultClass::Sticky, "{fault}");
        }
    }

    #[test]
    fn the_defaults_are_these() {
        use Response::{
            AwaitWorker, ExpectedAfterKill, FailJob, Halt, Ignore, Quarantine, QuarantineOnRepeat,
            Restart, Retry, RetryJob, Suspect,
        };
        let cases = [
            (RetryJob, "cuda 1, cuda 2, cuda 47, cuda 218, cuda 701, cuda 909"),
            (Suspect, "cuda 4, cuda 226, cuda 700, cuda 719, cuda 810, cuda 999, cuda 5000"),
            (Restart, "cuda 46, cuda 100, cuda 101, cuda 214, cuda 220, cuda 802, cuda 919"),
            (Halt, "cuda 34, cuda 36, cuda 102, cuda 803, cuda 804"),
            (FailJob, "onnx 2, onnx 10"),
            (Suspect, "onnx 1, onnx 11, onnx 99"),
            (Suspect, "exit 70, signal 4, signal 6, signal 7, signal 8, signal 11, hang"),
            (Restart, "exit 0, exit 1, exit 71, exit 72, exit 74, exit 101, signal 15, signal 2"),
            (Halt, "exit 73, exit 75, incompatible, no binary"),
            (Restart, "not ready, rejected, wrong answer"),
            (Retry, "exit 76, signal 9, spawn failed"),
            (Quarantine, "unkillable, xid 48, xid 95, xid 119, xid 140"),
            (QuarantineOnRepeat, "xid 109, xid 74"),
            (Halt, "xid 79, nvml 15, nvml 16, recovery 1, recovery 2, recovery 4, recovery 77"),
            (AwaitWorker, "xid 13, xid 31, xid 94, nvml 18"),
            (ExpectedAfterKill, "xid 43, xid 45"),
            (Ignore, "xid 63, xid 92, xid 154, xid 9999, nvml 999, nvml 3, recovery 0, recovery 3"),
        ];
        for (response, faults) in cases {
            for fault in faults.split(", ") {
                let code: FaultCode = fault.parse().unwrap();
                assert_eq!(code.default_response(), response, "{fault}");
            }
        }
    }
}

//! Why a device gave no answer, and what to do about it.
//!
//! A CUDA result is a plain `u32` here, because a newer driver returns codes that a closed Rust enum cannot
//! hold. `gridpool_protocol::fault` says what each number means. This file calls nothing.

use std::sync::OnceLock;

use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::fault::{FaultCode, Overrides, Response};
use gridpool_protocol::message::AttemptError;
use nix::libc;

pub use gridpool_protocol::fault::FaultClass;

/// The pool's changes to the responses to faults: set once, before any fault can come.
static POLICY: OnceLock<Overrides> = OnceLock::new();

/// Sets the policy of this process. Only the first call counts.
pub fn obey(policy: Overrides) {
    POLICY.get_or_init(|| policy);
}

/// Why a device gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A CUDA library foreign to the worker's role is mapped into the process.
    #[error(
        "{library} is mapped into this worker; a worker shares its process with no other CUDA \
         library (is LD_PRELOAD set?)"
    )]
    Contaminated {
        /// The library's path.
        library: String,
    },
    /// A driver call failed. Errors are asynchronous: the cause may be an earlier call.
    #[error("{call}: {}", named(*code))]
    Cuda {
        /// The call that reported it.
        call: &'static str,
        /// Its result.
        code: u32,
    },
    /// The driver cannot load the kernels.
    #[error("the driver offers CUDA {}; the kernels need {} or newer", cuda(*have), cuda(*need))]
    DriverTooOld {
        /// The result of `cuDriverGetVersion`.
        have: u32,
        /// The oldest that works, in the same form.
        need: u32,
    },
    /// The driver library lacks a call that the worker needs.
    #[error("libcuda has no {symbol}: the driver is too old")]
    MissingSymbol {
        /// The call.
        symbol: &'static str,
    },
    /// There is no driver library.
    #[error("no libcuda on this machine: a GPU worker needs the NVIDIA driver")]
    NoDriver,
    /// The worker does not see exactly the one device it was started for.
    #[error("{count} devices are visible to this worker instead of one (CUDA_VISIBLE_DEVICES)")]
    NotOneDevice {
        /// How many it sees.
        count: u32,
    },
    /// A CPU device has no memory left.
    #[error("no memory for {bytes} bytes: {reason}")]
    Memory {
        /// How many were asked for.
        bytes: usize,
        /// Why they were refused.
        reason: String,
    },
    /// The threads of a CPU device could not be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// Why not, in the system's words.
        reason: String,
    },
    /// ONNX Runtime failed, or CUDA called from it.
    #[error("{message}")]
    Runtime {
        /// Its kind.
        code: FaultCode,
        /// Its message.
        message: String,
    },
    /// The device computed a result that is known to be wrong.
    #[error("the device fails its known-answer test: {detail}")]
    WrongAnswer {
        /// The program and what was wrong with its result.
        detail: String,
    },
    /// The device is not the one that the worker was started for.
    #[error("started for {want}, found {got}")]
    WrongDevice {
        /// The UUID asked for.
        want: String,
        /// The UUID found.
        got: String,
    },
    /// The device returned a value that no kernel can return.
    #[error("the device gave {detail}")]
    WrongResult {
        /// The value, and why it is impossible.
        detail: String,
    },
}

impl Fault {
    /// The code that is sent to the supervisor.
    #[must_use]
    pub fn code(&self) -> FaultCode {
        match self {
            Self::Cuda { code, .. } => FaultCode::Cuda(*code),
            Self::Runtime { code, .. } => *code,
            Self::WrongAnswer { .. } | Self::WrongResult { .. } => FaultCode::WrongAnswer,
            Self::Contaminated { .. }
            | Self::DriverTooOld { .. }
            | Self::Memory { .. }
            | Self::MissingSymbol { .. }
            | Self::NoDriver
            | Self::NotOneDevice { .. }
            | Self::Threads { .. }
            | Self::WrongDevice { .. } => FaultCode::Exit(self.exit_code()),
        }
    }

    /// How badly it affects the process.
    #[must_use]
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Cuda { code, .. } => FaultCode::Cuda(*code).class(),
            Self::Runtime { code, .. } => code.class(),
            Self::NoDriver | Self::WrongAnswer { .. } | Self::WrongResult { .. } => {
                FaultClass::Device
            }
            Self::Memory { .. } => FaultClass::Transient,
            Self::Contaminated { .. }
            | Self::DriverTooOld { .. }
            | Self::MissingSymbol { .. }
            | Self::NotOneDevice { .. }
            | Self::Threads { .. }
            | Self::WrongDevice { .. } => FaultClass::Program,
        }
    }

    /// What the pool does about it.
    #[must_use]
    pub fn response(&self) -> Response {
        let code = self.code();
        POLICY.get().map_or_else(|| code.default_response(), |policy| policy.response(code))
    }

    /// Whether a serving worker must end because of it.
    #[must_use]
    pub fn ends_worker(&self) -> bool {
        match self {
            Self::Cuda { .. } | Self::Runtime { .. } => !self.response().keeps_worker(),
            Self::NoDriver | Self::WrongAnswer { .. } | Self::WrongResult { .. } => true,
            // The first group happens only at the start, which an open device has passed. Memory may be free
            // again for the next job.
            Self::Contaminated { .. }
            | Self::DriverTooOld { .. }
            | Self::Memory { .. }
            | Self::MissingSymbol { .. }
            | Self::NotOneDevice { .. }
            | Self::Threads { .. }
            | Self::WrongDevice { .. } => false,
        }
    }

    /// The answer of a worker that stays. If several attempts ran together, it is unknown whose call failed, so
    /// no job fails for it.
    #[must_use]
    pub fn attempt_error(&self, alone: bool) -> AttemptError {
        answer(self.response(), alone, self.to_string())
    }

    /// The exit code of a worker that ends because of it, at its start or later.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Cuda { code, .. } | Self::Runtime { code: FaultCode::Cuda(code), .. } => {
                exit_code_of(*code)
            }
            Self::Runtime { .. } => exit::STICKY,
            Self::DriverTooOld { .. } | Self::MissingSymbol { .. } => exit::DRIVER,
            Self::NoDriver | Self::WrongAnswer { .. } | Self::WrongResult { .. } => {
                exit::DEVICE_LOST
            }
            // A later process may get what this one did not.
            Self::Memory { .. } | Self::Threads { .. } => exit::DEVICE_MEMORY,
            Self::Contaminated { .. } | Self::NotOneDevice { .. } | Self::WrongDevice { .. } => {
                exit::CONFIG
            }
        }
    }
}

/// Ends the process without running any destructor: after a sticky fault even a destructor's driver
/// call may block forever.
pub fn end_process(code: i32) -> ! {
    #[expect(unsafe_code, reason = "_exit is the end that runs nothing")]
    // SAFETY: the call takes a number and does not return.
    unsafe {
        libc::_exit(code)
    }
}

fn answer(response: Response, alone: bool, why: String) -> AttemptError {
    if alone && response == Response::FailJob {
        AttemptError::Refused(why)
    } else {
        AttemptError::Device(why)
    }
}

/// Writes a version that `cuDriverGetVersion` counts as people write it.
#[must_use]
pub fn cuda(version: u32) -> String {
    format!("{}.{}", version / 1_000, version % 1_000 / 10)
}

/// A result's name and number.
fn named(code: u32) -> String {
    let meaning = FaultCode::Cuda(code).meaning();
    let name = if meaning.name.is_empty() { meaning.sentence } else { &meaning.name };
    format!("{name} ({code})")
}

fn exit_code_of(code: u32) -> i32 {
    const OUT_OF_MEMORY: u32 = 2;
    const STUB_LIBRARY: u32 = 34;
    const CALL_REQUIRES_NEWER_DRIVER: u32 = 36;
    const DEVICE_NOT_LICENSED: u32 = 102;
    const UNSUPPORTED_PTX_VERSION: u32 = 222;
    const SYSTEM_DRIVER_MISMATCH: u32 = 803;
    const COMPAT_NOT_SUPPORTED_ON_DEVICE: u32 = 804;
    match code {
        OUT_OF_MEMORY => exit::DEVICE_MEMORY,
        CALL_REQUIRES_NEWER_DRIVER | UNSUPPORTED_PTX_VERSION | SYSTEM_DRIVER_MISMATCH => {
            exit::DRIVER
        }
        STUB_LIBRARY | DEVICE_NOT_LICENSED | COMPAT_NOT_SUPPORTED_ON_DEVICE => exit::CONFIG,
        _ => match FaultCode::Cuda(code).class() {
            FaultClass::Device => exit::DEVICE_LOST,
            FaultClass::Program => exit::CONFIG,
            FaultClass::Notice
            | FaultClass::Process
            | FaultClass::Setup
            | FaultClass::Sticky
            | FaultClass::Transient => exit::STICKY,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gave(code: u32) -> Fault {
        Fault::Cuda { call: "cuStreamSynchronize", code }
    }

    #[test]
    fn codes_that_nvidia_calls_fatal_are_sticky() {
        let must_end = [226, 700, 702, 714, 715, 716, 717, 718, 719, 721, 810, 911];
        let context_lost = [4, 201, 214, 220, 401, 709, 710, 999];
        for code in must_end.into_iter().chain(context_lost) {
            assert_eq!(gave(code).class(), FaultClass::Sticky, "{code}");
            assert_eq!(gave(code).exit_code(), exit::STICKY, "{code}");
        }
    }

    #[test]
    fn an_unknown_code_is_sticky_and_says_its_number() {
        for code in [9, 99, 1_000, 4_096, u32::MAX] {
            assert_eq!(gave(code).class(), FaultClass::Sticky);
            assert!(gave(code).to_string().contains(&format!("({code})")));
        }
    }

    #[test]
    fn a_worker_ends_over_faults_that_the_policy_does_not_let_it_survive() {
        for code in [2, 1, 701, 218] {
            assert!(!gave(code).ends_worker(), "{code}");
            assert!(matches!(gave(code).attempt_error(true), AttemptError::Device(_)), "{code}");
        }
        for code in [100, 214, 700, 803, 919, 5_000] {
            assert!(gave(code).ends_worker(), "{code}");
        }
        let wrong = Fault::WrongAnswer { detail: String::new() };
        assert!(wrong.ends_worker());
        assert_eq!(wrong.code(), FaultCode::WrongAnswer);
        assert_eq!(Fault::NoDriver.code(), FaultCode::Exit(exit::DEVICE_LOST));
    }

    #[test]
    fn a_job_fails_over_a_call_only_if_the_policy_says_so_and_it_was_alone() {
        let answer = |response, alone| answer(response, alone, "why".to_owned());
        let why = || "why".to_owned();
        assert_eq!(answer(Response::FailJob, true), AttemptError::Refused(why()));
        assert_eq!(answer(Response::FailJob, false), AttemptError::Device(why()));
        assert_eq!(answer(Response::RetryJob, true), AttemptError::Device(why()));
    }

    #[test]
    fn a_restart_is_asked_for_only_where_it_could_help() {
        let cases = [
            (2, exit::DEVICE_MEMORY),
            (34, exit::CONFIG),
            (36, exit::DRIVER),
            (100, exit::DEVICE_LOST),
            (222, exit::DRIVER),
            (803, exit::DRIVER),
            (804, exit::CONFIG),
            (919, exit::DEVICE_LOST),
        ];
        for (code, want) in cases {
            assert_eq!(gave(code).exit_code(), want, "{code}");
        }
    }

    #[test]
    fn a_fault_reads_as_a_sentence_with_the_call_and_the_name() {
        assert_eq!(gave(700).to_string(), "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
        assert_eq!(
            Fault::DriverTooOld { have: 11_040, need: 12_000 }.to_string(),
            "the driver offers CUDA 11.4; the kernels need 12.0 or newer"
        );
    }
}

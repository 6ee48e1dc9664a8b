//! The faults of workers and devices. Each has a code, a name, a class and a sentence, whichever process
//! observed it, and a [`Response`] of the pool.
//!
//! A driver's result is a plain number here, since a newer driver returns codes that a closed Rust enum could
//! not hold. This module has only data and look-ups.

mod cuda;
mod nvml;
mod onnx;
mod overrides;
mod process;
mod response;
mod xid;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::exit;
use crate::named::named;

pub use overrides::{OverrideError, Overrides};
pub use response::{ParseResponseError, Response};

/// One fault, as the worker, the shell or the monitor observed it. Printed, and written in the config
/// file, as `cuda 700`, `exit 74` or `hang`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FaultCode {
    /// A call of the CUDA driver returned this result.
    Cuda(u32),
    /// A call of ONNX Runtime returned this result.
    Onnx(u32),
    /// The worker exited with this code.
    Exit(i32),
    /// A signal ended the worker.
    Signal(i32),
    /// The worker gave no sign of life.
    Hang,
    /// The worker was not READY in time.
    NotReady,
    /// The device computed a wrong result in a known-answer test.
    WrongAnswer,
    /// The worker broke the protocol.
    Rejected,
    /// The worker and the supervisor have different versions.
    Incompatible,
    /// The system could not start the worker.
    SpawnFailed,
    /// The worker binary is missing.
    NoBinary,
    /// SIGKILL did not end the worker in time.
    Unkillable,
    /// The driver wrote this Xid about the device.
    Xid(u32),
    /// A call of NVML about the device returned this result.
    Nvml(u32),
    /// NVML says that the device needs this recovery action.
    Recovery(u32),
}

named! {
    /// The class of a fault.
    pub enum FaultClass {
        /// The device, the driver, or the machine is at fault.
        Device = "device",
        /// By itself it needs no response.
        Notice = "notice",
        /// The worker's process ended or went silent.
        Process = "process",
        /// The call was wrong; the next one may be right.
        Program = "program",
        /// The set-up is wrong. Another process would fail, too.
        Setup = "setup",
        /// The context is lost. A new process cures it.
        Sticky = "sticky",
        /// This call failed, but the next may succeed.
        Transient = "transient",
    }
}

/// What is known about a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Its name in its library: `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: Cow<'static, str>,
    /// Its class.
    pub class: FaultClass,
    /// Its meaning, without a full stop.
    pub sentence: &'static str,
}

/// A family of numbered faults: the word before the number, and the numbers with a row of their own.
struct Family {
    word: &'static str,
    of: fn(u32) -> FaultCode,
    prefix: &'static str,
    rows: &'static [(u32, &'static str, FaultClass, &'static str)],
    /// The class and meaning of every other number.
    other: (FaultClass, &'static str),
}

const CUDA: Family = Family {
    word: "cuda",
    of: FaultCode::Cuda,
    prefix: cuda::PREFIX,
    rows: cuda::CODES,
    // Restarting a process without need costs less than a wrong answer.
    other: (FaultClass::Sticky, "a code that CUDA 13.5 does not name"),
};
const ONNX: Family = Family {
    word: "onnx",
    of: FaultCode::Onnx,
    prefix: onnx::PREFIX,
    rows: onnx::CODES,
    other: (FaultClass::Device, "a code that ONNX Runtime did not have in 2026"),
};
const NVML: Family = Family {
    word: "nvml",
    of: FaultCode::Nvml,
    prefix: "",
    rows: nvml::CODES,
    other: (FaultClass::Notice, "NVML refused a query; the device may be fine"),
};
const RECOVERY: Family = Family {
    word: "recovery",
    of: FaultCode::Recovery,
    prefix: "",
    rows: nvml::RECOVERY,
    other: (FaultClass::Device, "an action that NVML did not have in 2026: ask an operator"),
};
const SIGNAL: Family = Family {
    word: "signal",
    of: |number| FaultCode::Signal(number.cast_signed()),
    prefix: "",
    rows: process::SIGNALS,
    other: (FaultClass::Process, "a signal from another process ended the worker"),
};
const XID: Family = Family {
    word: "xid",
    of: FaultCode::Xid,
    prefix: "",
    rows: xid::CODES,
    other: (FaultClass::Notice, "an Xid that gridpool has no rule for"),
};

/// Faults without a number: the fault, its text, its class, its sentence.
const PLAIN: &[(FaultCode, &str, FaultClass, &str)] = &[
    (FaultCode::Hang, "hang", FaultClass::Process, "the worker gave no sign of life"),
    (FaultCode::NotReady, "not ready", FaultClass::Process, "the worker was not READY in time"),
    (
        FaultCode::WrongAnswer,
        "wrong answer",
        FaultClass::Device,
        "the device computed a wrong result in a known-answer test",
    ),
    (FaultCode::Rejected, "rejected", FaultClass::Process, "the worker broke the protocol"),
    (
        FaultCode::Incompatible,
        "incompatible",
        FaultClass::Setup,
        "the worker and the supervisor have different versions",
    ),
    (
        FaultCode::SpawnFailed,
        "spawn failed",
        FaultClass::Process,
        "the system could not start a worker",
    ),
    (FaultCode::NoBinary, "no binary", FaultClass::Setup, "the worker binary is missing"),
    (
        FaultCode::Unkillable,
        "unkillable",
        FaultClass::Device,
        "SIGKILL did not end the worker: it is stuck in the driver",
    ),
];

/// The faults of exit codes that have no row in [`exit::worker::TABLE`].
const OTHER_EXIT: &str = "the worker ended for a reason that gridpool has no exit code for";

impl FaultCode {
    /// Every fault with a row of its own, family by family, in ascending order.
    pub fn listed() -> impl Iterator<Item = Self> {
        let numbered = |family: &Family| {
            let of = family.of;
            family.rows.iter().map(move |row| of(row.0)).collect::<Vec<_>>()
        };
        let exits = exit::worker::TABLE.iter().map(|row| Self::Exit(row.0)).collect();
        let plain = PLAIN.iter().map(|row| row.0).collect();
        let (cuda, onnx, signal) = (numbered(&CUDA), numbered(&ONNX), numbered(&SIGNAL));
        let (xid, nvml, recovery) = (numbered(&XID), numbered(&NVML), numbered(&RECOVERY));
        [cuda, onnx, exits, signal, plain, xid, nvml, recovery].into_iter().flatten()
    }

    /// For each family, a fault that stands for all without a row, and its text.
    #[must_use]
    pub fn others() -> [(Self, &'static str); 7] {
        // No table will ever have these numbers.
        const NONE: u32 = u32::MAX;
        [
            (Self::Cuda(NONE), "other cuda"),
            (Self::Onnx(NONE), "other onnx"),
            (Self::Exit(i32::MAX), "other exit"),
            (Self::Signal(i32::MAX), "other signal"),
            (Self::Xid(NONE), "other xid"),
            (Self::Nvml(NONE), "other nvml"),
            (Self::Recovery(NONE), "other recovery"),
        ]
    }

    /// Name, class and sentence.
    #[must_use]
    pub fn meaning(self) -> Meaning {
        match self {
            Self::Cuda(number) => numbered(&CUDA, number),
            Self::Onnx(number) => numbered(&ONNX, number),
            Self::Nvml(number) => numbered(&NVML, number),
            Self::Recovery(number) => numbered(&RECOVERY, number),
            Self::Xid(number) => numbered(&XID, number),
            Self::Signal(number) => numbered(&SIGNAL, u32::try_from(number).unwrap_or(u32::MAX)),
            Self::Exit(code) => {
                let row = exit::worker::TABLE.iter().find(|row| row.0 == code);
                let (name, sentence) = row.map_or(("", OTHER_EXIT), |row| (row.1, row.2));
                let class = match code {
                    exit::worker::STICKY => FaultClass::Sticky,
                    exit::worker::DEVICE_LOST | exit::worker::DEVICE_MEMORY => FaultClass::Device,
                    exit::worker::CONFIG | exit::worker::DRIVER => FaultClass::Setup,
                    _ => FaultClass::Process,
                };
                Meaning { name: name.into(), class, sentence }
            }
            Self::Hang
            | Self::Incompatible
            | Self::NoBinary
            | Self::NotReady
            | Self::Rejected
            | Self::SpawnFailed
            | Self::Unkillable
            | Self::WrongAnswer => {
                let row = PLAIN.iter().find(|row| row.0 == self).expect("each has its row");
                Meaning { name: row.1.into(), class: row.2, sentence: row.3 }
            }
        }
    }

    /// Its class.
    #[must_use]
    pub fn class(self) -> FaultClass {
        self.meaning().class
    }

    /// Whether it is a result of a library that the worker calls. The worker decides at once whether to end.
    #[must_use]
    pub fn is_met_by_worker(self) -> bool {
        matches!(self, Self::Cuda(_) | Self::Onnx(_))
    }
}

fn numbered(family: &Family, number: u32) -> Meaning {
    match family.rows.binary_search_by_key(&number, |row| row.0) {
        Ok(at) => {
            let (_, name, class, sentence) = family.rows[at];
            let name = match family.prefix {
                "" => Cow::Borrowed(name),
                prefix => Cow::Owned(format!("{prefix}{name}")),
            };
            Meaning { name, class, sentence }
        }
        Err(_) => Meaning { name: "".into(), class: family.other.0, sentence: family.other.1 },
    }
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(number) => write!(f, "cuda {number}"),
            Self::Onnx(number) => write!(f, "onnx {number}"),
            Self::Nvml(number) => write!(f, "nvml {number}"),
            Self::Recovery(number) => write!(f, "recovery {number}"),
            Self::Xid(number) => write!(f, "xid {number}"),
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::Hang
            | Self::Incompatible
            | Self::NoBinary
            | Self::NotReady
            | Self::Rejected
            | Self::SpawnFailed
            | Self::Unkillable
            | Self::WrongAnswer => f.write_str(&self.meaning().name),
        }
    }
}

/// A text that does not name a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a fault: write {}", instead_of(text))]
pub struct ParseFaultError {
    text: String,
}

/// What to write instead of `text`. The entry `other` of a family is not a fault.
fn instead_of(text: &str) -> String {
    match FaultCode::others().iter().find(|(_, words)| *words == text) {
        Some((_, words)) => {
            let word = words.trim_start_matches("other ");
            format!("each number, as `{word} 42`; a rule cannot cover all other numbers")
        }
        None => fault_words(),
    }
}

/// How to write a fault, for errors.
fn fault_words() -> String {
    let numbered = [CUDA, ONNX, SIGNAL, XID, NVML, RECOVERY].map(|family| family.word);
    let plain: Vec<_> = PLAIN.iter().map(|row| format!("`{}`", row.1)).collect();
    format!(
        "`cuda 700` (or {}, exit, and a number) or one of {}",
        numbered[1..].join(", "),
        plain.join(", ")
    )
}

impl FromStr for FaultCode {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, ParseFaultError> {
        let wrong = || ParseFaultError { text: text.to_owned() };
        if let Some(row) = PLAIN.iter().find(|row| row.1 == text) {
            return Ok(row.0);
        }
        let (word, number) = text.split_once(' ').ok_or_else(wrong)?;
        let is_plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = number.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
        // The kernel's limits: a byte for exit codes, 64 signals.
        match word {
            "exit" if number <= 255 => Ok(Self::Exit(number.cast_signed())),
            "signal" if (1..=64).contains(&number) => Ok(Self::Signal(number.cast_signed())),
            "cuda" if number > 0 => Ok(Self::Cuda(number)),
            "onnx" if number > 0 => Ok(Self::Onnx(number)),
            "nvml" if number > 0 => Ok(Self::Nvml(number)),
            "recovery" => Ok(Self::Recovery(number)),
            "xid" if number > 0 => Ok(Self::Xid(number)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests;

//! Injected faults: `gridpool chaos` makes a worker fail, to show that the pool recovers.
//!
//! A fault travels with a job ([`Terms::chaos`](crate::message::Terms)). The job's first attempts meet it;
//! later ones run as usual. A supervisor refuses such a job unless it was started with `--allow-chaos`. This
//! module owns the names; the worker carries the faults out.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::near;

/// How long [`ReplyFault::Slow`] delays an answer.
pub const SLOW_REPLY: Duration = Duration::from_secs(1);

/// The variable that names a program which kills its worker: a hook for tests of conviction and capsules, which no job
/// can ask for. Workers inherit it only from a supervisor that was started with `--allow-chaos`.
pub const DEADLY_VARIABLE: &str = "GRIDPOOL_TEST_DEADLY";

/// A fault, and the number of attempts that meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chaos {
    /// The fault.
    pub fault: ChaosFault,
    /// The number of attempts that meet it, from the first one on.
    pub attempts: u32,
}

impl Chaos {
    /// The fault that attempt number `attempt` meets, counted from 1.
    #[must_use]
    pub fn strikes(self, attempt: u32) -> Option<ChaosFault> {
        (attempt <= self.attempts).then_some(self.fault)
    }
}

/// A fault of a worker, by the place where it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChaosFault {
    /// On the device, in the job's launch.
    Device(DeviceFault),
    /// In the worker's process, after the device has finished and before the answer.
    Host(HostFault),
    /// In the worker's answer.
    Reply(ReplyFault),
}

named! {
    /// A fault of the device. A CPU device's process has the signal that the fault would cause there.
    pub enum DeviceFault {
        /// A kernel's assertion fails: CUDA 710. On a CPU SIGABRT.
        Assert = "assert",
        /// A kernel never ends: it waits for a flag that stays unset. On a CPU a loop.
        Endless = "endless",
        /// The device has no memory left: CUDA 2, for this job only.
        Memory = "memory",
        /// A misaligned store: CUDA 716. On a CPU SIGBUS, from an alignment check.
        Misaligned = "misaligned",
        /// A store out of bounds: CUDA 700. On a CPU SIGSEGV.
        Oob = "oob",
        /// A trap instruction: CUDA 719 or 715. On a CPU SIGILL.
        Trap = "trap",
    }
}

named! {
    /// A fault of the worker's process.
    pub enum HostFault {
        /// SIGABRT.
        Abort = "abort",
        /// It exits with a code that has no meaning.
        Exit = "exit",
        /// SIGSEGV.
        Segv = "segv",
        /// SIGSTOP: it lives but is silent.
        Stop = "stop",
    }
}

named! {
    /// A fault of the worker's answer.
    pub enum ReplyFault {
        /// Bytes that are not a message, in place of the answer.
        Corrupt = "corrupt",
        /// The answer is late by [`SLOW_REPLY`].
        Slow = "slow",
        /// From now on one bit of every result is wrong, silently.
        Wrong = "wrong",
    }
}

impl ChaosFault {
    /// All faults, in the order in which they are shown.
    pub const ALL: [Self; 13] = [
        Self::Device(DeviceFault::Oob),
        Self::Device(DeviceFault::Trap),
        Self::Device(DeviceFault::Misaligned),
        Self::Device(DeviceFault::Assert),
        Self::Device(DeviceFault::Endless),
        Self::Device(DeviceFault::Memory),
        Self::Host(HostFault::Exit),
        Self::Host(HostFault::Segv),
        Self::Host(HostFault::Abort),
        Self::Host(HostFault::Stop),
        Self::Reply(ReplyFault::Wrong),
        Self::Reply(ReplyFault::Slow),
        Self::Reply(ReplyFault::Corrupt),
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device(fault) => fault.name(),
            Self::Host(fault) => fault.name(),
            Self::Reply(fault) => fault.name(),
        }
    }

    /// A description of one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Device(DeviceFault::Assert) => {
                "a kernel's assertion fails: CUDA 710; on a CPU device SIGABRT"
            }
            Self::Device(DeviceFault::Endless) => {
                "a kernel never ends, until the job's deadline; on a CPU device a loop"
            }
            Self::Device(DeviceFault::Memory) => {
                "the device's memory is used up: the attempt fails, the worker stays"
            }
            Self::Device(DeviceFault::Misaligned) => {
                "a kernel stores at a misaligned address: CUDA 716; on a CPU device SIGBUS"
            }
            Self::Device(DeviceFault::Oob) => {
                "a kernel stores out of bounds: CUDA 700; on a CPU device SIGSEGV"
            }
            Self::Device(DeviceFault::Trap) => {
                "a kernel traps: CUDA 719 or 715; on a CPU device SIGILL"
            }
            Self::Host(HostFault::Abort) => "the worker aborts: SIGABRT",
            Self::Host(HostFault::Exit) => "the worker exits without last words",
            Self::Host(HostFault::Segv) => "the worker stores out of bounds: SIGSEGV",
            Self::Host(HostFault::Stop) => {
                "the worker stops itself with SIGSTOP, until the pool kills it"
            }
            Self::Reply(ReplyFault::Corrupt) => "the worker sends garbage instead of the answer",
            Self::Reply(ReplyFault::Slow) => "the worker answers a second late",
            Self::Reply(ReplyFault::Wrong) => {
                "from now on the worker's results are wrong, until its known-answer test fails"
            }
        }
    }
}

impl fmt::Display for ChaosFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that does not name a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a fault; {}", near::suggestion(text, &ChaosFault::ALL.map(ChaosFault::name)))]
pub struct NoSuchFault {
    text: String,
}

impl FromStr for ChaosFault {
    type Err = NoSuchFault;

    fn from_str(text: &str) -> Result<Self, NoSuchFault> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| NoSuchFault { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_read_back_by_its_name_and_no_other_text_is_one() {
        for fault in ChaosFault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        let names: std::collections::BTreeSet<_> = ChaosFault::ALL.map(ChaosFault::name).into();
        assert_eq!(names.len(), ChaosFault::ALL.len());
        let error = "OOB".parse::<ChaosFault>().unwrap_err().to_string();
        assert!(error.starts_with("`OOB` is not a fault; close to it: oob"), "{error}");
        let error = "fire".parse::<ChaosFault>().unwrap_err().to_string();
        assert!(error.starts_with("`fire` is not a fault; there is oob, trap,"), "{error}");
    }

    #[test]
    fn only_the_first_attempts_meet_the_fault() {
        let fault = ChaosFault::Host(HostFault::Exit);
        let strikes = |attempts| {
            let chaos = Chaos { fault, attempts };
            [1, 2, 3].map(|attempt| chaos.strikes(attempt).is_some())
        };
        assert_eq!(strikes(0), [false, false, false]);
        assert_eq!(strikes(1), [true, false, false]);
        assert_eq!(strikes(2), [true, true, false]);
    }
}

//! How a process ended, and what it said last.

use std::fmt;

use gridpool_protocol::fault::FaultCode;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this code.
    Code(i32),
    /// By the shell's SIGKILL, because it is of another version. The next one would be too.
    Incompatible,
    /// By the shell's SIGKILL, because it broke the protocol.
    Rejected,
    /// By a signal.
    Signal(i32),
}

impl ExitStatus {
    /// By SIGKILL, which ends any process.
    pub const KILLED: Self = Self::Signal(9);
}

/// The end of a worker and what it said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How it ended.
    pub status: ExitStatus,
    /// The fault that ended it, if it named one.
    pub fault: Option<FaultCode>,
    /// Its own sentence, if it wrote one.
    pub last_words: Option<String>,
    /// It ended by a signal that a client had ordered: its work was not the cause.
    pub is_ordered: bool,
}

impl Exit {
    /// How it ended, for the policy.
    #[must_use]
    pub fn code(&self) -> FaultCode {
        match self.status {
            ExitStatus::Code(code) => FaultCode::Exit(code),
            ExitStatus::Incompatible => FaultCode::Incompatible,
            ExitStatus::Rejected => FaultCode::Rejected,
            ExitStatus::Signal(signal) => FaultCode::Signal(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            ExitStatus::Code(code) => write!(f, "exit code {code}")?,
            ExitStatus::Incompatible | ExitStatus::Rejected => {
                write!(f, "killed by the supervisor")?;
            }
            ExitStatus::Signal(signal) => match FaultCode::Signal(signal).meaning().name {
                name if name.is_empty() => write!(f, "signal {signal}")?,
                name => write!(f, "signal {signal} ({name})")?,
            },
        }
        match &self.last_words {
            Some(words) => write!(f, ": {words}"),
            None => Ok(()),
        }
    }
}

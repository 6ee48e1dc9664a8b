//! Capsules: what is kept of the death of a worker that its work may have caused, as one JSON document. `gridpool
//! replay` runs it again.
//!
//! Owns the shape of the document, its version and its strict reader. May not know where capsules lie, or when one is
//! written.

mod error;
mod input;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use gridpool_core::event::{Exit, ExitStatus};
use gridpool_protocol::chaos::{Chaos, ChaosFault};
use gridpool_protocol::message::Priority;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::{Attempt, ItemRange};
use gridpool_protocol::search::Score;
use gridpool_protocol::status::CapsuleMode;
use gridpool_protocol::tensor::options::ModelPlan;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use error::CapsuleError;
pub use input::{Input, Rows, SavedPair, SavedTensor, Source};

/// The version of the document. One of another version is refused.
pub const VERSION: u32 = 1;
/// How the name of a capsule's file ends.
pub const SUFFIX: &str = ".json";
/// Most bytes of a document that are read: twice those of the largest `bytes_max`. Its grids take many times that in
/// memory.
pub const READ_BYTES_MAX: u64 = 1 << 27;
/// Most jobs of one capsule: a dispatch has fewer.
pub const JOBS_MAX: usize = 4_096;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capsule {
    /// Its [version](VERSION).
    pub gridpool_capsule: u32,
    /// Its name.
    pub name: String,
    /// When it was written, UTC.
    pub time: String,
    /// The host.
    pub host: String,
    /// The supervisor's version.
    pub gridpool: String,
    /// The version of the protocol.
    pub protocol: u32,
    /// What the worker's binary says of itself: its build, and the hashes of its kernels.
    pub worker: String,
    /// The version of the NVIDIA driver; empty on a CPU device.
    pub driver: String,
    /// The CUDA version of that driver, such as 12.8; empty if it is not known.
    #[serde(default)]
    pub cuda: String,
    /// The version of ONNX Runtime that the worker had its models in; empty if it had none.
    #[serde(default)]
    pub onnxruntime: String,
    /// What it keeps.
    pub mode: CapsuleMode,
    /// How the worker ended, to compare with another death.
    pub manner: Manner,
    /// The death as the JSON log has it, with the last lines of standard error.
    pub death: Map<String, Value>,
    /// The jobs that the worker ran and may have died of.
    pub jobs: Vec<SavedJob>,
    /// Models that they ask for, as the pool had them.
    pub models: Vec<SavedModel>,
}

/// How a worker ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manner {
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The fault that it met, by its own words: `cuda 700`.
    pub fault: Option<String>,
    /// Why the pool killed it.
    pub killed_for: Option<String>,
    /// The supervisor did not understand it.
    pub rejected: bool,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedJob {
    /// The supervisor's number.
    pub job: String,
    /// The number of the attempt that died.
    pub attempt: u32,
    /// Who it was for.
    pub principal: String,
    /// What it ran.
    pub work: SavedWork,
    /// Items of the whole job.
    pub items: u32,
    /// The items of the attempt. Those in `input` are of it.
    pub part: ItemRange,
    /// Those of them that are left out before those in `input`.
    #[serde(default)]
    pub skipped: u32,
    /// The items from the first to the last that the worker was at; `None` if it recorded none.
    #[serde(default)]
    pub under_way: Option<ItemRange>,
    /// Its deadline, milliseconds from acceptance.
    pub deadline_ms: u64,
    /// Its order among the client's jobs.
    pub priority: Priority,
    /// Whether it might run more than once.
    pub idempotent: bool,
    /// The fault that it brought on purpose.
    pub chaos: Option<SavedChaos>,
    /// All its attempts so far.
    pub attempts: Vec<Attempt>,
    /// Whether the job was live until its input had been copied. If not, its client may have written something else
    /// there in between.
    pub is_certain: bool,
    /// What it ran over.
    pub input: Input,
}

/// A fault on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedChaos {
    /// Its name.
    pub fault: String,
    /// How many attempts meet it.
    pub attempts: u32,
}

/// What a job ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum SavedWork {
    /// A program over grids.
    Program {
        /// Its text.
        text: String,
        /// How it breaks ties.
        ties: Ties,
        /// Steps that an item may run.
        steps: u32,
        /// Its hash, ties included.
        hash: String,
    },
    /// A model over tensors.
    Model {
        /// Its full name.
        name: String,
    },
    /// Programs of a search over pairs.
    Search {
        /// What a verdict says of each pair.
        score: Score,
    },
}

/// A model as the pool had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedModel {
    /// Its full name, file and options.
    pub plan: ModelPlan,
    /// SHA-256 of the file; empty if it could not be read.
    pub sha256: String,
}

impl From<Chaos> for SavedChaos {
    fn from(chaos: Chaos) -> Self {
        Self { fault: chaos.fault.name().to_owned(), attempts: chaos.attempts }
    }
}

impl SavedChaos {
    /// The fault, if this build knows it.
    ///
    /// # Errors
    /// [`CapsuleError::Wrong`].
    pub fn chaos(&self) -> Result<Chaos, CapsuleError> {
        let fault: ChaosFault = self.fault.parse().map_err(CapsuleError::wrong)?;
        Ok(Chaos { fault, attempts: self.attempts })
    }
}

impl Manner {
    /// How a process ended; `killed_for` is why the pool had killed it.
    #[must_use]
    pub fn of(exit: &Exit, killed_for: Option<&str>) -> Self {
        let (exit_code, signal) = match exit.status {
            ExitStatus::Code(code) => (Some(code), None),
            ExitStatus::Signal(signal) => (None, Some(signal)),
            ExitStatus::Incompatible | ExitStatus::Rejected => (None, None),
        };
        Self {
            signal,
            exit_code,
            fault: exit.fault.map(|fault| fault.to_string()),
            killed_for: killed_for.map(str::to_owned),
            rejected: matches!(exit.status, ExitStatus::Incompatible | ExitStatus::Rejected),
        }
    }

    /// Whether two deaths are of one kind: the same fault of a driver; or killed for the same reason; or the same
    /// signal or exit code.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (&self.fault, &other.fault) {
            (Some(one), Some(two)) => return one == two,
            (Some(_), None) | (None, Some(_)) => return false,
            (None, None) => {}
        }
        if self.killed_for.is_some() || other.killed_for.is_some() {
            return self.killed_for == other.killed_for;
        }
        self == other
    }

    /// In words: `signal 11`, `cuda 700`.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { signal, exit_code, fault, killed_for, rejected } = self;
        match (fault, killed_for, signal, exit_code) {
            (Some(fault), ..) => fault.clone(),
            (None, Some(why), ..) => format!("killed by the pool: {}", why.replace('_', " ")),
            _ if *rejected => "killed by the supervisor, which did not understand it".to_owned(),
            (None, None, Some(signal), _) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(known) => format!("signal {signal} ({known})"),
                Err(_) => format!("signal {signal}"),
            },
            (None, None, None, Some(code)) => format!("exit code {code}"),
            (None, None, None, None) => "unknown".to_owned(),
        }
    }
}

impl Capsule {
    /// Reads a document of at most [`READ_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`CapsuleError`].
    pub fn read(from: impl Read) -> Result<Self, CapsuleError> {
        let mut bytes = Vec::new();
        from.take(READ_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(CapsuleError::Unreadable)?;
        if bytes.len() as u64 > READ_BYTES_MAX {
            return Err(CapsuleError::TooLarge);
        }
        Self::parse(&bytes)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`CapsuleError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CapsuleError> {
        /// What says whether a document is a capsule.
        #[derive(Deserialize)]
        #[serde(expecting = "the document of a capsule")]
        struct Kind {
            gridpool_capsule: Option<u32>,
        }
        // Such as the grids of an input.
        let is_list = bytes.trim_ascii_start().starts_with(b"[");
        let kind: Kind = match is_list && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
            true => Kind { gridpool_capsule: None },
            false => serde_json::from_slice(bytes).map_err(CapsuleError::NotJson)?,
        };
        match kind.gridpool_capsule {
            Some(VERSION) => {}
            Some(version) => return Err(CapsuleError::Version { version }),
            None => return Err(CapsuleError::NoCapsule),
        }
        let capsule: Self = serde_json::from_slice(bytes).map_err(CapsuleError::NotJson)?;
        capsule.check()?;
        Ok(capsule)
    }

    /// Writes the document, and a line break.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *to, self)?;
        to.write_all(b"\n")
    }

    /// Checks what its type does not say.
    fn check(&self) -> Result<(), CapsuleError> {
        if self.jobs.is_empty() || self.jobs.len() > JOBS_MAX {
            let jobs = self.jobs.len();
            return Err(CapsuleError::wrong(format!("it has {jobs} jobs, not 1 to {JOBS_MAX}")));
        }
        if self.mode == CapsuleMode::Off {
            return Err(CapsuleError::wrong("its mode is `off`, in which none is written"));
        }
        let models: BTreeSet<_> = self.models.iter().map(|model| &*model.plan.name).collect();
        if models.len() != self.models.len() {
            return Err(CapsuleError::wrong("it has two models of one name"));
        }
        for job in &self.jobs {
            job.check(&models).map_err(|why| CapsuleError::wrong(format!("{}: {why}", job.job)))?;
        }
        Ok(())
    }
}

impl SavedJob {
    /// The number of the first item in `input`.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.part.start.saturating_add(self.skipped)
    }

    /// What its input lacks, and whether that may be what the worker died of. `is_recorded` says whether it is known
    /// where the worker was.
    #[must_use]
    pub fn lacks(&self, is_recorded: bool) -> Option<(String, bool)> {
        let lack = self.input.lacks()?;
        let kept = self.part.len().saturating_sub(self.input.left_out());
        let kept = self.first()..self.first().saturating_add(kept);
        let none = format!("{lack}, none of them under way");
        Some(match self.under_way {
            None if is_recorded => (none, false),
            None => (lack, true),
            Some(ItemRange { start, end })
                if !self.input.is_empty() && kept.start <= start && end <= kept.end =>
            {
                (none, false)
            }
            Some(ItemRange { start, end }) => {
                (format!("{lack}; the items {start} to {} were under way", end - 1), true)
            }
        })
    }

    fn check(&self, models: &BTreeSet<&str>) -> Result<(), String> {
        if let Some(chaos) = &self.chaos {
            chaos.chaos().map_err(|error| error.to_string())?;
        }
        let ItemRange { start, end } = self.part;
        if start >= end || end > self.items {
            return Err(format!("it ran the items {start}..{end} of {}", self.items));
        }
        if self.skipped > self.input.left_out() {
            return Err(format!("it skips {} of the items that are left out", self.skipped));
        }
        if self.under_way.is_some_and(|items| items.is_empty()) {
            return Err("no item was under way".to_owned());
        }
        if let SavedWork::Model { name } = &self.work
            && !models.contains(&**name)
        {
            return Err(format!("the model `{name}` is not described"));
        }
        self.input.check(&self.work, self.part.len())
    }
}

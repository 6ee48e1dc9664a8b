//! A job on the wire: its work, its input and output, its terms. The same types travel from the client
//! through the supervisor to a worker.
//!
//! A new kind of work is a variant of [`Work`], and perhaps one of [`Packing`], but no new message.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chaos::Chaos;
use crate::codec;
use crate::ids::{ArenaId, JobKey, Role};
use crate::limits::DEADLINE_MAX;
use crate::named::named;
use crate::principal::Principal;
use crate::program::Ties;
use crate::search::{Score, SearchSize};
use crate::trace::{TraceContext, TraceState};

/// What a job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// A model over named tensors.
    Model {
        /// The model: its name, for the version that serves it, or a [version](crate::tensor::version). A worker is
        /// told its full name.
        name: String,
    },
    /// A program over grids.
    Program {
        /// The program's text.
        text: String,
        /// How the program breaks ties.
        ties: Ties,
        /// Steps that an item of a solver may run.
        steps: u32,
    },
    /// Programs of the machine over pairs: their verdicts.
    Search {
        /// What a verdict says of each pair.
        score: Score,
    },
}

impl Work {
    /// The role of the workers that run it.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Model { .. } => Role::Infer,
            Self::Program { .. } | Self::Search { .. } => Role::Grid,
        }
    }

    /// The program's text, or the model's name; of a search only that it is one.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Model { name } => name,
            Self::Program { text, .. } => text,
            Self::Search { .. } => "search",
        }
    }
}

/// How an input is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Packing {
    /// As a [`batch`](crate::batch).
    Grids {
        /// Items of the batch: grids, or pairs if the program takes pairs.
        items: u32,
        /// Cells of all grids together.
        cells: u32,
    },
    /// As a [search](crate::search). An item is a program.
    Search(SearchSize),
    /// As [tensors](crate::tensor). The outputs are packed in the same way, and may be shorter than their
    /// destination.
    Tensors,
}

impl Packing {
    /// The items of an input that is packed so; one request for a model is one.
    #[must_use]
    pub fn items(self) -> u32 {
        match self {
            Self::Grids { items, .. } => items,
            Self::Search(SearchSize { programs, .. }) => programs,
            Self::Tensors => 1,
        }
    }
}

/// The input and output of a job. The supervisor passes this unchanged from the client to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// How the input is packed.
    pub packing: Packing,
    /// The packed input.
    pub input: Input,
    /// Where the packed result goes.
    pub output: Destination,
}

/// Bytes inside a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inline(#[serde(with = "codec::bytes")] pub Vec<u8>);

/// A range of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The arena.
    pub arena: ArenaId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Slice {
    /// Whether two slices share a byte.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.arena == other.arena
            && self.offset < other.offset.saturating_add(other.bytes)
            && other.offset < self.offset.saturating_add(self.bytes)
    }
}

/// Where an input lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// In shared memory.
    Arena(Slice),
    /// In the message.
    Inline(Inline),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To shared memory.
    Arena(Slice),
    /// Into the answer.
    Inline,
}

named! {
    /// The order of a client's own waiting jobs. It does not affect other clients.
    #[derive(Default)]
    pub enum Priority {
        /// Before the client's other jobs.
        High = "high",
        /// In order.
        #[default]
        Normal = "normal",
        /// After the client's other jobs.
        Low = "low",
    }
}

/// The terms of a job, for any kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Milliseconds from acceptance. Zero means that the deadline has passed.
    pub deadline_ms: u64,
    /// Order among the client's own jobs.
    pub priority: Priority,
    /// Whether it may run more than once. If not, it gets one attempt, and a model does not join it with
    /// other requests.
    pub idempotent: bool,
    /// A fault to inject, only for programs. A pool refuses it unless it was started with `--allow-chaos`.
    pub chaos: Option<Chaos>,
}

impl Terms {
    /// The time from acceptance after which the verdict is DEADLINE.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms).min(DEADLINE_MAX)
    }
}

/// A job as its client submits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The client's name for it.
    pub key: JobKey,
    /// What to run.
    pub work: Work,
    /// Its input and output.
    pub payload: Payload,
    /// Its terms.
    pub terms: Terms,
    /// The jobs that it stands for, from 1 to [`BUNDLE_JOBS_MAX`](crate::limits::BUNDLE_JOBS_MAX). More than one are a
    /// *bundle*: small jobs of one program on the same terms, whose items follow each other. They count as so many.
    /// If one of them might have cost a worker, the pool gives all back: [`Refusal::Bundled`](super::Refusal::Bundled).
    pub jobs: u32,
    /// Who it is for, if not the user of the connection. Only the pool's gateway may say so.
    pub principal: Option<Principal>,
    /// The trace that it is a part of, and the span of its client. It changes nothing about the job.
    pub trace: Option<TraceContext>,
    /// What systems on the way of that trace have noted.
    pub trace_state: Option<TraceState>,
    /// Whether the pool says that it has accepted the job, before its verdict says so.
    pub tell_acceptance: bool,
}

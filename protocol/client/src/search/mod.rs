//! Searches: a stream of programs in, a stream of verdicts out.
//!
//! ```text
//! programs ─► reader ─► compilers (all cores) ─► jobs (one thread) ─► pool ─► SearchStream::next
//! ```
//!
//! Every arrow is bounded, so a slow pool, or a caller that takes no results, stops the reader. Results come in the
//! order of the programs, while programs are still read. A stop ends every wait.

mod bytecode;
mod convict;
mod job;
mod outcomes;
mod pipeline;
mod plan;
mod queue;
mod stop;
mod stream;
mod summary;
mod template;
mod verdict;

use std::thread;
use std::time::Duration;

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::limits::STEPS_DEFAULT;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::search::Score;
use gridpool_protocol::trace::{TraceContext, TraceState};

use super::{Client, ClientError};
pub use bytecode::{Bytecode, bytecode};
pub use stop::SearchStopper;
pub use stream::SearchStream;
pub use summary::SearchSummary;
pub use verdict::{Check, Checker, Verdicts};

/// The deadline of each job of a search, unless [`Search::deadline`] says otherwise. Jobs are made to
/// take less than a second, as far as is known of their programs.
pub const SEARCH_DEADLINE_DEFAULT: Duration = Duration::from_secs(600);
/// Steps that a program of a search may run on a pair, unless [`Search::steps`] says otherwise.
pub const SEARCH_STEPS_DEFAULT: u32 = STEPS_DEFAULT;
/// Jobs of one search under way, unless [`Search::jobs`] says otherwise.
pub const SEARCH_JOBS_DEFAULT: usize = 8;

/// A program of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The caller's name for it, which comes back with its result.
    pub id: String,
    /// What it is; or why the caller refuses it, so that it has a result in its place.
    pub program: Result<Given, String>,
}

/// How a program of a search is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The text of a solver, a chain or a template.
    Text(String),
    /// What [`bytecode`](crate::bytecode()) or `gridpool compile` made of a text. It is verified as a text is compiled.
    Bytecode(Vec<u8>),
}

impl Candidate {
    /// A program with its name.
    #[must_use]
    pub fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), program: Ok(Given::Text(text.into())) }
    }

    /// A program that is compiled already, with its name.
    #[must_use]
    pub fn of_bytecode(id: impl Into<String>, bytecode: Vec<u8>) -> Self {
        Self { id: id.into(), program: Ok(Given::Bytecode(bytecode)) }
    }

    /// What the caller refuses, and why.
    #[must_use]
    pub fn refused(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self { id: id.into(), program: Err(why.into()) }
    }

    /// Its text, if it has one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.program {
            Ok(Given::Text(text)) => Some(text),
            Ok(Given::Bytecode(_)) | Err(_) => None,
        }
    }
}

/// What to search for, and how.
#[derive(Debug)]
pub struct Search {
    /// Input grids and the grids that are expected.
    pub pairs: GridBatch,
    /// What a verdict says of each pair.
    pub score: Score,
    /// The most that a program may run on a pair: instructions, each turn of a loop anew.
    pub steps: u32,
    /// How ties of colours are broken.
    pub ties: Ties,
    /// The deadline of each job.
    pub deadline: Duration,
    /// The trace that each job is a part of ([`Job::with_trace`](crate::Job::with_trace)).
    pub trace: Option<TraceContext>,
    /// What systems on the way of that trace have noted.
    pub trace_state: Option<TraceState>,
    /// Threads that compile.
    pub threads: usize,
    /// Most jobs under way: sent to the pool, and their outcomes not known yet. At least one is.
    pub jobs: usize,
    /// Most programs of one job. A job whose programs are sent one by one has at most 16,384.
    pub job_programs_max: usize,
    /// Computes once what programs begin with alike, where a device can, and lets it expand templates. Without, each
    /// program is computed whole; its verdict is the same.
    pub sharing: bool,
    /// Gives only results of programs that solve a pair, are refused or failed. The others are counted.
    pub only_solving: bool,
    /// Compares a share of the verdicts with those of another machine.
    pub check: Option<Check>,
}

impl Search {
    /// A search over these pairs, with the defaults.
    #[must_use]
    pub fn new(pairs: GridBatch) -> Self {
        Self {
            pairs,
            score: Score::default(),
            steps: SEARCH_STEPS_DEFAULT,
            ties: Ties::default(),
            deadline: SEARCH_DEADLINE_DEFAULT,
            trace: None,
            trace_state: None,
            threads: thread::available_parallelism().map_or(1, usize::from),
            jobs: SEARCH_JOBS_DEFAULT,
            job_programs_max: usize::MAX,
            sharing: true,
            only_solving: false,
            check: None,
        }
    }
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    /// The caller's name for it; of a template with the choice, `id[a=1]`.
    pub id: String,
    /// What came of it.
    pub outcome: SearchOutcome,
}

/// What came of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    /// It did not compile, or never gives a grid: it was not run. A sentence says why.
    Refused(String),
    /// It has no verdict: it killed its workers, or its job was not finished.
    Failed {
        /// How its job ended.
        verdict: Verdict,
        /// Why, in a sentence.
        reason: String,
    },
    /// It was run on every pair, or a program with the same hash was.
    Done(Verdicts),
}

impl SearchOutcome {
    /// Whether it solves a pair, or has no verdict.
    fn is_of_note(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Failed { .. } => true,
            Self::Done(verdicts) => verdicts.equal_count() > 0,
        }
    }
}

impl Client {
    /// Runs programs over pairs and streams their verdicts, in order. `programs` is read on a thread of its own, no
    /// further ahead than a limit; texts are compiled on [`Search::threads`] threads; programs of one hash run once.
    /// Large templates are compiled once, as far as their holes allow: devices make their programs, equal or not.
    ///
    /// ```no_run
    /// # use gridpool_client::{Candidate, Client, GridBatch, Search, SearchOutcome};
    /// # fn find(client: &Client, pairs: GridBatch) -> Result<(), Box<dyn std::error::Error>> {
    /// let texts = ["rot90", "O = replace(I, ?a:color, ?b:color)"];
    /// let programs = texts.iter().enumerate().map(|(at, text)| Candidate::new(at.to_string(), *text));
    /// for result in client.search(Search::new(pairs), programs.collect::<Vec<_>>())? {
    ///     let result = result?;
    ///     if let SearchOutcome::Done(verdicts) = &result.outcome && verdicts.solves_all() {
    ///         println!("{}", result.id);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Search`] if there are no pairs, or too many; [`ClientError::System`] without threads.
    pub fn search<I>(&self, search: Search, programs: I) -> Result<SearchStream, ClientError>
    where
        I: IntoIterator<Item = Candidate>,
        I::IntoIter: Send + 'static,
    {
        SearchStream::start(self.clone(), search, programs.into_iter())
    }
}

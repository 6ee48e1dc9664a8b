//! From texts to programs: one thread reads, several compile, and what they made comes out in order.
//!
//! Owns the bounds on what was read and not yet taken. It knows no jobs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{self, Template};
use gridpool_protocol::solver::Code;

use super::{Candidate, ClientError};

/// Most programs that are read ahead of the jobs.
const AHEAD_PROGRAMS_MAX: u64 = 1 << 16;
/// Most bytes of texts that are read ahead; one text is always allowed.
const AHEAD_BYTES_MAX: usize = 64 << 20;
/// Most texts that a thread compiles at a time.
const COMPILED_AT_ONCE_MAX: usize = 32;

/// How texts are compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ties: Ties,
    pub(super) steps: u32,
}

/// A program, or why it is none.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) id: String,
    pub(super) made: Result<Made, String>,
}

#[derive(Debug)]
pub(super) struct Made {
    pub(super) digest: [u8; 32],
    pub(super) bytes: Vec<u8>,
}

/// What the pipeline has for the jobs.
#[derive(Debug)]
pub(super) enum Taken {
    /// The next programs, at least one.
    Programs(Vec<Compiled>),
    /// The time has come.
    Nothing,
    /// There are no more. The error: a thread has panicked.
    End(Result<(), &'static str>),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    state: Mutex<State>,
    /// There is room for another text, or nobody wants one.
    room: Condvar,
    /// There are texts to compile, or there will be none.
    texts: Condvar,
    /// Something was compiled, or the reader has ended.
    compiled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    texts: VecDeque<Candidate>,
    /// The number of the first of `texts`.
    first_text: u64,
    /// Programs by the number of the first of them.
    compiled: BTreeMap<u64, Vec<Compiled>>,
    /// Programs that the jobs have taken.
    taken: u64,
    /// Bytes of the texts that wait.
    bytes: usize,
    /// Programs read; known once the reader has ended.
    read: Option<u64>,
    /// Nobody wants more.
    stopped: bool,
    panicked: Option<&'static str>,
}

impl Pipeline {
    /// Starts the threads. They end with the programs, or after [`Pipeline::stop`]; a reader whose iterator blocks
    /// ends when that gives the next program.
    pub(super) fn start(
        programs: impl Iterator<Item = Candidate> + Send + 'static,
        terms: Terms,
        threads: usize,
    ) -> Result<Arc<Self>, ClientError> {
        let this = Arc::new(Self::default());
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        for _ in 0..threads.max(1) {
            let own = Arc::clone(&this);
            let compile = move || own.compile(terms);
            named("search compile").spawn(compile).map_err(|error| this.failed(error))?;
        }
        let own = Arc::clone(&this);
        named("search read")
            .spawn(move || own.read(programs))
            .map_err(|error| this.failed(error))?;
        Ok(this)
    }

    fn failed(&self, error: std::io::Error) -> ClientError {
        self.stop();
        ClientError::System(error)
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.room.notify_all();
        self.texts.notify_all();
        self.compiled.notify_all();
    }

    /// The body of the reading thread.
    fn read(&self, programs: impl Iterator<Item = Candidate>) {
        let _guard = Guard { pipeline: self, of: "the iterator of programs panicked" };
        let mut read = 0;
        'all: for candidate in programs {
            let template = candidate.text.as_deref().ok().map(Template::parse);
            match template {
                None | Some(Ok(None)) => {
                    if !self.push(candidate) {
                        break 'all;
                    }
                    read += 1;
                }
                Some(Err(error)) => {
                    let text = Err(error.to_string());
                    if !self.push(Candidate { text, ..candidate }) {
                        break 'all;
                    }
                    read += 1;
                }
                Some(Ok(Some(template))) => {
                    for (choice, text) in template.texts() {
                        let id = format!("{}[{choice}]", candidate.id);
                        if !self.push(Candidate { id, text: Ok(text) }) {
                            break 'all;
                        }
                        read += 1;
                    }
                }
            }
        }
        self.state.lock().read = Some(read);
        self.texts.notify_all();
        self.compiled.notify_all();
    }

    /// Adds a text once there is room. Returns whether anybody wants it.
    fn push(&self, candidate: Candidate) -> bool {
        let length = candidate.text.as_ref().map_or(0, String::len);
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return false;
            }
            let ahead = state.first_text + state.texts.len() as u64 - state.taken;
            let fits = state.bytes == 0 || state.bytes + length <= AHEAD_BYTES_MAX;
            if ahead < AHEAD_PROGRAMS_MAX && fits {
                break;
            }
            state = wait(&self.room, state);
        }
        state.bytes += length;
        state.texts.push_back(candidate);
        drop(state);
        self.texts.notify_one();
        true
    }

    /// The body of a compiling thread.
    fn compile(&self, terms: Terms) {
        let _guard = Guard { pipeline: self, of: "a thread that compiles panicked" };
        loop {
            let mut state = self.state.lock();
            while state.texts.is_empty() && !state.stopped && state.read.is_none() {
                state = wait(&self.texts, state);
            }
            if state.stopped || state.texts.is_empty() {
                return;
            }
            let first = state.first_text;
            let count = state.texts.len().min(COMPILED_AT_ONCE_MAX);
            let texts: Vec<Candidate> = state.texts.drain(..count).collect();
            state.first_text += count as u64;
            drop(state);
            let length = |of: &Candidate| of.text.as_ref().map_or(0, String::len);
            let bytes: usize = texts.iter().map(length).sum();
            let compiled = texts.into_iter().map(|candidate| compiled(candidate, terms)).collect();
            let mut state = self.state.lock();
            state.bytes -= bytes;
            state.compiled.insert(first, compiled);
            drop(state);
            self.compiled.notify_one();
            self.room.notify_one();
        }
    }

    /// Takes the next programs, in order. Waits for them; nothing is taken from `until` on.
    pub(super) fn take(&self, until: Option<Instant>) -> Taken {
        let mut state = self.state.lock();
        loop {
            if let Some(why) = state.panicked {
                return Taken::End(Err(why));
            }
            let left = until.map(clock::until);
            if left.is_some_and(|left| left.is_zero()) {
                return Taken::Nothing;
            }
            let next = state.taken;
            if let Some(programs) = state.compiled.remove(&next) {
                state.taken += programs.len() as u64;
                drop(state);
                self.room.notify_one();
                return Taken::Programs(programs);
            }
            if state.stopped || state.read == Some(state.taken) {
                return Taken::End(Ok(()));
            }
            state = match left {
                None => wait(&self.compiled, state),
                Some(left) => {
                    let waited = self.compiled.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Notes a panic of its thread.
struct Guard<'p> {
    pipeline: &'p Pipeline,
    of: &'static str,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.pipeline.state.lock().panicked = Some(self.of);
            self.pipeline.stop();
        }
    }
}

fn wait<'s>(on: &Condvar, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

fn compiled(candidate: Candidate, Terms { ties, steps }: Terms) -> Compiled {
    let made = candidate.text.and_then(|text| {
        let code = search::compile(&text, ties, steps).map_err(|error| error.to_string())?;
        let bytes = code.to_bytes();
        Ok(Made { digest: Code::digest(&bytes), bytes })
    });
    Compiled { id: candidate.id, made }
}

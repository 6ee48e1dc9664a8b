//! From texts to programs: one thread reads, several compile, and what they made comes out in order.
//!
//! Owns the bounds on what was read and not yet taken. It knows no jobs.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{self, Template};
use gridpool_protocol::solver::Code;

use super::template::Expandable;
use super::{Candidate, ClientError, Given};

/// Most programs that are read ahead of the jobs.
const AHEAD_PROGRAMS_MAX: u64 = 1 << 16;
/// Most bytes of names and texts that are read and not compiled; one program is always allowed.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Most bytes of names, programs and mistakes that were compiled and not taken, before no other text is compiled. The
/// next program that the jobs take is always compiled.
const COMPILED_BYTES_MAX: usize = 32 << 20;
/// Most texts that a thread compiles at a time.
const COMPILED_AT_ONCE_MAX: usize = 32;

/// How texts are compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ties: Ties,
    pub(super) steps: u32,
    /// Whether devices expand templates.
    pub(super) sharing: bool,
}

/// What was read.
#[derive(Debug)]
enum Read {
    Text(Candidate),
    Template(Arc<Expandable>),
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Compiled {
    /// A program, or why it is none.
    Program { id: String, made: Result<Made, String> },
    /// The devices expand it.
    Template(Arc<Expandable>),
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
    /// There is room for more texts, or nobody wants one. The reader waits for it.
    room: Condvar,
    /// There are texts to compile, and room for what they become, or there will be none.
    texts: Condvar,
    /// The next programs were compiled, or the reader has ended. Who takes them waits for it.
    compiled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    texts: VecDeque<Read>,
    /// The number of the first of `texts`.
    first_text: u64,
    /// Programs by the number of the first of them.
    compiled: BTreeMap<u64, Vec<Compiled>>,
    /// Programs that the jobs have taken.
    taken: u64,
    /// Bytes of what waits to be compiled, or is being compiled.
    text_bytes: usize,
    /// Bytes of what was compiled and not taken.
    compiled_bytes: usize,
    /// Threads that wait for `texts`, and those of them that were called.
    waiting: usize,
    called: usize,
    /// Whether the reader waits for `room`.
    reader_waits: bool,
    /// What was read, with each program of a template.
    programs: u64,
    /// Programs read, templates as one; known once the reader has ended.
    read: Option<u64>,
    /// Nobody wants more.
    stopped: bool,
    panicked: Option<&'static str>,
}

impl State {
    /// Whether there are texts, and room for what they become.
    fn may_compile(&self) -> bool {
        let is_next = self.first_text == self.taken;
        !self.texts.is_empty() && (is_next || self.compiled_bytes < COMPILED_BYTES_MAX)
    }

    /// Programs that were read and not taken.
    fn ahead(&self) -> u64 {
        self.first_text + self.texts.len() as u64 - self.taken
    }

    /// Whether the reader should go on. It waits until there is room for many, so that it wakes seldom.
    fn wakes_reader(&self) -> bool {
        self.reader_waits
            && self.ahead() <= AHEAD_PROGRAMS_MAX / 8 * 7
            && self.text_bytes <= TEXT_BYTES_MAX / 8 * 7
    }

    /// Whether to call one more thread: those that were called will not take all texts.
    fn calls_thread(&mut self) -> bool {
        let calls =
            self.waiting > self.called && self.texts.len() > self.called * COMPILED_AT_ONCE_MAX;
        self.called += usize::from(calls);
        calls
    }

    /// Whether nothing will be compiled any more.
    fn is_over(&self) -> bool {
        self.stopped || (self.texts.is_empty() && self.read.is_some())
    }
}

impl Read {
    /// Bytes that it holds.
    fn bytes(&self) -> usize {
        match self {
            Self::Text(Candidate { id, program }) => {
                let bytes = match program {
                    Ok(Given::Text(text)) | Err(text) => text.len(),
                    Ok(Given::Bytecode(bytes)) => bytes.len(),
                };
                id.len() + bytes
            }
            Self::Template(template) => template.bytes_held(),
        }
    }

    /// Programs, each of a template.
    fn programs(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Template(template) => template.count(),
        }
    }
}

impl Compiled {
    /// Bytes that it holds.
    fn bytes(&self) -> usize {
        match self {
            Self::Program { id, made: Ok(made) } => id.len() + made.bytes.len(),
            Self::Program { id, made: Err(why) } => id.len() + why.len(),
            Self::Template(template) => template.bytes_held(),
        }
    }
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
            .spawn(move || own.read(programs, terms))
            .map_err(|error| this.failed(error))?;
        Ok(this)
    }

    fn failed(&self, error: std::io::Error) -> ClientError {
        self.stop();
        ClientError::System(error)
    }

    /// Ends the threads. Returns how many programs were read, each of a template: from now on no more are.
    pub(super) fn stop(&self) -> u64 {
        let programs = {
            let mut state = self.state.lock();
            state.stopped = true;
            state.programs
        };
        self.room.notify_all();
        self.texts.notify_all();
        self.compiled.notify_all();
        programs
    }

    /// The body of the reading thread.
    fn read(&self, programs: impl Iterator<Item = Candidate>, terms: Terms) {
        let _guard = Guard { pipeline: self, of: "the iterator of programs panicked" };
        let mut read = 0;
        let mut push = |one: Read| {
            read += 1;
            self.push(one)
        };
        for candidate in programs {
            let template = candidate.text().map(Template::parse);
            let goes_on = match template {
                None | Some(Ok(None)) => push(Read::Text(candidate)),
                Some(Err(error)) => {
                    push(Read::Text(Candidate::refused(candidate.id, error.to_string())))
                }
                Some(Ok(Some(template))) => {
                    let Terms { ties, steps, sharing } = terms;
                    template.parts().iter().all(|part| {
                        let expandable = || Expandable::of(&candidate.id, part, ties, steps);
                        if let Some(template) = sharing.then(expandable).flatten() {
                            return push(Read::Template(Arc::new(template)));
                        }
                        // Its programs would all be told for one mistake.
                        if let Some(why) = search::refusal(part, ties, steps) {
                            let id = match part.settled().as_str() {
                                "" => candidate.id.clone(),
                                settled => format!("{}[{settled}]", candidate.id),
                            };
                            return push(Read::Text(Candidate::refused(id, why)));
                        }
                        part.texts().all(|(choice, text)| {
                            let id = format!("{}[{choice}]", candidate.id);
                            push(Read::Text(Candidate::new(id, text)))
                        })
                    })
                }
            };
            if !goes_on {
                break;
            }
        }
        self.state.lock().read = Some(read);
        self.texts.notify_all();
        self.compiled.notify_all();
    }

    /// Adds a text once there is room. Returns whether anybody wants it.
    fn push(&self, one: Read) -> bool {
        let bytes = one.bytes();
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return false;
            }
            let fits = state.text_bytes == 0 || state.text_bytes + bytes <= TEXT_BYTES_MAX;
            if state.ahead() < AHEAD_PROGRAMS_MAX && fits {
                break;
            }
            state.reader_waits = true;
            state = wait(&self.room, state);
            state.reader_waits = false;
        }
        state.text_bytes += bytes;
        state.programs += one.programs();
        state.texts.push_back(one);
        let calls = state.calls_thread();
        drop(state);
        if calls {
            self.texts.notify_one();
        }
        true
    }

    /// The body of a compiling thread.
    fn compile(&self, terms: Terms) {
        let _guard = Guard { pipeline: self, of: "a thread that compiles panicked" };
        loop {
            let mut state = self.state.lock();
            while !state.may_compile() && !state.is_over() {
                state.waiting += 1;
                state = wait(&self.texts, state);
                state.waiting -= 1;
                // It was called, or all were.
                state.called = state.called.saturating_sub(1);
            }
            if state.is_over() {
                return;
            }
            let first = state.first_text;
            let count = state.texts.len().min(COMPILED_AT_ONCE_MAX);
            let texts: Vec<Read> = state.texts.drain(..count).collect();
            state.first_text += count as u64;
            drop(state);
            let bytes: usize = texts.iter().map(Read::bytes).sum();
            let compiled: Vec<_> = texts.into_iter().map(|one| compiled(one, terms)).collect();
            let mut state = self.state.lock();
            state.text_bytes -= bytes;
            state.compiled_bytes += compiled.iter().map(Compiled::bytes).sum::<usize>();
            state.compiled.insert(first, compiled);
            let (is_next, wakes_reader) = (first == state.taken, state.wakes_reader());
            drop(state);
            if is_next {
                self.compiled.notify_one();
            }
            if wakes_reader {
                self.room.notify_one();
            }
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
                let was_full = state.compiled_bytes >= COMPILED_BYTES_MAX;
                state.compiled_bytes -= programs.iter().map(Compiled::bytes).sum::<usize>();
                let wakes_reader = state.wakes_reader();
                drop(state);
                if wakes_reader {
                    self.room.notify_one();
                }
                if was_full {
                    self.texts.notify_all();
                }
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

fn compiled(one: Read, Terms { ties, steps, .. }: Terms) -> Compiled {
    let candidate = match one {
        Read::Text(candidate) => candidate,
        Read::Template(template) => return Compiled::Template(template),
    };
    let made = candidate.program.and_then(|given| {
        let code = match given {
            Given::Text(text) => search::compile(&text, ties, steps),
            Given::Bytecode(bytes) => search::from_bytecode(&bytes, ties, steps),
        };
        let bytes = code.map_err(|error| error.to_string())?.to_bytes();
        Ok(Made { digest: Code::digest(&bytes), bytes })
    });
    Compiled::Program { id: candidate.id, made }
}

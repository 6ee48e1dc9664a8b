//! Submissions and answers on their way to the core: the events of which there are many.
//!
//! A thread that has some leaves them here, and does not wait for the core's lock. If no thread handles what lies here,
//! it does so itself; otherwise it goes on reading. So a job that comes alone is handled by its own thread, and under
//! load one thread handles what all have left, with the core's data in its processor's cache. A thread that has done so
//! for long leaves the rest to a thread that does nothing else: its peer waits for it. That one stays awake while it
//! soon has something to do again ([`spin::poll`]).
//!
//! Who takes the core's lock for something else first handles what lies here ([`Shared::lock`]), so what a thread does
//! next comes after what it has left here.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_ipc::spin;
use gridpool_protocol::ids::{AttemptId, ClientId, WorkerId};
use gridpool_protocol::message::{Answers, AttemptAnswer, AttemptError, Inline, JoinedAnswer};
use gridpool_protocol::receipt::RunReport;

use super::Shared;
use super::clients::NewJob;
use super::core::Core;
use gridpool_core::event::{Event, WorkerEvent};

/// Batches that may lie here. A thread that has one more waits for the core's lock.
const BATCHES_MAX: usize = 64;

/// Events that the core takes in before it does what follows from them: devices wait for that.
const TOGETHER_MAX: usize = 64;

/// How often a thread handles what lies here before it leaves the rest to the inbox's own thread.
const ROUNDS_MAX: usize = 8;

/// How often that one waits for as long as [`LONE_WAIT`] for a single batch before it waits no more: jobs come one by
/// one again, and are handled sooner by the threads that have them.
const LONE_MAX: usize = 64;
/// A lone job makes a thread wait longer than this, both for its answer and for the next one.
const LONE_WAIT: Duration = Duration::from_micros(10);

/// What a worker says of an attempt.
pub(super) type Answered = (AttemptId, Result<AttemptAnswer, AttemptError>);

/// An inline result: a part of all that came in one message.
#[derive(Clone, Debug)]
pub(super) struct Output {
    all: Arc<Vec<u8>>,
    own: Range<usize>,
}

impl Output {
    fn whole(bytes: Vec<u8>) -> Self {
        Self { own: 0..bytes.len(), all: Arc::new(bytes) }
    }

    /// A part that is there.
    fn part(all: &Arc<Vec<u8>>, own: Range<usize>) -> Self {
        Self { all: Arc::clone(all), own }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.all[self.own.clone()]
    }
}

/// What a thread has for the core.
#[derive(Debug)]
pub(super) enum Batch {
    /// What a worker says of attempts.
    Answers(WorkerId, Vec<Answered>),
    /// A worker's answers to attempts that ran together, checked.
    Joined(WorkerId, Box<Answers>),
    /// A client's valid submissions.
    Submissions(ClientId, Vec<NewJob>),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// Something lies here, as far as a thread that polls can tell.
    has_some: AtomicBool,
    /// Signalled when the own thread has something to do.
    called: Condvar,
    /// There is a denylist: submissions that look like a job on it are hashed, and are not left here.
    pub(super) denies_any: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    batches: Vec<Batch>,
    /// A thread handles them, until none is left.
    is_served: bool,
    /// That is the own thread, and it has not begun.
    is_called: bool,
    is_over: bool,
}

impl Inbox {
    /// Leaves a batch; `true` if the caller must serve the inbox. Without room the batch comes back.
    fn leave(&self, batch: Batch) -> Result<bool, Batch> {
        let mut state = self.state.lock();
        if state.batches.len() == BATCHES_MAX {
            return Err(batch);
        }
        state.batches.push(batch);
        self.has_some.store(true, Ordering::Relaxed);
        Ok(!std::mem::replace(&mut state.is_served, true))
    }

    /// What lies here. Only with the core's lock: otherwise others could get ahead of it.
    fn take(&self, _core: &mut Core) -> Vec<Batch> {
        let mut state = self.state.lock();
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.batches)
    }

    /// Whether the thread that serves the inbox is done.
    fn is_done(&self) -> bool {
        let mut state = self.state.lock();
        state.is_served = !state.batches.is_empty();
        !state.is_served
    }

    /// Whether something lies here within that time, if the host has the cores to wait for it.
    fn has_soon(&self, spin: Duration) -> bool {
        spin::poll(spin, || self.has_some.load(Ordering::Relaxed))
    }

    /// Leaves the rest to the own thread.
    fn call(&self) {
        self.state.lock().is_called = true;
        self.called.notify_one();
    }

    /// Waits until the own thread has something to do. Returns `false` if the pool is over.
    fn wait(&self) -> bool {
        let is_idle = |state: &mut State| !state.is_called && !state.is_over;
        let waited = self.called.wait_while(self.state.lock(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.is_called)
    }

    /// The pool is over: the own thread ends.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.called.notify_one();
    }
}

impl Shared {
    /// The core, which knows of all that was left in the inbox before.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // The release build aborts on panic. In tests, the panic that poisoned the lock is in the log.
        let mut core = self.core.lock();
        if core.empty_inbox(self) > 0 {
            core.take_told().send(self);
        }
        core
    }

    /// Hands a batch to the core, now or soon.
    pub(super) fn hand_in(&self, batch: Batch) {
        match self.inbox.leave(batch) {
            Ok(false) => {}
            Ok(true) => {
                let is_done = |_| {
                    self.serve_inbox();
                    self.inbox.is_done()
                };
                if !(0..ROUNDS_MAX).any(is_done) {
                    self.inbox.call();
                }
            }
            Err(batch) => {
                let mut core = self.lock();
                core.take_in(self, [batch]);
                core.take_told().send_after(core, self);
            }
        }
    }

    /// Handles what lies in the inbox. Returns how many batches that were.
    fn serve_inbox(&self) -> usize {
        let mut core = self.core.lock();
        let batches = core.empty_inbox(self);
        core.take_told().send_after(core, self);
        batches
    }
}

impl Core {
    /// Handles what lies in the inbox. Returns how many batches that were.
    pub(super) fn empty_inbox(&mut self, shared: &Shared) -> usize {
        let batches = shared.inbox.take(self);
        let count = batches.len();
        if count > 0 {
            self.take_in(shared, batches);
        }
        count
    }

    fn take_in(&mut self, shared: &Shared, batches: impl IntoIterator<Item = Batch>) {
        let mut together = Together::default();
        for batch in batches {
            match batch {
                Batch::Answers(worker, answers) => {
                    for (attempt, result) in answers {
                        let result = result.map(|AttemptAnswer { report, output }| {
                            (report, output.map(|Inline(bytes)| Output::whole(bytes)))
                        });
                        together.answer(self, shared, (worker, attempt), result);
                    }
                }
                Batch::Joined(worker, answers) => {
                    let Answers { report, attempts, outputs: Inline(outputs) } = *answers;
                    let outputs = Arc::new(outputs);
                    for JoinedAnswer { attempt, result } in attempts {
                        let result = result.map(|own| {
                            let (report, place) = own.with(&report);
                            (report, place.map(|place| Output::part(&outputs, place)))
                        });
                        together.answer(self, shared, (worker, attempt), result);
                    }
                }
                Batch::Submissions(client, all) => {
                    for job in all {
                        let (request, held) = job.number(shared);
                        let event = self.hold(client, request, held);
                        together.add(self, shared, event);
                    }
                }
            }
        }
        together.handle(self, shared);
        self.rearm(shared);
    }
}

/// What the core handles together.
#[derive(Debug, Default)]
struct Together {
    events: Vec<Event>,
    /// The answers among them.
    answered: Vec<(WorkerId, AttemptId)>,
}

impl Together {
    /// Adds a worker's answer.
    fn answer(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        (worker, attempt): (WorkerId, AttemptId),
        result: Result<(RunReport, Option<Output>), AttemptError>,
    ) {
        if core.outputs.contains_key(&attempt.job) {
            // Of two attempts of a job, the result must be that of the one whose answer counts.
            self.handle(core, shared);
        }
        let result = result.map(|(report, output)| {
            core.outputs.extend(output.map(|output| (attempt.job, output)));
            report
        });
        self.answered.push((worker, attempt));
        let answered = WorkerEvent::Answered { attempt, result };
        self.add(core, shared, Event::Worker(worker, answered));
    }

    fn add(&mut self, core: &mut Core, shared: &Shared, event: Event) {
        self.events.push(event);
        if self.events.len() == TOGETHER_MAX {
            self.handle(core, shared);
        }
    }

    /// The core keeps inline results only meanwhile, so a dropped answer leaves nothing behind.
    fn handle(&mut self, core: &mut Core, shared: &Shared) {
        if self.events.is_empty() {
            return;
        }
        core.handle_quietly(shared, shared.timestamp(), self.events.drain(..));
        core.outputs.clear();
        for answered in self.answered.chunk_by(|(a, _), (b, _)| a == b) {
            if let Some(link) = core.workers.get_mut(&answered[0].0) {
                answered.iter().for_each(|&(_, attempt)| link.answered(attempt));
            }
        }
        self.answered.clear();
    }
}

/// The body of the inbox's own thread. It ends with the pool.
pub(super) fn serve(shared: &Shared) {
    while shared.inbox.wait() {
        serve_while(shared, || shared.inbox.has_soon(shared.spin));
    }
}

/// Handles what comes, until nothing has come soon or jobs come one by one, and the inbox is empty.
fn serve_while(shared: &Shared, mut has_soon: impl FnMut() -> bool) {
    let (mut lone, mut waited) = (0, Duration::ZERO);
    loop {
        let is_lone = shared.serve_inbox() <= 1 && waited > LONE_WAIT;
        lone = if is_lone { lone + 1 } else { 0 };
        let began = clock::now();
        let has_more = lone < LONE_MAX && has_soon();
        waited = began.elapsed();
        if !has_more && shared.inbox.is_done() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use gridpool_protocol::ids::{DeviceId, DeviceKind, Group, JobId};

    use super::super::notify::tests::idle_shell;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const SILENCE: Duration = Duration::from_millis(200);

    /// An answer of a worker that the pool does not know: it counts as stale.
    fn stale() -> Batch {
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        let worker = WorkerId { device, group: Group::Grid, generation: 1 };
        let attempt = AttemptId { job: JobId(1), number: 1 };
        Batch::Answers(worker, vec![(attempt, Err(AttemptError::Device(String::new())))])
    }

    #[test]
    fn one_thread_waits_for_the_core_and_the_others_leave_what_they_have_with_it() {
        let shell = idle_shell();
        let shared = Arc::clone(&shell.shared);
        let (sender, left) = mpsc::channel();
        let hand_in = || {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            thread::spawn(move || {
                shared.hand_in(stale());
                sender.send(()).unwrap();
            })
        };
        let core = shared.lock();
        let mut threads: Vec<_> = (0..BATCHES_MAX).map(|_| hand_in()).collect();
        // All but the one that serves the inbox, while the core is locked.
        (1..BATCHES_MAX).for_each(|_| left.recv_timeout(TIMEOUT).unwrap());
        threads.push(hand_in());
        assert!(left.recv_timeout(SILENCE).is_err(), "there is no room: it waits for the core");
        drop(core);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.lock().pool.counters().stale, BATCHES_MAX as u64 + 1);
        assert!(shared.inbox.state.lock().batches.is_empty());
        shell.drain();
        shell.wait();
    }

    #[test]
    fn who_locks_the_core_finds_all_handled_that_was_left_before() {
        let shell = idle_shell();
        // Another thread serves the inbox, and has not come to it yet.
        shell.shared.inbox.state.lock().is_served = true;
        let core = shell.shared.core.lock();
        shell.shared.hand_in(stale());
        assert_eq!(core.pool.counters().stale, 0);
        drop(core);
        assert_eq!(shell.shared.lock().pool.counters().stale, 1);
        shell.drain();
        shell.wait();
    }

    #[test]
    fn the_own_thread_stays_while_much_comes_soon_and_leaves_when_jobs_come_one_by_one() {
        let shell = idle_shell();
        let shared = &*shell.shared;
        let handled = || shared.core.lock().pool.counters().stale;
        let bring = |batches: usize| (0..batches).for_each(|_| shared.hand_in(stale()));
        // Together, for longer than single ones would keep it, then none.
        shared.inbox.state.lock().is_served = true;
        let mut turns = 0;
        serve_while(shared, || {
            turns += 1;
            let until = clock::now() + 2 * LONE_WAIT;
            while !clock::until(until).is_zero() {}
            bring(if turns <= 2 * LONE_MAX { 2 } else { 0 });
            turns <= 2 * LONE_MAX
        });
        assert_eq!((turns, handled()), (2 * LONE_MAX + 1, 4 * LONE_MAX as u64));
        assert!(!shared.inbox.state.lock().is_served, "whoever comes next serves");
        // One by one, for ever.
        shared.inbox.state.lock().is_served = true;
        let mut turns = 0;
        serve_while(shared, || {
            turns += 1;
            assert!(turns <= LONE_MAX, "it stays");
            let until = clock::now() + 2 * LONE_WAIT;
            while !clock::until(until).is_zero() {}
            bring(1);
            true
        });
        assert_eq!((turns, handled()), (LONE_MAX, 4 * LONE_MAX as u64 + LONE_MAX as u64));
        shell.drain();
        shell.wait();
    }

    #[test]
    fn the_own_thread_handles_the_rest_until_none_is_left() {
        let shell = idle_shell();
        let shared = &shell.shared;
        shared.inbox.state.lock().is_served = true;
        (0..3).for_each(|_| shared.hand_in(stale()));
        shared.inbox.call();
        let is_done = || {
            let state = shared.inbox.state.lock();
            state.batches.is_empty() && !state.is_served
        };
        let (until, pause) = (clock::now() + TIMEOUT, Duration::from_millis(1));
        while !is_done() {
            assert!(!clock::until(until).is_zero(), "nobody handles the rest");
            thread::park_timeout(pause);
        }
        assert_eq!(shared.core.lock().pool.counters().stale, 3);
        shell.drain();
        shell.wait();
    }
}

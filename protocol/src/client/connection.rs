//! The connection that all threads of a client share: who reads, what happens when it is lost.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ClientError;
use super::keys::Keys;
use super::link::{self, Endpoint, Received};
use super::models::KnownModels;
use super::rooms::Rooms;
use super::state::{Pending, Stage, State};
use super::task::Task;
use super::wire::Wire;
use crate::clock;
use crate::ids::JobKey;
use crate::lease::Lease;
use crate::message::{ClientMessage, Refusal, ServerMessage};
use crate::output::Bytes;
use crate::receipt::{Receipt, Verdict};

/// How long a lost connection is tried again before its jobs are given up.
const RECONNECT_FOR: Duration = Duration::from_secs(10);
/// Between two tries to connect, and between two submissions to a pool that is busy.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(20);

/// How long the pool may take for an answer to a question.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a pool may take to drain.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(2 * 3_600);

/// A connection, or the will to have one again.
#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    pub(super) wire: Arc<Wire>,
    /// What the pool has said of models.
    pub(super) known: KnownModels,
    keys: Keys,
    state: Mutex<State>,
    changed: Condvar,
}

/// The answer to a question, and on which connection it came.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) received: Received,
    epoch: u64,
}

impl Connection {
    pub(super) fn open(path: PathBuf) -> Result<Self, ClientError> {
        let state = State::new(link::open(&path)?)?;
        Self::with(Endpoint::Path(path), state)
    }

    pub(super) fn over(socket: UnixStream) -> Result<Self, ClientError> {
        let state = State::new(link::greet(socket)?)?;
        Self::with(Endpoint::Given, state)
    }

    fn with(endpoint: Endpoint, state: State) -> Result<Self, ClientError> {
        let wire = Arc::clone(&state.wire);
        let keys = Keys::new()?;
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self { endpoint, wire, known: KnownModels::default(), keys, state, changed })
    }

    /// A key that no job of any client has.
    pub(super) fn next_key(&self) -> JobKey {
        self.keys.next()
    }

    /// How long the reading thread may look for a message before it sleeps.
    pub(super) fn set_spin(&self, spin: Duration) {
        self.lock().spin = spin;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads messages, or lets another thread read, until `ready` gives something.
    pub(super) fn wait_for<T>(
        &self,
        until: Instant,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ClientError> {
        let mut state = self.lock();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if let Some(error) = state.why_broken()
                && !self.wire.is_open()
            {
                return Err(error);
            }
            let patience = clock::until(until);
            if patience.is_zero() {
                return Err(ClientError::Silent);
            }
            // Whoever holds the reader reads for all, and wakes all after each message.
            let Some(mut reader) = state.reader.take() else {
                state = self.sleep(state, patience);
                continue;
            };
            reader.set_spin(state.spin);
            drop(state);
            let received = link::receive(&mut reader, Some(patience));
            state = self.lock();
            match received {
                Ok(received) => {
                    state.reader = Some(reader);
                    received.into_iter().for_each(|received| state.on_message(received));
                }
                Err(_) => state = self.on_lost(state),
            }
            // It is a system call even where nobody sleeps.
            if state.sleepers > 0 {
                self.changed.notify_all();
            }
        }
    }

    /// Sleeps until something has changed, or that long.
    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, span: Duration) -> MutexGuard<'a, State> {
        state.sleepers += 1;
        let waited = self.changed.wait_timeout(state, span);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.sleepers -= 1;
        state
    }

    /// The connection is gone, and this thread was its reader. Makes it again and submits what has
    /// no verdict, or notes that it cannot be made.
    fn on_lost<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.disconnect();
        let Endpoint::Path(path) = &self.endpoint else {
            state.broken.get_or_insert_default();
            return state;
        };
        let give_up = clock::now() + RECONNECT_FOR;
        while state.broken.is_none() {
            drop(state);
            let opened = link::open(path);
            state = self.lock();
            match opened.and_then(|reader| state.reconnect(reader)) {
                Ok(()) => return state,
                Err(ClientError::Closed(reason)) => state.broken = Some(reason),
                Err(error @ ClientError::Version { .. }) => state.broken = Some(error.to_string()),
                Err(_) => state.disconnect(),
            }
            if clock::until(give_up).is_zero() {
                // Nobody came in the place of a pool that has ended in order.
                let drained = state.drained.as_ref().map(|_| "it was drained and has stopped");
                state.broken.get_or_insert_with(|| drained.unwrap_or_default().to_owned());
            } else if state.broken.is_none() {
                state = self.sleep(state, RETRY_EVERY);
            }
        }
        state.disconnect();
        state
    }

    /// Sends a job, in shared memory if it is large.
    pub(super) fn send_job(
        &self,
        key: JobKey,
        task: Task,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        loop {
            if self.lock().jobs.contains_key(&key) {
                return Err(Refusal::KeyInUse(key).into());
            }
            let rooms = self.rooms(&task, deadline)?;
            // Not under the lock: it takes its time.
            rooms.pack(&task);
            let mut state = self.lock();
            let epoch = self.wire.epoch();
            if !rooms.are_of(epoch) {
                continue;
            }
            if state.jobs.contains_key(&key) {
                // Another thread was faster.
                return Err(Refusal::KeyInUse(key).into());
            }
            let stage = Stage::Sent;
            let pending = Pending { task, deadline, rooms, epoch, stage, is_cancelled: false };
            state.jobs.insert(key, pending);
            state.send_job(key);
            return Ok(());
        }
    }

    /// Sends a job once more that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        let mut state = self.lock();
        let epoch = self.wire.epoch();
        // On a connection that was made meanwhile it has been submitted again already.
        let refused = |pending: &Pending| matches!(pending.stage, Stage::Refused(_));
        if !state.jobs.get(&key).is_some_and(refused) {
            return Ok(());
        }
        let Some(mut pending) = state.jobs.remove(&key) else { return Ok(()) };
        if pending.epoch != epoch {
            // Its arenas were another connection's.
            drop(state);
            return self.send_job(key, pending.task, pending.deadline);
        }
        pending.stage = Stage::Sent;
        state.jobs.insert(key, pending);
        state.send_job(key);
        Ok(())
    }

    /// Whether a refused job should be sent once more.
    pub(super) fn may_try_again(&self, key: JobKey, refusal: &Refusal) -> bool {
        // A key that is in use may be this very job's, on a connection that has just been lost.
        let passing = matches!(refusal, Refusal::Busy(_) | Refusal::KeyInUse(_));
        let state = self.lock();
        let pending = state.jobs.get(&key).filter(|pending| pending.task.terms().wait_if_busy);
        passing && pending.is_some_and(|pending| clock::until(pending.deadline) > RETRY_EVERY)
    }

    /// The shared memory that a job needs. Where the pool has none to spare it waits for some until the
    /// job's deadline if the job does, and holds none meanwhile.
    fn rooms(&self, task: &Task, deadline: Instant) -> Result<Rooms, ClientError> {
        loop {
            match self.rooms_now(task) {
                Err(ClientError::Refused(Refusal::Busy(_)))
                    if task.terms().wait_if_busy && clock::until(deadline) > RETRY_EVERY =>
                {
                    self.wire.give_back_free();
                    self.pause(RETRY_EVERY);
                }
                rooms => return rooms,
            }
        }
    }

    fn rooms_now(&self, task: &Task) -> Result<Rooms, ClientError> {
        if task.loaded().is_some_and(|batch| !self.wire.has_lent(&batch.lease())) {
            let why = "the batch was loaded by another client: load it by the one that submits";
            return Err(Refusal::Invalid(why.to_owned()).into());
        }
        Rooms::furnish(task, self.wire.epoch(), |bytes| self.lease(bytes))
    }

    /// An arena with room for `bytes`: a free one, or one that the pool makes.
    pub(super) fn lease(&self, bytes: u64) -> Result<Arc<Lease>, ClientError> {
        if let Some(lease) = self.wire.lend_free(bytes) {
            return Ok(lease);
        }
        let reply = self.request(&|request| ClientMessage::CreateArena { request, bytes })?;
        let (id, map) = reply.received.into_arena()?;
        map.populate();
        Ok(self.wire.lend_new(id, map, reply.epoch))
    }

    /// Asks one question and waits for its answer; asks again if the connection is lost meanwhile.
    pub(super) fn request(
        &self,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<Reply, ClientError> {
        self.request_within(REPLY_TIMEOUT, message)
    }

    /// The same where the reply may take longer.
    pub(super) fn request_within(
        &self,
        patience: Duration,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<Reply, ClientError> {
        let until = clock::now() + patience;
        loop {
            let (request, epoch) =
                self.wait_for(until, |state| Some((state.ask(message)?, state.wire.epoch())))?;
            // A question is forgotten when its connection is lost.
            let received = self.wait_for(until, |state| match state.replies.get(&request) {
                Some(None) => None,
                Some(Some(_)) | None => Some(state.replies.remove(&request).flatten()),
            })?;
            let Some(received) = received else { continue };
            if let ServerMessage::Denied { refusal, .. } = received.message {
                return Err(refusal.into());
            }
            return Ok(Reply { received, epoch });
        }
    }

    /// Gives a job up, on this connection and on any that comes after it.
    pub(super) fn cancel(&self, key: JobKey) {
        let mut state = self.lock();
        if let Some(pending) = state.jobs.get_mut(&key) {
            pending.is_cancelled = true;
            self.wire.send_or_hang_up(&ClientMessage::Cancel { key });
        }
    }

    /// Waits a little without holding up anyone.
    pub(super) fn pause(&self, span: Duration) {
        let until = clock::now() + span;
        let mut state = self.lock();
        while !clock::until(until).is_zero() {
            let left = clock::until(until);
            state = self.sleep(state, left);
        }
    }

    /// Forgets a job whose handle is gone, and cancels it if it has no verdict yet. Its key stays
    /// taken until the pool's last word on it has come: that must not end a later job.
    pub(super) fn abandon(&self, key: JobKey) {
        let mut state = self.lock();
        let Some(mut pending) = state.jobs.remove(&key) else { return };
        let awaited = matches!(pending.stage, Stage::Accepted | Stage::Sent);
        // Only a refused job's arenas are surely nobody's: a worker may still write to the others.
        if !matches!(pending.stage, Stage::Refused(_)) {
            pending.rooms.spoil(&pending.task);
        }
        pending.rooms = Rooms::default();
        if awaited && pending.epoch == self.wire.epoch() {
            pending.stage = Stage::Abandoned;
            state.jobs.insert(key, pending);
            self.wire.send_or_hang_up(&ClientMessage::Cancel { key });
        }
    }

    /// The answer of a job whose verdict has come, and the bytes of its result if that is OK.
    pub(super) fn take_answer(&self, key: JobKey) -> Result<(Receipt, Option<Bytes>), ClientError> {
        let mut pending = self.lock().jobs.remove(&key).ok_or(ClientError::Lost)?;
        let Stage::Done(receipt, inline) = std::mem::replace(&mut pending.stage, Stage::Lost)
        else {
            return Err(ClientError::Lost);
        };
        if receipt.verdict != Verdict::Ok {
            // A worker that is being killed may still write there.
            pending.rooms.spoil(&pending.task);
            return Ok((*receipt, None));
        }
        let bytes = pending.result(inline)?;
        Ok((*receipt, Some(bytes)))
    }

    /// Waits for the end of the connection, after which there will be no other, and gives what the pool
    /// has said that it did before.
    pub(super) fn wait_closed(&self) -> Result<Option<Vec<(Verdict, u64)>>, ClientError> {
        self.lock().broken.get_or_insert_with(|| "the pool has stopped".to_owned());
        let until = clock::now() + DRAIN_TIMEOUT_MAX;
        match self.wait_for(until, |_| None::<()>) {
            Err(ClientError::Silent) => Err(ClientError::Silent),
            // Anything else is the end that was waited for.
            Ok(()) | Err(_) => Ok(self.lock().drained.take()),
        }
    }
}

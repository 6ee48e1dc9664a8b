//! The connection that all threads of a client share: which thread reads, and how the client reconnects.

use std::iter;
use std::path::PathBuf;
#[cfg(feature = "async")]
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{ClientMessage, ServerMessage};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::receipt::{Receipt, Verdict};

use super::ClientError;
use super::buffers::Buffers;
use super::builder::Settings;
use super::bundle::{Bundle, Verdicted};
use super::busy::{READS_MAX, RETRY_EVERY};
use super::keys::Keys;
use super::known::KnownModels;
use super::link::{self, Endpoint, Given, Received};
use super::runnable::AnyJob;
use super::state::{Pending, Stage, State};
use super::wire::Wire;

/// How long a pool may take to drain.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(2 * 3_600);
/// How often a thread that must not wait tries to lock the state: for some microseconds.
const LOCK_TRIES_MAX: usize = 200;

/// A connection, which the client makes again if it is lost.
#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    pub(super) settings: Settings,
    pub(super) wire: Arc<Wire>,
    /// The models that the client has queried.
    pub(super) known: KnownModels,
    keys: Keys,
    state: Mutex<State>,
    /// For threads that wait for anything but a job.
    pub(super) changed: Condvar,
    #[cfg(feature = "async")]
    pub(super) reading: super::reading::Reading,
    /// Whether a [`Watch`](super::Watch) reads for futures.
    #[cfg(feature = "async")]
    pub(super) is_watched: AtomicBool,
}

/// A job that is about to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) key: JobKey,
    pub(super) job: AnyJob,
    pub(super) deadline: Instant,
    /// Its memory, once it has been leased.
    pub(super) buffers: Buffers,
    /// The jobs that go as this one.
    pub(super) bundle: Option<(Arc<Bundle>, Vec<Self>)>,
}

impl Connection {
    pub(super) fn open(path: PathBuf, settings: Settings) -> Result<Self, ClientError> {
        let reader = link::open_within(&path, settings.pool_timeout.unwrap_or_default())?;
        let endpoint = Endpoint::Path(path, link::owner(&reader)?);
        let state = State::new(reader, !settings.reconnect_for.is_zero())?;
        Self::with(endpoint, settings, state)
    }

    pub(super) fn over(given: Given, settings: Settings) -> Result<Self, ClientError> {
        let state = State::new(link::greet(given.socket)?, false)?;
        Self::with(Endpoint::Given(given.kept), settings, state)
    }

    fn with(endpoint: Endpoint, settings: Settings, state: State) -> Result<Self, ClientError> {
        let wire = Arc::clone(&state.wire);
        let keys = Keys::new()?;
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let known = KnownModels::default();
        Ok(Self {
            endpoint,
            settings,
            wire,
            known,
            keys,
            state,
            changed,
            #[cfg(feature = "async")]
            reading: super::reading::Reading::default(),
            #[cfg(feature = "async")]
            is_watched: AtomicBool::new(false),
        })
    }

    /// A new random key.
    pub(super) fn next_key(&self) -> JobKey {
        self.keys.next()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The state, unless another thread has it for longer than a message takes.
    pub(super) fn lock_soon(&self) -> Option<MutexGuard<'_, State>> {
        let try_again = || {
            std::hint::spin_loop();
            self.state.try_lock()
        };
        iter::repeat_with(try_again).take(LOCK_TRIES_MAX).find_map(|locked| locked)
    }

    /// Waits until `ready` returns a value. Reads messages meanwhile, unless another thread does.
    pub(super) fn wait_for<T>(
        &self,
        until: Instant,
        ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ClientError> {
        self.wait_for_job(None, until, ready)
    }

    /// As [`Connection::wait_for`], if only news of that job let `ready` return a value.
    pub(super) fn wait_for_job<T>(
        &self,
        job: impl Into<Option<JobKey>>,
        until: Instant,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ClientError> {
        let (job, mut state) = (job.into(), self.lock());
        let waited = loop {
            if let Some(value) = ready(&mut state) {
                break Ok(value);
            }
            if let Some(error) = state.why_broken()
                && !self.wire.is_open()
            {
                break Err(error);
            }
            let left = clock::until(until);
            if left.is_zero() {
                break Err(ClientError::Silent);
            }
            // The thread that has taken the reader reads for all.
            let Some(mut reader) = state.reader.take() else {
                state = self.sleep(state, left, job);
                continue;
            };
            reader.set_spin(self.settings.spin);
            drop(state);
            let received = link::receive(&mut reader, Some(left));
            state = self.lock();
            match received.and_then(|received| state.on_messages(&mut reader, received)) {
                Ok(()) => state.put_back(reader),
                Err(_) => state = self.on_lost(state),
            }
            state = self.tell(state);
        };
        self.leave(state);
        waited
    }

    /// Returns what `ready` finds in the messages that have arrived; `None` if another thread reads them, or
    /// if they do not suffice. If the connection is lost, a thread of its own reconnects, since that takes
    /// time.
    pub(super) fn try_for<T>(
        self: &Arc<Self>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, ClientError> {
        let (mut state, mut reads, mut is_news) = (self.lock(), 0, true);
        let tried = loop {
            if let Some(value) = ready(&mut state) {
                break Ok(Some(value));
            }
            if let Some(error) = state.why_broken()
                && !self.wire.is_open()
            {
                break Err(error);
            }
            if !is_news || reads == READS_MAX {
                break Ok(None);
            }
            reads += 1;
            let Some(mut reader) = state.reader.take() else { break Ok(None) };
            reader.set_spin(Duration::ZERO);
            drop(state);
            let received = link::receive(&mut reader, Some(Duration::ZERO));
            is_news = matches!(received, Ok(Some(_)));
            state = self.lock();
            let handled = received.and_then(|received| state.on_messages(&mut reader, received));
            if handled.is_err() {
                drop(self.tell(state));
                self.reconnect_aside();
                return Ok(None);
            }
            state.put_back(reader);
            state = self.tell(state);
        };
        self.leave(state);
        tried
    }

    /// Reconnects on a thread of its own, or on this one if the system gives none.
    fn reconnect_aside(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        let reconnect = |connection: &Self| {
            connection.leave(connection.tell(connection.on_lost(connection.lock())));
        };
        let builder = thread::Builder::new().name("gridpool-client".into());
        if builder.spawn(move || reconnect(&connection)).is_err() {
            reconnect(self);
        }
    }

    /// Reconnects after this thread, as the reader, has lost the connection, and submits the jobs without a
    /// verdict again. If it cannot reconnect in time, it notes that.
    fn on_lost<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.disconnect();
        let (path, owner) = match &self.endpoint {
            Endpoint::Path(path, owner) if state.reconnects => (path, *owner),
            Endpoint::Given(_) | Endpoint::Path(..) => {
                state.broken.get_or_insert_default();
                state.give_up();
                return state;
            }
        };
        let give_up = clock::now() + self.settings.reconnect_for;
        while state.broken.is_none() {
            drop(state);
            let opened = link::open_again(path, owner);
            state = self.lock();
            match opened.and_then(|reader| state.reconnect(reader)) {
                Ok(()) => return state,
                Err(ClientError::Closed(reason)) => state.broken = Some(reason),
                Err(error @ ClientError::Version { .. }) => state.broken = Some(error.to_string()),
                Err(_) => state.disconnect(),
            }
            if clock::until(give_up).is_zero() {
                // No new pool has replaced one that was drained.
                let drained = state.drained.as_ref().map(|_| "it was drained and has stopped");
                state.broken.get_or_insert_with(|| drained.unwrap_or_default().to_owned());
            } else if state.broken.is_none() {
                state = self.sleep(state, RETRY_EVERY, None);
            }
        }
        state.disconnect();
        state.give_up();
        state
    }

    /// Whether small jobs may go as one: the pool itself is at the other end.
    pub(super) fn bundles(&self) -> bool {
        matches!(self.endpoint, Endpoint::Path(..))
    }

    /// Sends jobs together, or holds them if the pool is full. Large inputs and results are in shared memory. Returns
    /// those that wait for memory until others have ended, which may be those before them. After an error, none of them
    /// is sent.
    pub(super) fn send_jobs(&self, mut jobs: Vec<Outgoing>) -> Result<Vec<Outgoing>, ClientError> {
        loop {
            self.lock().check_keys(&jobs)?;
            let (mut ready, wait) = self.with_memory(jobs)?;
            // A connection that was lost meanwhile has taken their memory along.
            if self.lock().take_in(&mut ready)? {
                return Ok(wait);
            }
            ready.iter_mut().for_each(|own| own.buffers = Buffers::default());
            jobs = ready.into_iter().chain(wait).collect();
        }
    }

    /// Sends a query and waits for its answer. Sends it again if the connection is lost meanwhile.
    pub(super) fn request(
        &self,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<ServerMessage, ClientError> {
        self.request_within(self.settings.reply_timeout, message)
    }

    /// Sends a query whose answer may take up to `timeout`.
    pub(super) fn request_within(
        &self,
        timeout: Duration,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<ServerMessage, ClientError> {
        Ok(self.ask(timeout, message)?.0.message)
    }

    /// The answer to a query, and the epoch of its connection.
    pub(super) fn ask(
        &self,
        timeout: Duration,
        message: &dyn Fn(u64) -> ClientMessage,
    ) -> Result<(Received, u64), ClientError> {
        let until = clock::now() + timeout;
        loop {
            let (request, epoch) =
                self.wait_for(until, |state| Some((state.ask(message)?, state.wire.epoch())))?;
            // A lost connection drops its open queries.
            let received = self.wait_for(until, |state| match state.replies.get(&request) {
                Some(None) => None,
                Some(Some(_)) | None => Some(state.replies.remove(&request).flatten()),
            })?;
            let Some(received) = received else { continue };
            if let ServerMessage::Denied { refusal, .. } = received.message {
                return Err(refusal.into());
            }
            return Ok((received, epoch));
        }
    }

    /// Cancels a job, on this connection and after a reconnect.
    pub(super) fn cancel(&self, key: JobKey) {
        let mut state = self.lock();
        if let Some(bundle) = state.cancel_in_bundle(key) {
            if state.is_left(bundle) {
                self.forget(&mut state, bundle);
            }
        } else if let Some(pending) = state.jobs.get_mut(&key) {
            pending.is_cancelled = true;
            self.wire.send_or_hang_up(&ClientMessage::Cancel { key });
            // One that waits for a busy pool waits no longer.
            let is_refused = matches!(pending.stage, Stage::Refused(_));
            let waker = pending.waker.take_if(|_| is_refused);
            state.wakers.extend(waker);
        }
        drop(self.tell(state));
    }

    /// Waits for `span`, as long as `goes_on` at most, without blocking other threads.
    pub(super) fn pause_while(&self, span: Duration, goes_on: impl Fn(&State) -> bool) {
        let until = clock::now() + span;
        let mut state = self.lock();
        while !clock::until(until).is_zero() && goes_on(&state) {
            let left = clock::until(until);
            state = self.sleep(state, left, None);
        }
    }

    /// Forgets a job whose handle is gone, and cancels it if it has no verdict yet.
    pub(super) fn abandon(&self, key: JobKey) {
        let mut state = self.lock();
        let Some(&Pending { stage: Stage::Bundled(bundle), .. }) = state.jobs.get(&key) else {
            return self.forget(&mut state, key);
        };
        state.jobs.remove(&key);
        if state.is_left(bundle) {
            self.forget(&mut state, bundle);
        }
    }

    /// Forgets a job that nobody wants. Its key stays reserved until the pool's last message about it, which must not
    /// reach a later job.
    fn forget(&self, state: &mut State, key: JobKey) {
        let Some(mut pending) = state.jobs.remove(&key) else { return };
        if !state.held.is_empty() {
            state.held.remove(&pending.lane(), key);
        }
        let awaited = matches!(pending.stage, Stage::Accepted | Stage::Sent);
        // Only a refused job's arenas are surely free. A worker may still write to the others.
        if !matches!(pending.stage, Stage::Refused(_)) {
            pending.buffers.spoil(&pending.job);
        }
        (pending.buffers, pending.waker) = (Buffers::default(), None);
        if awaited && pending.epoch == self.wire.epoch() {
            pending.stage = Stage::Abandoned;
            state.jobs.insert(key, pending);
            self.wire.send_or_hang_up(&ClientMessage::Cancel { key });
        }
    }

    /// Takes the receipt of a job that has its verdict, and the bytes of its result. If the verdict is not OK, they
    /// are those of shards that were done, in shared memory.
    pub(super) fn take_answer(&self, key: JobKey) -> Result<(Receipt, Option<Bytes>), ClientError> {
        let mut pending = self.lock().jobs.remove(&key).ok_or(ClientError::Lost)?;
        let Stage::Done(verdict) = std::mem::replace(&mut pending.stage, Stage::Lost) else {
            return Err(ClientError::Lost);
        };
        match verdict {
            Verdicted::Own(receipt, inline) => {
                let bytes = pending.take_result(&receipt, inline);
                Ok((*receipt, bytes))
            }
            Verdicted::Shared(answer, part) => answer.take(part),
        }
    }

    /// Waits until the pool closes the connection, without reconnecting. Returns the verdicts that the pool
    /// reported for its drain.
    pub(super) fn wait_closed(&self) -> Result<Option<Vec<(Verdict, u64)>>, ClientError> {
        self.lock().broken.get_or_insert_with(|| "the pool has stopped".to_owned());
        let until = clock::now() + DRAIN_TIMEOUT_MAX;
        match self.wait_for(until, |_| None::<()>) {
            Err(ClientError::Silent) => Err(ClientError::Silent),
            // Any other error is the expected end.
            Ok(()) | Err(_) => Ok(self.lock().drained.take()),
        }
    }
}

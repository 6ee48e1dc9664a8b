//! The connection that all threads of a client share: who reads, what happens when it is lost.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::{self, Endpoint, Lease, Received};
use super::state::{Pending, Stage, State};
use super::{ClientError, Job, JobAnswer};
use crate::clock;
use crate::ids::{ArenaId, JobKey};
use crate::message::{ClientMessage, Refusal, ServerMessage};
use crate::receipt::Verdict;

/// How long a lost connection is tried again before its jobs are given up.
const RECONNECT_FOR: Duration = Duration::from_secs(10);
/// Between two tries to connect, and between two submissions to a pool that is busy.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(20);

/// A connection, or the will to have one again.
#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
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
        Ok(Self::with(Endpoint::Path(path), state))
    }

    pub(super) fn over(socket: UnixStream) -> Result<Self, ClientError> {
        let state = State::new(link::greet(socket)?)?;
        Ok(Self::with(Endpoint::Given, state))
    }

    fn with(endpoint: Endpoint, state: State) -> Self {
        Self { endpoint, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads messages, or lets another thread read, until `ready` gives something.
    pub(super) fn wait_for<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ClientError> {
        let mut state = self.lock();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if state.socket.is_none()
                && let Some(error) = state.why_broken()
            {
                return Err(error);
            }
            // Whoever holds the reader reads for all, and wakes all after each message.
            let Some(mut reader) = state.reader.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let received = link::receive(&mut reader);
            state = self.lock();
            match received {
                Ok(received) => {
                    state.reader = Some(reader);
                    state.on_message(received);
                }
                Err(_) => state = self.on_lost(state),
            }
            self.changed.notify_all();
        }
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
                state.broken.get_or_insert_default();
            } else if state.broken.is_none() {
                let waited = self.changed.wait_timeout(state, RETRY_EVERY);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        state.disconnect();
        state
    }

    /// Sends a job, in shared memory if it is large.
    pub(super) fn send_job(
        &self,
        key: JobKey,
        job: Job,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let bytes = job.arena_bytes();
        loop {
            let lease = match bytes {
                0 => None,
                _ => Some(self.lease(bytes, deadline, job.wait_if_busy)?),
            };
            let mut state = self.lock();
            let lease = match lease {
                Some((_, epoch)) if epoch != state.epoch => continue,
                lease => lease.map(|(lease, _)| lease),
            };
            if state.jobs.contains_key(&key) {
                return Err(Refusal::KeyInUse(key).into());
            }
            let epoch = state.epoch;
            let pending = Pending { job, deadline, lease, epoch, stage: Stage::Sent };
            state.jobs.insert(key, pending);
            state.send_job(key);
            return Ok(());
        }
    }

    /// Sends a job once more that the pool refused for the moment.
    pub(super) fn send_again(&self, key: JobKey) -> Result<(), ClientError> {
        let mut state = self.lock();
        let epoch = state.epoch;
        let Some(mut pending) = state.jobs.remove(&key) else { return Ok(()) };
        if pending.epoch != epoch {
            // Its arena was another connection's.
            drop(state);
            return self.send_job(key, pending.job, pending.deadline);
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
        let pending = state.jobs.get(&key).filter(|pending| pending.job.wait_if_busy);
        passing && pending.is_some_and(|pending| clock::until(pending.deadline) > RETRY_EVERY)
    }

    /// An arena with room for `bytes`, and the connection it belongs to.
    fn lease(
        &self,
        bytes: u64,
        deadline: Instant,
        wait: bool,
    ) -> Result<(Lease, u64), ClientError> {
        loop {
            if let Some(lease) = self.lock().free_lease(bytes) {
                return Ok(lease);
            }
            match self.request(|request| ClientMessage::CreateArena { request, bytes }) {
                Ok(reply) => return Ok((reply.received.into_lease()?, reply.epoch)),
                Err(ClientError::Refused(Refusal::Busy(_)))
                    if wait && clock::until(deadline) > RETRY_EVERY =>
                {
                    self.give_back_free_arenas()?;
                }
                Err(ClientError::Lost) if self.lock().broken.is_none() => {}
                Err(error) => return Err(error),
            }
            self.pause(RETRY_EVERY);
        }
    }

    fn give_back_free_arenas(&self) -> Result<(), ClientError> {
        let free: Vec<ArenaId> = self.lock().arenas.clear().map(|lease| lease.id).collect();
        free.into_iter().try_for_each(|arena| self.send(&ClientMessage::DropArena { arena }))
    }

    /// Asks one question and waits for its answer.
    pub(super) fn request(
        &self,
        message: impl FnOnce(u64) -> ClientMessage,
    ) -> Result<Reply, ClientError> {
        let (request, epoch) = {
            let mut state = self.lock();
            (state.ask(message)?, state.epoch)
        };
        // A question is forgotten when its connection is lost.
        let received = self.wait_for(|state| match state.replies.get(&request) {
            Some(None) => None,
            Some(Some(_)) | None => Some(state.replies.remove(&request).flatten()),
        })?;
        let received = received.ok_or(ClientError::Lost)?;
        if let ServerMessage::Denied { refusal, .. } = received.message {
            return Err(refusal.into());
        }
        Ok(Reply { received, epoch })
    }

    pub(super) fn send(&self, message: &ClientMessage) -> Result<(), ClientError> {
        match &self.lock().socket {
            Some(socket) => link::send(socket, message),
            None => Err(ClientError::Lost),
        }
    }

    /// Waits a little without holding up anyone.
    pub(super) fn pause(&self, span: Duration) {
        let until = clock::now() + span;
        let mut state = self.lock();
        while !clock::until(until).is_zero() {
            let waited = self.changed.wait_timeout(state, clock::until(until));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets a job whose handle is gone, and cancels it if it has no verdict yet.
    pub(super) fn abandon(&self, key: JobKey) {
        let mut state = self.lock();
        let Some(pending) = state.jobs.remove(&key) else { return };
        if matches!(pending.stage, Stage::Accepted | Stage::Sent) {
            state.send_or_hang_up(&ClientMessage::Cancel { key });
        }
        // Only a refused job's arena is surely nobody's: a worker may still write to the others.
        let untouched = matches!(pending.stage, Stage::Refused(_));
        state.release(pending, untouched);
    }

    /// The answer of a job whose verdict has come.
    pub(super) fn take_answer(&self, key: JobKey) -> Result<JobAnswer, ClientError> {
        let mut state = self.lock();
        let mut pending = state.jobs.remove(&key).ok_or(ClientError::Lost)?;
        let Stage::Done(receipt, inline) = std::mem::replace(&mut pending.stage, Stage::Sent)
        else {
            return Err(ClientError::Lost);
        };
        // After any other verdict than OK, a worker that is being killed may still write there.
        let ok = receipt.verdict == Verdict::Ok;
        let outputs = ok.then(|| pending.outputs(inline)).transpose();
        state.release(pending, ok);
        Ok(JobAnswer { receipt: *receipt, outputs: outputs? })
    }

    /// Waits for the end of the connection, after which there will be no other.
    pub(super) fn wait_closed(&self) {
        self.lock().broken.get_or_insert_with(|| "the pool has stopped".to_owned());
        let end: Result<(), ClientError> = self.wait_for(|_| None);
        debug_assert!(end.is_err(), "only the end of the connection ends this wait");
    }
}

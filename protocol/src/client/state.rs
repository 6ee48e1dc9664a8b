//! What the lock of a connection guards: its reading side, the jobs without a verdict, open questions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ClientError;
use super::link::{self, Received};
use super::rooms::Rooms;
use super::task::Task;
use super::wire::Wire;
use crate::clock;
use crate::frame::{FrameError, FrameReader};
use crate::ids::JobKey;
use crate::lease::Lease;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::message::{ClientMessage, Inline, Refusal, ServerMessage};
use crate::output::Bytes;
use crate::receipt::{Receipt, Verdict};
use crate::spin::SPIN_DEFAULT;

/// See the module's text.
#[derive(Debug)]
pub(super) struct State {
    pub(super) wire: Arc<Wire>,
    /// The reading side; `None` while some thread reads, or there is no connection.
    pub(super) reader: Option<FrameReader>,
    /// Jobs whose handles live, with all that is needed to submit them again.
    pub(super) jobs: BTreeMap<JobKey, Pending>,
    /// Questions, each with its answer once that has come.
    pub(super) replies: BTreeMap<u64, Option<Received>>,
    /// Why there will never be another connection; empty if it was simply lost.
    pub(super) broken: Option<String>,
    /// What a pool that was drained has done since, once it has said so.
    pub(super) drained: Option<Vec<(Verdict, u64)>>,
    /// How long the reading thread may look for a message before it sleeps.
    pub(super) spin: Duration,
    /// Threads that sleep until another has read a message.
    pub(super) sleepers: usize,
    next_request: u64,
}

/// A job, and all that is needed to submit it again.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) task: Task,
    pub(super) deadline: Instant,
    pub(super) rooms: Rooms,
    /// The connection it was last submitted on.
    pub(super) epoch: u64,
    pub(super) stage: Stage,
    /// Its client gave it up: it is cancelled again wherever it is submitted again.
    pub(super) is_cancelled: bool,
}

/// How far a job has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nobody waits for it any more; the pool's last word on it is still to come.
    Abandoned,
    /// Accepted: a verdict will come.
    Accepted,
    /// The verdict has come.
    Done(Box<Receipt>, Option<Inline>),
    /// It may have run, on a connection that is gone, and may not run again.
    Lost,
    /// Not accepted.
    Refused(Refusal),
    /// Sent; not yet accepted.
    Sent,
}

impl State {
    pub(super) fn new(reader: FrameReader) -> Result<Self, ClientError> {
        let socket = reader.socket().try_clone().map_err(FrameError::Io)?;
        Ok(Self {
            wire: Arc::new(Wire::new(socket)),
            reader: Some(reader),
            jobs: BTreeMap::new(),
            replies: BTreeMap::new(),
            broken: None,
            drained: None,
            spin: SPIN_DEFAULT,
            sleepers: 0,
            next_request: 0,
        })
    }

    /// Why there will never be another connection, if that is so.
    pub(super) fn why_broken(&self) -> Option<ClientError> {
        let reason = self.broken.as_ref()?;
        Some(match reason.as_str() {
            "" => ClientError::Lost,
            reason => ClientError::Closed(reason.to_owned()),
        })
    }

    pub(super) fn on_message(&mut self, received: Received) {
        match received.message {
            ServerMessage::Accepted { key } => {
                if let Some(pending) = self.jobs.get_mut(&key)
                    && matches!(pending.stage, Stage::Sent)
                {
                    pending.stage = Stage::Accepted;
                }
            }
            ServerMessage::Refused { key, refusal } => self.set_stage(key, Stage::Refused(refusal)),
            ServerMessage::Done { key, receipt, replayed: true, .. }
                if receipt.verdict == Verdict::Ok =>
            {
                let refusal = Refusal::Invalid(format!(
                    "job {key} was run before and its result is no longer kept: submit it under a \
                     new key"
                ));
                self.set_stage(key, Stage::Refused(refusal));
            }
            ServerMessage::Done { key, receipt, output, .. } => {
                self.set_stage(key, Stage::Done(receipt, output));
            }
            ServerMessage::ArenaCreated { request, .. }
            | ServerMessage::Denied { request, .. }
            | ServerMessage::Granted { request, .. }
            | ServerMessage::Metrics { request, .. }
            | ServerMessage::Models { request, .. }
            | ServerMessage::Policy { request, .. }
            | ServerMessage::Status { request, .. } => {
                if let Some(reply) = self.replies.get_mut(&request) {
                    *reply = Some(received);
                }
            }
            ServerMessage::Closing { reason } => self.broken = Some(reason),
            ServerMessage::Drained { verdicts } => self.drained = Some(verdicts),
            ServerMessage::Welcome { .. } => {}
        }
    }

    /// The pool's last word on a job.
    fn set_stage(&mut self, key: JobKey, stage: Stage) {
        let Some(pending) = self.jobs.get_mut(&key) else { return };
        if matches!(pending.stage, Stage::Abandoned) {
            self.jobs.remove(&key);
        } else {
            pending.stage = stage;
        }
    }

    /// The connection is gone, and with it its arenas and open questions.
    pub(super) fn disconnect(&mut self) {
        self.wire.close();
        self.reader = None;
        self.replies.clear();
    }

    /// Takes over a new connection and submits what has no verdict.
    pub(super) fn reconnect(&mut self, reader: FrameReader) -> Result<(), ClientError> {
        self.wire.open(reader.socket().try_clone().map_err(FrameError::Io)?);
        self.reader = Some(reader);
        self.drained = None;
        self.jobs.retain(|_, pending| !matches!(pending.stage, Stage::Abandoned));
        for key in self.jobs.keys().copied().collect::<Vec<_>>() {
            let Some(pending) = self.jobs.get_mut(&key) else { continue };
            match pending.stage {
                Stage::Accepted | Stage::Sent if !pending.task.terms().idempotent => {
                    pending.stage = Stage::Lost;
                    continue;
                }
                Stage::Accepted | Stage::Refused(_) | Stage::Sent => {}
                Stage::Abandoned | Stage::Done(..) | Stage::Lost => continue,
            }
            match self.submit_again(key) {
                Err(ClientError::Refused(refusal)) => self.set_stage(key, Stage::Refused(refusal)),
                result => result?,
            }
        }
        Ok(())
    }

    /// Submits a job on the present connection, with arenas of that connection.
    fn submit_again(&mut self, key: JobKey) -> Result<(), ClientError> {
        let task = self.jobs[&key].task.clone();
        let rooms = Rooms::furnish(&task, self.wire.epoch(), |bytes| self.create_arena(bytes))?;
        rooms.pack(&task);
        let epoch = self.wire.epoch();
        let Some(pending) = self.jobs.get_mut(&key) else { return Ok(()) };
        pending.rooms = rooms;
        pending.epoch = epoch;
        pending.stage = Stage::Sent;
        let (message, is_cancelled) = (pending.submission(key), pending.is_cancelled);
        self.wire.send(&message)?;
        if is_cancelled { self.wire.send(&ClientMessage::Cancel { key }) } else { Ok(()) }
    }

    /// Asks for an arena and reads until it is there, under the lock: only a fresh connection, which
    /// no other thread reads yet, does so.
    fn create_arena(&mut self, bytes: u64) -> Result<Arc<Lease>, ClientError> {
        let request = self.ask(&|request| ClientMessage::CreateArena { request, bytes });
        let request = request.ok_or(ClientError::Lost)?;
        let mut reader = self.reader.take().ok_or(ClientError::Lost)?;
        while let Some(None) = self.replies.get(&request) {
            let received = link::receive(&mut reader, Some(HANDSHAKE_TIMEOUT))?;
            self.on_message(received.ok_or(ClientError::Silent)?);
        }
        self.reader = Some(reader);
        let received = self.replies.remove(&request).flatten();
        let (id, map) = received.ok_or(ClientError::Lost)?.into_arena()?;
        Ok(self.wire.lend_new(id, map, self.wire.epoch()))
    }

    /// Sends a question and notes that its answer is awaited; `None` while there is no connection.
    pub(super) fn ask(&mut self, message: &dyn Fn(u64) -> ClientMessage) -> Option<u64> {
        if !self.wire.is_open() {
            return None;
        }
        let request = self.next_request;
        self.next_request += 1;
        self.replies.insert(request, None);
        self.wire.send_or_hang_up(&message(request));
        Some(request)
    }

    /// Sends a job that was noted before. Without a connection, whoever makes the next one sends it.
    pub(super) fn send_job(&self, key: JobKey) {
        if let Some(pending) = self.jobs.get(&key) {
            self.wire.send_or_hang_up(&pending.submission(key));
        }
    }
}

impl Pending {
    /// The message that submits the job.
    pub(super) fn submission(&self, key: JobKey) -> ClientMessage {
        // Rounded up: a job is late when it is, and not before.
        let left = clock::until(self.deadline).as_micros().div_ceil(1_000);
        let deadline_ms = u64::try_from(left).unwrap_or(u64::MAX);
        self.task.submission(key, deadline_ms, self.rooms.named(&self.task))
    }

    /// The bytes of the result, where they lie or from the answer.
    pub(super) fn result(self, inline: Option<Inline>) -> Result<Bytes, ClientError> {
        match (self.rooms.output, inline) {
            (Some(lease), _) => Ok(Bytes::Leased(lease)),
            (None, Some(Inline(bytes))) => Ok(Bytes::Private(Arc::new(bytes))),
            (None, None) => Err(ClientError::Unexpected("OK without a result".to_owned())),
        }
    }
}

//! What the lock of a connection guards: its socket, the jobs without a verdict, open questions and
//! free arenas.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::link::{self, ArenaCache, Lease, Received};
use super::{ClientError, Job};
use crate::clock;
use crate::frame::{FrameError, FrameReader};
use crate::ids::JobKey;
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::message::{
    Call, ClientMessage, Destination, Inline, Input, Payload, Refusal, ServerMessage, Slice,
    Submission,
};
use crate::output::Outputs;
use crate::receipt::{Receipt, Verdict};
use crate::shared::SharedSlice;

/// See the module's text.
#[derive(Debug)]
pub(super) struct State {
    /// The writing side; `None` while there is no connection.
    pub(super) socket: Option<UnixStream>,
    /// The reading side; `None` while some thread reads, or there is no connection.
    pub(super) reader: Option<FrameReader>,
    /// Counts connections: an arena is never used on another one than its own.
    pub(super) epoch: u64,
    /// Jobs whose handles live, with all that is needed to submit them again.
    pub(super) jobs: BTreeMap<JobKey, Pending>,
    /// Questions, each with its answer once that has come.
    pub(super) replies: BTreeMap<u64, Option<Received>>,
    /// Why there will never be another connection; empty if it was simply lost.
    pub(super) broken: Option<String>,
    pub(super) arenas: ArenaCache,
    next_request: u64,
}

/// A job, and all that is needed to submit it again.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) job: Job,
    pub(super) deadline: Instant,
    pub(super) lease: Option<Lease>,
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
        Ok(Self {
            socket: Some(reader.socket().try_clone().map_err(FrameError::Io)?),
            reader: Some(reader),
            epoch: 0,
            jobs: BTreeMap::new(),
            replies: BTreeMap::new(),
            broken: None,
            arenas: ArenaCache::default(),
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
            | ServerMessage::Status { request, .. } => {
                if let Some(reply) = self.replies.get_mut(&request) {
                    *reply = Some(received);
                }
            }
            ServerMessage::Closing { reason } => self.broken = Some(reason),
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
        self.socket = None;
        self.reader = None;
        self.epoch += 1;
        self.arenas.clear().for_each(drop);
        self.replies.clear();
    }

    /// Takes over a new connection and submits what has no verdict.
    pub(super) fn reconnect(&mut self, reader: FrameReader) -> Result<(), ClientError> {
        self.socket = Some(reader.socket().try_clone().map_err(FrameError::Io)?);
        self.reader = Some(reader);
        self.jobs.retain(|_, pending| !matches!(pending.stage, Stage::Abandoned));
        for key in self.jobs.keys().copied().collect::<Vec<_>>() {
            let Some(pending) = self.jobs.get_mut(&key) else { continue };
            match pending.stage {
                Stage::Accepted | Stage::Sent if !pending.job.idempotent => {
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

    /// Submits a job on the present connection, with an arena of that connection.
    fn submit_again(&mut self, key: JobKey) -> Result<(), ClientError> {
        let lease = match self.jobs[&key].job.arena_bytes() {
            0 => None,
            bytes => Some(self.create_arena(bytes)?),
        };
        let epoch = self.epoch;
        let Some(pending) = self.jobs.get_mut(&key) else { return Ok(()) };
        pending.lease = lease;
        pending.epoch = epoch;
        pending.stage = Stage::Sent;
        let (message, is_cancelled) = (pending.submission(key), pending.is_cancelled);
        let socket = self.socket.as_ref().ok_or(ClientError::Lost)?;
        link::send(socket, &message)?;
        if is_cancelled { link::send(socket, &ClientMessage::Cancel { key }) } else { Ok(()) }
    }

    /// Asks for an arena and reads until it is there, under the lock: only a fresh connection, which
    /// no other thread reads yet, does so.
    fn create_arena(&mut self, bytes: u64) -> Result<Lease, ClientError> {
        let request = self.ask(&|request| ClientMessage::CreateArena { request, bytes });
        let request = request.ok_or(ClientError::Lost)?;
        let mut reader = self.reader.take().ok_or(ClientError::Lost)?;
        while let Some(None) = self.replies.get(&request) {
            let received = link::receive(&mut reader, Some(HANDSHAKE_TIMEOUT))?;
            self.on_message(received.ok_or(ClientError::Silent)?);
        }
        self.reader = Some(reader);
        let received = self.replies.remove(&request).flatten();
        received.ok_or(ClientError::Lost)?.into_lease()
    }

    /// Sends a question and notes that its answer is awaited; `None` while there is no connection.
    pub(super) fn ask(&mut self, message: &dyn Fn(u64) -> ClientMessage) -> Option<u64> {
        self.socket.as_ref()?;
        let request = self.next_request;
        self.next_request += 1;
        self.replies.insert(request, None);
        self.send_or_hang_up(&message(request));
        Some(request)
    }

    /// Sends a job that was noted before. Without a connection, whoever makes the next one sends it.
    pub(super) fn send_job(&self, key: JobKey) {
        if let Some(pending) = self.jobs.get(&key) {
            self.send_or_hang_up(&pending.submission(key));
        }
    }

    /// Sends a message, or hangs up if that fails, so that the reading thread connects again.
    pub(super) fn send_or_hang_up(&self, message: &ClientMessage) {
        let Some(socket) = &self.socket else { return };
        if link::send(socket, message).is_err() {
            // It fails only if the other end has hung up already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// A free arena of the present connection.
    pub(super) fn free_lease(&mut self, bytes: u64) -> Option<(Lease, u64)> {
        let lease = self.arenas.take(bytes)?;
        Some((lease, self.epoch))
    }

    /// Lets go of a job's arena: keeps it for the next job, or gives it back.
    pub(super) fn release(&mut self, pending: Pending, reusable: bool) {
        self.release_lease(pending.lease, pending.epoch, reusable);
    }

    /// The same for an arena of the connection `epoch`.
    pub(super) fn release_lease(&mut self, lease: Option<Lease>, epoch: u64, reusable: bool) {
        let Some(lease) = lease.filter(|_| epoch == self.epoch) else { return };
        let gone = if reusable { self.arenas.keep(lease) } else { Some(lease) };
        if let Some(lease) = gone {
            self.send_or_hang_up(&ClientMessage::DropArena { arena: lease.id });
        }
    }
}

impl Pending {
    /// The message that submits the job, its batch written to where the message says.
    pub(super) fn submission(&self, key: JobKey) -> ClientMessage {
        let job = &self.job;
        let (input, output) = match &self.lease {
            Some(lease) => {
                job.batch.write_to(job.layout, &lease.map.all());
                let slice = |offset: usize, bytes: usize| Slice {
                    arena: lease.id,
                    offset: offset as u64,
                    bytes: bytes as u64,
                };
                let bytes = job.layout.bytes();
                let result = slice(bytes, job.output_layout.bytes());
                (Input::Arena(slice(0, bytes)), Destination::Arena(result))
            }
            None => {
                let mut bytes = vec![0; job.layout.bytes()];
                job.batch.write_to(job.layout, &SharedSlice::private(&mut bytes));
                (Input::Inline(Inline(bytes)), Destination::Inline)
            }
        };
        let count = |n: usize| u32::try_from(n).expect("a layout counts in 32 bits");
        let left = clock::until(self.deadline).as_millis();
        ClientMessage::Submit(Box::new(Submission {
            key,
            call: Call {
                program: job.program.text().to_owned(),
                ties: job.program.ties(),
                payload: Payload {
                    items: count(job.layout.items()),
                    cells: count(job.layout.cell_count()),
                    input,
                    output,
                },
            },
            deadline_ms: u64::try_from(left).unwrap_or(u64::MAX),
            priority: job.priority,
            idempotent: job.idempotent,
        }))
    }

    /// The results, copied out of the arena or taken from the answer.
    pub(super) fn outputs(&self, inline: Option<Inline>) -> Result<Outputs, ClientError> {
        let job = &self.job;
        let bytes = match (&self.lease, inline) {
            (Some(lease), _) => {
                let mut bytes = vec![0; job.output_layout.bytes()];
                lease.map.all().read(job.layout.bytes(), &mut bytes);
                bytes
            }
            (None, Some(Inline(bytes))) => bytes,
            (None, None) => return Err(ClientError::Unexpected("OK without a result".to_owned())),
        };
        Ok(Outputs::new(job.program.clone(), Arc::clone(&job.batch), bytes)?)
    }
}

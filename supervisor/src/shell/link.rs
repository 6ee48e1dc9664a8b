//! The supervisor's ends of one worker process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::iter;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gridpool_ipc::arena::Arena;
use gridpool_ipc::channel::{ChannelError, Sender};
use gridpool_ipc::frame;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId};
use gridpool_protocol::message::{OnLifeline, SharedArena, ToWorker};
use gridpool_protocol::position::{self, Position};
use gridpool_protocol::status::WorkerMemory;
use nix::sys::uio::pread;
use serde::Serialize;

use super::arenas::ClientArena;
use super::capsules::Begun;
use super::sends::Sends;

/// Arenas that one `Forget` names.
const ARENAS_PER_FORGET: usize = 1_024;

/// Why a message did not reach a worker.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// It is ending. Its reader reports that.
    #[error("the worker is gone")]
    Gone,
    /// It lives and does not read its channel: it must be killed.
    #[error("{0}")]
    Stuck(String),
}

impl LinkError {
    fn stuck(what: impl std::fmt::Display) -> Self {
        Self::Stuck(what.to_string())
    }
}

/// One worker process. No method blocks, because the channel holds everything that can be outstanding; a worker that
/// lies about that is killed ([`Sends`]). For the
/// role `grid` that is two `Dispatch`es, one `Forget` and one `Stop`. For the role `infer` it is as many
/// `Dispatch`es and as many `Cancel`s as its window, one `Model`, one `Forget` and one `Stop`. The lifeline
/// holds their arenas. Tests send the largest of each.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) pid: u32,
    /// Its beacon is lost: it ends, whatever it is sent.
    pub(super) is_ending: bool,
    /// Its own reason for ending.
    pub(super) last_words: Option<String>,
    /// Why the shell killed it, if it did.
    pub(super) rejected: Option<String>,
    /// The latest signal that a client asked for, and the client.
    pub(super) ordered: Option<(ClientId, i32)>,
    sends: Arc<Sends>,
    lifeline: UnixStream,
    channel: Option<Sender>,
    /// Where it records its position, if it runs programs.
    position: Option<Arena>,
    /// Arenas that the worker has mapped or will have, with their sizes.
    arenas: BTreeMap<ArenaId, u64>,
    /// Arenas that the worker should unmap once `Forgot` has answered the `Forget` before.
    forget_next: BTreeSet<ArenaId>,
    forget_outstanding: bool,
    /// What it was sent and has not answered, while capsules are kept.
    running: VecDeque<Begun>,
    /// What it ran is being copied, since it ends.
    pub(super) is_copied: bool,
    /// The version of ONNX Runtime that it has its models in.
    pub(super) onnxruntime: String,
    /// The resources of its process, from its latest report.
    pub(super) memory: WorkerMemory,
    /// Chunks of work that its device had finished by then.
    pub(super) chunks: u64,
}

impl Link {
    pub(super) fn new(pid: u32, sends: Arc<Sends>, lifeline: UnixStream) -> Self {
        Self {
            pid,
            is_ending: false,
            last_words: None,
            rejected: None,
            ordered: None,
            sends,
            lifeline,
            channel: None,
            position: None,
            arenas: BTreeMap::new(),
            forget_next: BTreeSet::new(),
            forget_outstanding: false,
            running: VecDeque::new(),
            is_copied: false,
            onnxruntime: String::new(),
            memory: WorkerMemory::default(),
            chunks: 0,
        }
    }

    /// Gives it the memory for its position, ahead of all else.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left, or the worker is gone.
    pub(super) fn record_position(&mut self) -> Result<(), LinkError> {
        let bytes = (position::WORDS * size_of::<u64>()) as u64;
        let memory = Arena::named("gridpool-position", bytes)
            .map_err(|error| LinkError::stuck(Chain(&error)))?;
        self.share(ArenaId::POSITION, &memory)?;
        self.position = Some(memory);
        Ok(())
    }

    /// Where it was in its work when it ended.
    pub(super) fn last_position(&self) -> Option<Position> {
        let mut words = vec![0; position::WORDS * size_of::<u64>()];
        let read = pread(self.position.as_ref()?.as_fd(), &mut words, 0);
        let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        Position::read(&words.take(read.ok()? / size_of::<u64>()).collect::<Vec<_>>())
    }

    /// The worker has connected.
    pub(super) fn open(&mut self, channel: Sender) {
        self.channel = Some(channel);
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: i32) -> std::io::Result<()> {
        self.sends.pidfd().send_signal(signal)
    }

    /// Bytes of arenas that the worker has mapped.
    pub(super) fn arena_bytes(&self) -> u64 {
        self.arenas.values().sum()
    }

    /// Hands over the arenas that the worker has not seen, then the attempts.
    pub(super) fn run<'a>(
        &mut self,
        message: &impl Serialize,
        arenas: impl Iterator<Item = (&'a ArenaId, &'a Arc<ClientArena>)>,
    ) -> Result<(), LinkError> {
        for (&id, arena) in arenas {
            if self.arenas.contains_key(&id) {
                continue;
            }
            self.share(id, arena)?;
            self.arenas.insert(id, arena.bytes());
        }
        self.send(message)
    }

    /// Hands over an arena.
    fn share(&self, id: ArenaId, arena: &Arena) -> Result<(), LinkError> {
        let message = OnLifeline::Arena(SharedArena { arena: id, bytes: arena.bytes() });
        let shared = arena.share().map_err(|error| LinkError::stuck(Chain(&error)))?;
        match self.send_on_lifeline(&message, Some(shared.as_fd()))? {
            true => Ok(()),
            false => Err(LinkError::stuck("the worker does not take its arenas")),
        }
    }

    /// Notes what it was sent, in that order.
    pub(super) fn begins(&mut self, sent: impl Iterator<Item = Begun>) {
        self.running.extend(sent);
    }

    /// It has answered an attempt, mostly the first that it was sent.
    pub(super) fn answered(&mut self, attempt: AttemptId) {
        if let Some(at) = self.running.iter().position(|begun| begun.attempt == attempt) {
            self.running.remove(at);
        }
    }

    /// An attempt that it was sent and has not answered.
    pub(super) fn begun(&self, attempt: AttemptId) -> Option<&Begun> {
        self.running.iter().find(|begun| begun.attempt == attempt)
    }

    /// Nobody wants the answer of an attempt: asks the worker to stop it. A worker of programs reads its channel only
    /// between two dispatches, so it hears of that on its lifeline. If that is full, the worker does not read,
    /// and is killed if it does not answer in time.
    pub(super) fn cancel(&self, attempt: AttemptId) -> Result<(), LinkError> {
        self.send_on_lifeline(&OnLifeline::Cancel { attempt }, None).map(drop)
    }

    /// Sends a message on the lifeline; `false` if that is full.
    fn send_on_lifeline(
        &self,
        message: &OnLifeline,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<bool, LinkError> {
        let bytes = frame::of(message, fd.iter().len()).map_err(LinkError::stuck)?;
        match frame::send_some(&self.lifeline, &bytes, fd.as_slice()) {
            Ok(0) => Ok(false),
            Ok(sent) if sent == bytes.len() => Ok(true),
            Ok(_) => Err(LinkError::stuck("the worker does not read its lifeline")),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(LinkError::Gone),
            Err(error) => Err(LinkError::stuck(error)),
        }
    }

    /// An arena is gone: asks the worker to unmap it between jobs.
    pub(super) fn forget(&mut self, arena: ArenaId) -> Result<(), LinkError> {
        if self.arenas.remove(&arena).is_some() {
            self.forget_next.insert(arena);
        }
        self.send_forget()
    }

    /// The worker has unmapped the arenas of the last `Forget`.
    pub(super) fn forgot(&mut self) -> Result<(), LinkError> {
        if !std::mem::take(&mut self.forget_outstanding) {
            return Err(LinkError::stuck("it has forgotten what it was not asked to forget"));
        }
        self.send_forget()
    }

    fn send_forget(&mut self) -> Result<(), LinkError> {
        if self.forget_outstanding || self.forget_next.is_empty() {
            return Ok(());
        }
        let next = iter::from_fn(|| self.forget_next.pop_first());
        let arenas = next.take(ARENAS_PER_FORGET).collect();
        self.forget_outstanding = true;
        self.send(&ToWorker::Forget { arenas })
    }

    /// Whether it can be sent anything.
    pub(super) fn is_connected(&self) -> bool {
        self.channel.is_some()
    }

    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), LinkError> {
        let channel = self.channel.as_ref();
        let channel = channel.ok_or_else(|| LinkError::stuck("it has not connected yet"))?;
        self.sends.during(|| channel.send(message)).map_err(|error| match error {
            _ if self.sends.is_stuck() => LinkError::stuck("it did not read its channel"),
            ChannelError::Disconnected => LinkError::Gone,
            ChannelError::Decode(_)
            | ChannelError::Encode(_)
            | ChannelError::Frame(_)
            | ChannelError::Io(_) => LinkError::stuck(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use gridpool_ipc::channel::Listener;
    use gridpool_protocol::chaos::ChaosFault;
    use gridpool_protocol::ids::{
        AttemptId, ClientId, DeviceId, DeviceKind, Group, JobId, WorkerId,
    };
    use gridpool_protocol::limits::{
        JOIN_INLINE_BYTES_MAX, JOIN_MAX, MODEL_NAME_BYTES_MAX, PROGRAM_BYTES_MAX,
    };
    use gridpool_protocol::message::{
        Assignment, Destination, Dispatch, Inline, Input, ModelCommand, Packing, Payload, Priority,
        Slice, Work,
    };
    use gridpool_protocol::program::Ties;
    use gridpool_protocol::receipt::ItemRange;
    use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
    use gridpool_protocol::trace::TraceId;

    use super::super::arenas::{Budget, OwnerLimits};
    use super::super::pidfd::PidFd;
    use super::super::sends::SendWatch;
    use super::*;
    use crate::config::INFER_WINDOW_MAX;

    /// The longest message that the core may send: every number has its longest encoding.
    fn largest_dispatch() -> ToWorker {
        let slice = Slice { arena: ArenaId(u64::MAX), offset: u64::MAX, bytes: u64::MAX };
        let assignment = |number| Assignment {
            attempt: AttemptId { job: JobId(u64::MAX), number: u32::MAX },
            client: ClientId(u64::MAX),
            priority: Priority::Low,
            payload: Payload {
                packing: Packing::Grids { items: u32::MAX, cells: u32::MAX },
                input: match number {
                    0 => Input::Inline(Inline(vec![1; JOIN_INLINE_BYTES_MAX])),
                    _ => Input::Arena(slice),
                },
                output: Destination::Arena(slice),
            },
            shard: ItemRange { start: u32::MAX, end: u32::MAX },
            deadline_ms: u64::MAX,
            trace: TraceId::new([u8::MAX; 16]),
            chaos: Some(ChaosFault::ALL[0]),
        };
        let assignments = (0..JOIN_MAX).map(assignment).collect();
        let work = Work::Program {
            text: "x".repeat(PROGRAM_BYTES_MAX),
            ties: Ties::Cpython,
            steps: gridpool_protocol::limits::STEPS_DEFAULT,
        };
        ToWorker::Dispatch(Box::new(Dispatch { work, assignments }))
    }

    fn link_to(pid: u32, lifeline: UnixStream) -> Link {
        let device = DeviceId { kind: DeviceKind::Cpu, index: 0 };
        let worker = WorkerId { device, group: Group::Grid, generation: 1 };
        Link::new(pid, Arc::new(Sends::new(worker, PidFd::open(pid).unwrap())), lifeline)
    }

    #[test]
    fn a_worker_that_lets_its_channel_fill_is_killed_and_the_send_ends() {
        let (listener, name) = Listener::open(&std::env::temp_dir()).unwrap();
        let sender = Sender::connect(&name).unwrap();
        let unread = listener.accept().unwrap();
        let (lifeline, _theirs) = UnixStream::pair().unwrap();
        // It lives until it is killed.
        let mut worker = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let _open = worker.stdin.take();
        let mut link = link_to(worker.id(), lifeline);
        link.open(sender);
        let watch = SendWatch::start().unwrap();
        watch.watch(&link.sends);
        // As the kernel does when a process ends.
        let killed = thread::spawn(move || {
            let ended = worker.wait().unwrap();
            drop(unread);
            ended.signal()
        });
        let error = iter::repeat_with(|| link.send(&largest_dispatch())).find_map(Result::err);
        assert_eq!(error.unwrap().to_string(), "it did not read its channel");
        assert_eq!(killed.join().unwrap(), Some(nix::libc::SIGKILL));
    }

    #[test]
    fn all_that_may_be_outstanding_is_sent_to_a_worker_that_reads_nothing() {
        let (listener, name) = Listener::open(&std::env::temp_dir()).unwrap();
        let sender = Sender::connect(&name).unwrap();
        let _unread = listener.accept().unwrap();
        let (lifeline, _worker) = UnixStream::pair().unwrap();
        let budget = Budget::from_system().unwrap();
        // Every member may bring two arenas that the worker has not seen. One descriptor does for all.
        let arena = Arc::new(budget.create(1, (0, 0), (None, OwnerLimits::of(8, None))).unwrap());
        let arenas: Vec<_> = (0..4 * JOIN_MAX as u64).map(ArenaId).collect();
        let mut link = link_to(std::process::id(), lifeline);
        link.open(sender);
        let (done, sent) = mpsc::channel();
        // Not joined: it may wait for ever.
        thread::spawn(move || {
            for arenas in arenas.chunks(2 * JOIN_MAX) {
                let arenas = arenas.iter().map(|id| (id, &arena));
                link.run(&largest_dispatch(), arenas).unwrap();
            }
            for id in 0..ARENAS_PER_FORGET as u64 {
                link.forget_next.insert(ArenaId(u64::MAX - id));
            }
            link.send_forget().unwrap();
            for number in 0..2 * u32::try_from(JOIN_MAX).unwrap() {
                let attempt = AttemptId { job: JobId(u64::MAX), number };
                link.cancel(attempt).unwrap();
            }
            link.send(&ToWorker::Stop).unwrap();
            done.send(()).unwrap();
        });
        let timeout = Duration::from_secs(60);
        assert_eq!(sent.recv_timeout(timeout), Ok(()), "a send waits for the worker");
    }

    #[test]
    fn all_that_may_be_outstanding_is_sent_to_a_worker_of_models_that_reads_nothing() {
        let (listener, name) = Listener::open(&std::env::temp_dir()).unwrap();
        let sender = Sender::connect(&name).unwrap();
        let _unread = listener.accept().unwrap();
        let (lifeline, _worker) = UnixStream::pair().unwrap();
        let budget = Budget::from_system().unwrap();
        let arena = Arc::new(budget.create(1, (0, 0), (None, OwnerLimits::of(8, None))).unwrap());
        let mut link = link_to(std::process::id(), lifeline);
        link.open(sender);
        let attempt = AttemptId { job: JobId(u64::MAX), number: u32::MAX };
        let window = usize::try_from(INFER_WINDOW_MAX).unwrap();
        let payload = Payload {
            packing: Packing::Tensors,
            input: Input::Inline(Inline(vec![1; JOIN_INLINE_BYTES_MAX / window])),
            output: Destination::Inline,
        };
        let (client, deadline_ms) = (ClientId(u64::MAX), u64::MAX);
        let shard = ItemRange { start: 0, end: 1 };
        let priority = Priority::Low;
        let trace = TraceId::new([u8::MAX; 16]);
        let assignment = Assignment {
            attempt,
            client,
            priority,
            payload,
            shard,
            deadline_ms,
            trace,
            chaos: None,
        };
        let work = Work::Model { name: "m".repeat(MODEL_NAME_BYTES_MAX) };
        let infer = ToWorker::Dispatch(Box::new(Dispatch { work, assignments: vec![assignment] }));
        let mut plan = ModelPlan {
            name: "m".repeat(MODEL_NAME_BYTES_MAX),
            path: "/m".into(),
            options: ModelOptions::default(),
        };
        while plan.check().is_ok() {
            plan.options.cpu_ops.insert(format!("{:0100}", plan.options.cpu_ops.len()));
        }
        let (done, sent) = mpsc::channel();
        // Not joined: it may wait for ever.
        thread::spawn(move || {
            for at in 0..window as u64 {
                let arenas = [ArenaId(2 * at), ArenaId(2 * at + 1)];
                link.run(&infer, arenas.iter().map(|id| (id, &arena))).unwrap();
                link.cancel(attempt).unwrap();
            }
            let command = Box::new(ModelCommand::Load(plan));
            let message = ToWorker::Model { number: u64::MAX, command };
            link.send(&message).unwrap();
            for id in 0..ARENAS_PER_FORGET as u64 {
                link.arenas.insert(ArenaId(u64::MAX - id), 1);
            }
            for id in 0..ARENAS_PER_FORGET as u64 {
                link.forget(ArenaId(u64::MAX - id)).unwrap();
            }
            link.forget_outstanding = false;
            link.send_forget().unwrap();
            link.send(&ToWorker::Stop).unwrap();
            done.send(()).unwrap();
        });
        sent.recv_timeout(Duration::from_secs(20)).expect("nothing blocks");
    }
}

//! The supervisor's side of `gridpool tracer`, a helper process that sends spans to a collector; and the spans of jobs.
//! Whether a job is recorded is decided when it is submitted; what is recorded is its receipt.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use gridpool_core::HelperStatus;
use gridpool_core::action::HelperAction;
use gridpool_core::event::{Event, Helper, HelperEvent};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::message::Work;
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::status::TracerStatus;
use gridpool_protocol::trace::TraceContext;

use super::Shell;
use super::confinement::Confinement;
use super::held::HeldJob;
use super::helper::{OwnProgram, Post, Processes, Program, Spawned};
use crate::traces::{
    Collector, Counts, JobKind, JobPacket, JobSpan, Packet, PacketSender, Sample, packet_sockets,
    unix_ns,
};

/// The tracer of a pool.
#[derive(Debug)]
pub(super) struct Tracer {
    collector: Collector,
    packets: PacketSender,
    counts: Arc<Mutex<Counted>>,
    processes: Arc<Processes>,
}

/// What the processes have counted.
#[derive(Debug, Default)]
struct Counted {
    /// Those before this one.
    before: Counts,
    last: Counts,
}

impl Counted {
    fn all(&self) -> Counts {
        Counts {
            exported: self.before.exported + self.last.exported,
            dropped: self.before.dropped + self.last.dropped,
        }
    }
}

impl Tracer {
    fn new(
        (collector, sample): (Collector, Sample),
        socket: PathBuf,
        confinement: Confinement,
        post: Post,
    ) -> io::Result<Self> {
        let (to, from) = packet_sockets()?;
        let counts = Arc::new(Mutex::<Counted>::default());
        let own = OwnProgram::new(socket, confinement);
        let starting = Starting {
            own,
            collector: collector.clone(),
            packets: from,
            counts: Arc::clone(&counts),
        };
        let processes = Processes::serve(Helper::Tracer, starting, post)?;
        Ok(Self { collector, packets: PacketSender::new(to, sample), counts, processes })
    }

    /// The span of a job whose client names this trace, or none; see [`JobSpan::begin`]. A trace that would begin here
    /// and is not recorded is of no use to anybody: the job has none.
    pub(super) fn begin(&self, trace: Option<TraceContext>) -> Option<JobSpan> {
        match trace {
            None => JobSpan::begin_recorded(self.packets.sample),
            parent => JobSpan::begin(parent, self.packets.sample),
        }
    }

    /// The socket of packets for the gateway, and how many traces that begin there are recorded.
    pub(super) fn for_gateway(&self) -> io::Result<(Sample, OwnedFd)> {
        Ok((self.packets.sample, self.packets.socket()?))
    }

    /// The process and what it counted.
    pub(super) fn status(&self, core: HelperStatus) -> TracerStatus {
        let counts = self.counts.lock().all();
        TracerStatus {
            collector: self.collector.to_string(),
            pid: self.processes.pid().unwrap_or(0),
            up: core.is_up,
            restarts: core.restarts,
            exported: counts.exported,
            dropped: counts.dropped,
            unsent: self.packets.unsent(),
        }
    }

    /// Whether it is the process of this number. Waits while one is being started.
    pub(super) fn is(&self, pid: u32) -> bool {
        self.processes.is(pid)
    }

    pub(super) fn perform(&self, action: HelperAction) {
        self.processes.perform(action);
    }
}

/// A job that has its verdict and is recorded.
#[derive(Debug)]
pub(super) struct TracedJob(Box<JobPacket>);

impl TracedJob {
    pub(super) fn new(span: JobSpan, held: &HeldJob, receipt: Box<Receipt>) -> Self {
        let kind = match held.submission.work {
            Work::Model { .. } => JobKind::Model,
            Work::Program { .. } => JobKind::Program,
            Work::Search { .. } => JobKind::Search,
        };
        let (user, ended_ns) = (held.principal.kind().to_owned(), unix_ns(clock::time_of_day()));
        let state = held.submission.trace_state.clone();
        Self(Box::new(JobPacket { span, state, ended_ns, kind, user, receipt }))
    }

    pub(super) fn send(self, tracer: &Tracer) {
        tracer.packets.send(&Packet::Job(self.0));
    }
}

impl Shell {
    /// Sends spans of jobs to a collector from now on, in a process of its own. Only the first call has an effect.
    ///
    /// # Errors
    /// The system's, if there is no thread or socket for it.
    pub fn trace(&self, collector: Collector, sample: Sample) -> io::Result<()> {
        let shared = &self.shared;
        let post = shared.helper_post(Helper::Tracer);
        let (socket, confinement) = (shared.socket.clone(), shared.confinement.clone());
        tracing::info!(%collector, %sample, "traces");
        let tracer = Tracer::new((collector, sample), socket, confinement, post)?;
        shared.tracer.get_or_init(|| tracer);
        shared.post(Event::Helper(Helper::Tracer, HelperEvent::Wanted));
        Ok(())
    }
}

/// How processes of the tracer are started.
struct Starting {
    own: OwnProgram,
    collector: Collector,
    /// The end that they read. It stays open, so that packets wait for the next process.
    packets: OwnedFd,
    counts: Arc<Mutex<Counted>>,
}

impl Program for Starting {
    type Output = UnixStream;

    fn spawn(&mut self) -> io::Result<Spawned<UnixStream>> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // A command line and an environment can be read by others. The socket has room for it.
        ours.write_all(&self.collector.header_line()?)?;
        let mut command = self.own.command("tracer", self.packets.try_clone()?, theirs);
        let child = command.args(["--collector", &self.collector.to_string()]).spawn()?;
        Ok(Spawned { child, output: ours.try_clone()?, link: Some(ours) })
    }

    fn on_line(&mut self, line: &[u8]) -> Result<bool, String> {
        let counts = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        self.counts.lock().last = counts;
        Ok(true)
    }

    fn on_lost(&mut self) {
        let mut counted = self.counts.lock();
        *counted = Counted { before: counted.all(), last: Counts::default() };
    }
}

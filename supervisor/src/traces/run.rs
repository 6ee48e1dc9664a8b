//! The process `gridpool tracer`: reads packets, writes signs of life with its counts, and ends when the supervisor
//! closes the link.

use std::fs::read_to_string;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::sandbox::Calls;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::collector::Collector;
use super::export::Exporter;
use super::packet::take;
use super::queue::Queue;
use super::spans::spans;
use crate::config::HOST_NAME;
use crate::helper::{HelperError, HelperFlags, NETWORK_FILES, system};
use crate::logging;

/// What the log may take of a minute.
const LOG_BYTES_PER_MINUTE: usize = 24 << 10;
/// How often the supervisor gets a sign of life.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long packets may gather after a look that found few: a supervisor that sends one in a hundred jobs then seldom
/// wakes this process, which costs it more than the packet. Less than what fills the socket at full rate.
const GATHER: Duration = Duration::from_millis(5);
/// So many are few.
const FEW: usize = 64;
/// How long the last spans may take.
const END_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Between two looks whether they are sent.
const END_LOOK: Duration = Duration::from_millis(10);

/// The error of one that a user starts.
const BY_HAND: &str = "`gridpool tracer` is started by `gridpool serve --trace`, and not by hand";

/// What the supervisor passes to the tracer.
#[derive(Clone, Debug, clap::Args)]
pub struct TracerFlags {
    #[command(flatten)]
    helper: HelperFlags,
    /// Where spans go.
    #[arg(long)]
    collector: Collector,
}

/// Sends spans until the supervisor closes the link or dies. Packets come over standard input.
///
/// # Errors
/// [`HelperError`]; the supervisor then starts another tracer.
pub fn run(flags: &TracerFlags) -> Result<(), HelperError> {
    let link = flags.helper.attach(BY_HAND)?;
    let collector = flags.collector.clone().read_headers(&link);
    let collector = collector.map_err(system("the collector's headers"))?;
    let packets = io::stdin().as_fd().try_clone_to_owned().map_err(system("the packets"))?;
    let reads = NETWORK_FILES.map(PathBuf::from).into_iter();
    flags.helper.confine(Calls::Network, reads)?;
    logging::write_aside().map_err(system("a thread for the log"))?;
    logging::limit(LOG_BYTES_PER_MINUTE);
    link.set_nonblocking(true).map_err(system("the supervisor's socket"))?;
    let host = read_to_string(HOST_NAME).unwrap_or_default().trim().to_owned();
    let instance = format!("{host}-{}", flags.helper.supervisor_pid);
    let about = [
        ("service.name", "gridpool"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &*instance),
        ("host.name", &*host),
    ];
    let exporter = Arc::new(Exporter::new(collector, &about));
    let queue = Arc::new(Queue::default());
    let (sender, sent) = (Arc::clone(&exporter), Arc::clone(&queue));
    let sending = thread::Builder::new().name("export".into()).spawn(move || sender.serve(&sent));
    let sending = sending.map_err(system("a thread that sends"))?;
    let mut tracer =
        Tracer { packets, exporter, queue, bytes: vec![0; FRAME_BYTES_MAX], is_full: false };
    let ended = tracer.stay(&link);
    tracer.take_all()?;
    tracer.queue.close();
    end(&sending);
    ended
}

/// Waits for the last spans, not for long.
fn end(sending: &JoinHandle<()>) {
    let until = clock::now() + END_TIMEOUT;
    while !sending.is_finished() && !clock::until(until).is_zero() {
        thread::park_timeout(END_LOOK);
    }
}

struct Tracer {
    packets: OwnedFd,
    exporter: Arc<Exporter>,
    queue: Arc<Queue>,
    bytes: Vec<u8>,
    /// Spans find no room, and the log says so already.
    is_full: bool,
}

impl Tracer {
    /// Reads packets until the supervisor closes its end of the link.
    fn stay(&mut self, mut link: &std::os::unix::net::UnixStream) -> Result<(), HelperError> {
        let mut beat = clock::now();
        let mut taken = 0;
        loop {
            if clock::until(beat).is_zero() {
                beat = clock::now() + BEAT_EVERY;
                let mut line = serde_json::to_vec(&self.exporter.counts())
                    .map_err(|error| system("its counts")(error.into()))?;
                line.push(b'\n');
                match link.write(&line) {
                    Ok(_) => {}
                    // The supervisor has not read yet. Enough lines are waiting for it.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Ok(()),
                }
            }
            let (packets, until) = match taken {
                1..=FEW => (PollFlags::empty(), beat.min(clock::now() + GATHER)),
                _ => (PollFlags::POLLIN, beat),
            };
            if self.wait(link, packets, until)? {
                return Ok(());
            }
            taken = self.take_all()?;
        }
    }

    /// Waits until a time, or for these events of the socket of packets. Returns whether the supervisor has closed the
    /// link.
    fn wait(
        &self,
        link: &std::os::unix::net::UnixStream,
        packets: PollFlags,
        until: Instant,
    ) -> Result<bool, HelperError> {
        let mut both = [
            PollFd::new(link.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.packets.as_fd(), packets),
        ];
        let left = clock::until(until) + Duration::from_millis(1);
        match poll(&mut both, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("waiting for packets")(errno.into())),
        }
        // The supervisor writes nothing there: it is readable once it is closed.
        Ok(both[0].any().unwrap_or(false))
    }

    /// Takes all packets that there are. Answers how many.
    fn take_all(&mut self) -> Result<usize, HelperError> {
        // Supervisor and gateway may send as fast as this reads: the sign of life must not wait for long.
        for count in 0..super::queue::SPANS_MAX {
            let taken = take(&self.packets, &mut self.bytes);
            match taken.map_err(|errno| system("reading packets")(errno.into()))? {
                None => return Ok(count),
                Some(Err(error)) => tracing::error!(%error, "a packet cannot be read"),
                Some(Ok(packet)) => self.put(spans(&packet)),
            }
        }
        Ok(super::queue::SPANS_MAX)
    }

    fn put(&mut self, spans: Vec<opentelemetry_proto::tonic::trace::v1::Span>) {
        let count = spans.len();
        let is_full = !self.queue.put(spans);
        if is_full {
            self.exporter.drops(count);
            if !self.is_full {
                tracing::warn!("the collector is too slow: spans are dropped");
            }
        }
        self.is_full = is_full;
    }
}

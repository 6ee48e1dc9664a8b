//! What supervisor and gateway tell the tracer: a packet for each job and each request that is recorded, through a
//! socket that keeps packets apart. Nobody waits for it: what does not fit is dropped and counted.

use std::cell::RefCell;
use std::io;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gridpool_protocol::codec::{self, DecodeError};
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::trace::{SpanId, TraceContext, TraceId, TraceState};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// Bytes of packets that may wait for the tracer, if the system allows so many.
const WAITING_BYTES: usize = 1 << 20;

/// The span of a job or request: itself as others see it, and who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobSpan {
    pub(crate) own: TraceContext,
    pub(crate) parent: Option<SpanId>,
}

impl JobSpan {
    /// A new span below `parent`; without one it begins a trace, which `sample` decides to record or not. `None` if no
    /// trace that begins here is recorded.
    pub(crate) fn begin(parent: Option<TraceContext>, sample: Sample) -> Option<Self> {
        match parent {
            Some(parent) => Some(Self { own: parent.at(new_span()), parent: Some(parent.span) }),
            None if sample.takes_none() => None,
            None => {
                let trace = new_trace();
                let own = TraceContext::begin(trace, new_span(), sample.takes(trace));
                Some(Self { own, parent: None })
            }
        }
    }

    /// The span of a job whose trace begins here, if it is recorded. Most are not, so what decides that is cheap.
    pub(crate) fn begin_recorded(sample: Sample) -> Option<Self> {
        thread_local! {
            static ENDS: RefCell<SmallRng> = RefCell::new(SmallRng::from_rng(&mut rand::rng()));
        }
        if sample.takes_none() {
            return None;
        }
        let end: [u8; 7] = ENDS.with_borrow_mut(Rng::random);
        if !sample.takes_end(end) {
            return None;
        }
        let with_start = || {
            let mut bytes = [0; 16];
            bytes[..9].copy_from_slice(&rand::random::<[u8; 9]>());
            bytes[9..].copy_from_slice(&end);
            bytes
        };
        let trace = numbered(with_start, TraceId::new);
        Some(Self { own: TraceContext::begin(trace, new_span(), true), parent: None })
    }
}

/// A number that is not 0.
fn numbered<B, N>(draw: impl FnMut() -> B, number: impl FnMut(B) -> Option<N>) -> N {
    iter::repeat_with(draw).find_map(number).expect("one of many is not 0")
}

fn new_trace() -> TraceId {
    numbered(rand::random, TraceId::new)
}

/// The number of a new span.
pub(super) fn new_span() -> SpanId {
    numbered(rand::random, SpanId::new)
}

/// What there is to record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Packet {
    /// A job has its verdict.
    Job(Box<JobPacket>),
    /// A request of HTTP or gRPC has its answer.
    Request(RequestPacket),
}

/// What kind of work a job was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobKind {
    Model,
    Program,
    Search,
}

/// A job that has its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobPacket {
    pub(crate) span: JobSpan,
    /// What systems on the way of its trace have noted.
    pub(crate) state: Option<TraceState>,
    /// When it got its verdict, nanoseconds from 1970.
    pub(crate) ended_ns: u64,
    pub(crate) kind: JobKind,
    /// What kind of user it was for.
    pub(crate) user: String,
    pub(crate) receipt: Box<Receipt>,
}

/// A request that has its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestPacket {
    pub(crate) span: JobSpan,
    /// What systems on the way of its trace have noted.
    pub(crate) state: Option<TraceState>,
    /// When it came and when it was answered, nanoseconds from 1970.
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) asked: Asked,
    /// What kind of user sent it, once that is known.
    pub(crate) user: Option<String>,
}

/// What was asked for, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// Over gRPC.
    Grpc { service: String, method: String, code: i32 },
    /// Over HTTP. The client of one without a status has hung up.
    Http { method: String, route: String, status: Option<u16> },
}

/// A sender for each process, and the end of the tracer.
pub(crate) fn packet_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (to, from) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    // The system takes what it allows of that.
    setsockopt(&to, sockopt::SndBuf, &WAITING_BYTES)?;
    Ok((to, from))
}

/// What the supervisor hands to a gateway, each with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Handed {
    /// A listening socket, and what is spoken there.
    Listens(gridpool_protocol::handover::Protocol),
    /// The socket of packets, and how many traces that begin here are recorded.
    Traces(Sample),
    /// The socket by which files of shared memory are opened.
    Memory,
    /// The socket by which the model repository is listed.
    Repository,
}

/// The end into which packets go.
#[derive(Debug)]
pub(crate) struct PacketSender {
    socket: OwnedFd,
    pub(crate) sample: Sample,
    unsent: AtomicU64,
    is_full: AtomicBool,
}

impl PacketSender {
    pub(crate) fn new(socket: OwnedFd, sample: Sample) -> Self {
        Self { socket, sample, unsent: AtomicU64::new(0), is_full: AtomicBool::new(false) }
    }

    /// The socket, for another process.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Packets that were dropped.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Sends a packet if there is room for it.
    pub(crate) fn send(&self, packet: &Packet) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent = codec::encode(packet).map_err(|error| {
            tracing::debug!(%error, "a packet for the tracer");
            Errno::EMSGSIZE
        });
        match sent.and_then(|bytes| send(self.socket.as_raw_fd(), &bytes, flags)) {
            Ok(_) => self.is_full.store(false, Ordering::Relaxed),
            // One that never fits says nothing of the tracer.
            Err(Errno::EMSGSIZE) => {
                self.unsent.fetch_add(1, Ordering::Relaxed);
                tracing::debug!("what is too large for the tracer has no span");
            }
            Err(error) => {
                self.unsent.fetch_add(1, Ordering::Relaxed);
                // Once until there is room again.
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the tracer is slow or away: spans are dropped");
                }
            }
        }
    }
}

/// Takes a packet from the tracer's end, if there is one. `bytes` has room for the largest.
pub(super) fn take(
    socket: &OwnedFd,
    bytes: &mut [u8],
) -> Result<Option<Result<Packet, DecodeError>>, Errno> {
    match recv(socket.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
        // Every sender has gone: the supervisor has, and the kernel ends this process.
        Ok(0) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Ok(length) => Ok(Some(codec::decode(&bytes[..length]))),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gridpool_protocol::limits::FRAME_BYTES_MAX;

    use super::*;

    #[test]
    fn no_two_traces_and_no_two_spans_have_one_number() {
        let begun: Vec<_> =
            (0..100).map(|_| JobSpan::begin(None, Sample::default()).unwrap().own).collect();
        let traces: BTreeSet<_> = begun.iter().map(|own| own.trace.bytes()).collect();
        let spans: BTreeSet<_> = begun.iter().map(|own| own.span.bytes()).collect();
        assert_eq!((traces.len(), spans.len()), (100, 100));
        // Neither is a part of the other, nor does one thread draw what another has drawn.
        assert!(
            traces
                .iter()
                .all(|trace| !spans.iter().any(|span| trace.windows(8).any(|part| part == span)))
        );
        let recorded = || JobSpan::begin_recorded(Sample::default()).unwrap().own.trace;
        let more: BTreeSet<_> = (0..100).map(|_| recorded().bytes()).collect();
        let elsewhere = std::thread::spawn(move || recorded().bytes()).join().unwrap();
        assert!(more.len() == 100 && !more.contains(&elsewhere) && more.is_disjoint(&traces));
        let other = std::thread::spawn(new_trace).join().unwrap();
        assert!(!traces.contains(&other.bytes()));
    }

    fn packet() -> Packet {
        let span = JobSpan::begin(None, Sample::default()).unwrap();
        let asked = Asked::Http { method: "GET".into(), route: "/v2".into(), status: Some(200) };
        Packet::Request(RequestPacket {
            span,
            state: None,
            began_ns: 1,
            ended_ns: 2,
            asked,
            user: None,
        })
    }

    #[test]
    fn packets_arrive_one_by_one_and_a_full_socket_drops_them_and_counts() {
        let (to, from) = packet_sockets().unwrap();
        let sender = PacketSender::new(to, Sample::default());
        let mut bytes = vec![0; FRAME_BYTES_MAX];
        assert!(take(&from, &mut bytes).unwrap().is_none());
        let (one, other) = (packet(), packet());
        sender.send(&one);
        sender.send(&other);
        for packet in [one, other] {
            assert_eq!(take(&from, &mut bytes).unwrap().unwrap().unwrap(), packet);
        }
        let packet = packet();
        while sender.unsent() == 0 {
            sender.send(&packet);
        }
        let mut arrived = 0;
        while take(&from, &mut bytes).unwrap().is_some() {
            arrived += 1;
        }
        assert!(arrived > 100, "{arrived}");
        sender.send(&packet);
        assert_eq!(sender.unsent(), 1, "there is room again");
    }

    #[test]
    fn a_packet_that_never_fits_does_not_say_that_the_tracer_is_slow() {
        let (to, _from) = packet_sockets().unwrap();
        let sender = PacketSender::new(to, Sample::default());
        let Packet::Request(mut large) = packet() else { unreachable!("it is a request") };
        large.user = Some("x".repeat(3 * WAITING_BYTES));
        sender.send(&Packet::Request(large));
        assert_eq!((sender.unsent(), sender.is_full.load(Ordering::Relaxed)), (1, false));
    }

    /// Of 100,000 fair draws the ratio lies within 5,000 of its mean, 31 times what they spread.
    #[test]
    fn of_traces_that_begin_here_the_ratio_is_recorded() {
        let half = "0.5".parse::<Sample>().unwrap();
        let recorded: Vec<_> = (0..100_000).filter_map(|_| JobSpan::begin_recorded(half)).collect();
        assert!((45_000..55_000).contains(&recorded.len()), "{}", recorded.len());
        let is_right = |span: &JobSpan| half.takes(span.own.trace) && span.own.is_sampled();
        assert!(recorded.iter().all(is_right));
        assert_eq!(JobSpan::begin_recorded("0".parse().unwrap()), None);
    }

    #[test]
    fn a_span_below_another_keeps_its_trace_and_decision() {
        let none = "0".parse().unwrap();
        assert_eq!(JobSpan::begin(None, none), None, "nothing begins, not even a number");
        let few = "0.000001".parse().unwrap();
        let unlikely = JobSpan::begin(None, few).unwrap();
        assert_eq!(
            (unlikely.parent, few.takes(unlikely.own.trace)),
            (None, unlikely.own.is_sampled())
        );
        let root = JobSpan::begin(None, Sample::default()).unwrap();
        assert!(root.own.is_sampled());
        let below = JobSpan::begin(Some(root.own), none).unwrap();
        assert_eq!((below.own.trace, below.parent), (root.own.trace, Some(root.own.span)));
        assert!(below.own.is_sampled() && below.own.span != root.own.span);
    }
}

//! Traces: `gridpool tracer`, the helper process that sends spans to an OpenTelemetry collector, and what the others
//! tell it. `gridpool serve --trace URL` starts it; without that there is none of all this.
//!
//! Spans are made after the fact, from receipts: nobody who runs a job knows of them. Supervisor and gateway put a
//! packet for each job and request into one end of a socket, and never wait: if it is full, the packet is dropped
//! and counted. The tracer has the other end. It makes spans of packets, keeps a limited queue, and sends
//! it. If it dies or its collector does not answer, spans are lost, and no job waits.

mod collector;
mod export;
mod headers;
mod packet;
mod queue;
mod run;
mod sample;
mod spans;

pub use collector::Collector;
pub use headers::{Headers, VARIABLE as HEADERS_VARIABLE};
pub(crate) use packet::{
    Asked, Handed, JobKind, JobPacket, JobSpan, Packet, PacketSender, RequestPacket, packet_sockets,
};
pub use run::{TracerFlags, run};
pub use sample::Sample;

/// What the tracer has counted, as it tells the supervisor each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Counts {
    /// Spans that the collector has taken.
    pub(crate) exported: u64,
    /// Spans that it has not.
    pub(crate) dropped: u64,
}

/// Nanoseconds from 1970 to a time of day.
pub(crate) fn unix_ns(time: std::time::SystemTime) -> u64 {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

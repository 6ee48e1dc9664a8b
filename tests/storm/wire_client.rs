//! A client that speaks the wire format itself and logs every message. It sees a reply that comes twice, or
//! for a job it never sent; the client library would pass over those.
//!
//! It keeps a few jobs under way at a time, in rounds. At the end of a round it waits for all replies that are
//! due, and the checker checks its history. So a storm of any length takes no more memory than a round.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::frame::FrameError;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::{INLINE_BYTES_MAX, PROTOCOL_VERSION};
use gridpool_protocol::message::{
    self, ClientMessage, Destination, Inline, Priority, Refusal, ServerMessage, Submission,
};
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::status::Counters;

use super::board::Board;
use super::history::{Event, Found, Reply, Submitted};
use super::workload::{Request, Size, Workload};
use crate::harness::raw::{Memory, Raw, in_arena_batch, inline_batch};
use crate::oracle::samples::SplitMix64;

/// The deadline of a job that is not about deadlines.
pub const AMPLE: Duration = Duration::from_secs(120);
/// How long after its deadline a verdict is waited for; then it is lost.
const LATE_MAX: Duration = Duration::from_secs(15);
/// Silence after which the pool is asked whether it still has a job at all.
const SILENCE: Duration = Duration::from_millis(500);

/// Jobs in a thousand that are what they are called.
#[derive(Clone, Copy, Debug)]
pub struct JobMix {
    /// Jobs under way at a time.
    pub depth: usize,
    /// Of some hundred grids, in shared memory.
    pub middle: usize,
    /// Large enough to be split.
    pub large: usize,
    /// Cancelled at once.
    pub cancelled: usize,
    /// With a deadline of a few milliseconds.
    pub hasty: usize,
    /// That may run once.
    pub once: usize,
    /// Sent again under the same key, at once or after the verdict.
    pub repeated: usize,
}

impl JobMix {
    /// Small jobs, one kind, nothing else: every job ends OK.
    pub const PLAIN: Self =
        Self { depth: 4, middle: 0, large: 0, cancelled: 0, hasty: 0, once: 0, repeated: 0 };
    /// Some of everything.
    pub const MIXED: Self =
        Self { depth: 3, middle: 40, large: 4, cancelled: 15, hasty: 15, once: 30, repeated: 20 };
}

/// A job that has no verdict yet.
#[derive(Debug)]
struct Flight {
    request: Request,
    sent: Instant,
    accepted: bool,
    memory: Option<Memory>,
    submission: Submission,
}

/// See the module's text.
#[derive(Debug)]
pub struct WireClient<'a> {
    raw: Raw,
    workload: &'a Workload,
    mix: JobMix,
    board: &'a Board,
    rng: SplitMix64,
    began: Instant,
    /// The upper half of its keys.
    name: u64,
    next: u64,
    flights: BTreeMap<JobKey, Flight>,
    free: Vec<Memory>,
    history: Vec<Event>,
    counters: Option<Counters>,
}

impl<'a> WireClient<'a> {
    /// A client called `name`, which draws its jobs from it; the names of a storm differ.
    ///
    /// # Errors
    /// A sentence, if the pool does not let it in.
    pub fn enter(
        socket: &Path,
        workload: &'a Workload,
        mix: JobMix,
        board: &'a Board,
        name: u64,
    ) -> Result<Self, String> {
        let mut raw = Raw::try_connect(socket).map_err(|error| error.to_string())?;
        raw.say(&ClientMessage::Hello { version: PROTOCOL_VERSION });
        match raw.try_hear() {
            Ok(ServerMessage::Welcome { .. }) => {}
            other => return Err(format!("no welcome: {other:?}")),
        }
        let (rng, began) = (SplitMix64::new(name), clock::now());
        let (flights, free, history) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (next, counters) = (0, None);
        Ok(Self {
            raw,
            workload,
            mix,
            board,
            rng,
            began,
            name,
            next,
            flights,
            free,
            history,
            counters,
        })
    }

    /// Sends jobs until `count` were sent or `stop` says so, waits for all that is due, and gives what
    /// it saw since the last round.
    pub fn round(&mut self, count: usize, stop: impl Fn() -> bool) -> Vec<Event> {
        let mut left = count;
        while left > 0 && !stop() {
            if self.flights.len() < self.mix.depth {
                left -= 1;
                if let Err(error) = self.send_one() {
                    return self.broken(&error);
                }
            } else {
                match self.wait() {
                    Ok(true) => {}
                    // More would not be answered either.
                    Ok(false) => break,
                    Err(error) => return self.broken(&error),
                }
            }
        }
        if let Err(error) = self.settle() {
            return self.broken(&error);
        }
        std::mem::take(&mut self.history)
    }

    /// The connection ended, or worse.
    fn broken(&mut self, error: &FrameError) -> Vec<Event> {
        self.history.push(Event::Broke(None, error.to_string()));
        std::mem::take(&mut self.history)
    }

    /// Whether its connection ended: it is of no further use.
    #[must_use]
    pub fn is_broken(history: &[Event]) -> bool {
        matches!(history.last(), Some(Event::Broke(None, _)))
    }

    // ---- sending ----

    fn draw(&mut self, in_a_thousand: usize) -> bool {
        self.rng.below(1_000) < in_a_thousand
    }

    fn request(&mut self) -> Request {
        let mix = self.mix;
        let number = self.next;
        self.next += 1;
        let tag = (self.name % 1_000_000_000) * 10_000_000_000 + number;
        let size = self.rng.below(1_000);
        let size = match size {
            size if size < mix.large => Size::Large,
            size if size < mix.large + mix.middle => Size::Middle,
            _ if mix.middle == 0 => return self.workload.plain(tag),
            _ => Size::Small,
        };
        self.workload.request(size, tag, &mut self.rng)
    }

    fn send_one(&mut self) -> Result<(), FrameError> {
        let request = self.request();
        let key = JobKey(u128::from(self.name) << 64 | u128::from(self.next));
        let (input, output) = request.packed_bytes();
        let mut memory = None;
        let mut submission = if input.max(output) <= INLINE_BYTES_MAX {
            inline_batch(key.0, request.program().text(), request.batch())
        } else {
            let place = self.memory((input + output) as u64)?;
            let submission = in_arena_batch(key.0, request.program(), request.batch(), &place);
            memory = Some(place);
            submission
        };
        let deadline = if self.draw(self.mix.hasty) {
            Duration::from_millis(self.rng.below(8) as u64)
        } else {
            AMPLE
        };
        submission.terms.deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        submission.terms.priority =
            self.rng.pick(&[Priority::High, Priority::Normal, Priority::Normal, Priority::Low]);
        submission.terms.idempotent = !self.draw(self.mix.once);
        let flight = Flight { request, sent: clock::now(), accepted: false, memory, submission };
        self.submit(&flight);
        if self.draw(self.mix.repeated) {
            self.submit(&flight);
        }
        self.flights.insert(key, flight);
        if self.draw(self.mix.cancelled) {
            self.history.push(Event::Cancelled(key));
            self.raw.say(&ClientMessage::Cancel { key });
        }
        Ok(())
    }

    fn submit(&mut self, flight: &Flight) {
        let (key, terms) = (flight.submission.key, flight.submission.terms);
        self.history.push(Event::Submitted(Submitted {
            key,
            expected: flight.request.expected(),
            idempotent: terms.idempotent,
            at: self.began.elapsed(),
            deadline: Duration::from_millis(terms.deadline_ms),
        }));
        self.raw.say(&ClientMessage::Submit(Box::new(flight.submission.clone())));
    }

    /// A free arena with room, or a new one.
    fn memory(&mut self, bytes: u64) -> Result<Memory, FrameError> {
        let fits = self.free.iter().position(|memory| memory.arena.bytes() >= bytes);
        if let Some(at) = fits {
            return Ok(self.free.swap_remove(at));
        }
        let request = self.next;
        self.raw.say(&ClientMessage::CreateArena { request, bytes });
        loop {
            if let Some(made) = self.hear(AMPLE)? {
                return Ok(made);
            }
        }
    }

    // ---- hearing ----

    /// Takes in the next message, if one comes; gives the arena that it brings.
    fn hear(&mut self, timeout: Duration) -> Result<Option<Memory>, FrameError> {
        let Some((message, arena)) = self.raw.hear_within(timeout)? else { return Ok(None) };
        match message {
            ServerMessage::Accepted { key } => {
                self.history.push(Event::Accepted(key));
                self.flights.entry(key).and_modify(|flight| flight.accepted = true);
            }
            ServerMessage::Refused { key, refusal } => self.on_refused(key, refusal),
            ServerMessage::Done { key, receipt, output, replayed } => {
                self.on_done(key, &receipt, output, replayed);
            }
            ServerMessage::ArenaCreated { arena: id, .. } => {
                let arena = arena.expect("the frame brings it");
                let map = arena.map().expect("it can be mapped");
                return Ok(Some(Memory { id, map, arena }));
            }
            ServerMessage::Reply { reply: message::Reply::Status(status), .. } => {
                self.counters = Some(status.counters);
            }
            ServerMessage::Reply { .. }
            | ServerMessage::Denied { .. }
            | ServerMessage::Drained { .. }
            | ServerMessage::Granted { .. }
            | ServerMessage::Welcome { .. } => {}
            ServerMessage::Closing { reason } => {
                self.history.push(Event::Broke(None, reason));
                return Err(FrameError::Closed);
            }
        }
        Ok(None)
    }

    fn on_refused(&mut self, key: JobKey, refusal: Refusal) {
        self.history.push(Event::Refused(key, refusal));
        // Of a job that was sent twice, the second may be refused.
        if self.flights.get(&key).is_some_and(|flight| !flight.accepted) {
            let flight = self.flights.remove(&key);
            self.free.extend(flight.and_then(|flight| flight.memory));
        }
    }

    fn on_done(&mut self, key: JobKey, receipt: &Receipt, output: Option<Inline>, replayed: bool) {
        let at = self.began.elapsed();
        if replayed {
            let found = Found::Nothing;
            self.history.push(Event::Replied(Reply::new(key, at, receipt, true, found)));
            return;
        }
        let Some(flight) = self.flights.remove(&key) else {
            // No job of ours waits for it. The checker judges it by what was sent under this key, if anything was.
            let found = Found::Nothing;
            self.history.push(Event::Replied(Reply::new(key, at, receipt, false, found)));
            return;
        };
        let found = match receipt.verdict {
            Verdict::Ok => flight.result(output),
            Verdict::Cancelled
            | Verdict::Deadline
            | Verdict::DeviceLost
            | Verdict::Failed
            | Verdict::Poison => match output {
                Some(_) => Found::Malformed("a result without OK".to_owned()),
                None => Found::Nothing,
            },
        };
        let is_right = found == Found::Digest(flight.request.expected());
        self.board.answered(receipt, is_right, flight.sent, clock::now());
        self.history.push(Event::Replied(Reply::new(key, at, receipt, false, found)));
        // After a verdict, the same again is answered from memory, if the pool still knows it.
        if receipt.verdict == Verdict::Ok && self.draw(self.mix.repeated) {
            self.submit(&flight);
        }
        match (receipt.verdict, flight.memory) {
            (Verdict::Ok, memory) => self.free.extend(memory),
            // A worker that is being killed may still write there.
            (_, Some(memory)) => self.raw.say(&ClientMessage::DropArena { arena: memory.id }),
            (_, None) => {}
        }
    }

    // ---- the end of a round ----

    /// Submissions that have not been answered by any word.
    fn unanswered(&self) -> usize {
        let count = |is: fn(&Event) -> bool| self.history.iter().filter(|event| is(event)).count();
        let sent = count(|event| matches!(event, Event::Submitted(_)));
        let words = count(|event| match event {
            Event::Accepted(_) | Event::Refused(..) => true,
            Event::Replied(reply) => reply.replayed,
            Event::Broke(..) | Event::Cancelled(_) | Event::Submitted(_) => false,
        });
        sent.saturating_sub(words)
    }

    /// Waits for every word that is due, for as long as any may still come; and then for the answer to a
    /// question, behind which nothing is left that was said before: a last reply that comes twice.
    fn settle(&mut self) -> Result<(), FrameError> {
        while !(self.flights.is_empty() && self.unanswered() == 0) && self.wait()? {}
        self.pool_is_empty().map(drop)
    }

    /// Takes in a word; whether there is use in waiting for another. There is none for a verdict that is
    /// long overdue, nor for any once the pool says that it has no job left: it has then said all it will.
    fn wait(&mut self) -> Result<bool, FrameError> {
        let heard = self.history.len();
        self.hear(SILENCE)?;
        if self.history.len() > heard {
            return Ok(true);
        }
        let oldest = self.flights.values().map(|flight| flight.sent).min();
        let is_overdue = oldest.is_some_and(|sent| clock::until(sent + AMPLE + LATE_MAX).is_zero());
        Ok(!is_overdue && !self.pool_is_empty()?)
    }

    /// Whether every job that the pool has accepted had its verdict when it was asked. Its answer comes
    /// behind all verdicts before it.
    fn pool_is_empty(&mut self) -> Result<bool, FrameError> {
        self.counters = None;
        self.raw.say(&ClientMessage::Status { request: 0, token: None });
        let heard = self.history.len();
        let give_up = clock::now() + LATE_MAX;
        while self.counters.is_none() && !clock::until(give_up).is_zero() {
            self.hear(SILENCE)?;
        }
        let quiet = self.history.len() == heard;
        Ok(quiet && self.counters.is_some_and(|sums| live(&sums) == 0))
    }
}

impl Flight {
    /// What came of it: from the answer or from the arena.
    fn result(&self, output: Option<Inline>) -> Found {
        let bytes = match (&self.submission.payload.output, &self.memory, output) {
            (Destination::Inline, _, Some(Inline(bytes))) => bytes,
            (Destination::Arena(slice), Some(memory), None) => {
                let place = memory.map.all().part(slice.offset, slice.bytes);
                let place = place.expect("the client chose a place within the arena");
                let mut bytes = vec![0; place.bytes()];
                place.read(0, &mut bytes);
                bytes
            }
            (_, _, Some(_)) => {
                return Found::Malformed("an inline result, not asked for".to_owned());
            }
            (_, _, None) => return Found::Nothing,
        };
        match self.request.digest_packed(bytes) {
            Ok(digest) => Found::Digest(digest),
            Err(error) => Found::Malformed(error.to_string()),
        }
    }
}

/// Jobs that were accepted and have no verdict.
#[must_use]
pub fn live(sums: &Counters) -> u64 {
    let ended =
        [sums.ok, sums.failed, sums.deadline, sums.poison, sums.cancelled, sums.device_lost];
    sums.accepted.saturating_sub(ended.iter().sum())
}

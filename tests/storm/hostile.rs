//! Clients that break every rule while others work: half a frame, garbage, strange descriptors, floods,
//! shared memory that is scribbled over, punched and truncated, and ends in the middle of anything.
//!
//! None of this expects an answer. What the pool owes is owed to the others.

use std::fs::File;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::ids::{ArenaId, JobKey};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{ClientMessage, Destination, Input, ServerMessage, Submission};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::ftruncate;

use crate::harness::raw::{Memory, Raw, counts, dev_null, in_arena, inline, text, times};
use crate::harness::wait::pause;
use crate::oracle::samples::{SplitMix64, random_grids};

/// How long a hostile client waits for anything.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Silent connections that are kept open at a time.
const SILENT_MAX: usize = 12;
/// Size of the memory that is spoilt.
const ROOM: u64 = 1 << 20;

/// Does one thing after the other until `stop`, at most one in `every`; counts them.
pub fn harass(socket: &Path, seed: u64, every: Duration, deeds: &AtomicU64, stop: &AtomicBool) {
    let mut rng = SplitMix64::new(seed);
    let mut silent = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let next = clock::now() + every;
        // A pool that is full says BUSY and hangs up: then there is nothing to do.
        act(socket, &mut rng, &mut silent).unwrap_or_default();
        deeds.fetch_add(1, Ordering::Relaxed);
        pause(clock::until(next), stop);
    }
}

fn act(socket: &Path, rng: &mut SplitMix64, silent: &mut Vec<Raw>) -> Option<()> {
    match rng.below(14) {
        0 => {
            silent.truncate(SILENT_MAX - 1);
            silent.insert(0, Raw::try_connect(socket).ok()?);
        }
        1 => half_a_frame(socket, rng, silent)?,
        2 => Raw::try_connect(socket).ok()?.send(&noise(rng)),
        3 => greeted(socket)?.send(&noise(rng)),
        4 => strange_descriptors(&greeted(socket)?, rng),
        5 => strange_descriptors(&Raw::try_connect(socket).ok()?, rng),
        6 => flood(&greeted(socket)?, rng),
        7 => vanish(greeted(socket)?, rng)?,
        8 => spoil(greeted(socket)?, rng)?,
        9 => nonsense(&mut greeted(socket)?, rng)?,
        10 => ask_and_leave(&greeted(socket)?, rng),
        11 => arenas(&mut greeted(socket)?, rng)?,
        _ => flipped(greeted(socket)?, rng)?,
    }
    Some(())
}

/// A connection that has shaken hands, if the pool lets us.
fn greeted(socket: &Path) -> Option<Raw> {
    let mut raw = Raw::try_connect(socket).ok()?;
    raw.say(&ClientMessage::Hello { version: PROTOCOL_VERSION });
    match raw.hear_within(TIMEOUT).ok()?? {
        (ServerMessage::Welcome { .. }, _) => Some(raw),
        _ => None,
    }
}

fn packed(message: &ClientMessage) -> Vec<u8> {
    frame::pack(&codec::encode(message).expect("it fits a frame"), 0)
}

/// A key that no honest client has: theirs have a number in the lower half that is small.
fn key(rng: &mut SplitMix64) -> u128 {
    u128::from(rng.number()) << 64 | u128::from(rng.number() | 1 << 63)
}

fn job(rng: &mut SplitMix64) -> Submission {
    let grids = random_grids(rng.number(), 1 + rng.below(4));
    inline(key(rng), &grids)
}

fn half_a_frame(socket: &Path, rng: &mut SplitMix64, silent: &mut Vec<Raw>) -> Option<()> {
    let whole = packed(&ClientMessage::Submit(Box::new(job(rng))));
    let raw = greeted(socket)?;
    raw.send(&whole[..1 + rng.below(whole.len() - 1)]);
    match rng.below(3) {
        0 => drop(raw),
        1 => raw.socket().shutdown(Shutdown::Write).ok()?,
        _ => {
            silent.truncate(SILENT_MAX - 1);
            silent.insert(0, raw);
        }
    }
    Some(())
}

/// Bytes that are no message, some with a header that promises one.
fn noise(rng: &mut SplitMix64) -> Vec<u8> {
    let length = 1 + rng.below(600);
    let mut bytes: Vec<u8> = (0..length).map(|_| rng.number().to_le_bytes()[0]).collect();
    match rng.below(4) {
        // A frame of a length of its own, of one that is too long, of the right one.
        0 => drop(bytes.splice(0..0, *b"GPL1")),
        1 => drop(bytes.splice(0..0, *b"GPL1\0\0\0\0\xff\xff\xff\x7f")),
        2 => return frame::pack(&bytes, 0),
        _ => {}
    }
    bytes
}

fn strange_descriptors(raw: &Raw, rng: &mut SplitMix64) {
    let Ok((pair, _other)) = UnixStream::pair() else { return };
    let (null, folder) = (dev_null(), File::open("/"));
    let Ok(folder) = folder else { return };
    let mut fds: Vec<BorrowedFd<'_>> = match rng.below(5) {
        0 => vec![pair.as_fd()],
        1 => vec![folder.as_fd()],
        2 => times(&null, 200),
        3 => vec![raw.socket().as_fd()],
        _ => vec![null.as_fd(), pair.as_fd(), folder.as_fd()],
    };
    rng.shuffle(&mut fds);
    let mut bytes = packed(&ClientMessage::Hello { version: PROTOCOL_VERSION });
    if rng.below(2) == 0 {
        bytes[4] = 1;
    }
    raw.send_with(&bytes, &fds);
}

/// As many jobs or questions as the socket takes, and nothing read.
fn flood(raw: &Raw, rng: &mut SplitMix64) {
    let many: Vec<u8> = if rng.below(2) == 0 {
        (0..200).flat_map(|_| packed(&ClientMessage::Submit(Box::new(job(rng))))).collect()
    } else {
        (0..2_000)
            .flat_map(|request| packed(&ClientMessage::Status { request, token: None }))
            .collect()
    };
    if raw.socket().set_nonblocking(true).is_ok() {
        // What does not fit is of no interest.
        drop(raw.socket().write_all(&many));
    }
}

/// Jobs of several kinds, and gone before any is done.
fn vanish(mut raw: Raw, rng: &mut SplitMix64) -> Option<()> {
    for _ in 0..1 + rng.below(8) {
        raw.say(&ClientMessage::Submit(Box::new(job(rng))));
    }
    let memory = arena(&mut raw)?;
    let grids = random_grids(rng.number(), 200);
    raw.say(&ClientMessage::Submit(Box::new(in_arena(key(rng), &grids, &memory))));
    // Half a batch over the one that may be running.
    memory.map.all().write(0, &vec![0xee; 60_000]);
    Some(())
}

/// Shared memory that changes, or goes, while a job is over it.
fn spoil(mut raw: Raw, rng: &mut SplitMix64) -> Option<()> {
    let memory = arena(&mut raw)?;
    let grids = random_grids(rng.number(), 300);
    raw.say(&ClientMessage::Submit(Box::new(in_arena(key(rng), &grids, &memory))));
    for _ in 0..rng.below(200) {
        let at = rng.below(300_000);
        memory.map.all().write(at, &rng.number().to_le_bytes());
    }
    if rng.below(2) == 0 {
        let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let bytes = i64::try_from(ROOM).expect("a megabyte");
        fallocate(&memory.arena, how, 0, bytes).expect("the seals allow it");
    }
    let shrunk = ftruncate(&memory.arena, 0);
    assert!(shrunk.is_err(), "an arena is sealed against truncation");
    if rng.below(2) == 0 {
        raw.say(&ClientMessage::DropArena { arena: memory.id });
    }
    // With or without its verdict.
    for _ in 0..rng.below(3) {
        raw.hear_within(TIMEOUT).ok()?;
    }
    Some(())
}

fn arena(raw: &mut Raw) -> Option<Memory> {
    raw.say(&ClientMessage::CreateArena { request: 1, bytes: ROOM });
    loop {
        match raw.hear_within(TIMEOUT).ok()?? {
            (ServerMessage::ArenaCreated { arena: id, .. }, Some(arena)) => {
                return Some(Memory { id, map: arena.map().ok()?, arena });
            }
            (ServerMessage::Denied { .. } | ServerMessage::Closing { .. }, _) => return None,
            _ => {}
        }
    }
}

/// Well-formed messages that make no sense.
fn nonsense(raw: &mut Raw, rng: &mut SplitMix64) -> Option<()> {
    let memory = arena(raw)?;
    let mut bad = in_arena(key(rng), &random_grids(rng.number(), 3), &memory);
    match rng.below(6) {
        0 => *counts(&mut bad).0 = u32::MAX,
        1 => *counts(&mut bad).1 = 0,
        2 => *text(&mut bad) = "rot90 | ".repeat(400),
        3 => bad.payload.input = Input::Arena(foreign(rng)),
        4 => bad.payload.output = Destination::Arena(foreign(rng)),
        _ => bad.terms.deadline_ms = u64::MAX,
    }
    raw.say(&ClientMessage::Submit(Box::new(bad)));
    raw.say(&ClientMessage::Cancel { key: JobKey(key(rng)) });
    raw.say(&ClientMessage::DropArena { arena: ArenaId(rng.number() % 64) });
    raw.say(&ClientMessage::CreateArena { request: 2, bytes: u64::MAX });
    let worker = "gpu99#1".parse().expect("the name of a worker");
    raw.say(&ClientMessage::Kill { request: 3, worker, signal: 9 });
    raw.say(&ClientMessage::Hello { version: 0 });
    raw.hear_within(TIMEOUT).ok()?;
    Some(())
}

fn foreign(rng: &mut SplitMix64) -> gridpool_protocol::message::Slice {
    let arena = ArenaId(rng.number() % 64);
    gridpool_protocol::message::Slice { arena, offset: rng.number(), bytes: rng.number() }
}

fn ask_and_leave(raw: &Raw, rng: &mut SplitMix64) {
    for request in 0..rng.below(20) as u64 {
        raw.say(&ClientMessage::Status { request, token: None });
    }
}

/// Arenas that come and go; it leaves some descriptors unread.
fn arenas(raw: &mut Raw, rng: &mut SplitMix64) -> Option<()> {
    for _ in 0..rng.below(6) {
        let memory = arena(raw)?;
        raw.say(&ClientMessage::DropArena { arena: memory.id });
    }
    for request in 0..rng.below(4) as u64 {
        raw.say(&ClientMessage::CreateArena { request, bytes: 1 });
    }
    Some(())
}

/// Good messages with some bits flipped. Not such as would stop the pool or its workers on purpose:
/// that is what its user may do.
fn flipped(mut raw: Raw, rng: &mut SplitMix64) -> Option<()> {
    for _ in 0..10 {
        let mut body = codec::encode(&ClientMessage::Submit(Box::new(job(rng)))).ok()?;
        for _ in 0..1 + rng.below(4) {
            let (at, bit) = (rng.below(body.len()), rng.below(8));
            body[at] ^= 1 << bit;
        }
        match codec::decode::<ClientMessage>(&body) {
            Ok(ClientMessage::Drain { .. } | ClientMessage::Kill { .. }) => {}
            Ok(ClientMessage::Submit(job)) if job.key.0 & 1 << 63 == 0 => {}
            _ => raw.send(&frame::pack(&body, 0)),
        }
    }
    raw.hear_within(TIMEOUT).ok()?;
    Some(())
}

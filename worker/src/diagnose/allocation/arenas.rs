//! Shared memory of the pool: every size up to the limits, and what is beyond them refused by its name.

use std::path::Path;

use gridpool_protocol::arena::Arena;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError};
use gridpool_protocol::clock;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::limits::{ARENA_BYTES_MAX, ARENA_BYTES_MIN};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::shared::SharedSlice;

use super::wire::{Wire, WireError};

const GROUP: Group = Group::Allocation;
/// Sizes with odd parts, and those at which counts of 31 and of 32 bits end.
const SIZES: [u64; 11] = [
    1,
    65_537,
    1_048_577,
    100_000_007,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    ARENA_BYTES_MAX,
];
/// A quick look leaves those from here on out: their memory is committed, which takes seconds.
const QUICK_BELOW: u64 = (1 << 31) - 1;
/// Sizes that no arena has.
const BEYOND: [u64; 3] = [ARENA_BYTES_MAX + 1, 1 << 63, u64::MAX];
/// How the pool says that one client may not have so much.
const CLIENT_LIMIT: &str = "one client may have ";
/// How arenas say that none is so large.
const ARENA_LIMIT: &str = "at most ";
/// How often it is looked whether the pool has all of its memory back, and what for at most.
const LOOKS: u32 = 200;
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

const NEXT: &str = "look at the pool's log; `df /dev/shm` and `free` show whether memory is short";

/// All that is asked of it, one check for each kind.
pub(super) fn look(socket: &Path, quick: bool) -> Vec<Check> {
    let checks = Client::connect(socket).map_err(|error| Chain(&error).to_string());
    let checks = checks.and_then(|client| {
        let before = arena_bytes(&client).map_err(|error| Chain(&error).to_string())?;
        let mut wire = Wire::connect(socket).map_err(|error| Chain(&error).to_string())?;
        let sizes: Vec<u64> =
            SIZES.into_iter().filter(|&size| !quick || size < QUICK_BELOW).collect();
        let mut checks = vec![sizes_are_given(&mut wire, &sizes), beyond_is_refused(&mut wire)];
        drop(wire);
        checks.push(all_is_back(&client, before));
        Ok(checks)
    });
    checks.unwrap_or_else(|why| {
        vec![Check::fail(GROUP, "arenas", format!("the pool cannot be asked: {why}"), NEXT)]
    })
}

/// What came of one size.
enum Came {
    Right,
    /// Refused by the limit of one client, which is below it.
    Limited(u64),
    /// There is no room now.
    Busy(String),
}

fn sizes_are_given(wire: &mut Wire, sizes: &[u64]) -> Check {
    const NAME: &str = "arenas";
    let (mut right, mut limited, mut busy) = (Vec::new(), Vec::new(), Vec::new());
    let mut limit = None;
    for &bytes in sizes {
        match exercise(wire, bytes) {
            Ok(Came::Right) => right.push(bytes),
            Ok(Came::Limited(of)) => {
                limit = Some(of);
                limited.push(bytes);
            }
            Ok(Came::Busy(why)) => busy.push((bytes, why)),
            Err(why) => {
                let says = format!("an arena of {bytes} bytes: {why}");
                return Check::fail(GROUP, NAME, says, NEXT).at(bytes);
            }
        }
    }
    let listed = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let mut says = format!(
        "{} sizes from 1 to {} bytes are made, and their ends written and read",
        right.len(),
        right.last().copied().unwrap_or(0)
    );
    if let Some(limit) = limit {
        let what = limited.len();
        says.push_str(&format!("; {what} are refused by the limit of one client, {limit} bytes"));
    }
    let check = match busy.first() {
        None => Check::pass(GROUP, NAME, says),
        Some((bytes, why)) => {
            let says = format!("{bytes} bytes were not tried: {why}; {says}");
            Check::skip(GROUP, NAME, says, "free memory, and repeat it")
        }
    };
    check.fact("sizes", listed(&right)).fact("refused by the limit", listed(&limited))
}

/// Makes an arena, looks at its ends and gives it back. The error says what is wrong.
fn exercise(wire: &mut Wire, bytes: u64) -> Result<Came, String> {
    let text = |error: &dyn std::error::Error| Chain(error).to_string();
    let (id, arena) = match wire.arena(bytes).map_err(|error| text(&error))? {
        Ok(made) => made,
        Err(Refusal::Invalid(why)) => {
            let limit = number_after(&why, CLIENT_LIMIT).filter(|&limit| limit < rounded(bytes));
            let limit = limit.ok_or_else(|| format!("it is refused: {why}"))?;
            return Ok(Came::Limited(limit));
        }
        Err(busy @ Refusal::Busy(_)) => return Ok(Came::Busy(busy.to_string())),
        Err(other @ (Refusal::Draining | Refusal::KeyInUse(_) | Refusal::Poison(_))) => {
            return Err(format!("it is refused: {other}"));
        }
    };
    if arena.bytes() != rounded(bytes) {
        return Err(format!("it has {} bytes", arena.bytes()));
    }
    let map = arena.map().map_err(|error| text(&error))?;
    let looked = ends_hold(&map.all());
    drop(map);
    wire.drop_arena(id).map_err(|error| text(&error))?;
    looked.map(|()| Came::Right)
}

/// The size that is made for a size.
fn rounded(bytes: u64) -> u64 {
    Arena::rounded(bytes).unwrap_or(u64::MAX)
}

/// Writes the first byte, the last, and those around the edges of 31 and 32 bits, and reads them back.
fn ends_hold(memory: &SharedSlice<'_>) -> Result<(), String> {
    let bytes = memory.bytes();
    let edges = [1_usize << 31, 1 << 32].into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
    let places: Vec<usize> = edges.chain([0, bytes - 1]).filter(|&at| at < bytes).collect();
    let value = |place: usize| u8::try_from(place % 251).unwrap_or(0) | 1;
    places.iter().for_each(|&place| memory.write(place, &[value(place)]));
    for &place in &places {
        let mut got = [0];
        memory.read(place, &mut got);
        if got[0] != value(place) {
            return Err(format!("byte {place} is {}, and {} was written", got[0], value(place)));
        }
    }
    Ok(())
}

fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn beyond_is_refused(wire: &mut Wire) -> Check {
    const NAME: &str = "arenas beyond the limit";
    let mut said = String::new();
    for bytes in BEYOND {
        said = match wire.arena(bytes) {
            Ok(Err(Refusal::Invalid(why))) if number_after(&why, ARENA_LIMIT).is_some() => why,
            Ok(Err(other)) => {
                let says = format!("{bytes} bytes are refused with other words: {other}");
                return Check::fail(GROUP, NAME, says, NEXT).at(bytes);
            }
            Ok(Ok((_, arena))) => {
                let says = format!("{bytes} bytes were asked for, and {} given", arena.bytes());
                return Check::fail(GROUP, NAME, says, NEXT).at(bytes);
            }
            Err(error) => return broken(NAME, &error).at(bytes),
        };
    }
    // Nothing is no size: the least is made of it.
    match wire.arena(0) {
        Ok(Ok((id, arena))) if arena.bytes() == ARENA_BYTES_MIN => {
            let given_back = wire.drop_arena(id);
            let says =
                format!("{} sizes are refused ({said}); of 0 the least is made", BEYOND.len());
            match given_back {
                Ok(()) => Check::pass(GROUP, NAME, says),
                Err(error) => broken(NAME, &error),
            }
        }
        Ok(Ok((_, arena))) => {
            let says = format!("of 0 bytes an arena of {} is made", arena.bytes());
            Check::fail(GROUP, NAME, says, NEXT).at(0)
        }
        Ok(Err(refusal)) => {
            let says = format!("after refusals the least arena is refused: {refusal}");
            Check::fail(GROUP, NAME, says, NEXT).at(0)
        }
        Err(error) => broken(NAME, &error),
    }
}

fn broken(name: &str, error: &WireError) -> Check {
    Check::fail(GROUP, name, Chain(error).to_string(), NEXT)
}

fn arena_bytes(client: &Client) -> Result<u64, ClientError> {
    Ok(client.status()?.supervisor.arena_bytes)
}

/// Whether the pool has all of it back, soon after the connection has gone.
fn all_is_back(client: &Client, before: u64) -> Check {
    const NAME: &str = "arenas back";
    let mut after = arena_bytes(client);
    let end = clock::now() + LOOK_EVERY * LOOKS;
    while matches!(after, Ok(bytes) if bytes > before) && !clock::until(end).is_zero() {
        std::thread::park_timeout(LOOK_EVERY);
        after = arena_bytes(client);
    }
    match after {
        Ok(after) if after <= before => {
            let says = format!("the pool holds {after} bytes of arenas, as before");
            Check::pass(GROUP, NAME, says)
        }
        Ok(after) => {
            let says = format!("the pool holds {after} bytes of arenas, and held {before} before");
            Check::fail(GROUP, NAME, says, NEXT)
        }
        Err(error) => Check::fail(GROUP, NAME, Chain(&error).to_string(), NEXT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_from_the_sentence_that_names_it() {
        let why = "an arena of 5 bytes; one client may have 4096 here (a quarter of the memory)";
        assert_eq!(number_after(why, CLIENT_LIMIT), Some(4_096));
        assert_eq!(number_after("no such words", CLIENT_LIMIT), None);
        let beyond = Arena::rounded(ARENA_BYTES_MAX + 1).unwrap_err().to_string();
        assert_eq!(number_after(&beyond, ARENA_LIMIT), Some(ARENA_BYTES_MAX), "{beyond}");
    }

    #[test]
    fn the_ends_of_memory_are_written_and_read() {
        let mut bytes = vec![0; 5];
        ends_hold(&SharedSlice::private(&mut bytes)).unwrap();
        assert_eq!((bytes[0], bytes[2], bytes[4]), (1, 0, 5));
        ends_hold(&SharedSlice::private(&mut [0])).unwrap();
    }
}

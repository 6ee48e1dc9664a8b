//! Clients that misuse the shared memory of a running job: their own results may be garbage, other clients'
//! results are right, and the pool serves on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::{ARENA_BYTES_MAX, ARENA_BYTES_MIN};
use gridpool_protocol::message::{ClientMessage, Destination, Input, Refusal, Submission};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::{SplitMix64, random_grids};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::jobs::{PROGRAM, answer, heavy_work, is_right, job, program, submit};
use crate::pool::{cpu, warm};
use crate::raw::{self, Memory, Raw, in_arena, is_ok, layout};
use crate::wait::{SetAtEnd, eventually};

/// Room for 2,000 grids of 30 x 30 and their results.
const ROOM: u64 = 8 << 20;

/// The job with another program; its result goes after the batch.
fn with_program(mut submission: Submission, text: &str) -> Submission {
    let batch = layout(&submission);
    let result = OutputLayout::new(&program(text), batch).expect("a small result").bytes();
    text.clone_into(raw::text(&mut submission));
    if let Destination::Arena(slice) = &mut submission.payload.output {
        slice.bytes = result as u64;
    }
    submission
}

fn punch(memory: &Memory) {
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let bytes = i64::try_from(memory.arena.bytes()).expect("a few megabytes");
    fallocate(&memory.arena, how, 0, bytes).expect("the seals allow it");
}

/// Reads the result of a job from the arena, as a client does.
fn read_back(submission: &Submission, memory: &Memory, grids: &[Grid]) -> Outputs {
    let Destination::Arena(slice) = &submission.payload.output else {
        panic!("it goes to an arena")
    };
    let place = memory.map.all().part(slice.offset, slice.bytes).expect("it lies in the arena");
    let mut bytes = vec![0; place.bytes()];
    place.read(0, &mut bytes);
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    let program = program(submission.work.text());
    Outputs::new(program, Arc::new(batch), bytes).expect("as long as it should be")
}

#[test]
fn holes_punched_during_a_job_harm_only_its_client() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(ROOM);
    let honest = pool.client();
    let (heavy, grids) = heavy_work();
    let own = random_grids(51, 300);
    for key in 0..4 {
        raw.submit(with_program(in_arena(key, &grids, &memory), &heavy));
        pool.until_busy("cpu0");
        let neighbour = submit(&honest, job("o_g(5)", &own));
        punch(&memory);
        let (_, receipt, _) = raw.hear_done();
        assert!(matches!(receipt.verdict, Verdict::Ok | Verdict::Failed), "{receipt:?}");
        is_right(&answer(neighbour), "o_g(5)", &own);
    }
    // The memory works as new memory does once it is filled again.
    let again = with_program(in_arena(9, &own, &memory), "o_g(5)");
    raw.submit(again.clone());
    is_ok(&raw.hear_done().1);
    let outputs = read_back(&again, &memory, &own);
    assert!((0..own.len()).all(|item| outputs.item(item).expect("well formed").is_ok()));
    drop((raw, memory, honest));
    pool.is_unharmed(before);
}

#[test]
fn a_client_that_dies_while_it_fills_its_arena_leaves_the_others_as_they_were() {
    let pool = cpu(1).start();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(ROOM);
    let (heavy, grids) = heavy_work();
    let honest = pool.client();
    let own = random_grids(52, 300);
    raw.submit(with_program(in_arena(1, &grids, &memory), &heavy));
    pool.until_busy("cpu0");
    let neighbour = submit(&honest, job(PROGRAM, &own));
    // Half a batch, written over the running one, before the client dies.
    memory.map.all().write(0, &vec![0xee; usize::try_from(ROOM / 2).expect("a few megabytes")]);
    drop((raw, memory));
    is_right(&answer(neighbour), PROGRAM, &own);
    assert_eq!(pool.status().counters.poison, 0);
    drop(honest);
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
}

/// Bytes of the arenas of the hoarder below.
const HOARDED: u64 = 1 << 20;
/// How many it asks for.
const HOARDED_COUNT: usize = 100;

#[test]
fn arenas_that_a_client_gives_back_and_keeps_open_take_no_memory() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let kept: Vec<Memory> = (0..HOARDED_COUNT)
        .map(|_| {
            let memory = raw.arena(HOARDED);
            memory.map.all().write(0, &[7]);
            raw.say(&ClientMessage::DropArena { arena: memory.id });
            memory
        })
        .collect();
    pool.until_status("no memory to be left", |status| status.supervisor.arena_bytes == 0);
    let resident: u64 =
        kept.iter().map(|memory| memory.arena.resident_bytes().expect("it is open")).sum();
    assert_eq!(resident, 0);
    // It takes only what the client writes there once more, until the pool takes that back too.
    kept[0].map.all().write(0, &[7]);
    eventually("the pool to take it back", || match kept[0].arena.resident_bytes() {
        Ok(0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    drop((raw, kept));
    pool.is_unharmed(before);
}

#[test]
fn a_result_can_be_read_after_its_connection_has_ended_and_its_memory_counts_until_then() {
    let pool = cpu(1).start();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(ROOM);
    let grids = random_grids(57, 300);
    let submission = with_program(in_arena(1, &grids, &memory), "o_g(5)");
    raw.submit(submission.clone());
    is_ok(&raw.hear_done().1);
    drop(raw);
    pool.until_status("the connection to end", |status| status.supervisor.clients == 1);
    assert_eq!(pool.status().supervisor.arena_bytes, memory.arena.bytes());
    let outputs = read_back(&submission, &memory, &grids);
    assert!((0..grids.len()).all(|item| outputs.item(item).expect("well formed").is_ok()));
    drop(memory);
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
}

/// Odd sizes, and the sizes at which 31 bits end.
const SIZES: [u64; 6] = [1, 65_537, 1_048_577, 100_000_007, (1 << 31) - 1, (1 << 31) + 1];

#[test]
fn arenas_of_every_size_up_to_the_limits_are_given_and_larger_ones_refused() {
    let pool = cpu(1).start();
    let mut raw = Raw::greeted(&pool.socket());
    for bytes in SIZES {
        match raw.try_arena(bytes) {
            Ok(memory) => {
                let (all, last) = (memory.map.all(), memory.map.all().bytes() - 1);
                assert!(all.bytes() as u64 >= bytes, "{bytes}");
                for place in [0, last / 2, last] {
                    all.write(place, &[7]);
                    let mut got = [0];
                    all.read(place, &mut got);
                    assert_eq!(got, [7], "byte {place} of {bytes}");
                }
                raw.say(&ClientMessage::DropArena { arena: memory.id });
            }
            // On a machine with little memory.
            Err(refusal) => {
                assert!(refusal.to_string().contains("one client may have "), "{bytes}: {refusal}");
                assert!(bytes > 100_000_007, "{bytes}: {refusal}");
            }
        }
    }
    for bytes in [ARENA_BYTES_MAX + 1, 1 << 63, u64::MAX] {
        let why = raw.try_arena(bytes).expect_err("no arena is so large").to_string();
        assert!(why.contains(&format!("at most {ARENA_BYTES_MAX} are allowed")), "{why}");
    }
    let least = raw.try_arena(0).expect("of nothing the least is made");
    assert_eq!(least.arena.bytes(), ARENA_BYTES_MIN);
    drop((raw, least));
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
}

#[test]
fn an_arena_that_is_too_small_for_its_job_is_refused() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let (large, small) = (raw.arena(1 << 20), raw.arena(1));
    let (_, mut grids) = heavy_work();
    grids.truncate(100);
    let name = |submission: &mut Submission, input: ArenaId, output: ArenaId| {
        if let Input::Arena(slice) = &mut submission.payload.input {
            slice.arena = input;
        }
        if let Destination::Arena(slice) = &mut submission.payload.output {
            slice.arena = output;
        }
    };
    let good = in_arena(1, &grids, &large);
    for (input, output) in [(small.id, large.id), (large.id, small.id), (small.id, small.id)] {
        let mut bad = good.clone();
        name(&mut bad, input, output);
        raw.say(&ClientMessage::Submit(Box::new(bad)));
        let refusal = raw.hear_refused();
        let Refusal::Invalid(why) = refusal else { panic!("{refusal}") };
        assert!(why.contains(&format!("do not lie in {}, which has 65536", small.id)), "{why}");
    }
    raw.submit(good);
    is_ok(&raw.hear_done().1);
    drop((raw, large, small));
    pool.is_unharmed(before);
}

#[test]
fn results_that_a_client_overwrites_decode_or_are_errors() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let grids = random_grids(54, 200);
    let done = AtomicBool::new(false);
    let texts = ["o_g(5)", "upscale(2) | o_g(1)", "trim", "palette", "o_g(1) | argmax(size)"];
    std::thread::scope(|scope| {
        let _ends = SetAtEnd(&done);
        scope.spawn(|| {
            let mut rng = SplitMix64::new(55);
            while !done.load(Ordering::Relaxed) {
                let at = rng.below((1 << 20) - 8);
                memory.map.all().write(at, &rng.number().to_le_bytes());
            }
        });
        let honest = pool.client();
        let own = random_grids(56, 300);
        for (key, text) in (0..).zip(texts.iter().cycle().take(30)) {
            let submission = with_program(in_arena(key, &grids, &memory), text);
            raw.submit(submission.clone());
            let neighbour = submit(&honest, job("o_g(5)", &own));
            let (_, receipt, _) = raw.hear_done();
            assert!(matches!(receipt.verdict, Verdict::Ok | Verdict::Failed), "{receipt:?}");
            let outputs = read_back(&submission, &memory, &grids);
            // Garbage is an answer or an error, never a panic.
            (0..outputs.len()).for_each(|item| drop(outputs.item(item)));
            drop(outputs.first_difference(&outputs));
            is_right(&answer(neighbour), "o_g(5)", &own);
        }
    });
    drop((raw, memory));
    pool.is_unharmed(before);
}

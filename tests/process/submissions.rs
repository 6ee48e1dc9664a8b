//! Hostile but well-formed messages: submissions with contradictions, and shared memory that its client
//! overwrites.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::ids::{ArenaId, JobKey};
use gridpool_protocol::limits::{JOB_CELLS_MAX, JOB_ITEMS_MAX};
use gridpool_protocol::message::{
    ClientMessage, Destination, Inline, Input, Packing, Refusal, Slice, Submission, Work,
};
use gridpool_protocol::output::{ItemErrorCode, Output, Outputs};
use gridpool_protocol::principal::Principal;
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_tests::oracle;
use gridpool_tests::oracle::samples::{SplitMix64, random_grids};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::jobs::{PROGRAM, answer, is_right, job, program, serves, submit};
use crate::pool::{named, warm};
use crate::raw::{Memory, Raw, counts, in_arena, inline, inline_batch, is_ok, layout, text};
use crate::wait::SetAtEnd;

type Change = fn(&mut Submission);

fn input_slice(submission: &mut Submission) -> &mut Slice {
    match &mut submission.payload.input {
        Input::Arena(slice) => slice,
        Input::Inline(_) => unreachable!("it lies in an arena"),
    }
}

fn output_slice(submission: &mut Submission) -> &mut Slice {
    match &mut submission.payload.output {
        Destination::Arena(slice) => slice,
        Destination::Inline => unreachable!("it lies in an arena"),
    }
}

/// What is done to a good submission in an arena of 1 MiB, and words of the refusal.
const BROKEN: [(Change, &str); 26] = [
    (|s| input_slice(s).offset = 1 << 20, "do not lie in arena"),
    (|s| input_slice(s).offset = u64::MAX - 15, "do not lie in arena"),
    (|s| input_slice(s).bytes = u64::MAX, "do not lie in arena"),
    // Its end is 0 in 64 bits.
    (|s| (input_slice(s).offset, input_slice(s).bytes) = (1 << 63, 1 << 63), "do not lie in arena"),
    (|s| output_slice(s).offset = !15, "do not lie in arena"),
    (|s| output_slice(s).bytes = (1 << 20) + 16, "do not lie in arena"),
    (|s| input_slice(s).bytes -= 16, "it must have"),
    (|s| input_slice(s).bytes += 16, "it must have"),
    (|s| output_slice(s).bytes = 0, "it must have"),
    (|s| output_slice(s).offset += 8, "start at a multiple of 16"),
    (|s| input_slice(s).offset += 1, "start at a multiple of 16"),
    (|s| output_slice(s).offset = input_slice(s).offset, "would overwrite the input"),
    (|s| output_slice(s).offset -= 16, "would overwrite the input"),
    (|s| input_slice(s).arena = ArenaId(999_999), "arena999999 is no arena of this connection"),
    (|s| output_slice(s).arena = ArenaId(0), "arena0 is no arena of this connection"),
    (|s| (*counts(s).0, *counts(s).1) = (0, 0), "the batch has no items"),
    (|s| *counts(s).0 = JOB_ITEMS_MAX + 1, "a job has at most 4194304"),
    (|s| *counts(s).0 = u32::MAX, "a job has at most 4194304"),
    (|s| *counts(s).1 = JOB_CELLS_MAX + 1, "a job has at most"),
    (|s| *counts(s).1 = u32::MAX, "a job has at most"),
    (|s| *counts(s).1 = 2, "cells"),
    (|s| *text(s) = "rot91".to_owned(), "rot91"),
    (|s| *text(s) = "rot90 | ".repeat(3_000), "at most 16384 are allowed"),
    (|s| s.payload.output = Destination::Inline, "cannot travel inline"),
    (|s| s.payload.packing = Packing::Tensors, "a program runs over grids"),
    (|s| s.work = Work::Model { name: "m".to_owned() }, "a model runs over tensors"),
];

#[test]
fn submissions_that_do_not_add_up_are_refused_with_a_sentence() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let grids = random_grids(1, 300);
    for (number, (change, words)) in BROKEN.iter().enumerate() {
        let mut submission = in_arena(number as u128, &grids, &memory);
        change(&mut submission);
        raw.say(&ClientMessage::Submit(Box::new(submission)));
        match raw.hear_refused() {
            Refusal::Invalid(why) => assert!(why.contains(words), "case {number}: {why}"),
            other => panic!("case {number}: expected a refusal, got {other:?}"),
        }
    }
    // Inline batches that are not as long as they say, or too long for a message of this kind.
    let small = inline(100, &random_grids(2, 3));
    let large = inline(101, &random_grids(2, 300));
    let mut short = small.clone();
    *counts(&mut short).0 += 1;
    let mut empty = small.clone();
    empty.payload.input = Input::Inline(Inline::default());
    for submission in [short, empty, large] {
        raw.say(&ClientMessage::Submit(Box::new(submission)));
        let refusal = raw.hear_refused();
        assert!(refusal.to_string().contains("an inline input of"), "{refusal}");
    }
    // The connection is as good as before, and a deadline of half a million years is cut to size.
    let mut good = in_arena(102, &grids, &memory);
    good.terms.deadline_ms = u64::MAX;
    raw.submit(good);
    is_ok(&raw.hear_done().1);
    drop((raw, memory));
    pool.is_unharmed(before);
    assert_eq!(pool.status().counters.accepted, 3);
}

#[test]
fn an_arena_belongs_to_its_connection() {
    let (pool, before) = warm();
    let mut owner = Raw::greeted(&pool.socket());
    let mut thief = Raw::greeted(&pool.socket());
    let memory = owner.arena(1 << 20);
    let grids = random_grids(3, 100);
    let submission = in_arena(1, &grids, &memory);
    thief.say(&ClientMessage::Submit(Box::new(submission.clone())));
    let refusal = thief.hear_refused().to_string();
    assert_eq!(refusal, format!("{} is no arena of this connection", memory.id));
    thief.say(&ClientMessage::DropArena { arena: memory.id });
    thief.say(&ClientMessage::Cancel { key: JobKey(1) });
    thief.say(&ClientMessage::Status { request: 0, token: None });
    thief.hear();
    owner.submit(submission.clone());
    is_ok(&owner.hear_done().1);
    // Nor is it anybody's once it is given back.
    owner.say(&ClientMessage::DropArena { arena: memory.id });
    owner.say(&ClientMessage::DropArena { arena: memory.id });
    owner.say(&ClientMessage::Submit(Box::new(Submission { key: JobKey(2), ..submission })));
    assert!(owner.hear_refused().to_string().contains("is no arena of this connection"));
    drop((owner, thief, memory));
    pool.is_unharmed(before);
}

#[test]
fn a_client_cannot_cancel_the_job_of_another() {
    let (pool, before) = warm();
    pool.stop("cpu0");
    let (mut owner, mut other) = (Raw::greeted(&pool.socket()), Raw::greeted(&pool.socket()));
    owner.submit(inline(5, &random_grids(4, 3)));
    other.say(&ClientMessage::Cancel { key: JobKey(5) });
    other.say(&ClientMessage::Status { request: 0, token: None });
    other.hear();
    pool.go_on("cpu0");
    is_ok(&owner.hear_done().1);
    drop((owner, other));
    pool.is_unharmed(before);
}

#[test]
fn only_the_gateway_names_who_a_job_is_for() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let principal = Some(Principal::Token("alice".to_owned()));
    let submission = Submission { principal, ..inline(1, &random_grids(4, 3)) };
    raw.say(&ClientMessage::Submit(Box::new(submission.clone())));
    let refusal = raw.hear_refused().to_string();
    assert!(refusal.contains("only the pool's own gateway may name"), "{refusal}");
    raw.submit(Submission { principal: None, ..submission });
    is_ok(&raw.hear_done().1);
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn tables_that_were_scribbled_over_fail_their_job_and_nothing_else() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let grids = random_grids(5, 50);
    let place = layout(&in_arena(0, &grids, &memory));
    let (shapes, offsets) = (place.shapes().start, place.offsets());
    let cases: [(usize, &[u8], &str); 6] = [
        (shapes, &[0, 3], "grid 0: 0 x 3 cells are out of bounds"),
        (shapes + 2 * 7, &[255, 255], "grid 7: 255 x 255 cells are out of bounds"),
        (shapes + 2 * 49, &[64, 64], "grid 50: its cells start at"),
        (offsets.start, &[1], "grid 0: its cells start at 1; the grids before it end at 0"),
        (offsets.start + 4 * 9, &[0xff; 4], "grid 9: its cells start at 4294967295"),
        (offsets.end - 4, &[0xff; 4], "grid 50: its cells start at 4294967295"),
    ];
    for (number, (at, bytes, words)) in cases.into_iter().enumerate() {
        let submission = in_arena(number as u128, &grids, &memory);
        memory.map.all().write(at, bytes);
        raw.submit(submission);
        let (_, receipt, output) = raw.hear_done();
        assert_eq!((receipt.verdict, output), (Verdict::Failed, None), "{receipt:?}");
        assert!(receipt.reason.contains(words), "{}", receipt.reason);
        assert_eq!(receipt.attempts.len(), 1, "another attempt would end the same way");
        assert_eq!(receipt.attempts[0].outcome, AttemptOutcome::Refused);
    }
    raw.submit(in_arena(100, &grids, &memory));
    is_ok(&raw.hear_done().1);
    drop((raw, memory));
    pool.is_unharmed(before);
}

#[test]
fn a_pair_may_lack_its_output_and_never_its_input() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let grids = random_grids(11, 4);
    let pairs = [(&grids[0], Some(&grids[1])), (&grids[2], None), (&grids[3], Some(&grids[0]))];
    let batch = GridBatch::from_pairs(pairs).expect("the batch is within the limits");
    let good = inline_batch(1, "second", &batch);
    raw.submit(good.clone());
    let (_, receipt, output) = raw.hear_done();
    is_ok(&receipt);
    assert_eq!((receipt.items, receipt.item_errors), (3, 1));
    let bytes = output.expect("OK comes with results").0;
    let outputs = Outputs::new(program("second"), Arc::new(batch), bytes).expect("as long");
    let (error, last) = (outputs.item(1).expect("well formed"), outputs.item(2));
    assert_eq!(error.expect_err("no output").code, ItemErrorCode::MissingOutput);
    assert_eq!(last.expect("well formed"), Ok(Output::Grid(grids[0].clone())));

    // The shape of the input or of half an output is taken away.
    for (key, at, words) in [(2, 4, "grid 2: 0 x 0 cells"), (3, 2, "grid 1: 0 x ")] {
        let mut bad = good.clone();
        bad.key = JobKey(key);
        let Input::Inline(Inline(bytes)) = &mut bad.payload.input else { panic!("it is inline") };
        let width = if key == 2 { 2 } else { 1 };
        bytes[at..at + width].fill(0);
        raw.submit(bad);
        let (_, receipt, _) = raw.hear_done();
        assert_eq!(receipt.verdict, Verdict::Failed);
        assert!(receipt.reason.starts_with(words), "{}", receipt.reason);
    }
    // The same bytes to a program over grids are another layout.
    let mut grids = good;
    grids.key = JobKey(4);
    PROGRAM.clone_into(text(&mut grids));
    raw.say(&ClientMessage::Submit(Box::new(grids)));
    assert!(raw.hear_refused().to_string().contains("an inline input of"));
    drop(raw);
    pool.is_unharmed(before);
}

#[test]
fn a_cell_that_is_not_a_colour_is_an_error_of_its_item_only() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let grids = random_grids(6, 60);
    let batch = GridBatch::from_grids(&grids).expect("the batch is within the limits");
    for (key, value) in [(1, 10), (2, 200), (3, 255)] {
        let submission = in_arena(key, &grids, &memory);
        let place = layout(&submission);
        let bad = [0, 17, 59];
        for item in bad {
            let last = batch.tables().cells_of(item).end - 1;
            memory.map.all().write(place.cells().start + last, &[value]);
        }
        raw.submit(submission.clone());
        let (_, receipt, _) = raw.hear_done();
        is_ok(&receipt);
        assert_eq!(receipt.item_errors, 3);
        let outputs = read_outputs(submission, &memory, &grids);
        for (item, grid) in grids.iter().enumerate() {
            match outputs.item(item).expect("well formed") {
                Ok(output) => {
                    assert!(!bad.contains(&item));
                    assert_eq!(Ok(output), oracle::run(&program(PROGRAM), grid), "item {item}");
                }
                Err(error) => {
                    assert!(bad.contains(&item));
                    assert_eq!((error.code, &*error.op), (ItemErrorCode::BadCell, "input"));
                }
            }
        }
    }
    drop((raw, memory));
    pool.is_unharmed(before);
}

/// The results that a worker has written, of these grids.
fn read_outputs(mut submission: Submission, memory: &Memory, grids: &[Grid]) -> Outputs {
    let slice = *output_slice(&mut submission);
    let mut bytes = vec![0; to_usize(slice.bytes)];
    memory.map.all().read(to_usize(slice.offset), &mut bytes);
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    Outputs::new(program(PROGRAM), Arc::new(batch), bytes).expect("as long as it should be")
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).expect("it fits")
}

#[test]
fn memory_that_changes_during_a_job_harms_no_other_client() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let grids = random_grids(7, 300);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = SetAtEnd(&done);
        scope.spawn(|| {
            let mut rng = SplitMix64::new(8);
            while !done.load(Ordering::Relaxed) {
                let at = rng.below(1 << 18);
                memory.map.all().write(at, &rng.number().to_le_bytes());
            }
        });
        let honest = pool.client();
        let own = random_grids(9, 300);
        for key in 0..60 {
            raw.submit(in_arena(key, &grids, &memory));
            let handle = submit(&honest, job(PROGRAM, &own));
            let (_, receipt, _) = raw.hear_done();
            assert!(matches!(receipt.verdict, Verdict::Ok | Verdict::Failed), "{receipt:?}");
            is_right(&answer(handle), PROGRAM, &own);
        }
    });
    drop((raw, memory));
    pool.is_unharmed(before);
}

#[test]
fn memory_with_holes_punched_by_its_client_reads_as_zeros() {
    let (pool, before) = warm();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = raw.arena(1 << 20);
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let submission = in_arena(1, &random_grids(10, 300), &memory);
    fallocate(&memory.arena, punch, 0, 1 << 20).expect("the seals allow it");
    raw.submit(submission);
    let (_, receipt, _) = raw.hear_done();
    assert_eq!(receipt.verdict, Verdict::Failed);
    // Several threads check it, in any order.
    assert!(receipt.reason.ends_with(": 0 x 0 cells are out of bounds"), "{}", receipt.reason);
    drop((raw, memory));
    pool.is_unharmed(before);
}

#[test]
fn signals_go_only_to_workers_of_the_pool() {
    let (pool, before) = warm();
    let cases = [
        ("cpu0", 0, "0 is no signal"),
        ("cpu0", 999, "999 is no signal"),
        ("cpu0", -9, "-9 is no signal"),
        ("cpu1", 9, "there is no worker cpu1 now; there are cpu0#1 (grid)"),
        ("cpu0#2", 9, "there is no worker cpu0#2 now; there are cpu0#1 (grid)"),
    ];
    for (worker, signal, words) in cases {
        let error = pool.observer().kill(named(worker), signal).expect_err(worker);
        assert_eq!(error.to_string(), words);
    }
    pool.is_unharmed(before);
}

#[test]
fn the_largest_grids_and_the_most_ops_are_served() {
    let (pool, before) = warm();
    let grid =
        |h, w| Grid::new(h, w, (0..h * w).map(|n| u8::try_from(n % 10).unwrap_or(0)).collect());
    let grids = [(64, 64), (255, 16), (16, 255), (1, 255), (1, 1)];
    let grids = grids.map(|(h, w)| grid(h, w).expect("it is within the limits"));
    let text = ["rot90"; 64].join(" | ");
    let client = pool.client();
    let answer = answer(submit(&client, job(&text, &grids)));
    is_ok(&answer.receipt);
    let outputs = answer.ok().expect("OK comes with results");
    for (item, grid) in grids.iter().enumerate() {
        let turned = outputs.item(item).expect("well formed").expect("a result");
        assert_eq!(turned, Output::Grid(grid.clone()), "64 quarter turns are 16 whole ones");
    }
    serves(&client);
    drop(client);
    pool.is_unharmed(before);
}

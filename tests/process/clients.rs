//! Clients that disconnect: their jobs end, their memory is freed, other clients notice nothing.

use std::collections::BTreeSet;

use gridpool_client::{ClientError, Grid, Handle};
use gridpool_protocol::chaos::{Chaos, ChaosFault};
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{ClientMessage, Refusal};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::{PROGRAM, answer, data, is_right, job, large_job, serves, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::raw::{Raw, in_arena, inline, is_ok};

/// Waits until no arena is left anywhere.
fn no_arena_is_left(pool: &Pool) {
    pool.until_status("no arena to be left", |status| {
        status.supervisor.arena_bytes == 0 && status.workers.iter().all(|row| row.arena_bytes == 0)
    });
}

#[test]
fn the_jobs_and_memory_of_a_vanished_client_are_freed() {
    let pool = cpu(1).start();
    serves(&pool.client());
    let before = pool.settled();
    let mut raw = Raw::greeted(&pool.socket());
    let memory = [raw.arena(1 << 20), raw.arena(1 << 20)];
    pool.stop("cpu0");
    let grids = random_grids(1, 100);
    raw.submit(in_arena(1, &grids, &memory[0]));
    pool.until_busy("cpu0");
    raw.submit(in_arena(2, &grids, &memory[1]));
    for key in 3..20 {
        raw.submit(inline(key, &grids[..3]));
    }
    assert_eq!(pool.status().supervisor.arena_bytes, 2 << 20);
    let other = submit(&pool.client(), large_job(2));

    drop((raw, memory));
    let status = pool.until_status("the queue to hold the other's job", |s| s.queue.jobs == 1);
    assert_eq!(status.counters.cancelled, 17, "all but the one that runs and the one behind it");
    pool.go_on("cpu0");
    let answer = answer(other);
    is_ok(&answer.receipt);
    // Its result is in shared memory.
    drop(answer);
    assert_eq!(pool.status().counters.cancelled, 19);
    assert_eq!(pool.slot("cpu0").generation, 1, "the worker has done nothing wrong");
    no_arena_is_left(&pool);
    pool.back_to(before);
}

#[test]
fn jobs_sent_together_each_have_a_verdict_of_their_own() {
    let pool = cpu(1).start();
    let client = pool.client();
    pool.stop("cpu0");
    let grids = |seed: u64| random_grids(seed, 1 + usize::try_from(seed).expect("it is small"));
    let jobs = (0..30).map(|seed| job(PROGRAM, &grids(seed)));
    // One is wrong, and one is in shared memory: neither changes the others.
    let wrong =
        job(PROGRAM, &grids(2)).with_chaos(Chaos { fault: ChaosFault::ALL[0], attempts: 1 });
    let mut handles = client.send_many(jobs.chain([wrong, large_job(1)])).expect("they are sent");
    let keys: BTreeSet<_> = handles.iter().map(Handle::key).collect();
    assert_eq!(keys.len(), 32);
    let status = pool.until_status("all to be accepted", |status| status.counters.accepted == 31);
    assert!(status.counters.attempts <= 2, "small ones go as one: {:?}", status.counters);
    // Its verdict is its own, too.
    handles.remove(7).cancel();
    pool.go_on("cpu0");
    let large = answer(handles.pop().expect("the last"));
    is_right(&large, PROGRAM, &random_grids(1, 300));
    let refused = handles.pop().expect("the wrong one").wait().expect_err("no faults are allowed");
    assert!(refused.to_string().contains("--allow-chaos"), "{refused}");
    for (seed, handle) in (0..30).filter(|&seed| seed != 7).zip(handles) {
        is_right(&answer(handle), PROGRAM, &grids(seed));
    }
    assert_eq!(pool.status().counters.restarts, 0);
}

/// Far more than the pool takes from one client: with a pause for each they would be late.
#[test]
fn a_client_may_send_any_number_of_jobs_before_it_waits() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grids = random_grids(1, 2);
    let jobs = || (0..4_000).map(|_| job("rot90", &grids));
    let sent = client.send_many(jobs().take(2_000)).expect("they are sent");
    let one_by_one = jobs().skip(2_000).map(|job| client.send(job).expect("it is sent"));
    let handles: Vec<_> = sent.into_iter().chain(one_by_one).collect();
    for handle in handles {
        is_right(&answer(handle), "rot90", &grids);
    }
    let counters = pool.status().counters;
    assert_eq!((counters.accepted, counters.ok), (4_000, 4_000));
}

/// What one side has sent fills both sides' sockets, unless the client reads while it sends.
#[test]
fn large_messages_of_a_client_that_does_not_wait_block_neither_side() {
    let pool = cpu(1).start();
    let client = pool.client();
    let grid = Grid::new(30, 30, vec![3; 900]).expect("it is valid");
    let grids = vec![grid; 17];
    let jobs = || (0..400).map(|_| job("rot90", &grids));
    let mut handles = client.send_many(jobs()).expect("they are sent");
    handles.extend(jobs().map(|job| client.send(job).expect("it is sent")));
    for handle in handles {
        is_right(&answer(handle), "rot90", &grids);
    }
    assert_eq!(pool.status().counters.ok, 800);
}

#[test]
fn jobs_sent_together_under_one_key_are_refused_and_none_is_sent() {
    let pool = cpu(1).start();
    let client = pool.client();
    let key = JobKey(5);
    let twice = [small_job(1).with_key(key), small_job(2), small_job(3).with_key(key)];
    let refused = client.send_many(twice).expect_err("a key names one job");
    assert!(
        matches!(refused, ClientError::Refused(Refusal::KeyInUse(own)) if own == key),
        "{refused}"
    );
    let handles = client.submit_many([small_job(1).with_key(key), small_job(2)]);
    assert_eq!(pool.status().counters.accepted, 2);
    handles.expect("the keys differ").into_iter().for_each(|handle| drop(answer(handle)));
}

#[test]
fn a_submit_that_is_killed_frees_its_place() {
    let pool = cpu(1).limits("queue_jobs_max = 2").start();
    pool.stop("cpu0");
    let arguments = ["submit", "o_g(5)", "--batch", "4"];
    let mut submit = pool.cli(&arguments).arg(data("tasks")).start();
    pool.until_status("the queue to be full", |status| status.queue.jobs == 2);
    submit.process.kill();
    let status = pool.until_status("the queue to be empty", |status| status.queue.jobs == 0);
    assert_eq!(status.counters.cancelled, 2);
    pool.go_on("cpu0");
    serves(&pool.client());
    pool.until("cpu0", "ready", |slot| slot.state == WorkerState::Ready);
    no_arena_is_left(&pool);
}

#[test]
fn an_arena_given_back_while_its_job_waits_is_unmapped_after_the_job() {
    let pool = cpu(2).start();
    let mut raw = Raw::greeted(&pool.socket());
    pool.stop("cpu0");
    pool.stop("cpu1");
    let grids = random_grids(3, 100);
    let memory = [raw.arena(1), raw.arena(1), raw.arena(1)];
    for (key, memory) in (0..).zip(&memory) {
        raw.submit(in_arena(key, &grids, memory));
    }
    pool.until_busy("cpu0");
    pool.until_busy("cpu1");
    for memory in &memory {
        raw.say(&ClientMessage::DropArena { arena: memory.id });
    }
    // Answered after the three before it.
    raw.say(&ClientMessage::Status { request: 1, token: None });
    raw.hear();
    pool.go_on("cpu0");
    pool.go_on("cpu1");
    for _ in &memory {
        is_ok(&raw.hear_done().1);
    }
    no_arena_is_left(&pool);
}

#[test]
fn the_arenas_of_a_client_that_stays_are_used_again() {
    let pool = cpu(1).start();
    let client = pool.client();
    for seed in 0..10 {
        is_ok(&answer(submit(&client, large_job(seed))).receipt);
    }
    let status = pool.status();
    let (now, high) = (status.supervisor.arena_bytes, status.supervisor.arena_bytes_high);
    assert_eq!(now, high, "one arena was enough for ten jobs");
    is_ok(&answer(submit(&client, small_job(0))).receipt);
    drop(client);
    no_arena_is_left(&pool);
}

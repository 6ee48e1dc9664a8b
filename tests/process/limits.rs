//! A full pool answers BUSY, at once or at the client's deadline.

use std::time::Duration;

use gridpool_client::ClientError;
use gridpool_protocol::message::{ClientMessage, Limit, Refusal, ServerMessage};
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;

use crate::jobs::{PROGRAM, answer, data, serves, small_job, submit};
use crate::pool::cpu;
use crate::raw::{Raw, inline};
use crate::wait::within;

#[test]
fn a_full_queue_is_busy_at_once_or_makes_the_client_wait() {
    let pool = cpu(1).limits("queue_jobs_max = 1\nfeed_cost_max = 0").start();
    pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    let queued = submit(&client, small_job(2));

    let refused = client.submit(small_job(3).refuse_if_busy());
    let busy = |refused: &Result<_, ClientError>| {
        matches!(refused, Err(ClientError::Refused(Refusal::Busy(Limit::QueueJobs))))
    };
    assert!(busy(&refused.map(drop)));
    let task = data("tasks/lines.json");
    let call = pool.cli(&["submit", PROGRAM, "--no-wait"]).arg(&task).run();
    call.complains(1, &["gridpool: BUSY: the queue is full"]);
    assert_eq!(call.stderr.matches("the queue is full").count(), 1, "{}", call.stderr);

    // Both of these have been refused by the time that the queue gets room.
    let patient = pool.cli(&["submit", PROGRAM, "--json"]).arg(&task).start();
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.submit(small_job(4)).and_then(|handle| handle.wait()))
    };
    let refusals = pool.status().counters.refused_busy;
    pool.until_status("both to have been refused", |s| s.counters.refused_busy >= refusals + 4);
    pool.go_on("cpu0");
    assert_eq!(patient.finish().document()["results"][0]["verdict"], "OK");
    let waited = within("the patient thread", move || waiting.join().expect("no panic"));
    assert_eq!(waited.expect("it was taken in the end").verdict(), Verdict::Ok);
    assert_eq!(answer(running).verdict(), Verdict::Ok);
    assert_eq!(answer(queued).verdict(), Verdict::Ok);
}

#[test]
fn waiting_for_a_full_queue_ends_at_the_deadline() {
    let pool = cpu(1).limits("queue_jobs_max = 1\nfeed_cost_max = 0").start();
    pool.stop("cpu0");
    let client = pool.client();
    let _running = submit(&client, small_job(5));
    pool.until_busy("cpu0");
    let _queued = submit(&client, small_job(6));
    let impatient = small_job(7).with_deadline(Duration::from_millis(100));
    let refused = within("the wait to end", move || client.submit(impatient).map(drop));
    assert!(
        matches!(refused, Err(ClientError::Refused(Refusal::Busy(Limit::QueueJobs)))),
        "{refused:?}"
    );
}

#[test]
fn one_client_cannot_fill_the_queue() {
    let pool = cpu(1).limits("client_jobs_max = 3").start();
    pool.stop("cpu0");
    let (greedy, modest) = (pool.client(), pool.client());
    let held: Vec<_> = (0..3).map(|seed| submit(&greedy, small_job(seed))).collect();
    let refused = greedy.submit(small_job(3).refuse_if_busy()).map(drop);
    assert!(
        matches!(refused, Err(ClientError::Refused(Refusal::Busy(Limit::ClientJobs)))),
        "{refused:?}"
    );
    let other = submit(&modest, small_job(4));
    pool.go_on("cpu0");
    for handle in held.into_iter().chain([other]) {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
}

#[test]
fn inline_bytes_are_bounded_and_freed_with_their_jobs() {
    let pool = cpu(1).limits("queue_bytes_max = 1048576\nclient_jobs_max = 1000").start();
    pool.stop("cpu0");
    let mut raw = Raw::greeted(&pool.socket());
    let grids = random_grids(8, 20);
    let accepted = (1..1_000_u128).take_while(|&key| {
        raw.say(&ClientMessage::Submit(Box::new(inline(key, &grids))));
        match raw.hear() {
            ServerMessage::Accepted { .. } => true,
            ServerMessage::Refused { refusal, .. } => {
                assert_eq!(refusal, Refusal::Busy(Limit::QueueBytes));
                false
            }
            other => panic!("expected an answer to a submission, got {other:?}"),
        }
    });
    let accepted = accepted.count();
    let bytes = pool.status().queue.bytes;
    assert!((1 << 19..=1 << 20).contains(&bytes), "{bytes} bytes in {accepted} jobs");
    pool.go_on("cpu0");
    for _ in 0..accepted {
        raw.hear_done();
    }
    pool.until_status("no bytes to be left", |status| status.queue.bytes == 0);
    serves(&pool.client());
}

#[test]
fn an_arena_beyond_a_clients_share_is_refused_with_the_number() {
    let pool = cpu(1).start();
    let mut raw = Raw::greeted(&pool.socket());
    for bytes in [8 << 30, (8 << 30) + 1, u64::MAX] {
        raw.say(&ClientMessage::CreateArena { request: 5, bytes });
        match raw.hear() {
            ServerMessage::Denied { request: 5, refusal: Refusal::Invalid(why) } => {
                assert!(why.contains("an arena of ") && why.contains(" bytes"), "{why}");
            }
            // A machine with room for it.
            ServerMessage::ArenaCreated { .. } if bytes == 8 << 30 => {}
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    let first = raw.arena(1);
    // Descriptors run out before memory does.
    let arenas = (1..1_000).take_while(|_| {
        raw.say(&ClientMessage::CreateArena { request: 6, bytes: 1 });
        match raw.hear() {
            ServerMessage::ArenaCreated { .. } => true,
            ServerMessage::Denied { refusal: Refusal::Busy(Limit::Arenas), .. } => false,
            other => panic!("expected an arena or BUSY, got {other:?}"),
        }
    });
    assert!((100..200).contains(&arenas.count()));
    drop((raw, first));
    pool.until_status("no arena to be left", |status| status.supervisor.arena_bytes == 0);
    serves(&pool.client());
}

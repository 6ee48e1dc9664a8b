//! Large batches and results in the stream: what was read is removed, and what is missing is waited for.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use futures_util::StreamExt;
use gridpool_client::{JobKey, Priority, Verdict};
use gridpool_ipc::clock;
use gridpool_nats::{
    Identity, Lane, Outcome, Published, Store, StreamLimits, Streams, VERSION, connect,
};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::message::Input;
use gridpool_protocol::receipt::Receipt;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::servers::{Servers, are_there};
use super::{client, counts, host, serving, until};
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::raw::inline;
use crate::wait::{TIMEOUT, eventually};

/// The size of a piece.
const PIECE_BYTES: usize = 256 * 1_024;

/// The streams, as a host has made them.
pub(super) fn streams(servers: &Servers) -> (Runtime, Streams) {
    opened(servers, None)
}

/// The streams; with limits they are made as a host makes them.
pub(super) fn opened(servers: &Servers, limits: Option<&StreamLimits>) -> (Runtime, Streams) {
    let runtime = Runtime::new().expect("a runtime");
    let options = servers.options();
    let streams = runtime.block_on(async {
        let connection = connect(&options, "test").await.expect("a server");
        Streams::open(&connection, &options.prefix, limits).await.expect("streams")
    });
    (runtime, streams)
}

/// What JetStream answers to a request of its API.
pub(super) fn api(streams: &(Runtime, Streams), request: &str) -> Value {
    api_with(streams, request, &json!({}))
}

/// Uses up so many numbers of the stream of jobs, with messages that are removed at once.
pub(super) fn pass_over((runtime, streams): &(Runtime, Streams), numbers: usize) {
    let (subject, client) = (streams.subjects.job(&Lane::all(None)[0]), &streams.connection.client);
    runtime.block_on(async {
        for _ in 0..numbers {
            let put = client.request(subject.clone(), "".into()).await.expect("an answer");
            let put: Value = serde_json::from_slice(&put.payload).expect("JSON");
            let number = put["seq"].as_u64().expect("there is room");
            assert!(streams.remove_job(number).await.expect("it can be removed"));
        }
    });
}

/// The same with what the request says.
pub(super) fn api_with(
    (runtime, streams): &(Runtime, Streams),
    request: &str,
    config: &Value,
) -> Value {
    let subject = format!("$JS.API.{request}");
    let answer = streams.connection.client.request(subject, config.to_string().into());
    let answer = runtime.block_on(answer).expect("an answer").payload;
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert!(answer.get("error").is_none(), "{request}: {answer}");
    answer
}

#[test]
fn the_pieces_of_a_result_are_removed_once_it_was_read() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let _pool = serving(&servers, "one", "");
    let grids = random_grids(9, 4_000);
    let client = client(&servers);
    let handles = [1, 2].map(|_| submit(&client, job(PROGRAM, &grids)));
    for handle in handles {
        is_right(&answer(handle), PROGRAM, &grids);
    }
    only_the_batch_is_left(&servers, &grids);
}

#[test]
fn the_pieces_of_a_result_that_came_second_are_removed() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let late = serving(&servers, "late", "");
    late.stop("cpu0");
    let grids = random_grids(9, 4_000);
    let deadline = Duration::from_secs(600);
    let handle = submit(&client(&servers), job(PROGRAM, &grids).with_deadline(deadline));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    // As another host that has had it meanwhile.
    let (runtime, streams) = streams(&servers);
    let (key, verdict) = (handle.key(), Verdict::Deadline);
    let (host, key_text) = ("faster".to_owned(), key.to_string());
    let receipt = Receipt { host, key: key_text, verdict, ..Receipt::default() };
    let outcome = Outcome::done(None, receipt, None);
    let published = streams.results.publish(
        key,
        Some(("faster.1", Identity::default())),
        &outcome,
        clock::now() + TIMEOUT,
    );
    let published = runtime.block_on(published);
    assert!(matches!(published, Ok(Published::Stored(_))), "{published:?}");
    assert_eq!(answer(handle).verdict(), verdict);
    late.go_on("cpu0");
    counts(&late, "duplicates", |jobs| jobs == 1);
    only_the_batch_is_left(&servers, &grids);
}

/// The messages of a large batch: its pieces, and their end.
pub(super) fn pieces_of(batch: &[u8]) -> usize {
    batch.len().div_ceil(PIECE_BYTES) + 1
}

/// Waits until the stream has the pieces of this batch and no others.
fn only_the_batch_is_left(servers: &Servers, grids: &[Grid]) {
    let Input::Inline(batch) = inline(1, grids).payload.input else { panic!("it is inline") };
    let of_batch = pieces_of(&batch.0);
    let streams = streams(servers);
    eventually("the results' pieces to be gone", || {
        let messages = api(&streams, "STREAM.INFO.gridpool-data")["state"]["messages"].as_u64();
        if messages == Some(of_batch as u64) {
            Ok(())
        } else {
            Err(format!("{messages:?} of {of_batch}"))
        }
    });
}

#[test]
fn a_job_that_has_its_result_does_not_stay_though_no_lane_has_it() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    let (runtime, streams) = streams(&servers);
    let key = JobKey(7);
    let receipt = Receipt { key: key.to_string(), ..Receipt::default() };
    let outcome = Outcome::done(None, receipt, None);
    // As a server keeps one that was acknowledged: nobody will ever ask for it.
    let (head, body) = (format!("NATS/1.0\r\nNats-Msg-Id: {key}\r\n\r\n"), "a job");
    let (of_head, of_all) = (head.len(), head.len() + body.len());
    let mut server = TcpStream::connect(("127.0.0.1", servers.port(0))).expect("a server");
    let put = format!("HPUB gridpool.job.nobody.asks {of_head} {of_all}\r\n{head}{body}\r\n");
    let said = format!("CONNECT {{\"verbose\": false, \"headers\": true}}\r\n{put}");
    server.write_all(said.as_bytes()).expect("it is heard");
    until(&servers, "a job in the stream", |status| status.jobs == 1);
    let published = streams.results.publish(
        key,
        Some(("one.1", Identity::default())),
        &outcome,
        clock::now() + TIMEOUT,
    );
    let published = runtime.block_on(published);
    assert!(matches!(published, Ok(Published::Stored(_))), "{published:?}");
    until(&servers, "an empty stream", |status| status.jobs == 0);
    eventually("the bridge to say so", || {
        let log = pool.log();
        if log.contains("jobs that had ended") { Ok(()) } else { Err(log) }
    });
}

#[test]
fn a_job_of_streams_that_were_removed_does_not_acknowledge_one_of_the_new() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let old = serving(&servers, "old", "under_way_max = 1");
    old.stop("cpu0");
    let before = client(&servers);
    let deadline = Duration::from_secs(600);
    let first = submit(&before, small_job(1).with_deadline(deadline));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let old_streams = streams(&servers);
    api(&old_streams, "STREAM.DELETE.gridpool-jobs");
    // The next host makes it again, and its first job has the number of the other.
    let new = host(&servers, "new", "").start();
    until(&servers, "the new host", |status| status.hosts.iter().any(|host| host.host == "new"));
    new.stop("cpu0");
    let second = submit(&client(&servers), small_job(2).with_deadline(deadline));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let (runtime, new_streams) = streams(&servers);
    let numbers = runtime.block_on(new_streams.span_of_jobs()).expect("an answer");
    assert_eq!(numbers.into_inner(), (1, 1));
    old.go_on("cpu0");
    assert_eq!(answer(first).verdict(), Verdict::Ok);
    counts(&old, "published", |jobs| jobs == 1);
    // Whoever has it dies: if it was acknowledged, nobody else gets it.
    drop(new.killed());
    let _last = serving(&servers, "last", "");
    assert_eq!(answer(second).verdict(), Verdict::Ok);
}

#[test]
fn a_host_removes_the_consumers_of_other_streams_and_no_others() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let options = servers.options();
    // Of hosts that know no lanes of versions, and of a stream that is gone.
    let dead = format!("grid-normal-v{VERSION}-dead");
    let made = [("grid-high", "high.grid"), (&dead, &*format!("v{VERSION}.normal.grid"))];
    let runtime = Runtime::new().expect("a runtime");
    let streams = runtime.block_on(async {
        let connection = connect(&options, "test").await.expect("a server");
        let bytes = 1 << 20;
        let limits = StreamLimits {
            jobs_bytes_max: bytes,
            data_bytes_max: bytes,
            results_bytes_max: bytes,
            ..StreamLimits::new(1)
        };
        let streams = Streams::open(&connection, &options.prefix, Some(&limits)).await;
        let streams = streams.expect("streams");
        for (name, jobs) in made {
            let config = json!({
                "durable_name": name, "filter_subject": format!("gridpool.job.{jobs}"),
                "deliver_policy": "all", "ack_policy": "explicit", "ack_wait": 2_000_000_000_u64,
                "max_deliver": -1, "max_ack_pending": -1, "replay_policy": "instant",
            });
            let asked = json!({ "stream_name": "gridpool-jobs", "config": config }).to_string();
            let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.gridpool-jobs.{name}");
            let answer = connection.client.request(subject, asked.into()).await.expect("an answer");
            assert!(!answer.payload.windows(7).any(|part| part == b"\"error\""), "{answer:?}");
        }
        streams
    });
    let _pool = serving(&servers, "one", "");
    let client = client(&servers);
    for (seed, priority) in (1..).zip([Priority::High, Priority::Normal, Priority::Low]) {
        let ended = answer(submit(&client, small_job(seed).with_priority(priority)));
        assert_eq!(ended.verdict(), Verdict::Ok, "{priority:?}");
    }
    let names = runtime.block_on(streams.jobs.consumer_names().collect::<Vec<_>>());
    let names: Vec<_> = names.into_iter().map(|name| name.expect("a name")).collect();
    assert!(names.contains(&made[0].0.to_owned()) && !names.contains(&dead));
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn a_batch_that_is_missing_is_waited_for_and_comes_with_the_next_job() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    let (client, grids) = (client(&servers), random_grids(9, 4_000));
    pool.stop("cpu0");
    let first = submit(&client, small_job(1));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let deadline = Duration::from_secs(120);
    let waits = submit(&client, job(PROGRAM, &grids).with_deadline(deadline));
    // Its pieces vanish before a host has read them.
    let Input::Inline(batch) = inline(1, &grids).payload.input else { panic!("it is inline") };
    let (runtime, streams) = streams(&servers);
    let size = batch.0.len() as u64;
    let removed = runtime.block_on(streams.data.remove(Store::digest(&batch.0), size));
    removed.expect("they are removed");
    pool.go_on("cpu0");
    eventually("the bridge to miss it", || {
        let log = pool.log();
        if log.contains("a batch is looked for again") { Ok(()) } else { Err(log) }
    });
    let again = submit(&client, job(PROGRAM, &grids).with_deadline(deadline));
    for handle in [waits, again] {
        is_right(&answer(handle), PROGRAM, &grids);
    }
    assert_eq!(answer(first).verdict(), Verdict::Ok);
    counts(&pool, "published", |jobs| jobs == 3);
}

#[test]
fn only_the_end_of_pieces_that_were_read_is_taken_away() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let _pool = serving(&servers, "one", "");
    let (runtime, streams) = streams(&servers);
    let data = &streams.data;
    let bytes: Vec<_> = (0..=u8::MAX).cycle().take(PIECE_BYTES + 1).collect();
    let (name, size) = (Store::digest(&bytes), bytes.len() as u64);
    let (until, sent) = (clock::now() + TIMEOUT, bytes.clone().into());
    runtime.block_on(async {
        let client = &streams.connection.client;
        let mut removals =
            client.subscribe("$JS.API.STREAM.MSG.DELETE.gridpool-data").await.expect("heard");
        // Somebody may send the end of one that is missing at this moment.
        let missing = data.get([7; 32], [7; 32], 9).await.expect_err("it is missing");
        assert!(missing.to_string().contains("its end is not there"), "{missing}");
        assert!(data.put(name, &sent, until).await.expect("room"));
        assert_eq!(data.get(name, name, size).await.expect("it is whole"), bytes);
        let other = data.get(name, [7; 32], size).await.expect_err("it has another digest");
        assert!(other.to_string().contains("its digest differs"), "{other}");
        let removal = removals.next().await.expect("a removal");
        let removal: Value = serde_json::from_slice(&removal.payload).expect("JSON");
        // The end came third, after two pieces.
        assert_eq!(
            (removal["seq"].as_u64(), data.put(name, &sent, until).await.ok()),
            (Some(3), Some(true))
        );
    });
}

#[test]
fn a_batch_outlives_servers_that_start_anew_after_other_pieces_were_removed() {
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(3);
    let _pool = serving(&servers, "one", "");
    let (runtime, streams) = streams(&servers);
    let data = &streams.data;
    let bytes: Vec<_> = (0..=u8::MAX).cycle().take(PIECE_BYTES + 1).collect();
    let (name, size, sent) = (Store::digest(&bytes), bytes.len() as u64, bytes.clone().into());
    let result = Store::name_of_result(JobKey(7), &name);
    runtime.block_on(async {
        for name in [name, result] {
            assert!(data.put(name, &sent, clock::now() + TIMEOUT).await.expect("room"));
        }
        data.remove(result, size).await.expect("it is removed");
    });
    // Each of them goes through its log, in which the removal is.
    (0..3).for_each(|server| servers.restart(server));
    let (next, until) = ([7; 32], clock::now() + TIMEOUT);
    let put = runtime.block_on(data.put(next, &sent, until));
    assert!(put.expect("a server leads, and two have gone through their logs"));
    eventually("the batch", || match runtime.block_on(data.get(name, name, size)) {
        Ok(read) if read == bytes => Ok(()),
        Ok(read) => Err(format!("{} other bytes", read.len())),
        Err(error) => Err(error.to_string()),
    });
}

#[test]
fn jobs_of_missing_batches_leave_a_host_its_work_and_can_be_cancelled() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    drop(serving(&servers, "first", "").killed());
    let (client, deadline) = (client(&servers), Duration::from_secs(120));
    let (runtime, streams) = streams(&servers);
    let sent = (0..6).map(|seed| {
        let grids = random_grids(seed, 4_000);
        let handle = submit(&client, job(PROGRAM, &grids).with_deadline(deadline));
        let Input::Inline(batch) = inline(1, &grids).payload.input else { panic!("it is inline") };
        (handle, Store::digest(&batch.0), batch.0.len() as u64)
    });
    let sent: Vec<_> = sent.collect();
    until(&servers, "six jobs", |status| status.jobs == 6);
    for (_, digest, size) in &sent {
        runtime.block_on(streams.data.remove(*digest, *size)).expect("they are removed");
    }
    let pool = serving(&servers, "second", "under_way_max = 3");
    eventually("the bridge to miss them", || {
        let log = pool.log();
        let missed = log.matches("a batch is looked for again").count();
        if missed >= 2 { Ok(()) } else { Err(log) }
    });
    // Two of three places are taken for half a minute.
    let started = clock::now();
    assert_eq!(answer(submit(&client, small_job(1))).verdict(), Verdict::Ok);
    sent.iter().for_each(|(handle, ..)| handle.cancel());
    for (handle, ..) in sent {
        assert_eq!(answer(handle).verdict(), Verdict::Cancelled);
    }
    until(&servers, "an empty stream", |status| status.jobs == 0);
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
}

#[test]
fn where_no_server_answers_for_its_copy_the_one_that_leads_is_asked() {
    if !are_there() {
        return;
    }
    let deaf = "publish: { allow: \">\", deny: \"$JS.API.DIRECT.GET.>\" }";
    let lines = format!(
        "authorization {{ users: [{{ user: pool, password: pw }}, \
         {{ user: deaf, password: pw, permissions: {{ {deaf} }} }}] }}"
    );
    let mut servers = Servers::with(1, "nats://pool:pw@", &lines);
    let _pool = serving(&servers, "one", "");
    let (bytes, key) = (vec![7; 9], JobKey(7));
    let (name, until) = (Store::digest(&bytes), clock::now() + TIMEOUT);
    let outcome = Outcome::done(None, Receipt::default(), None);
    let (runtime, streams_of_pool) = streams(&servers);
    runtime.block_on(async {
        let published = streams_of_pool
            .results
            .publish(key, Some(("one.1", Identity::default())), &outcome, until)
            .await;
        assert!(matches!(published, Ok(Published::Stored(_))), "{published:?}");
        let put = streams_of_pool.data.put(name, &bytes.clone().into(), until).await;
        assert!(put.expect("room"));
    });
    servers.scheme = "nats://deaf:pw@".to_owned();
    let (runtime, streams) = streams(&servers);
    let (found, read) = runtime.block_on(async {
        futures_util::join!(streams.results.find(key), streams.data.get(name, name, 9))
    });
    assert!(found.expect("an answer").is_some());
    assert_eq!(read.expect("it is whole"), bytes);
}

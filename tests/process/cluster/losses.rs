//! What the servers lose although it was acknowledged: a host that lives through it goes on, and a client that waits
//! for what is lost hears so.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use gridpool_client::{ClientError, JobKey, Refusal, Verdict};
use gridpool_nats::{
    JobMessage, NatsError, Patience, RETRY_EVERY, Sender, StreamLimits, VERSION, decode,
};
use gridpool_protocol::chaos::{Chaos, ChaosFault, HostFault};
use gridpool_tests::oracle::samples::random_grids;
use serde_json::json;
use tempfile::tempdir;

use super::pieces::{api, opened, streams};
use super::servers::{Servers, are_there};
use super::{client, serving, until};
use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, as_json, data, is_right, job, small_job, submit};
use crate::wait::{eventually, within};

/// Long enough that no test waits for it.
const DEADLINE: Duration = Duration::from_secs(600);

#[test]
fn a_host_that_lives_through_the_removal_of_its_streams_takes_jobs_of_the_new() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    let first = client(&servers);
    pool.stop("cpu0");
    let key = JobKey(77);
    let once = || small_job(1).with_key(key).with_deadline(DEADLINE).at_most_once();
    let runs = submit(&first, once());
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    // One that only the stream has is lost with it.
    let lost = submit(&first, small_job(3).with_deadline(Duration::from_secs(2)));
    let streams = streams(&servers);
    for name in ["gridpool-jobs", "gridpool-data", "gridpool-results"] {
        api(&streams, &format!("STREAM.DELETE.{name}"));
    }
    for name in ["KV_gridpool-poison", "KV_gridpool-hosts"] {
        api(&streams, &format!("STREAM.DELETE.{name}"));
    }
    // A client that comes now waits for the streams. The job that it sends again runs there already.
    let client = client(&servers);
    let again = submit(&client, once());
    pool.go_on("cpu0");
    // It has a large batch and a large result, so it needs all of them.
    let large = random_grids(2, 4_000);
    is_right(
        &answer(submit(&client, job(PROGRAM, &large).with_deadline(DEADLINE))),
        PROGRAM,
        &large,
    );
    assert_eq!(answer(lost).verdict(), Verdict::Deadline);
    for handle in [runs, again] {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
    assert_eq!(pool.status().counters.accepted, 2, "each has run once");
    assert!(!pool.log().contains("do not answer"), "{}", pool.log());
}

#[test]
fn a_host_that_lives_through_the_loss_of_the_only_disk_goes_on_and_a_conviction_can_be_taken_back()
{
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(1);
    let _pool = serving(&servers, "one", "");
    let sender = client(&servers);
    let fault = Chaos { fault: ChaosFault::Host(HostFault::Segv), attempts: 9 };
    let poison = || job(PROGRAM, &random_grids(1, 2)).with_chaos(fault);
    assert_eq!(answer(submit(&sender, poison())).verdict(), Verdict::Poison);
    let content = until(&servers, "a conviction", |status| status.convicted.len() == 1);
    let content = &content.convicted[0].0;
    servers.lose(0);
    let small = random_grids(2, 3);
    let handle = submit(&sender, job(PROGRAM, &small).with_deadline(DEADLINE));
    is_right(&answer(handle), PROGRAM, &small);
    // The disk had it, and those who heard of it know it still.
    let refused = |why: &str| why.contains("POISON");
    match sender.submit(poison()) {
        Err(ClientError::Refused(Refusal::Invalid(why))) if refused(&why) => {}
        other => panic!("{other:?}"),
    }
    let released = gridpool(["cluster", "release", content, "--nats", &servers.url()]).run();
    released.complains(1, &["hosts that remember one let it run again"]);
    let again =
        eventually("the release", || sender.submit(poison()).map_err(|error| error.to_string()));
    again.cancel();
}

#[test]
fn a_bucket_that_is_not_there_is_waited_for_as_a_stream_is() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    drop(serving(&servers, "one", "").killed());
    for name in ["KV_gridpool-poison", "KV_gridpool-hosts"] {
        api(&streams(&servers), &format!("STREAM.DELETE.{name}"));
        let error = Sender::connect(&servers.options(), Patience::of(Duration::ZERO));
        let error = error.map(drop).expect_err("a bucket is missing");
        assert!(matches!(&error, NatsError::NoStream { stream } if stream == name), "{error:?}");
        assert!(error.may_pass(), "{error:?}");
        // Another host makes it again.
        drop(serving(&servers, name, "").killed());
    }
}

#[test]
fn a_command_that_waited_for_its_servers_gives_a_job_the_rest_of_its_deadline() {
    if !are_there() {
        return;
    }
    let bytes = 1 << 24;
    let limits = StreamLimits {
        jobs_bytes_max: bytes,
        data_bytes_max: bytes,
        results_bytes_max: bytes,
        ..StreamLimits::new(1)
    };
    let input = data("two_inputs.npz").display().to_string();
    for command in [["submit", "rot90", "-"], ["infer", "two_inputs", &input]] {
        let mut servers = Servers::start(1);
        drop(opened(&servers, Some(&limits)));
        servers.kill(0);
        // Something else is there for its first try.
        let other = TcpListener::bind(("127.0.0.1", servers.port(0))).expect("the port is free");
        let run = gridpool(command).args(&["--deadline", "600", "--nats", &servers.url()]);
        let mut run = run.stdin(as_json(&random_grids(1, 1))).start();
        drop(within("a try", move || other.accept()).expect("it connects"));
        servers.restart(0);
        let (runtime, streams) = streams(&servers);
        let job = eventually("its job", || {
            runtime.block_on(streams.jobs.get_raw_message(1)).map_err(|error| error.to_string())
        });
        run.process.kill();
        let job: JobMessage = decode(VERSION, &job.payload).expect("a job");
        let most = Duration::from_secs(600) - RETRY_EVERY;
        assert!(job.terms.deadline() <= most, "{command:?}: {:?}", job.terms);
    }
}

#[test]
fn a_job_and_a_search_whose_batches_are_lost_fail_and_say_so() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 2");
    pool.stop("cpu0");
    let client = client(&servers);
    let first = [1, 2].map(|seed| submit(&client, small_job(seed).with_deadline(DEADLINE)));
    until(&servers, "jobs that run", |status| status.lanes.iter().any(|lane| lane.running == 2));
    let waits = submit(&client, job(PROGRAM, &random_grids(3, 4_000)).with_deadline(DEADLINE));
    // A task that is too large for a message.
    let (folder, grid) = (tempdir().expect("a folder"), vec![vec![1; 30]; 30]);
    let pair = json!({ "input": grid, "output": grid });
    let task = folder.path().join("large.json");
    let text = json!({ "train": vec![pair; 60], "test": [] }).to_string();
    fs::write(&task, text).expect("a file can be written");
    let url = servers.url();
    let searching = thread::spawn(move || {
        let search = ["search", "--nats", &url, "--programs", "-", "--tasks"];
        let search = gridpool(search).arg(task).args(&["--deadline", "600"]);
        search.stdin(br#"{"id": "a", "program": "rot90"}"#.as_slice()).run()
    });
    until(&servers, "all jobs", |status| status.jobs == 4);
    api(&streams(&servers), "STREAM.PURGE.gridpool-data");
    pool.go_on("cpu0");
    let why = "is not whole any more: its end is not there";
    let failed = answer(waits);
    assert_eq!(failed.verdict(), Verdict::Failed);
    assert!(failed.receipt.reason.contains(why), "{:?}", failed.receipt);
    let search = searching.join().expect("it ends");
    assert!(search.stderr.contains("FAILED") && search.stderr.contains(why), "{search:?}");
    for handle in first {
        assert_eq!(answer(handle).verdict(), Verdict::Ok);
    }
}

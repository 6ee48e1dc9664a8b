//! The block of a death in words and as fields, death by death.

use gridpool_protocol::ids::{ClientId, DeviceId, DeviceKind, Group, JobId, WorkerId};
use gridpool_protocol::position::ItemPosition;
use gridpool_protocol::receipt::{DeviceInfo, Verdict};
use gridpool_protocol::trace::TraceId;

use super::*;
use gridpool_core::action::KillReason;
use gridpool_core::event::Exit;

fn attempt(job: u64, number: u32) -> AttemptId {
    AttemptId { job: JobId(job), number }
}

fn lost(job: u64, waited: bool, disposition: Disposition) -> LostAttempt {
    LostAttempt::new(attempt(job, 2), "rot90 | fill(0, 5)", waited, disposition)
}

fn worker(generation: u32) -> WorkerId {
    let device = DeviceId { kind: DeviceKind::Gpu, index: 0 };
    WorkerId { device, group: Group::Grid, generation }
}

/// The death of gpu0#3 by SIGSEGV, with no attempt on it.
fn death() -> DeathReport {
    DeathReport {
        worker: worker(3),
        device: DeviceInfo {
            kind: DeviceKind::Gpu,
            index: 0,
            name: "NVIDIA H200".to_owned(),
            uuid: "GPU-1".to_owned(),
            driver: "580".to_owned(),
        },
        exit: Exit {
            status: ExitStatus::Signal(11),
            fault: None,
            last_words: None,
            is_ordered: false,
        },
        killed: None,
        is_expected: false,
        lived: Duration::from_millis(12_345),
        ready_after: Some(Duration::from_millis(250)),
        answered: 1,
        attempts: Vec::new(),
        attempts_more: 0,
        driver: None,
        served_by: None,
        next: Next::Restart(Duration::ZERO),
    }
}

/// The same with an attempt on it, for other tests.
pub(in crate::shell) fn a_death() -> Death {
    let attempts = [lost(5, false, Disposition::Waits { suspects: 2 })];
    told(DeathReport { attempts: attempts.into(), ..death() })
}

fn told(report: DeathReport) -> Death {
    let (stderr, capsule) = (Vec::new(), None);
    Death { report, pid: 4_711, ordered: None, met_by: None, position: None, stderr, capsule }
}

fn lines(death: &Death) -> Vec<String> {
    let block = human(death);
    let mut lines = block.split('\n');
    assert_eq!(lines.next(), Some(""), "the block starts below the line of the event");
    lines.map(|line| line.strip_prefix("    ").expect("it is indented").to_owned()).collect()
}

#[test]
fn an_unexplained_signal_is_reported_with_the_attempts_of_the_worker() {
    let trace = TraceId::new([0xab; 16]).unwrap();
    let mut attempts = [
        lost(5, false, Disposition::Waits { suspects: 2 }),
        lost(6, false, Disposition::Runs(worker(1))),
        lost(7, false, Disposition::Verdict(Verdict::Failed)),
        lost(8, false, Disposition::Denylisted),
        lost(
            9,
            true,
            Disposition::Over { verdict: Verdict::Ok, by: Some("gpu1#1".parse().unwrap()) },
        ),
        lost(10, false, Disposition::Over { verdict: Verdict::Deadline, by: None }),
        lost(11, false, Disposition::ShardOver),
        lost(12, false, Disposition::Unheard),
    ];
    attempts[1].trace = Some(trace);
    let death = DeathReport { attempts: attempts.into(), attempts_more: 3, ..death() };
    let jobs = fields(&told(death.clone()))["jobs"].clone();
    assert_eq!((&jobs[1]["runs_on"], &jobs[1]["verdict_by"]), (&json!("gpu0#1"), &Value::Null));
    assert_eq!(
        [&jobs[0]["trace_id"], &jobs[1]["trace_id"]],
        [&Value::Null, &json!(trace.to_string())]
    );
    assert_eq!((&jobs[4]["fate"], &jobs[4]["verdict"]), (&json!("over"), &json!("OK")));
    assert_eq!((&jobs[4]["runs_on"], &jobs[4]["verdict_by"]), (&Value::Null, &json!("gpu1#1")));
    assert_eq!((&jobs[6]["fate"], &jobs[6]["verdict"]), (&json!("part_over"), &Value::Null));
    let stderr = vec!["first".to_owned(), "last".to_owned()];
    let want = [
        "device     gpu0 NVIDIA H200 GPU-1",
        "ended      signal 11 (SIGSEGV): the process used memory that is not its own",
        "life       12.345 s, READY after 0.250 s, 1 job answered",
        "job        job5 attempt 2: waits to run again, as one of 2 suspects that run without others \
         (rot90 | fill(0, 5))",
        "job        job6 attempt 2, trace_id=abababababababababababababababab: runs again, on gpu0#1 \
         (rot90 | fill(0, 5))",
        "job        job7 attempt 2: its verdict is FAILED (rot90 | fill(0, 5))",
        "job        job8 attempt 2: denylisted, its verdict is POISON (rot90 | fill(0, 5))",
        "job        job9 attempt 2, which had not begun: OK since, on gpu1#1 (rot90 | fill(0, 5))",
        "job        job10 attempt 2: had its verdict before: DEADLINE (rot90 | fill(0, 5))",
        "job        job11 attempt 2: this shard has ended, the job goes on (rot90 | fill(0, 5))",
        "job        job12 attempt 2: has ended, and no client waits for it (rot90 | fill(0, 5))",
        "job        and 3 more",
        "next       another process starts at once",
        "stderr     first",
        "           last",
    ];
    let got = lines(&Death { stderr, ..told(death) });
    let sentence = FaultCode::Signal(11).meaning().sentence;
    let want =
        want.map(|line| line.replace("the process used memory that is not its own", sentence));
    assert_eq!(got, want);
}

#[test]
fn a_cuda_fault_is_shown_with_number_name_and_meaning() {
    let fault = Some(FaultCode::Cuda(700));
    let last_words = Some("cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)".to_owned());
    let exit = Exit { status: ExitStatus::Code(70), fault, last_words, is_ordered: false };
    let served_by = Some(worker(4));
    let next = Next::Restart(Duration::from_millis(100));
    let driver = Some(FaultCode::Xid(31));
    let death = Death {
        met_by: Some(attempt(5, 1)),
        ..told(DeathReport { exit, served_by, next, driver, ..death() })
    };
    let got = lines(&death);
    let line = |start: &str| {
        let found = got.iter().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("{start} is not in {got:#?}")).as_str()
    };
    assert_eq!(
        line("ended"),
        "ended      exit code 70 (STICKY): a sticky CUDA error: the context is lost"
    );
    assert!(line("fault").starts_with("fault      cuda 700 (CUDA_ERROR_ILLEGAL_ADDRESS): "));
    assert!(line("fault").ends_with(", met by job5 attempt 1"));
    assert!(line("driver").starts_with("driver     xid 31 ("), "{}", line("driver"));
    assert!(line("said").starts_with("said       cuCtxSynchronize"));
    assert_eq!(line("next"), "next       gpu0#4 serves gpu0; another process starts in 0.100 s");
    let fields = fields(&death);
    assert_eq!((&fields["exit_code"], &fields["signal"]), (&json!(70), &Value::Null));
    assert_eq!(fields["fault"]["name"], "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(fields["met_by"], json!({"job": "job5", "attempt": 1}));
    assert_eq!(fields["driver"]["code"], "xid 31");
    assert_eq!(fields["restart_in_s"], json!(0.1));
}

#[test]
fn a_killed_worker_is_shown_with_the_reason_and_one_that_ended_first_with_both() {
    let reason = Some(KillReason::Late);
    let exit =
        Exit { status: ExitStatus::KILLED, fault: None, last_words: None, is_ordered: false };
    let by_the_pool = DeathReport { exit, killed: reason, ..death() };
    let want = "signal 9 (SIGKILL), by the pool: the deadline of its job has passed";
    assert_eq!(how_it_ended(&by_the_pool, None), want);
    assert_eq!(fields(&told(by_the_pool))["killed_for"], "late");
    let (client, killed) = (ClientId(7), Exit { status: ExitStatus::KILLED, ..death().exit });
    let ordered = DeathReport { exit: killed, ..death() };
    let how = how_it_ended(&ordered, Some((client, 9)));
    assert_eq!(how, "signal 9 (SIGKILL), as client7 has ordered");
    let how = how_it_ended(&ordered, Some((client, 15)));
    assert!(how.starts_with("signal 9 (SIGKILL): "), "that was another signal: {how}");
    let quicker = DeathReport { killed: reason, ..death() };
    let how = how_it_ended(&quicker, None);
    assert!(how.starts_with("signal 11 (SIGSEGV): "), "{how}");
    assert!(how.ends_with("; before, the pool had killed it: the deadline of its job has passed"));
}

#[test]
fn a_worker_that_broke_the_protocol_has_said_nothing() {
    let last_words = Some("it did not say who it is first".to_owned());
    let exit = Exit { status: ExitStatus::Rejected, fault: None, last_words, is_ordered: false };
    let rejected = DeathReport { exit, ready_after: None, next: Next::Out(None), ..death() };
    let got = lines(&told(rejected));
    assert!(got.contains(&"because    it did not say who it is first".to_owned()), "{got:#?}");
    assert!(got.contains(&"life       12.345 s, never READY".to_owned()), "{got:#?}");
    let next = "next       gpu0 is out of service until `gridpool release gpu0`".to_owned();
    assert!(got.contains(&next), "{got:#?}");
}

#[test]
fn a_block_says_where_the_worker_was_in_its_work() {
    let item = |job, item| ItemPosition { attempt: attempt(job, 1), item };
    let chunk = |chunk, first, last, launches| {
        let kernel = if launches > 0 { "gp_rot90" } else { "" }.to_owned();
        ChunkPosition { chunk, first, last, launches, kernel }
    };
    let shown = |chunks_begun, chunks_done, under_way| {
        let position = Some(Position { chunks_begun, chunks_done, under_way });
        let lines = lines(&Death { position, ..told(death()) });
        let at =
            lines.into_iter().filter_map(|line| Some(line.strip_prefix("at         ")?.to_owned()));
        at.collect::<Vec<_>>()
    };
    let chunks = vec![chunk(3, item(5, 20), item(5, 29), 2), chunk(4, item(5, 30), item(6, 9), 0)];
    assert_eq!(
        shown(4, 2, chunks),
        [
            "chunk 3 of its work, job5 attempt 1, items 20 to 29; launch 2, gp_rot90",
            "chunk 4 of its work, item 30 of job5 attempt 1 to item 9 of job6 attempt 1; nothing launched",
        ]
    );
    assert_eq!(shown(0, 0, Vec::new()), ["before the first chunk of its work"]);
    assert_eq!(shown(4, 4, Vec::new()), ["between chunks of its work, 4 of 4 done"]);
    let many = (1..=10).map(|number| chunk(number, item(5, number), item(5, number), 1));
    assert_eq!(shown(10, 0, many.collect()).last().unwrap(), "and 2 more");
}

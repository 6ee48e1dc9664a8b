//! The log as it is written and read, on a disk that takes it and on one that does not.

use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, ItemRange};

use super::*;

const ALL: usize = usize::MAX;
const OWN: &str = "/run/one.sock";

fn client(principal: Principal) -> Client {
    Client { principal, token: None }
}

fn state() -> (tempfile::TempDir, StateFolder) {
    let parent = tempfile::tempdir().unwrap();
    let folder = StateFolder::open(&parent.path().join("state"), true).unwrap();
    (parent, folder)
}

fn receipt(job: u32, verdict: Verdict) -> Box<Receipt> {
    Box::new(Receipt { job: job.to_string(), verdict, ..Receipt::default() })
}

fn encoded(receipt: &Receipt) -> Vec<u8> {
    codec::encode(receipt).unwrap()
}

fn of(principal: u32, log: &JobLog, receipt: Box<Receipt>) {
    log.keep(client(Principal::Uid(principal)), encoded(&receipt));
}

/// Keeps those of a user's verdicts that are admitted at this moment.
fn admitted(
    principal: u32,
    log: &JobLog,
    admission: &mut Admission,
    receipts: impl Iterator<Item = Box<Receipt>>,
) {
    let whose = Principal::Uid(principal);
    for receipt in receipts {
        if admission.admits(Timestamp::default(), &whose, &receipt) {
            of(principal, log, receipt);
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_was_logged_is_read_in_its_order_and_survives_the_next_pool() {
    let (_parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let attempt = Attempt::unreported(
        "gpu0#4".to_owned(),
        DeviceInfo::default(),
        ItemRange { start: 0, end: 3 },
        AttemptOutcome::WorkerDied,
        "signal 11".to_owned(),
    );
    let whole = Receipt { attempts: vec![attempt], ..*receipt(1, Verdict::Poison) };
    of(7, &log, Box::new(whole.clone()));
    let mut admission = log.admission(Timestamp::default());
    for (job, verdict) in [(2, Verdict::Ok), (3, Verdict::Deadline)] {
        if admission.admits(Timestamp::default(), &Principal::Gateway, &receipt(job, verdict)) {
            log.keep(client(Principal::Gateway), encoded(&receipt(job, verdict)));
        }
    }
    log.close();
    let next = JobLog::start(&state, OWN.as_ref()).unwrap();
    of(8, &next, receipt(4, Verdict::Ok));
    next.close();
    let read = |most, wanted: fn(&Entry) -> bool| {
        let logged = read(&state, None, most, wanted).unwrap();
        assert_eq!((logged.skipped, logged.unread.len()), (0, 0));
        logged.jobs
    };
    let all = read(ALL, |_| true);
    let seen: Vec<_> = all.iter().map(|job| (&*job.job.principal, &*job.job.receipt.job)).collect();
    assert_eq!(seen, [("uid 7", "1"), ("gateway", "3"), ("uid 8", "4")]);
    assert_eq!(all[0].job.receipt, whole);
    assert_eq!(read(2, |_| true), all[1..]);
    assert_eq!(read(ALL, |job| job.job.receipt.job == "3"), all[1..2]);
}

#[test]
fn jobs_that_come_too_fast_are_counted_and_displace_none_that_went_wrong() {
    let (_parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let all = 4 * USUAL.burst;
    let mut admission = log.admission(Timestamp::default());
    admitted(7, &log, &mut admission, (0..all).map(|job| receipt(job, Verdict::Ok)));
    while log.verdicts.is_full() {
        thread::yield_now();
    }
    admitted(7, &log, &mut admission, std::iter::once(receipt(all, Verdict::Failed)));
    log.close();
    let logged = read(&state, None, ALL, |_| true).unwrap();
    let failed = |job: &&Entry| job.job.receipt.verdict == Verdict::Failed;
    assert_eq!(logged.jobs.iter().filter(failed).count(), 1);
    assert!(logged.skipped > 0);
    assert_eq!(logged.jobs.len() as u64 + logged.skipped, u64::from(all) + 1);
}

#[test]
fn a_rate_earns_in_its_time_and_no_more_than_its_burst() {
    let at = |ms| Timestamp(Duration::from_millis(ms));
    let rate = Rate { per_s: 100, burst: 3 };
    let mut bucket = Bucket::full(rate, at(1_000));
    let mut taken = |ms| (0..9).filter(|_| bucket.take(rate, at(ms))).count();
    assert_eq!(
        [1_000, 1_009, 1_010, 1_019, 1_040, 9_000, 9_009].map(&mut taken),
        [3, 0, 1, 0, 3, 3, 0]
    );
}

#[test]
fn one_who_fails_too_often_leaves_room_for_the_failures_of_others() {
    let (_parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let mut admission = log.admission(Timestamp::default());
    let failed = (0..2 * UNUSUAL.burst).map(|job| receipt(job, Verdict::Failed));
    admitted(7, &log, &mut admission, failed);
    admitted(8, &log, &mut admission, std::iter::once(receipt(1, Verdict::Failed)));
    log.close();
    let logged = read(&state, None, ALL, |_| true).unwrap();
    let all = u64::from(2 * UNUSUAL.burst + 1);
    assert_eq!(logged.jobs.len() as u64 + logged.skipped, all, "the last count is there too");
    assert!(logged.skipped >= u64::from(UNUSUAL.burst), "{}", logged.skipped);
    assert!(logged.jobs.iter().any(|job| job.job.principal == "uid 8"));
}

#[test]
fn a_full_file_is_left_for_the_next_and_half_a_line_costs_that_line() {
    let (parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    for job in 0..20 {
        let reason = "x".repeat(usize::try_from(FILE_BYTES).unwrap() / 8);
        of(7, &log, Box::new(Receipt { reason, ..*receipt(job, Verdict::Failed) }));
        while !log.verdicts.is_empty() {
            thread::yield_now();
        }
    }
    log.close();
    let folder = parent.path().join("state").join(FOLDER);
    let mut files = files(&folder);
    files.sort();
    assert!((2..=3).contains(&files.len()), "{files:?}");
    let file = File::options().write(true).open(files.last().unwrap()).unwrap();
    file.set_len(file.metadata().unwrap().len() - 2).unwrap();
    let logged = read(&state, None, ALL, |_| true).unwrap();
    let unread: Vec<_> = logged.unread.into_iter().collect();
    assert_eq!((logged.jobs.len(), unread), (19, vec![(files.pop().unwrap(), 1)]));
}

#[test]
fn a_disk_that_takes_nothing_costs_no_line_that_it_has() {
    let (parent, state) = state();
    let folder = state.below(FOLDER).unwrap();
    let mut ring = Ring { suffix: SUFFIXES[1], file: None, unwritten: Vec::new() };
    let line = |skipped| Line::Skipped { time: "2026-11-26T08:00:00.000Z".to_owned(), skipped };
    assert!(ring.add(&line(1)));
    ring.write(&folder).unwrap();
    // Every write to it fails with ENOSPC.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (file, bytes) = ring.file.replace((full, 0)).unwrap();
    for _ in 0..200 {
        assert!(ring.add(&line(1)));
        ring.write(&folder).unwrap_err();
    }
    assert_eq!(
        files(&parent.path().join("state").join(FOLDER)).len(),
        1,
        "nothing was pruned or made"
    );
    ring.file = Some((file, bytes));
    ring.write(&folder).unwrap();
    assert_eq!(read(&state, None, ALL, |_| true).unwrap().skipped, 201);
}

#[test]
fn a_file_that_another_pool_has_removed_is_left() {
    let (parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let folder = parent.path().join("state").join(FOLDER);
    of(7, &log, receipt(1, Verdict::Failed));
    while files(&folder).is_empty() {
        thread::yield_now();
    }
    files(&folder).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    of(7, &log, receipt(2, Verdict::Failed));
    log.close();
    let jobs = read(&state, None, ALL, |_| true).unwrap().jobs;
    assert!(jobs.iter().any(|job| job.job.receipt.job == "2"), "{jobs:?}");
}

#[test]
fn a_pool_begins_with_its_own_verdicts_alone() {
    let (_parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let token = Some("0123456789abcdef".to_owned().try_into().unwrap());
    let alice = Client { principal: Principal::Token("alice".to_owned()), token };
    log.keep(alice.clone(), encoded(&receipt(1, Verdict::Failed)));
    log.close();
    let seen = |socket: &str| {
        let log = JobLog::start(&state, socket.as_ref()).unwrap();
        // The thread has read what there is before it ends.
        log.close();
        let told = log.recent(&AskedVerdicts::default(), Some(&alice));
        told.jobs.into_iter().map(|(_, job)| job.receipt.job).collect::<Vec<_>>()
    };
    assert_eq!(seen("/run/other.sock"), [""; 0]);
    assert_eq!(seen(OWN), ["1"]);
    assert_eq!(read(&state, None, ALL, |_| true).unwrap().jobs.len(), 1, "`gridpool jobs` has all");
    // What a pool has written before pools were in it is nobody's.
    let folder = state.below(FOLDER).unwrap();
    let job = read(&state, None, ALL, |_| true).unwrap().jobs.remove(0).job;
    let mut file = folder.append("99999999999999-1.failed.jsonl").unwrap();
    writeln!(file, "{}", serde_json::to_string(&job).unwrap()).unwrap();
    assert_eq!(seen(OWN), ["1"]);
    assert_eq!(read(&state, None, ALL, |_| true).unwrap().jobs.len(), 2);
}

#[test]
fn a_folder_that_cannot_be_written_costs_the_log_alone() {
    let (parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    std::fs::remove_dir_all(parent.path().join("state").join(FOLDER)).unwrap();
    (0..3).for_each(|job| of(7, &log, receipt(job, Verdict::Failed)));
    log.close();
    assert_eq!(read(&state, None, ALL, |_| true).unwrap().jobs, []);
}

#[test]
fn a_list_in_memory_needs_no_disk() {
    let (_parent, state) = state();
    let log = JobLog::start(&state, OWN.as_ref()).unwrap();
    let folder = state.below(FOLDER).unwrap();
    std::fs::remove_dir_all(folder.path()).unwrap();
    let reason = "x".repeat(UNWRITTEN_MAX / 8);
    for job in 0..16 {
        of(7, &log, Box::new(Receipt { reason: reason.clone(), ..*receipt(job, Verdict::Failed) }));
    }
    of(7, &log, receipt(16, Verdict::Failed));
    log.close();
    let told = log.recent(&AskedVerdicts::default(), None);
    assert_eq!(told.jobs.last().unwrap().1.receipt.job, "16");
}

//! Points from samples made by hand.

use gridpool_protocol::metrics::Sums;
use gridpool_protocol::status::{Counters, QueueStatus, WorkerStatus};

use super::*;
use crate::history::rows;
use crate::history::tests::{snapshot, worker};

/// A pool with these workers after so many milliseconds, and with `ok` verdicts.
fn status(ms: u64, ok: u64, workers: Vec<WorkerStatus>) -> Status {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let mut status = snapshot(ms as f64 / 1e3, workers).status;
    (status.counters.ok, status.queue.jobs) = (ok, ok % 7);
    status
}

fn take(timeline: &mut Timeline, at_ms: u64, status: &Status, roles: &[RoleMetrics]) {
    timeline.take(&Sample { at_ms, status, rows: &rows(status), roles });
}

fn in_state(name: &str, state: WorkerState) -> WorkerStatus {
    WorkerStatus { state, ..worker(name, "grid") }
}

#[test]
fn the_last_two_minutes_and_the_last_hour_are_kept_and_no_more() {
    let mut timeline = Timeline::default();
    for second in 0..5_000 {
        let status = status(second * 1_000, 10 * second, vec![worker("cpu0#1", "grid")]);
        take(&mut timeline, second * 1_000, &status, &[]);
    }
    assert_eq!((timeline.fine.points.len(), timeline.coarse.points.len()), (120, 360));
    let (number, latest) = timeline.latest().unwrap();
    assert_eq!((number, latest.at_ms, latest.span_ms), (4_999, 4_999_000, 1_000));
    assert_eq!((latest.verdicts, &*latest.doing), ([10, 0, 0, 0, 0, 0], "r"));
    assert_eq!(timeline.lines(), ["cpu0 grid"]);
    let hour: Vec<_> = timeline.coarse.points.iter().collect();
    assert!(hour.iter().all(|point| point.verdicts[0] == 100 && point.span_ms == 10_000));
    assert_eq!(hour.iter().map(|point| point.queue).max(), Some(6), "the longest is kept");
    let past = Past { is_hour: true, lines: vec![("cpu0 grid".to_owned(), vec!['r'; 360])] };
    assert_eq!(timeline.past(), past);
    let after = |number| timeline.after(number).map(|point| point.at_ms).collect::<Vec<_>>();
    assert_eq!((after(4_997), after(4_999)), (vec![4_998_000, 4_999_000], vec![]));
    assert_eq!((after(0).len(), timeline.number()), (120, 4_999));
}

#[test]
fn a_point_has_the_gravest_that_was_seen_of_each_line() {
    let mut timeline = Timeline::default();
    let mut restarted = in_state("cpu1#2", WorkerState::Ready);
    restarted.restarts = 1;
    let seen = [
        vec![worker("cpu0#1", "grid"), worker("cpu1#1", "grid")],
        vec![in_state("cpu0#1", WorkerState::Busy), in_state("cpu1#1", WorkerState::Stopping)],
        vec![worker("cpu0#1", "grid"), restarted],
    ];
    for (ms, workers) in (0..).step_by(500).zip(seen) {
        take(&mut timeline, ms, &status(ms, 0, workers), &[]);
    }
    assert_eq!(timeline.latest().unwrap().1.doing, "bd");
    let quarantined = vec![in_state("cpu0#1", WorkerState::Quarantined)];
    take(&mut timeline, 2_000, &status(2_000, 0, quarantined), &[]);
    assert_eq!(timeline.latest().unwrap().1.doing, "o", "what was there before is not there now");
}

#[test]
fn so_many_lines_and_no_more_and_one_of_no_point_makes_room() {
    let mut timeline = Timeline::default();
    let all = |group: &str| {
        let of = |number| worker(&format!("cpu{number}#1"), group);
        (0..LINES_MAX + 44).map(of).collect::<Vec<_>>()
    };
    for ms in [0, 1_000, 2_000] {
        take(&mut timeline, ms, &status(ms, 0, all("a")), &[]);
        assert_eq!((timeline.lines().len(), timeline.changes()), (LINES_MAX, 256), "{ms}");
    }
    assert_eq!(timeline.latest().unwrap().1.doing.len(), LINES_MAX);
    // The first stays; the others leave with the last point of theirs, an hour later.
    let mut later = |second: u64, mut workers: Vec<WorkerStatus>| {
        workers.push(worker("cpu0#1", "a"));
        take(&mut timeline, second * 1_000, &status(second * 1_000, 0, workers), &[]);
        timeline.lines().to_vec()
    };
    let kept: Vec<_> = (3..3_600).map(|second| later(second, Vec::new()).len()).collect();
    assert!(kept.iter().all(|&count| count == LINES_MAX));
    let kept: Vec<_> = (3_600..3_640).map(|second| later(second, Vec::new())).collect();
    assert_eq!(kept.last().unwrap(), &["cpu0 a"]);
    assert_eq!(later(3_640, vec![worker("cpu1#1", "b")]), ["cpu0 a", "cpu1 b"]);
    assert_eq!(timeline.past().lines.len(), 2);
}

#[test]
fn a_standby_hides_no_worker_that_serves() {
    let mut timeline = Timeline::default();
    for ms in [0, 1_000] {
        let both =
            vec![in_state("cpu0#1", WorkerState::Busy), in_state("cpu0#2", WorkerState::Standby)];
        take(&mut timeline, ms, &status(ms, 0, both), &[]);
    }
    assert_eq!(timeline.latest().unwrap().1.doing, "b");
}

#[test]
fn another_pool_begins_without_a_point() {
    let mut timeline = Timeline::default();
    take(&mut timeline, 0, &status(60_000, 500, Vec::new()), &[]);
    take(&mut timeline, 1_000, &status(100, 3, Vec::new()), &[]);
    assert!(timeline.latest().is_none(), "its counts begin anew");
    take(&mut timeline, 2_000, &status(1_100, 5, Vec::new()), &[]);
    assert_eq!(timeline.latest().unwrap().1.verdicts[0], 2);
}

#[test]
fn a_point_tells_the_jobs_accepted_and_the_queue_and_the_times_of_each_role() {
    let role = |role, waiting, times: &[f64]| {
        let mut sums = Sums::default();
        times.iter().for_each(|&time| sums.histograms.service.observe(time));
        RoleMetrics {
            role,
            counters: Counters::default(),
            queue: QueueStatus { jobs: waiting, ..QueueStatus::default() },
            restarts: Vec::new(),
            ended: Vec::new(),
            sums,
        }
    };
    let mut timeline = Timeline::default();
    // 0.3 s lies between 0.25 and 0.5, and 0.7 s between 0.5 and 1.
    let none: &[f64] = &[];
    let seen = [
        (0, 10, [2, 0], [none, none]),
        (500, 13, [9, 4], [&[0.3][..], none]),
        (1_000, 15, [1, 1], [&[0.3][..], &[0.7][..]]),
    ];
    for (ms, accepted, [grids, models], [grid, infer]) in seen {
        let mut status = status(ms, 0, Vec::new());
        status.counters.accepted = accepted;
        let roles = [role(Role::Grid, grids, grid), role(Role::Infer, models, infer)];
        take(&mut timeline, ms, &status, &roles);
    }
    let point = timeline.latest().unwrap().1;
    assert_eq!((point.accepted, point.queues), (5, [9, 4]), "the longest of each");
    let [grid, infer] = point.service_s.map(|times| times.unwrap()[0]);
    assert!((0.25..0.5).contains(&grid) && (0.5..1.0).contains(&infer), "{grid} {infer}");
    assert_eq!(point.queue_s, [None, None]);
}

#[test]
fn percentiles_lie_within_the_bucket_that_has_them() {
    let begin = Histogram::new(&[1.0, 2.0, 4.0]);
    let mut now = begin.clone();
    assert_eq!(percentiles(&now, &begin), None);
    (0..90).for_each(|_| now.observe(0.5));
    (0..10).for_each(|_| now.observe(3.0));
    let [p50, p90, p99] = percentiles(&now, &begin).unwrap();
    assert!((p50 - 50.0 / 90.0).abs() < 1e-9 && (p90 - 1.0).abs() < 1e-9, "{p50} {p90}");
    assert!((p99 - 3.8).abs() < 1e-9, "{p99}");
    let mut later = now.clone();
    later.observe(9.0);
    assert_eq!(percentiles(&later, &now), Some([4.0; 3]), "above all buckets");
}

#[test]
fn it_is_written_as_lists_of_points() {
    let mut timeline = Timeline::default();
    for ms in [0, 1_000] {
        take(&mut timeline, ms, &status(ms, ms, vec![worker("cpu0#1", "grid")]), &[]);
    }
    let document = serde_json::to_value(&timeline).unwrap();
    assert_eq!(document["lines"], serde_json::json!(["cpu0 grid"]));
    assert_eq!(document["fine"][0]["verdicts"][0], 1_000);
    assert_eq!(document["coarse"], serde_json::json!([]));
}

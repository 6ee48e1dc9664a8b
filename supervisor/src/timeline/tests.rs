//! Points from samples made by hand.

use gridpool_protocol::ids::Role;
use gridpool_protocol::metrics::{Histogram, RoleMetrics, Sums};
use gridpool_protocol::status::{Counters, QueueStatus, WorkerState};

use super::record::{Recorder, Sample, Seen, percentiles};
use super::*;

/// A pool with these workers and `ok` verdicts.
fn take(recorder: &mut Recorder, at_ms: u64, ok: u64, workers: &[Seen]) {
    let counters = Counters { ok, ..Counters::default() };
    recorder.take(&Sample { at_ms, counters: &counters, queue: ok % 7, workers, roles: &[] });
}

fn worker(device: &str, group: &str) -> Seen {
    let (device, group) = (device.to_owned(), group.to_owned());
    Seen { device, group, state: WorkerState::Ready, restarts: 0, busy_percent: None }
}

fn in_state(device: &str, state: WorkerState) -> Seen {
    Seen { state, ..worker(device, "grid") }
}

/// The last point of a second.
fn latest(recorder: &Recorder) -> Option<&Point> {
    recorder.timeline().fine.points.back()
}

/// A pool that ran for so many seconds, with ten verdicts in each.
fn ran(seconds: u64) -> Recorder {
    let mut recorder = Recorder::default();
    for second in 0..seconds {
        take(&mut recorder, second * 1_000, 10 * second, &[worker("cpu0", "grid")]);
    }
    recorder
}

#[test]
fn the_last_two_minutes_and_the_last_hour_are_kept_and_no_more() {
    let recorder = ran(5_000);
    let timeline = recorder.timeline();
    assert_eq!((timeline.fine.points.len(), timeline.coarse.points.len()), (120, 360));
    let latest = latest(&recorder).unwrap();
    assert_eq!((latest.at_ms, latest.span_ms), (4_999_000, 1_000));
    assert_eq!((latest.verdicts, &*latest.doing), ([10, 0, 0, 0, 0, 0], "r"));
    assert_eq!(timeline.lines(), ["cpu0 grid"]);
    let hour: Vec<_> = timeline.coarse.points.iter().collect();
    assert!(hour.iter().all(|point| point.verdicts[0] == 100 && point.span_ms == 10_000));
    assert_eq!(hour.iter().map(|point| point.queue).max(), Some(6), "the longest is kept");
    let past = Past { is_hour: true, lines: vec![("cpu0 grid".to_owned(), vec!['r'; 360])] };
    assert_eq!(timeline.past(), past);
    let after = |fine| {
        let after = timeline.after(Mark { fine, ..Mark::default() });
        after.map(|point| point.at_ms).collect::<Vec<_>>()
    };
    assert_eq!((after(4_997), after(4_999)), (vec![4_998_000, 4_999_000], vec![]));
    assert_eq!((after(0).len(), after(5_000).len(), timeline.mark().fine), (120, 120, 4_999));
}

#[test]
fn a_copy_has_the_same_after_all_parts_and_then_what_is_new() {
    let mut recorder = ran(5_000);
    let mut copy = Timeline::default();
    let parts = recorder.timeline().parts();
    assert_eq!(parts.len(), (FINE_POINTS + COARSE_POINTS).div_ceil(PART_POINTS_MAX));
    parts.into_iter().for_each(|part| copy.take(part));
    let written = |timeline: &Timeline| serde_json::to_string(timeline).unwrap();
    assert_eq!(written(&copy), written(recorder.timeline()));
    take(&mut recorder, 5_000_000, 0, &[worker("cpu0", "grid"), worker("cpu1", "grid")]);
    let part = recorder.timeline().part_after(copy.mark());
    assert_eq!((part.is_last, part.fine.len(), part.coarse.len()), (true, 1, 1));
    assert_eq!(part.lines.as_deref(), Some(&["cpu0 grid", "cpu1 grid"].map(str::to_owned)[..]));
    copy.take(part);
    assert_eq!(written(&copy), written(recorder.timeline()));
    let part = recorder.timeline().part_after(copy.mark());
    assert_eq!(part, Part { mark: copy.mark(), is_last: true, ..Part::default() });
    // The successor goes on.
    let mut recorder = Recorder::after(copy.clone());
    take(&mut recorder, 5_003_000, 3, &[worker("cpu1", "grid")]);
    take(&mut recorder, 5_004_000, 5, &[worker("cpu1", "grid")]);
    let point = latest(&recorder).unwrap();
    assert_eq!((&*point.doing, point.verdicts[0], point.span_ms), (".r", 2, 1_000));
    assert_eq!(recorder.timeline().mark(), Mark { fine: 5_001, ..copy.mark() });
}

#[test]
fn a_point_has_the_gravest_that_was_seen_of_each_line() {
    let mut recorder = Recorder::default();
    let mut restarted = in_state("cpu1", WorkerState::Ready);
    restarted.restarts = 1;
    let seen = [
        vec![worker("cpu0", "grid"), worker("cpu1", "grid")],
        vec![in_state("cpu0", WorkerState::Busy), in_state("cpu1", WorkerState::Stopping)],
        vec![worker("cpu0", "grid"), restarted],
    ];
    for (ms, workers) in (0..).step_by(500).zip(seen) {
        take(&mut recorder, ms, 0, &workers);
    }
    assert_eq!(latest(&recorder).unwrap().doing, "bd");
    take(&mut recorder, 2_000, 0, &[in_state("cpu0", WorkerState::Quarantined)]);
    assert_eq!(latest(&recorder).unwrap().doing, "o", "what was there before is not there now");
}

#[test]
fn so_many_lines_and_no_more_and_one_of_no_point_makes_room() {
    let mut recorder = Recorder::default();
    let all = |group: &str| {
        let of = |number| worker(&format!("cpu{number}"), group);
        (0..LINES_MAX + 44).map(of).collect::<Vec<_>>()
    };
    for ms in [0, 1_000, 2_000] {
        take(&mut recorder, ms, 0, &all("a"));
        let timeline = recorder.timeline();
        assert_eq!((timeline.lines().len(), timeline.mark().names), (LINES_MAX, 256), "{ms}");
    }
    assert_eq!(latest(&recorder).unwrap().doing.len(), LINES_MAX);
    // The first stays; the others leave with the last point of theirs, an hour later.
    let mut later = |second: u64, mut workers: Vec<Seen>| {
        workers.push(worker("cpu0", "a"));
        take(&mut recorder, second * 1_000, 0, &workers);
        recorder.timeline().lines().to_vec()
    };
    let kept: Vec<_> = (3..3_600).map(|second| later(second, Vec::new()).len()).collect();
    assert!(kept.iter().all(|&count| count == LINES_MAX));
    let kept: Vec<_> = (3_600..3_640).map(|second| later(second, Vec::new())).collect();
    assert_eq!(kept.last().unwrap(), &["cpu0 a"]);
    assert_eq!(later(3_640, vec![worker("cpu1", "b")]), ["cpu0 a", "cpu1 b"]);
    assert_eq!(recorder.timeline().past().lines.len(), 2);
}

#[test]
fn a_standby_hides_no_worker_that_serves() {
    let mut recorder = Recorder::default();
    for ms in [0, 1_000] {
        let both = [WorkerState::Busy, WorkerState::Standby].map(|state| in_state("cpu0", state));
        take(&mut recorder, ms, 0, &both);
    }
    assert_eq!(latest(&recorder).unwrap().doing, "b");
}

#[test]
fn a_clock_that_is_set_back_begins_without_a_point() {
    let mut recorder = Recorder::default();
    take(&mut recorder, 60_000, 500, &[]);
    take(&mut recorder, 1_000, 503, &[]);
    assert!(latest(&recorder).is_none());
    take(&mut recorder, 2_000, 505, &[]);
    assert_eq!(latest(&recorder).unwrap().verdicts[0], 2);
}

#[test]
fn a_point_tells_the_jobs_accepted_and_the_queue_and_the_times_of_each_role() {
    let role = |role, waiting, times: &[f64]| {
        let mut sums = Sums::default();
        for &time in times {
            sums.histograms.service.observe(time);
            sums.histograms.total.observe(10.0 * time);
        }
        RoleMetrics {
            role,
            counters: Counters::default(),
            queue: QueueStatus { jobs: waiting, ..QueueStatus::default() },
            restarts: Vec::new(),
            ended: Vec::new(),
            sums,
        }
    };
    let mut recorder = Recorder::default();
    // 0.3 s lies between 0.25 and 0.5, and 0.7 s between 0.5 and 1.
    let none: &[f64] = &[];
    let seen = [
        (0, 10, 2, 0, [none, none]),
        (500, 13, 9, 4, [&[0.3], none]),
        (1_000, 15, 1, 1, [&[0.3], &[0.7]]),
    ];
    for (ms, accepted, grids, models, [grid, infer]) in seen {
        let counters = &Counters { accepted, ..Counters::default() };
        let roles = &[role(Role::Grid, grids, grid), role(Role::Infer, models, infer)];
        recorder.take(&Sample { at_ms: ms, counters, queue: 0, workers: &[], roles });
    }
    let point = latest(&recorder).unwrap();
    assert_eq!((point.accepted, point.queues), (5, [9, 4]), "the longest of each");
    let [grid, infer] = point.service_s.map(|times| times.unwrap()[0]);
    assert!((0.25..0.5).contains(&grid) && (0.5..1.0).contains(&infer), "{grid} {infer}");
    assert_eq!(point.queue_s, [None, None]);
    let [grid, infer] = point.total_s.map(|times| times.unwrap()[0]);
    assert!((2.5..5.0).contains(&grid) && (5.0..10.0).contains(&infer), "{grid} {infer}");
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
    let document = serde_json::to_value(ran(2).timeline()).unwrap();
    assert_eq!(document["lines"], serde_json::json!(["cpu0 grid"]));
    assert_eq!(document["fine"][0]["verdicts"][0], 10);
    assert_eq!(document["coarse"], serde_json::json!([]));
}

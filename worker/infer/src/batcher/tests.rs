//! The batcher without a delay, against a model that knows single rows only, and against its promises.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use gridpool_ipc::clock;
use proptest::prelude::*;

use super::*;

mod delays;

const ROWS: u64 = 8;

/// When every test begins.
static START: LazyLock<Instant> = LazyLock::new(clock::now);

fn after(ms: u64) -> Instant {
    *START + Duration::from_millis(ms)
}

fn entry(client: u64, rows: u64, request: usize) -> Entry<usize> {
    let rows = (rows, vec![vec![3]]);
    let (bytes, arrived) = (rows.0, *START);
    let priority = Priority::Normal;
    Entry { client, priority, rows: Some(rows), bytes, arrived, deadline: None, request }
}

fn batcher() -> Batcher<usize> {
    Batcher::new(Limits { rows: ROWS, requests: 100, bytes: 10_000 })
}

/// What a context runs at the start.
fn parts(batcher: &mut Batcher<usize>) -> Vec<Part<usize>> {
    match batcher.take(*START) {
        Next::Run(parts) => parts,
        Next::Nothing => Vec::new(),
        Next::Wait(until) => panic!("it waits until {until:?}"),
    }
}

fn taken(batcher: &mut Batcher<usize>) -> Vec<(usize, Range<u64>)> {
    let parts = parts(batcher).into_iter();
    parts.map(|part| (part.request, part.rows.expect("it has rows"))).collect()
}

#[test]
fn a_free_context_takes_at_once_what_waits() {
    let mut batcher = batcher();
    assert_eq!(batcher.take(*START), Next::Nothing);
    batcher.push(entry(1, 2, 0)).unwrap();
    assert_eq!(taken(&mut batcher), [(0, 0..2)]);
    for (client, request) in [(0, 0), (1, 1), (2, 2)] {
        batcher.push(entry(client, 3, request)).unwrap();
    }
    assert_eq!(taken(&mut batcher), [(0, 0..3), (1, 0..3)], "the third does not fit whole");
    assert_eq!(taken(&mut batcher), [(2, 0..3)]);
    assert!(batcher.is_empty());
}

#[test]
fn a_request_larger_than_a_run_is_split_and_others_join_its_runs() {
    let mut batcher = batcher();
    batcher.push(entry(1, 2, 0)).unwrap();
    batcher.push(entry(2, 20, 1)).unwrap();
    batcher.push(entry(2, 1, 2)).unwrap();
    batcher.push(entry(3, 1, 3)).unwrap();
    assert_eq!(taken(&mut batcher), [(0, 0..2), (1, 0..6)]);
    assert_eq!(taken(&mut batcher), [(1, 6..14)]);
    assert_eq!(taken(&mut batcher), [(1, 14..20), (2, 0..1), (3, 0..1)]);
    assert!(batcher.is_empty());
}

#[test]
fn other_shapes_and_whole_requests_run_apart() {
    let mut batcher = batcher();
    let other = Entry { rows: Some((1, vec![vec![4]])), ..entry(1, 1, 1) };
    let whole = Entry { rows: None, ..entry(2, 1, 2) };
    let none = entry(3, 0, 3);
    for entry in [entry(0, 1, 0), other, whole, none, entry(4, 1, 4), entry(1, 1, 5)] {
        batcher.push(entry).unwrap();
    }
    assert_eq!(taken(&mut batcher), [(0, 0..1), (4, 0..1)], "client 1 has another before its 5");
    assert_eq!(taken(&mut batcher), [(1, 0..1)]);
    assert_eq!(parts(&mut batcher), [Part { request: 2, rows: None }]);
    assert_eq!(taken(&mut batcher), [(3, 0..0)]);
    assert_eq!(taken(&mut batcher), [(5, 0..1)]);
}

#[test]
fn an_expired_request_is_dropped_before_it_runs() {
    let now = clock::now();
    let at = |ms| Some(now + Duration::from_millis(ms));
    let mut batcher = batcher();
    batcher.push(Entry { deadline: at(5), ..entry(1, 20, 0) }).unwrap();
    batcher.push(Entry { deadline: at(9), ..entry(1, 1, 1) }).unwrap();
    batcher.push(entry(1, 1, 2)).unwrap();
    assert!(batcher.late(now).is_empty());
    assert_eq!(taken(&mut batcher), [(0, 0..8)]);
    assert_eq!(batcher.late(now + Duration::from_millis(5)), [0], "the rest of it too");
    assert_eq!(taken(&mut batcher), [(1, 0..1), (2, 0..1)]);
}

#[test]
fn a_priority_orders_a_clients_own_requests_and_moves_nobody_elses() {
    use Priority::{High, Low, Normal};
    let mut batcher = batcher();
    let all =
        [(1, Low), (2, Low), (1, Normal), (3, High), (1, High), (1, High), (2, Normal), (1, Low)];
    for (request, (client, priority)) in all.into_iter().enumerate() {
        batcher.push(Entry { priority, ..entry(client, ROWS, request) }).unwrap();
    }
    let order: Vec<_> = (0..all.len()).map(|_| taken(&mut batcher)[0].0).collect();
    assert_eq!(order, [4, 6, 5, 3, 2, 0, 1, 7], "client 1 has the places 0, 2, 4, 5 and 7");
}

#[test]
fn a_request_that_has_begun_is_not_overtaken() {
    let mut batcher = batcher();
    batcher.push(Entry { priority: Priority::Low, ..entry(1, 2 * ROWS, 0) }).unwrap();
    batcher.push(Entry { priority: Priority::Low, ..entry(1, 1, 1) }).unwrap();
    assert_eq!(taken(&mut batcher), [(0, 0..ROWS)]);
    batcher.push(Entry { priority: Priority::High, ..entry(1, ROWS, 2) }).unwrap();
    assert_eq!(taken(&mut batcher), [(0, ROWS..2 * ROWS)]);
    assert_eq!(taken(&mut batcher), [(2, 0..ROWS)]);
    assert_eq!(taken(&mut batcher), [(1, 0..1)]);
}

#[test]
fn the_queue_is_limited_in_requests_and_bytes() {
    let mut batcher = Batcher::new(Limits { rows: 8, requests: 3, bytes: 10 });
    batcher.push(Entry { bytes: 50, ..entry(1, 1, 0) }).expect("no other waits");
    let error = batcher.push(entry(1, 1, 1)).unwrap_err();
    assert_eq!(error, QueueError::Bytes { bytes: 50, more: 1, limit: 10 });
    assert_eq!(parts(&mut batcher).len(), 1);
    for request in 0..3 {
        batcher.push(entry(1, 3, request)).unwrap();
    }
    assert_eq!(batcher.push(entry(1, 1, 3)).unwrap_err(), QueueError::Requests { requests: 3 });
    assert_eq!(batcher.withdraw(|&request| request == 1), [1]);
    assert!(batcher.push(entry(1, 5, 4)).unwrap_err().to_string().contains("5 more"));
    batcher.push(entry(1, 4, 4)).expect("6 bytes wait");
    assert_eq!(batcher.len(), 3);
}

/// A step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    /// Client, rows (none runs whole), which shapes, and when it expires.
    Push(u64, Option<u64>, u64, Option<u64>),
    Take,
    /// Lets time pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let rows = prop_oneof![8 => (1..6_u64).prop_map(Some), 2 => (6..40_u64).prop_map(Some),
        1 => Just(Some(0)), 1 => Just(None)];
    let push = (0..3_u64, rows, 0..2_u64, prop::option::of(1..20_u64));
    prop_oneof![
        3 => push.prop_map(|(client, rows, shape, late)| Step::Push(client, rows, shape, late)),
        2 => Just(Step::Take),
        1 => (1..10_u64).prop_map(Step::Pass),
    ]
}

/// One request of the model: its rows one by one.
#[derive(Clone, Debug)]
struct Known {
    client: u64,
    shape: Option<u64>,
    rows: Vec<u64>,
    size: u64,
    late: Option<u64>,
}

/// The same rules, restated over single rows: the next run.
fn expected(queue: &mut BTreeMap<usize, Known>) -> Vec<(usize, Option<Range<u64>>)> {
    let Some((&first, head)) = queue.iter().next() else { return Vec::new() };
    if head.shape.is_none() || head.size == 0 {
        let rows = head.shape.map(|_| 0..0);
        queue.remove(&first);
        return vec![(first, rows)];
    }
    let shape = head.shape;
    let (mut run, mut rows_left) = (Vec::new(), usize::try_from(ROWS).unwrap());
    let mut behind = Vec::new();
    for (&id, known) in queue.iter_mut() {
        let fits = known.rows.len() <= rows_left;
        let joins = known.shape == shape && known.size > 0 && (fits || known.size > ROWS);
        if rows_left == 0 || !joins || behind.contains(&known.client) {
            behind.push(known.client);
            continue;
        }
        let rest = known.rows.split_off(known.rows.len().min(rows_left));
        let rows = std::mem::replace(&mut known.rows, rest);
        rows_left -= rows.len();
        run.push((id, Some(rows[0]..rows[0] + rows.len() as u64)));
        if !known.rows.is_empty() {
            behind.push(known.client);
        }
    }
    queue.retain(|_, known| !known.rows.is_empty() || known.size == 0 || known.shape.is_none());
    run
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_run_matches_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let start = clock::now();
        let mut batcher = batcher();
        let mut queue: BTreeMap<usize, Known> = BTreeMap::new();
        let (mut now, mut next) = (0, 0);
        for step in steps.into_iter().chain(std::iter::repeat_n(Step::Take, 200)) {
            match step {
                Step::Push(client, rows, shape, late) => {
                    let late = late.map(|after| now + after);
                    let entry = Entry {
                        client,
                        priority: Priority::Normal,
                        rows: rows.map(|rows| (rows, vec![vec![shape]])),
                        bytes: 1,
                        arrived: start,
                        deadline: late.map(|late| start + Duration::from_millis(late)),
                        request: next,
                    };
                    batcher.push(entry).unwrap();
                    let size = rows.unwrap_or(0);
                    let shape = rows.map(|_| shape);
                    queue.insert(next, Known { client, shape, rows: (0..size).collect(), size, late });
                    next += 1;
                }
                Step::Take => {
                    let parts = parts(&mut batcher).into_iter();
                    let run: Vec<_> = parts.map(|part| (part.request, part.rows)).collect();
                    prop_assert_eq!(run, expected(&mut queue));
                }
                Step::Pass(ms) => {
                    now += ms;
                    let late = batcher.late(start + Duration::from_millis(now));
                    let is_late = |known: &Known| known.late.is_some_and(|late| late <= now);
                    let want: Vec<_> = queue.iter().filter(|known| is_late(known.1)).map(|k| *k.0).collect();
                    prop_assert_eq!(late, want);
                    queue.retain(|_, known| !is_late(known));
                }
            }
            prop_assert_eq!(batcher.len(), queue.len());
        }
        prop_assert!(batcher.is_empty(), "200 runs are more than 80 requests of 40 rows need");
    }

    #[test]
    fn every_row_runs_once_and_clients_keep_their_order(
        requests in prop::collection::vec((0..3_u64, 0..30_u64, 0..2_u64), 1..40)
    ) {
        let mut batcher = batcher();
        for (request, &(client, rows, shape)) in requests.iter().enumerate() {
            let rows = Some((rows, vec![vec![shape]]));
            batcher.push(Entry { rows, ..entry(client, 0, request) }).unwrap();
        }
        let mut ran: Vec<u64> = vec![0; requests.len()];
        let mut begun = vec![false; requests.len()];
        while !batcher.is_empty() {
            let run = taken(&mut batcher);
            prop_assert!(run.iter().map(|part| part.1.end - part.1.start).sum::<u64>() <= ROWS);
            prop_assert!(run.iter().all(|part| requests[part.0].2 == requests[run[0].0].2));
            for (request, rows) in run {
                prop_assert_eq!(rows.start, ran[request]);
                ran[request] = rows.end;
                begun[request] = true;
                let client = requests[request].0;
                let earlier = (0..request).filter(|&other| requests[other].0 == client);
                for other in earlier {
                    prop_assert!(begun[other] && ran[other] == requests[other].1, "{} before {}", request, other);
                }
            }
        }
        for (ran, request) in ran.iter().zip(&requests) {
            prop_assert_eq!(*ran, request.1);
        }
    }
}

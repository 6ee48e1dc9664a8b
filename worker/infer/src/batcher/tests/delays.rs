//! The batcher with a delay.

use super::*;

const DELAY_MS: u64 = 10;

fn waits(preferred: &[u64], run_ms: u64) -> Batcher<usize> {
    let longest = Duration::from_millis(DELAY_MS);
    let delay = Delay { longest, preferred: preferred.iter().copied().collect() };
    batcher().with_delay(delay, Duration::from_millis(run_ms))
}

/// A request of a client of its own that comes after so long.
fn comes(ms: u64, rows: u64, request: usize) -> Entry<usize> {
    Entry { arrived: after(ms), ..entry(request as u64, rows, request) }
}

/// The requests of the next run and how many rows of each go, or when the context asks again.
fn next(batcher: &mut Batcher<usize>, ms: u64) -> Result<Vec<(usize, u64)>, Instant> {
    match batcher.take(after(ms)) {
        Next::Wait(until) => Err(until),
        Next::Nothing => Ok(Vec::new()),
        Next::Run(parts) => {
            let rows = |part: &Part<usize>| part.rows.as_ref().map_or(0, |r| r.end - r.start);
            Ok(parts.iter().map(|part| (part.request, rows(part))).collect())
        }
    }
}

#[test]
fn a_run_waits_for_rows_until_its_first_request_has_waited_long_enough() {
    let mut batcher = waits(&[], 0);
    batcher.push(comes(0, 2, 0)).unwrap();
    assert_eq!(next(&mut batcher, 0), Err(after(10)));
    batcher.push(comes(4, 1, 1)).unwrap();
    assert_eq!(next(&mut batcher, 4), Err(after(10)), "a second request does not prolong it");
    assert_eq!(next(&mut batcher, 9), Err(after(10)));
    assert_eq!(next(&mut batcher, 10), Ok(vec![(0, 2), (1, 1)]));
    assert_eq!(next(&mut batcher, 10), Ok(vec![]));
}

#[test]
fn a_full_run_starts_at_once() {
    let mut batcher = waits(&[], 0);
    batcher.push(comes(0, 5, 0)).unwrap();
    batcher.push(comes(0, 3, 1)).unwrap();
    assert_eq!(next(&mut batcher, 0), Ok(vec![(0, 5), (1, 3)]));
    batcher.push(comes(0, 5, 2)).unwrap();
    batcher.push(comes(0, 4, 3)).unwrap();
    assert_eq!(next(&mut batcher, 0), Ok(vec![(2, 5)]), "the next one does not fit");
    assert_eq!(next(&mut batcher, 0), Err(after(10)));
    batcher.push(comes(0, 20, 4)).unwrap();
    assert_eq!(next(&mut batcher, 0), Ok(vec![(3, 4), (4, 4)]));
    assert_eq!(next(&mut batcher, 0), Ok(vec![(4, 8)]));
    assert_eq!(next(&mut batcher, 0), Ok(vec![(4, 8)]));
}

#[test]
fn a_preferred_size_starts_at_once_and_takes_no_more() {
    let mut batcher = waits(&[2, 4], 0);
    batcher.push(comes(0, 1, 0)).unwrap();
    assert_eq!(next(&mut batcher, 0), Err(after(10)));
    batcher.push(comes(0, 1, 1)).unwrap();
    assert_eq!(next(&mut batcher, 0), Ok(vec![(0, 1), (1, 1)]));
    (2..8).for_each(|request| batcher.push(comes(0, 1, request)).unwrap());
    assert_eq!(next(&mut batcher, 0), Ok(vec![(2, 1), (3, 1), (4, 1), (5, 1)]), "the largest");
    assert_eq!(next(&mut batcher, 0), Ok(vec![(6, 1), (7, 1)]));
    batcher.push(comes(0, 3, 8)).unwrap();
    batcher.push(comes(0, 3, 9)).unwrap();
    assert_eq!(next(&mut batcher, 0), Err(after(10)), "requests are not split for it");
    (10..12).for_each(|request| batcher.push(comes(0, 1, request)).unwrap());
    let full = vec![(8, 3), (9, 3), (10, 1), (11, 1)];
    assert_eq!(next(&mut batcher, 0), Ok(full), "most rows of a run need not be named");
}

#[test]
fn a_deadline_ends_the_wait_before_it_costs_the_request_anything() {
    let by = |ms: u64, entry| Entry { deadline: Some(after(ms)), ..entry };
    let mut batcher = waits(&[], 2);
    batcher.push(comes(0, 1, 0)).unwrap();
    batcher.push(by(9, comes(1, 1, 1))).unwrap();
    assert_eq!(next(&mut batcher, 1), Err(after(5)), "two runs of 2 ms before 9 ms");
    assert_eq!(next(&mut batcher, 5), Ok(vec![(0, 1), (1, 1)]));
    batcher.push(by(9, comes(6, 1, 2))).unwrap();
    assert_eq!(next(&mut batcher, 6), Ok(vec![(2, 1)]), "there is no time to wait");
    batcher.push(by(40, comes(6, 1, 3))).unwrap();
    assert_eq!(next(&mut batcher, 6), Err(after(16)), "there is enough");
    batcher.ran(Duration::from_millis(16));
    assert_eq!(next(&mut batcher, 6), Err(after(8)), "a run took longer than was known");
    batcher.ran(Duration::from_millis(1));
    assert_eq!(next(&mut batcher, 6), Err(after(12)), "14 ms: it is forgotten slowly");
}

#[test]
fn a_run_that_waits_holds_only_its_own_clients_up() {
    let mut batcher = waits(&[], 0);
    let other = |entry| Entry { rows: Some((8, vec![vec![9]])), ..entry };
    batcher.push(comes(0, 1, 0)).unwrap();
    batcher.push(other(Entry { client: 0, ..comes(0, 8, 1) })).unwrap();
    batcher.push(other(comes(0, 8, 2))).unwrap();
    assert_eq!(next(&mut batcher, 0), Ok(vec![(2, 8)]), "full, and of another client");
    assert_eq!(next(&mut batcher, 0), Err(after(10)));
    assert_eq!(next(&mut batcher, 10), Ok(vec![(0, 1)]));
    assert_eq!(next(&mut batcher, 10), Ok(vec![(1, 8)]));
}

#[test]
fn a_withdrawn_request_no_longer_sets_the_time_and_an_end_of_delays_starts_all() {
    let mut batcher = waits(&[], 0);
    batcher.push(comes(0, 1, 0)).unwrap();
    batcher.push(comes(5, 1, 1)).unwrap();
    assert_eq!(batcher.withdraw(|&request| request == 0), [0]);
    assert_eq!(next(&mut batcher, 5), Err(after(15)));
    batcher.end_delay();
    assert_eq!(next(&mut batcher, 5), Ok(vec![(1, 1)]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// With a context that is always free, no request waits longer than the delay or past its deadline, and all rows
    /// run once.
    #[test]
    fn no_request_waits_longer_than_the_delay(
        requests in prop::collection::vec((0..4_u64, 0..12_u64, 0..2_u64, 0..6_u64, 0..30_u64), 1..40),
        preferred in prop::collection::btree_set(1..=ROWS, 0..3),
    ) {
        let mut batcher = waits(&preferred.into_iter().collect::<Vec<_>>(), 0);
        let (mut now, mut ran) = (0, vec![0; requests.len()]);
        let mut limits = Vec::new();
        for (request, &(client, rows, shape, pause, slack)) in requests.iter().enumerate() {
            let arrives = now + pause;
            // Everything that is due before it comes.
            while let Err(until) = run(&mut batcher, now, &mut ran, &limits)? {
                if until > after(arrives) {
                    break;
                }
                now = whole_ms(until);
            }
            now = arrives;
            let deadline = arrives + slack;
            limits.push(now + DELAY_MS.min(slack));
            let entry = Entry {
                rows: Some((rows, vec![vec![shape]])),
                deadline: Some(after(deadline)),
                client,
                ..comes(now, rows, request)
            };
            batcher.push(entry).unwrap();
        }
        while let Err(until) = run(&mut batcher, now, &mut ran, &limits)? {
            prop_assert!(until > after(now), "the context would not sleep");
            now = whole_ms(until);
        }
        prop_assert!(batcher.is_empty());
        let rows: Vec<_> = requests.iter().map(|request| request.1).collect();
        prop_assert_eq!(ran, rows);
    }
}

/// The first whole millisecond that is not before `time`.
fn whole_ms(time: Instant) -> u64 {
    u64::try_from((time - *START).as_micros().div_ceil(1_000)).unwrap()
}

/// Runs all that starts now. Gives the time of the next start, if there is one.
fn run(
    batcher: &mut Batcher<usize>,
    now: u64,
    ran: &mut [u64],
    limits: &[u64],
) -> Result<Result<(), Instant>, TestCaseError> {
    loop {
        match next(batcher, now) {
            Err(until) => return Ok(Err(until)),
            Ok(parts) if parts.is_empty() => return Ok(Ok(())),
            Ok(parts) => {
                for (request, rows) in parts {
                    ran[request] += rows;
                    prop_assert!(now <= limits[request], "{} starts at {}", request, now);
                }
            }
        }
    }
}

//! Finds the number of contexts that serves most, by running the model.
//!
//! Plain rules over a measurement: the caller makes contexts and runs them.

use std::time::Duration;

use gridpool_protocol::limits::AUTO_CONTEXTS_MAX;
use gridpool_protocol::tensor::model::ContextsMeasured;

/// More contexts are taken only if they serve more by this part, and none are tried after a number that did not.
const GAIN_PERCENT: u64 = 5;

/// The numbers to try, in order: each twice the one before.
pub(super) fn candidates() -> impl Iterator<Item = u32> {
    (0..).map(|power| 1 << power).take_while(|&count| count <= AUTO_CONTEXTS_MAX)
}

/// One measurement: `times` are those of all runs of `contexts` that overlapped for `took`.
pub(super) fn measured(
    contexts: u32,
    took: Duration,
    mut times: Vec<Duration>,
) -> ContextsMeasured {
    times.sort_unstable();
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let runs = times.len() as u128;
    let last = times.len().saturating_sub(1);
    let p99 = times.get(last * 99 / 100).copied().unwrap_or(took);
    ContextsMeasured {
        contexts,
        runs_per_minute: whole(runs * 60_000_000_000 / took.as_nanos().max(1)),
        p99_us: whole(p99.as_micros()),
    }
}

/// Whether the last number of contexts was better than all before, so that a larger one may be better still.
pub(super) fn goes_on(rows: &[ContextsMeasured], latency: Option<Duration>) -> bool {
    let Some((last, before)) = rows.split_last() else { return true };
    let is_best = before.is_empty() || best(before, latency).is_none_or(|best| gains(best, last));
    is_best && is_within(last, latency)
}

/// The number that serves most within the latency; `None` if none is within it.
pub(super) fn best(
    rows: &[ContextsMeasured],
    latency: Option<Duration>,
) -> Option<&ContextsMeasured> {
    let within = rows.iter().filter(|row| is_within(row, latency));
    within.reduce(|best, row| if gains(best, row) { row } else { best })
}

fn gains(best: &ContextsMeasured, row: &ContextsMeasured) -> bool {
    let least = u128::from(best.runs_per_minute) * u128::from(100 + GAIN_PERCENT);
    u128::from(row.runs_per_minute) * 100 >= least
}

fn is_within(row: &ContextsMeasured, latency: Option<Duration>) -> bool {
    latency.is_none_or(|most| u128::from(row.p99_us) <= most.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[(u32, u64, u64)]) -> Vec<ContextsMeasured> {
        let row = |&(contexts, runs_per_minute, p99_us)| ContextsMeasured {
            contexts,
            runs_per_minute,
            p99_us,
        };
        of.iter().map(row).collect()
    }

    fn chosen(of: &[(u32, u64, u64)], latency_ms: Option<u64>) -> Option<u32> {
        best(&rows(of), latency_ms.map(Duration::from_millis)).map(|row| row.contexts)
    }

    #[test]
    fn the_number_that_serves_most_within_the_latency_is_taken() {
        let all = [(1, 100, 10_000), (2, 190, 11_000), (4, 300, 14_000), (8, 310, 30_000)];
        assert_eq!(chosen(&all, None), Some(4), "8 gain too little");
        assert_eq!(chosen(&all, Some(12)), Some(2));
        assert_eq!(chosen(&all, Some(10)), Some(1));
        assert_eq!(chosen(&all, Some(9)), None);
        assert_eq!(chosen(&[], None), None);
    }

    #[test]
    fn it_tries_twice_as_many_as_long_as_that_helps() {
        let on = |of: &[(u32, u64, u64)], ms: Option<u64>| {
            goes_on(&rows(of), ms.map(Duration::from_millis))
        };
        assert!(on(&[], None) && on(&[(1, 100, 10_000)], None));
        assert!(on(&[(1, 100, 10_000), (2, 106, 10_000)], None));
        assert!(!on(&[(1, 100, 10_000), (2, 104, 10_000)], None));
        assert!(!on(&[(1, 100, 10_000), (2, 200, 21_000)], Some(20)), "later only");
        assert!(!on(&[(1, 100, 21_000)], Some(20)));
        assert_eq!(candidates().collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32]);
    }

    #[test]
    fn rate_and_latency_are_those_of_the_runs() {
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        let row = measured(2, Duration::from_millis(500), times);
        assert_eq!((row.contexts, row.runs_per_minute, row.p99_us), (2, 24_000, 198));
        let one = measured(1, Duration::from_secs(2), vec![Duration::from_secs(2)]);
        assert_eq!((one.runs_per_minute, one.p99_us), (30, 2_000_000));
    }
}

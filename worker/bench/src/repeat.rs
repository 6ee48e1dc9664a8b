//! Repetitions: how many, how long, and when a measurement has warmed up.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_protocol::bench::{Latency, Plan};

/// Two rates of a warm-up agree if they differ by less than this.
const AGREEMENT: f64 = 0.1;
/// Most rounds of a warm-up.
const WARM_UP_ROUNDS_MAX: u32 = 5;
/// How long a repetition should take.
const REPETITION: Duration = Duration::from_millis(100);
const REPETITION_QUICK: Duration = Duration::from_millis(10);

/// The number and length of repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    span: Duration,
    repetitions: u32,
}

impl Repeat {
    /// From the plan.
    pub(super) fn new(plan: &Plan) -> Self {
        let span = if plan.quick { REPETITION_QUICK } else { REPETITION };
        Self { span, repetitions: plan.repetitions }
    }

    /// Warms up and then times `round`, which does a number of pieces of work and returns how long that took.
    /// Returns the number of pieces of each timed round, and the seconds of each piece.
    pub(super) fn time<E>(
        &self,
        least: u32,
        mut round: impl FnMut(u32, Phase) -> Result<Duration, E>,
    ) -> Result<(u32, Vec<f64>), E> {
        let pieces = self.warm_up(least, |pieces| round(pieces, Phase::WarmUp))?;
        let mut times = Vec::new();
        for _ in 0..self.repetitions {
            times.push(per_piece(round(pieces, Phase::Timed)?, pieces));
        }
        Ok((pieces, times))
    }

    /// Only warms up; returns how many pieces a timed round should have.
    pub(super) fn warm_up<E>(
        &self,
        least: u32,
        mut round: impl FnMut(u32) -> Result<Duration, E>,
    ) -> Result<u32, E> {
        let mut pieces = least;
        let mut before: Option<f64> = None;
        for _ in 0..WARM_UP_ROUNDS_MAX {
            let seconds = per_piece(round(pieces)?, pieces);
            let agrees = before.is_some_and(|before| (seconds / before - 1.0).abs() < AGREEMENT);
            let long_enough = f64::from(pieces) * seconds >= 0.5 * self.span.as_secs_f64();
            pieces = pieces_in(self.span, seconds).max(least);
            before = Some(seconds);
            if agrees && long_enough {
                break;
            }
        }
        Ok(pieces)
    }
}

#[cfg(feature = "infer")]
impl Repeat {
    /// The same number of repetitions, each as long as `span`.
    pub(super) fn with_span(self, span: Duration) -> Self {
        Self { span, ..self }
    }

    /// The number of repetitions.
    pub(super) fn repetitions(&self) -> u32 {
        self.repetitions
    }
}

/// Whether a round counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is timed, and its evidence is kept.
    Timed,
    /// It is not timed.
    WarmUp,
}

/// Seconds per piece.
pub(super) fn per_piece(taken: Duration, pieces: u32) -> f64 {
    // No clock is finer than a nanosecond, and no work takes zero time.
    taken.as_secs_f64().max(1e-9) / f64::from(pieces)
}

/// How many pieces of this many seconds fill `span`; at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a quotient of positive numbers, and `as` ends at the largest number"
)]
fn pieces_in(span: Duration, seconds: f64) -> u32 {
    ((span.as_secs_f64() / seconds).ceil() as u32).max(1)
}

/// How long `work` takes.
pub(super) fn timed(work: impl FnOnce()) -> Duration {
    let started: Instant = clock::now();
    work();
    started.elapsed()
}

/// Works on all parts, each in a thread of its own, from the same moment. How long that takes, and the results.
pub(super) fn at_once<P: Send, R: Send>(
    parts: impl ExactSizeIterator<Item = P>,
    work: impl Fn(P) -> R + Sync,
) -> (Duration, Vec<R>) {
    let ready = Barrier::new(parts.len() + 1);
    thread::scope(|scope| {
        let (ready, work) = (&ready, &work);
        let start = |part| {
            scope.spawn(move || {
                ready.wait();
                work(part)
            })
        };
        let threads: Vec<_> = parts.map(start).collect();
        // Taken before the threads start to run: they may be faster than this thread.
        let started = clock::now();
        ready.wait();
        let threads = threads.into_iter();
        let results = threads.map(|thread| thread.join().expect("a thread does not panic"));
        let results = results.collect();
        (started.elapsed(), results)
    })
}

/// The percentiles of times in microseconds; `None` if there are none.
pub(crate) fn latency(mut times_us: Vec<f64>) -> Option<Latency> {
    times_us.sort_by(f64::total_cmp);
    let last = times_us.len().checked_sub(1)?;
    let at = |hundredths: usize| times_us[last * hundredths / 100];
    Some(Latency {
        jobs: u32::try_from(times_us.len()).unwrap_or(u32::MAX),
        p50_us: at(50),
        p99_us: at(99),
        max_us: times_us[last],
        hops: None,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const REPEAT: Repeat = Repeat { span: REPETITION, repetitions: 5 };

    #[test]
    fn a_warm_up_ends_when_two_rounds_agree_and_rounds_are_as_long_as_they_should_be() {
        let mut rounds = Vec::new();
        let (pieces, times) = REPEAT
            .time(2, |pieces, phase| {
                rounds.push((pieces, phase));
                Ok::<_, Infallible>(Duration::from_millis(1) * pieces)
            })
            .unwrap_or_else(|never| match never {});
        assert_eq!(pieces, 100);
        assert_eq!(rounds[..2], [(2, Phase::WarmUp), (100, Phase::WarmUp)]);
        assert_eq!(rounds[2..], [(100, Phase::Timed); 5]);
        assert!(times.iter().all(|time| (time - 1e-3).abs() < 1e-9), "{times:?}");
    }

    #[test]
    fn a_warm_up_that_never_settles_ends_all_the_same() {
        let mut rounds = 0_u32;
        let timed = REPEAT.time(1, |_, _| {
            rounds += 1;
            Ok::<_, Infallible>(Duration::from_secs(1 << rounds))
        });
        assert_eq!(timed.map(|(pieces, _)| pieces), Ok(1));
        assert_eq!(rounds, WARM_UP_ROUNDS_MAX + 5);
    }

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        assert_eq!(latency(Vec::new()), None);
        let got = latency((1..=101).rev().map(f64::from).collect()).unwrap();
        assert_eq!((got.p50_us, got.p99_us, got.max_us, got.jobs), (51.0, 100.0, 101.0, 101));
    }
}

//! Searches on threads: each takes a few programs at a time, runs them by the reference, and writes their verdicts.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge_unless};
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::search::{PairStatus, SearchReport};

use super::{CpuDevice, timed};
use crate::device::{AttemptRefusal, AttemptReport, DispatchReport};
use crate::fault::Fault;
use crate::search::{BY_REFERENCE, SearchAttempt, SearchInput};
use crate::tally::{Tally, Totals};

/// Shares of the programs per thread, so that threads that finish early find more work.
const SHARES_PER_THREAD: usize = 16;
/// Most programs that a thread takes at a time.
const PROGRAMS_AT_ONCE_MAX: usize = 64;

/// Runs attempts one after the other, each on all threads.
pub(super) fn run(
    device: &CpuDevice,
    attempts: &[SearchAttempt<'_>],
) -> Result<DispatchReport, Fault> {
    let mut done = Totals::of_searches(attempts.len());
    for (at, attempt) in attempts.iter().enumerate() {
        match attempt.read() {
            Ok(input) => {
                let of_threads = run_one(device, (at, attempt), &input);
                for (tally, ran) in of_threads {
                    done.tally = std::mem::take(&mut done.tally).merged(tally);
                    match (&mut done.attempts[at], ran) {
                        (Ok(sum), Ok(more)) => *sum = plus(*sum, more),
                        (all @ Ok(_), Err(refusal)) => *all = Err(refusal),
                        (Err(_), _) => {}
                    }
                }
            }
            Err(refusal) => done.attempts[at] = Err(refusal),
        }
    }
    Ok(done.into_report(0))
}

fn plus(sum: AttemptReport, more: AttemptReport) -> AttemptReport {
    AttemptReport {
        item_errors: sum.item_errors + more.item_errors,
        search: sum.search.zip(more.search).map(|(one, two)| one.plus(two)),
        ..sum
    }
}

/// What each thread did.
fn run_one(
    device: &CpuDevice,
    (at, attempt): (usize, &SearchAttempt<'_>),
    input: &SearchInput,
) -> Vec<(Tally, Result<AttemptReport, AttemptRefusal>)> {
    let pairs = SearchPairs::new(&input.shapes, &input.cells);
    let programs = attempt.programs();
    let shares = device.buffers.len() * SHARES_PER_THREAD;
    let step = (programs.len() / shares).clamp(1, PROGRAMS_AT_ONCE_MAX);
    let next = AtomicUsize::new(programs.start);
    device.threads.broadcast(|thread| {
        let (place, position) = (thread.index(), &device.gauges.position);
        let (mut machine, mut tally) = (Machine::default(), Tally::default());
        let mut sum = AttemptReport { search: Some(SearchReport::default()), ..Default::default() };
        loop {
            let start = next.fetch_add(step, Ordering::Relaxed);
            if start >= programs.end {
                return (tally, Ok(sum));
            }
            let span = start..programs.end.min(start + step);
            position.chunk_begins(place, (at, span.start), (at, span.end));
            position.launches(place, BY_REFERENCE);
            let ran = timed(&mut tally, BY_REFERENCE, || {
                run_span(&mut machine, attempt, input, &pairs, &span)
            });
            position.chunk_is_done(place);
            device.gauges.chunk_is_done();
            match ran {
                Some(more) => sum = plus(sum, more),
                None => return (tally, Err(AttemptRefusal::Cancelled)),
            }
        }
    })
}

/// Runs neighbouring programs over all pairs and writes their verdicts; `None` if the attempt was cancelled
/// meanwhile.
fn run_span(
    machine: &mut Machine,
    attempt: &SearchAttempt<'_>,
    input: &SearchInput,
    pairs: &SearchPairs,
    span: &Range<usize>,
) -> Option<AttemptReport> {
    let (mut statuses, mut scores) = (Vec::new(), Vec::new());
    let (mut report, mut malformed) = (SearchReport::default(), 0);
    for program in span.clone() {
        let Some(code) = input.program(program - attempt.programs().start) else {
            malformed += 1;
            statuses.resize(statuses.len() + pairs.len(), PairStatus::NO_PROGRAM);
            scores.resize(scores.len() + pairs.len(), [0; 2]);
            continue;
        };
        for pair in 0..pairs.len() {
            let judged = judge_unless(machine, &code, pairs, pair, || attempt.is_cancelled());
            let (status, score) = judged?;
            report.executed += 1;
            report.capped += u64::from(status == PairStatus::Error(ItemErrorCode::StepLimit));
            statuses.push(status.byte());
            scores.push(score.number().to_le_bytes());
        }
    }
    attempt.write(span, &statuses, &scores);
    Some(AttemptReport { item_errors: malformed, search: Some(report), ..Default::default() })
}

//! `--verify`: has a process of the worker's binary recompute a share of the verdicts by the reference.

use std::path::Path;
use std::time::Duration;

use gridpool_client::{CellScore, Check, PairStatus};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::program::hex;
use gridpool_protocol::search::judge::{JudgePair, JudgeRequest, Judged};

use super::tasks::Tasks;
use crate::cli::child::ChildProcess;
use crate::cli::error::CommandError;

/// How long the reference may take for one verdict: far longer than the most steps take.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(600);
/// Which verdicts are chosen; the same in each run.
const SEED: u64 = 19;

/// Compares this share of the verdicts.
pub(super) fn check(fraction: f64, worker: &Path, tasks: &Tasks) -> Result<Check, CommandError> {
    let started = ChildProcess::start(worker, &["judge"], "", VERDICT_TIMEOUT);
    let failed = |error: crate::cli::child::ChildError| {
        CommandError::Usage(format!("the reference cannot be started: {error}"))
    };
    let mut child = started.map_err(failed)?;
    let rows = |grid: &Grid| grid.rows().map(<[u8]>::to_vec).collect();
    let pair = |at| {
        let [input, output] = tasks.pair(at);
        JudgePair { input: rows(&input), output: rows(&output) }
    };
    let pairs = (0..tasks.pairs()).map(pair).collect();
    child.send(&JudgeRequest::Pairs(pairs)).map_err(failed)?;
    let checker = move |program: &[u8], pair: usize| {
        let asked = child.send(&JudgeRequest::Run { program: hex(program), pair });
        let answered = asked.and_then(|()| child.answer::<Judged>());
        let Judged { status, score } = answered.map_err(|error| Chain(&error).to_string())?;
        let known = PairStatus::from_byte(status).zip(CellScore::from_number(score));
        known.ok_or_else(|| format!("the reference answered {status} and {score}"))
    };
    Ok(Check::new(fraction, SEED, Box::new(checker)))
}

pub(super) fn parse_fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "write a number from 0 to 1, such as 1e-4".to_owned())
}

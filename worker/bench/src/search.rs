//! Searches through a pool: how many texts are compiled, how many programs are evaluated in a second, and how soon a
//! few thousand texts have verdicts. A random ten-thousandth of the verdicts is recomputed by the reference before a
//! rate is printed.

use std::path::Path;
use std::time::Duration;

use gridpool_client::{Candidate, Check, Client, Score, Search, SearchOutcome, SearchSummary};
use gridpool_ipc::clock;
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::bench::{Latency, Plan, Row, Section, Spread, Unit, Workload};
use gridpool_protocol::program::Ties;
use gridpool_protocol::search::{PROGRAM_ALIGN, compile};
use gridpool_protocol::solver::Code;
use rayon::prelude::*;

use super::failure::Failure;
use super::random::Random;
use super::repeat::latency;
use super::workload::Source;
use super::{BenchError, Report, count};

/// The share of the verdicts that is recomputed.
const CHECKED: f64 = 1e-4;
/// Pairs of a few tasks, as a search for one has them.
const PAIRS: u64 = 16;
/// Programs of a search, in a full and in a quick run.
const PROGRAMS: usize = 200_000;
const PROGRAMS_QUICK: usize = 2_000;
/// Programs whose verdicts come together.
const TOGETHER: usize = 4_096;
const TOGETHER_QUICK: usize = 256;
/// Steps that a program may run on a pair.
const STEPS: u32 = 10_000;

/// A template of the simplest programs, and how many they are.
const TEMPLATE: (&str, u64) = (
    "x = replace(I, ?a:color, ?b:color)\ny = replace(x, ?c:color, ?d:color)\nO = replace(y, ?e:color, ?f:color)",
    1_000_000,
);
const TEMPLATE_QUICK: (&str, u64) =
    ("x = replace(I, ?a:color, ?b:color)\nO = replace(x, ?c:color, 7)", 1_000);

/// Measures one row.
type Measure<'a> = fn(&Searches<'a>, Row) -> Result<Row, Failure>;

/// The searches of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Searches<'a> {
    pub(super) plan: &'a Plan,
    pub(super) source: &'a Source,
    pub(super) socket: &'a Path,
    pub(super) devices: u32,
}

impl<'a> Searches<'a> {
    /// Measures all rows.
    pub(super) fn measure(&self, report: &mut Report<'_>) -> Result<(), BenchError> {
        let rows: [(Row, Measure<'a>); 7] = [
            (self.row("texts compiled", "client", Unit::ItemsPerSecond), Self::compiled),
            (self.row("evaluations, exact", "pool", Unit::ItemsPerSecond), Self::exact),
            (self.row("evaluations, cells", "pool", Unit::ItemsPerSecond), Self::cells),
            (self.row("evaluations, kernels alone", "pool", Unit::ItemsPerSecond), Self::alone),
            (self.row("text to verdict", "pool", Unit::Microseconds), Self::together),
            (self.row("templates, exact", "pool", Unit::ItemsPerSecond), Self::expanded),
            (
                self.row("templates, kernels alone", "pool", Unit::ItemsPerSecond),
                Self::template_alone,
            ),
        ];
        for (row, measure) in rows {
            report.doing(&row)?;
            let measured = measure(self, row.clone());
            report.measured(row, measured)?;
        }
        Ok(())
    }

    fn row(&self, name: &str, runner: &str, unit: Unit) -> Row {
        let batch = match unit {
            Unit::Microseconds => self.together_count(),
            Unit::BytesPerSecond | Unit::ItemsPerSecond | Unit::NanosecondsPerItem => self.count(),
        };
        Row {
            workload: Some(Workload::Arc),
            batch: u32::try_from(batch).ok(),
            devices: self.devices,
            ..Row::new(Section::Search, name, runner, unit)
        }
    }

    fn count(&self) -> usize {
        if self.plan.quick { PROGRAMS_QUICK } else { PROGRAMS }
    }

    fn together_count(&self) -> usize {
        if self.plan.quick { TOGETHER_QUICK } else { TOGETHER }
    }

    /// Distinct programs, others for each number.
    fn programs(number: u32, count: usize) -> Vec<Candidate> {
        let text = |at: usize| text(&mut Random::new((u64::from(number) << 32) + at as u64), at);
        (0..count).map(|at| Candidate::new(at.to_string(), text(at))).collect()
    }

    /// Pairs of which the output is what some program gives, so that some verdicts are equal.
    fn pairs(&self) -> Result<GridBatch, Failure> {
        let mut batch = GridBatch::of_items(2);
        for number in 0..PAIRS {
            let grid = self.source.grid(Workload::Arc, number);
            let rows: Vec<Vec<u8>> = grid.rows().map(<[u8]>::to_vec).collect();
            let turned: Vec<Vec<u8>> =
                (0..grid.w()).map(|col| rows.iter().rev().map(|row| row[col]).collect()).collect();
            let turned =
                Grid::from_rows(&turned).map_err(|error| Failure::Wrong(error.to_string()))?;
            let pushed = batch.push_pair(&grid, Some(&turned));
            pushed.map_err(|error| Failure::Wrong(error.to_string()))?;
        }
        Ok(batch)
    }

    /// Texts that all cores parse, type-check and hash in a second.
    fn compiled(&self, row: Row) -> Result<Row, Failure> {
        let mut rates = Vec::new();
        for repetition in 0..=self.plan.repetitions {
            let programs = Self::programs(repetition, self.count());
            let started = clock::now();
            let made = programs.par_iter().filter_map(|candidate| {
                let text = candidate.text()?;
                let code = compile(text, Ties::Cpython, STEPS).ok()?;
                Some(Code::digest(&code.to_bytes()))
            });
            let made = made.count();
            let elapsed = started.elapsed();
            if made < programs.len() {
                return Err(Failure::Wrong(format!("{made} of {} compile", programs.len())));
            }
            // The first repetition warms up.
            if repetition > 0 {
                rates.push(count(made as u64) / elapsed.as_secs_f64());
            }
        }
        Ok(Row { value: Spread::of(rates), ..row })
    }

    fn exact(&self, row: Row) -> Result<Row, Failure> {
        self.rate(row, Score::Exact)
    }

    fn cells(&self, row: Row) -> Result<Row, Failure> {
        self.rate(row, Score::Cells)
    }

    /// Executed evaluations in a second, from texts to verdicts.
    fn rate(&self, row: Row, score: Score) -> Result<Row, Failure> {
        let mut rates = Vec::new();
        for repetition in 0..=self.plan.repetitions {
            let is_warm_up = repetition == 0;
            let (summary, elapsed) = self.search(repetition, self.count(), score, is_warm_up)?;
            if is_warm_up && summary.checked == 0 {
                return Err(Failure::Wrong("no verdict was recomputed".to_owned()));
            }
            if !is_warm_up {
                rates.push(count(summary.evaluations.executed) / elapsed.as_secs_f64());
            }
        }
        Ok(Row { value: Spread::of(rates), ..row })
    }

    /// Executed evaluations in a second of the devices' own time.
    fn alone(&self, row: Row) -> Result<Row, Failure> {
        let mut rates = Vec::new();
        for repetition in 0..=self.plan.repetitions {
            let (summary, _) = self.search(repetition, self.count(), Score::Exact, false)?;
            let us: f64 = summary.kernels.iter().map(|kernel| kernel.device_us).sum();
            if repetition > 0 && us > 0.0 {
                rates.push(count(summary.evaluations.executed) / us * 1e6);
            }
        }
        Ok(Row { value: Spread::of(rates), ..row })
    }

    /// Executed evaluations of a template in a second, from its text to all that solve a pair.
    fn expanded(&self, row: Row) -> Result<Row, Failure> {
        let rate = |summary: &SearchSummary, elapsed: Duration| {
            Some(count(summary.evaluations.executed) / elapsed.as_secs_f64())
        };
        self.of_template(row, rate)
    }

    /// The same in a second of the devices' own time.
    fn template_alone(&self, row: Row) -> Result<Row, Failure> {
        let rate = |summary: &SearchSummary, _: Duration| {
            let us: f64 = summary.kernels.iter().map(|kernel| kernel.device_us).sum();
            (us > 0.0).then(|| count(summary.evaluations.executed) / us * 1e6)
        };
        self.of_template(row, rate)
    }

    fn of_template(
        &self,
        row: Row,
        rate: impl Fn(&SearchSummary, Duration) -> Option<f64>,
    ) -> Result<Row, Failure> {
        let (text, programs) = if self.plan.quick { TEMPLATE_QUICK } else { TEMPLATE };
        let mut rates = Vec::new();
        for repetition in 0..=self.plan.repetitions {
            let candidates = vec![Candidate::new("template", text)];
            let checked = repetition == 0;
            let (summary, elapsed) = self.run(candidates, Score::Exact, checked, true)?;
            if summary.expanded != programs || checked && summary.checked == 0 {
                return Err(Failure::Wrong(format!(
                    "devices made {} programs and {} verdicts were recomputed",
                    summary.expanded, summary.checked
                )));
            }
            // The first repetition warms up.
            rates.extend(rate(&summary, elapsed).filter(|_| !checked));
        }
        let row = Row { batch: u32::try_from(programs).ok(), ..row };
        Ok(Row { value: Spread::of(rates), ..row })
    }

    /// Microseconds from some thousand texts to all their verdicts.
    fn together(&self, row: Row) -> Result<Row, Failure> {
        let mut times = Vec::new();
        for repetition in 0..=self.plan.repetitions {
            let (_, elapsed) =
                self.search(repetition, self.together_count(), Score::Exact, false)?;
            if repetition > 0 {
                times.push(elapsed.as_secs_f64() * 1e6);
            }
        }
        let latency: Option<Latency> = latency(times.clone());
        Ok(Row { value: Spread::of(times), latency, ..row })
    }

    /// Runs a search to its end; `checked` recomputes a share of its verdicts.
    fn search(
        &self,
        number: u32,
        count: usize,
        score: Score,
        checked: bool,
    ) -> Result<(SearchSummary, Duration), Failure> {
        self.run(Self::programs(number, count), score, checked, false)
    }

    fn run(
        &self,
        programs: Vec<Candidate>,
        score: Score,
        checked: bool,
        only_solving: bool,
    ) -> Result<(SearchSummary, Duration), Failure> {
        let client = Client::connect(self.socket)?;
        let pairs = self.pairs()?;
        let check = checked.then(|| check(&pairs));
        let started = clock::now();
        let search = Search { score, steps: STEPS, only_solving, check, ..Search::new(pairs) };
        let mut stream = client.search(search, programs)?;
        for result in stream.by_ref() {
            if let SearchOutcome::Refused(why) | SearchOutcome::Failed { reason: why, .. } =
                result?.outcome
            {
                return Err(Failure::Wrong(why));
            }
        }
        Ok((stream.summary().clone(), started.elapsed()))
    }
}

/// Compares a share of the verdicts with the reference's.
fn check(pairs: &GridBatch) -> Check {
    let (pairs, mut machine) = (SearchPairs::of_batch(pairs), Machine::default());
    let checker = move |program: &[u8], pair: usize| {
        let code = Code::from_padded(program, PROGRAM_ALIGN).map_err(|error| error.to_string())?;
        Ok(judge(&mut machine, &code, &pairs, pair))
    };
    // At least one of a small search.
    Check::new(CHECKED, 1, Box::new(checker))
}

/// A solver of a few steps, distinct from those of other numbers.
fn text(rng: &mut Random, at: usize) -> String {
    const TURNS: [&str; 7] =
        ["rot90", "rot180", "rot270", "hmirror", "vmirror", "dmirror", "cmirror"];
    const KEYS: [&str; 6] = ["size", "height", "width", "uppermost", "leftmost", "color"];
    const BY: [&str; 2] = ["argmax", "argmin"];
    let mut below = |end: usize| {
        usize::try_from(rng.bits() % end as u64).expect("it is below the length of a list")
    };
    let mut pick = |from: &[&'static str]| from[below(from.len())];
    let (turn, key, by, flag) = (pick(&TURNS), pick(&KEYS), pick(&BY), pick(&["T", "F"]));
    let last = pick(&TURNS);
    let (a, b) = (below(10), below(10));
    // The number makes it distinct: its digits are places that are filled.
    let (row, col) = (at / 250, at % 250);
    format!(
        "x1 = objects(I, {flag}, T, T)\nx2 = {by}(x1, {key})\nx3 = subgrid(x2, I)\n\
         x4 = {turn}(x3)\nx5 = replace(x4, {a}, {b})\nx6 = fill(x5, {a}, initset(({row}, {col})))\n\
         O = {last}(x6)"
    )
}

//! The solvers of `--solvers` and their tasks, and what all their rows say together.
//!
//! Owns the file that the measuring processes read. May not run a solver.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::bench::{Row, Section, SolverTask, Unit};
use gridpool_protocol::program::Ties;
use serde::Serialize;

use super::flags::BenchFlags;
use crate::cli::error::{CommandError, system};
use crate::cli::{inputs, solve};

/// The solvers to measure, and those that cannot be.
#[derive(Debug, Default)]
pub(super) struct Solvers {
    tasks: Vec<SolverTask>,
    refused: Vec<Row>,
}

impl Solvers {
    /// Those that the command line names, if it names some.
    pub(super) fn of(flags: &BenchFlags) -> Result<Option<Self>, CommandError> {
        let Some(file) = &flags.solvers else { return Ok(None) };
        if flags.batches().len() > 1 {
            let why = "--batches: solvers are measured over one number of copies";
            return Err(CommandError::Usage(why.to_owned()));
        }
        let inputs = inputs(&flags.tasks)?;
        let mut solvers = Self::default();
        for task in solve::with_solvers(file, Ties::Cpython, &inputs)? {
            let is_wanted = |part: &String| task.name.contains(part.as_str());
            if !flags.ops.is_empty() && !flags.ops.iter().any(is_wanted) {
                continue;
            }
            let name = &task.name;
            match task.solver() {
                None => {}
                Some(Ok(program)) => solvers.tasks.push(SolverTask {
                    name: name.clone(),
                    text: program.text().to_owned(),
                    inputs: task.inputs.iter().map(rows).collect(),
                }),
                Some(Err(why)) => {
                    let row = Row::new(Section::Native, name, "library", Unit::ItemsPerSecond);
                    let first = why.lines().next().unwrap_or_default();
                    let why = format!("solve_{name} does not compile: {first}");
                    solvers.refused.push(Row { skipped: Some(why), ..row });
                }
            }
        }
        match (solvers.tasks.as_slice(), solvers.refused.as_slice()) {
            ([_, ..], _) => Ok(Some(solvers)),
            ([], [first, ..]) => {
                let why = first.skipped.clone().unwrap_or_default();
                Err(CommandError::Usage(format!("no solver compiles: {why}")))
            }
            ([], []) => {
                let ops = flags.ops.join(",");
                let why = format!("--ops {ops}: no task with a solver has that in its name");
                Err(CommandError::Usage(why))
            }
        }
    }

    /// Writes those to measure for the measuring processes. Returns rows of the others.
    pub(super) fn write(self, path: &Path) -> Result<Vec<Row>, CommandError> {
        let mut text = String::new();
        for task in &self.tasks {
            text +=
                &serde_json::to_string(task).map_err(|error| CommandError::Output(error.into()))?;
            text.push('\n');
        }
        fs::write(path, text).map_err(system("a file for the solvers"))?;
        Ok(self.refused)
    }
}

fn rows(grid: &Grid) -> Vec<Vec<u8>> {
    grid.rows().map(<[u8]>::to_vec).collect()
}

/// What the rows of solvers say together, for each runner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    section: Section,
    runner: String,
    /// Solvers with a rate.
    measured: usize,
    /// Those whose results differ from the reference's.
    wrong: usize,
    /// Those that were not measured, such as those that do not compile.
    skipped: usize,
    /// Those of whose items some have an error.
    with_errors: usize,
    /// Those of whose items some needed more memory than the first launch gives each.
    unfit: usize,
    /// Items a second: of the solver in the middle, of the one that a tenth is slower than, of the slowest.
    median: f64,
    p10: f64,
    worst: f64,
    /// The slowest.
    slowest: String,
}

impl Summary {
    /// One for each runner of these rows, in their order.
    pub(super) fn all(rows: &[Row]) -> Vec<Self> {
        let mut runners: Vec<(Section, &str)> = Vec::new();
        for row in rows.iter().filter(|row| row.value.is_some()) {
            if !runners.contains(&(row.section, &row.runner)) {
                runners.push((row.section, &row.runner));
            }
        }
        runners.into_iter().filter_map(|runner| Self::of(rows, runner)).collect()
    }

    fn of(rows: &[Row], (section, runner): (Section, &str)) -> Option<Self> {
        // Those that do not compile have a row of one runner.
        let names: BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
        let rows = || rows.iter().filter(|row| row.section == section && row.runner == runner);
        let rate = |row: &Row| Some((row.value?.median, row.name.clone()));
        let mut rates: Vec<(f64, String)> = rows().filter_map(rate).collect();
        rates.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (worst, slowest) = rates.first()?.clone();
        let at = |place: usize| rates[place].0;
        let count = |is: fn(&Row) -> bool| rows().filter(|row| is(row)).count();
        let wrong = count(|row| row.fault.is_some());
        let middle = rates.len() / 2;
        Some(Self {
            section,
            runner: runner.to_owned(),
            measured: rates.len(),
            wrong,
            skipped: names.len() - rates.len() - wrong,
            with_errors: count(|row| row.proof.as_ref().is_some_and(|proof| proof.item_errors > 0)),
            unfit: count(|row| row.unfit_items > Some(0)),
            median: if rates.len().is_multiple_of(2) {
                f64::midpoint(at(middle - 1), at(middle))
            } else {
                at(middle)
            },
            p10: at(rates.len() / 10),
            worst,
            slowest,
        })
    }

    /// A line for people.
    pub(super) fn line(&self, si: fn(f64) -> String) -> String {
        let Self { runner, measured, median, p10, worst, slowest, .. } = self;
        let (median, p10, worst) = (si(*median), si(*p10), si(*worst));
        let mut line = format!(
            "{runner}: {measured} solvers, median {median}, a tenth below {p10}, worst {worst} ({slowest})"
        );
        let counts = [
            (self.wrong, "wrong"),
            (self.skipped, "not measured"),
            (self.with_errors, "with items in error"),
            (self.unfit, "with items that needed more memory"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            line += &format!("; {count} {what}");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::{Proof, Spread};

    use super::*;

    #[test]
    fn a_summary_has_the_middle_the_slowest_and_what_went_wrong() {
        let row = |name: &str, runner, rate| Row {
            value: Spread::of(vec![rate]),
            ..Row::new(Section::Resident, name, runner, Unit::ItemsPerSecond)
        };
        let mut rows: Vec<Row> =
            (1..=20).map(|rate| row(&format!("s{rate}"), "H200", f64::from(rate))).collect();
        rows.push(row("other", "pool", 7.0));
        rows.push(row("bad", "H200", 1.0).wrong("differs".to_owned()));
        let refused = Row::new(Section::Native, "refused", "library", Unit::ItemsPerSecond);
        rows.push(Row { skipped: Some("does not compile".to_owned()), ..refused });
        rows[3].unfit_items = Some(2);
        rows[4].unfit_items = Some(0);
        rows[5].proof = Some(Proof { item_errors: 1, ..Proof::default() });
        let all = Summary::all(&rows);
        let [first, second] = all.as_slice() else { panic!("{all:?}") };
        // That which only the pool ran, and that which nobody could.
        assert_eq!((first.measured, first.wrong, first.skipped), (20, 1, 2));
        assert_eq!((first.median, first.p10, first.worst), (10.5, 3.0, 1.0));
        assert_eq!((first.with_errors, first.unfit, first.slowest.as_str()), (1, 1, "s1"));
        assert_eq!((second.measured, second.skipped, second.median), (1, 22, 7.0));
        let line = first.line(|rate| rate.to_string());
        assert!(line.contains("median 10.5, a tenth below 3, worst 1 (s1); 1 wrong;"), "{line}");
    }
}

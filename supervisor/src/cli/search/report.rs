//! What a search prints: lines as results come, and what was found at the end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use gridpool_client::{
    CellScore, PairStatus, SearchOutcome, SearchResult, SearchSummary, Verdicts,
};
use gridpool_ipc::clock;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};

use super::tally::{Found, Rank, Tally, rank};
use super::tasks::{Task, Tasks};
use crate::cli::error::CommandError;
use crate::cli::show::{printable, printable_lines};
use crate::cli::text::fitted;
use crate::cli::{columns, say};

/// Refused programs that are told; the others are counted.
const TOLD_MAX: u64 = 10;
/// Between two looks at the numbers.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Tasks in the table at the end, unless all are asked for with --top.
const TASKS_SHOWN_MAX: usize = 20;

/// See the module's text.
pub(in crate::cli) struct Report {
    /// Where the programs come from; empty if they were typed.
    from: String,
    json: bool,
    /// The best are printed at the end, not each as it comes.
    best_only: bool,
    told: u64,
    bar: ProgressBar,
    started: Instant,
    shown: Instant,
}

impl Report {
    pub(in crate::cli) fn new(from: String, json: bool, quiet: bool, best_only: bool) -> Self {
        let bar = ProgressBar::new_spinner();
        // It draws only on a terminal.
        bar.set_draw_target(match quiet {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        });
        let now = clock::now();
        Self { from, json, best_only, told: 0, bar, started: now, shown: now }
    }

    /// Shows how far the search is.
    pub(super) fn progress(&mut self, summary: &SearchSummary) {
        if self.bar.is_hidden() || self.shown.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = clock::now();
        let (requested, executed) = (summary.requested, summary.evaluations.executed);
        let rate = rate(executed, since_dispatch(self.started, summary));
        let (requested, executed, rate) = (grouped(requested), grouped(executed), grouped(rate));
        self.bar.set_message(format!("{requested} programs, {executed} evaluations, {rate}/s"));
        self.bar.tick();
    }

    /// Prints what came of a program.
    pub(super) fn result(
        &mut self,
        tasks: &Tasks,
        result: &SearchResult,
    ) -> Result<(), CommandError> {
        let lines = match (&result.outcome, self.json) {
            (SearchOutcome::Done(_), _) if self.best_only => vec![],
            (SearchOutcome::Done(verdicts), true) => {
                let line = |task: &Task| document(&result.id, task, verdicts).to_string();
                tasks.list().iter().map(line).collect()
            }
            (SearchOutcome::Done(verdicts), false) => solved(&result.id, tasks, verdicts),
            (SearchOutcome::Refused(why), true) => {
                vec![json!({ "id": result.id, "error": why }).to_string()]
            }
            (SearchOutcome::Failed { verdict, reason }, true) => {
                let error = format!("{verdict}: {reason}");
                vec![json!({ "id": result.id, "error": error }).to_string()]
            }
            (SearchOutcome::Refused(why), false) => {
                self.tell(&result.id, &format!("is refused: {why}"));
                vec![]
            }
            (SearchOutcome::Failed { verdict, reason }, false) => {
                self.tell(&result.id, &format!("has no verdict: {verdict}: {reason}"));
                vec![]
            }
        };
        if lines.is_empty() {
            return Ok(());
        }
        let write = || {
            let mut out = BufWriter::new(io::stdout().lock());
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            out.flush()
        };
        self.bar.suspend(write).map_err(CommandError::Output)
    }

    /// Tells of a program that was not run, on standard error.
    pub(in crate::cli) fn tell(&mut self, id: &str, what: &str) {
        self.told += 1;
        let (id, what) = (printable(id), printable_lines(what));
        if self.told <= TOLD_MAX {
            // If standard error is closed, the counts at the end must do.
            let from = match self.from.as_str() {
                "" => String::new(),
                from => printable(from) + ": ",
            };
            let line = format!("gridpool: {from}program {id} {what}");
            self.bar.suspend(|| drop(writeln!(io::stderr(), "{line}")));
        }
    }

    /// How many more programs there were to tell of.
    pub(in crate::cli) fn untold(&self) -> Option<String> {
        (self.told > TOLD_MAX).then(|| grouped(self.told - TOLD_MAX))
    }

    /// Prints what was found.
    pub(super) fn end(
        self,
        tasks: &Tasks,
        tally: &Tally,
        summary: &SearchSummary,
        elapsed: Duration,
        was_stopped: bool,
    ) -> Result<(), CommandError> {
        self.bar.finish_and_clear();
        if self.json {
            let totals = totals(tasks, tally, summary, elapsed, was_stopped);
            return say(&json!({ "summary": totals }).to_string()).map(|_ok| ());
        }
        let mut text = String::new();
        if let Some(more) = self.untold() {
            text.push_str(&format!("{more} more programs were not run\n"));
        }
        text.push_str(&table(tasks, tally, self.best_only));
        text.push_str(&sentences(tasks, tally, summary, elapsed, was_stopped));
        say(text.trim_end()).map(|_ok| ())
    }
}

/// A line for each task of which a program solves a pair.
fn solved(id: &str, tasks: &Tasks, verdicts: &Verdicts) -> Vec<String> {
    let id = printable(id);
    let line = |(_, task): (usize, &Task)| {
        let Rank { equal_pairs, .. } = rank(verdicts, &task.pairs);
        format!("{id}  {}  {equal_pairs} of {} pairs", task.name, task.pairs.len())
    };
    tasks.with_equal(verdicts.bytes()).map(line).collect()
}

/// The line of JSON of a program and a task.
fn document(id: &str, task: &Task, verdicts: &Verdicts) -> Value {
    let pairs = task.pairs.clone();
    let names = verdicts.statuses().skip(pairs.start).take(pairs.len()).map(PairStatus::name);
    let names: Vec<_> = names.collect();
    let Rank { equal_pairs, .. } = rank(verdicts, &pairs);
    let mut document = json!({ "id": id, "task": task.name, "equal": equal_pairs, "pairs": names });
    if let Some(scores) = verdicts.scores() {
        let scores: Vec<CellScore> = scores.skip(pairs.start).take(pairs.len()).collect();
        let cells: Vec<_> = scores.iter().map(|score| score.equal_cells).collect();
        let shapes: Vec<_> = scores.iter().map(|score| score.equal_shape).collect();
        document["equal_cells"] = json!(cells);
        document["equal_shape"] = json!(shapes);
    }
    document
}

/// All counts.
fn totals(
    tasks: &Tasks,
    tally: &Tally,
    summary: &SearchSummary,
    elapsed: Duration,
    was_stopped: bool,
) -> Value {
    let statuses =
        named(&summary.statuses).into_iter().map(|(name, count)| (name.to_owned(), count.into()));
    let of_tasks = tasks.list().iter().zip(&tally.tasks).map(|(task, of)| {
        let best: Vec<_> = of.best.iter().map(best_document).collect();
        json!({ "task": task.name, "solved_by": of.solved_by, "best": best })
    });
    json!({
        "requested": summary.requested,
        "expanded": summary.expanded,
        "refused": summary.refused,
        "deduplicated": summary.deduplicated,
        "failed": summary.failed,
        "undecided": summary.undecided,
        "executed": summary.evaluations.executed,
        "shared": summary.evaluations.shared,
        "capped": summary.evaluations.capped,
        "on_processor": summary.evaluations.on_processor,
        "checked": summary.checked,
        "jobs": summary.jobs,
        "attempts_lost": summary.attempts_lost,
        "devices": summary.devices,
        "kernels": summary.kernels,
        "seconds": elapsed.as_secs_f64(),
        "stopped": was_stopped,
        "statuses": Value::Object(statuses.collect()),
        "solved": tally.solved(),
        "tasks": of_tasks.collect::<Vec<_>>(),
    })
}

fn best_document(found: &Found) -> Value {
    let Found { id, rank: Rank { equal_pairs, equal_shapes, equal_cells } } = found;
    json!({ "id": id, "equal": equal_pairs, "equal_shapes": equal_shapes, "equal_cells": equal_cells })
}

/// The best programs of tasks: of those that are solved, or of all.
fn table(tasks: &Tasks, tally: &Tally, all: bool) -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut left_out = 0;
    for (task, of) in tasks.list().iter().zip(&tally.tasks) {
        if !all && of.solved_by == 0 {
            continue;
        }
        if !all && rows.len() == TASKS_SHOWN_MAX {
            left_out += 1;
            continue;
        }
        for found in &of.best {
            let Rank { equal_pairs, equal_cells, .. } = found.rank;
            let pairs = format!("{equal_pairs} of {} pairs", task.pairs.len());
            let more = match (all, equal_cells) {
                (true, 0) => String::new(),
                (true, cells) => format!("{} equal cells", grouped(cells as u64)),
                (false, _) => programs(of.solved_by),
            };
            rows.push([task.name.clone(), printable(&found.id), pairs, more]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", fitted(&rows, columns()));
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more tasks\n"));
    }
    text + "\n"
}

/// How often each status came, the most frequent first.
fn named(statuses: &BTreeMap<u8, u64>) -> Vec<(&'static str, u64)> {
    let name = |byte: &u8| PairStatus::from_byte(*byte).map(PairStatus::name);
    let named = statuses.iter().filter_map(|(byte, count)| Some((name(byte)?, *count)));
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|(_, count)| Reverse(*count));
    named
}

fn programs(count: u64) -> String {
    match count {
        1 => "1 program".to_owned(),
        count => format!("{} programs", grouped(count)),
    }
}

/// The last lines.
fn sentences(
    tasks: &Tasks,
    tally: &Tally,
    summary: &SearchSummary,
    elapsed: Duration,
    was_stopped: bool,
) -> String {
    let SearchSummary { requested, expanded, refused, deduplicated, failed, undecided, .. } =
        summary;
    let checked = &summary.checked;
    let stopped = if was_stopped { "stopped early; " } else { "" };
    let mut text = format!("{stopped}{}", programs(*requested));
    for (count, what) in [
        (expanded, "made of templates on devices"),
        (refused, "refused"),
        (deduplicated, "equal to earlier ones"),
        (failed, "without a verdict"),
        (undecided, "undecided"),
    ] {
        if *count > 0 {
            text.push_str(&format!(", {} {what}", grouped(*count)));
        }
    }
    let executed = summary.evaluations.executed;
    let rate = rate(executed, elapsed);
    let seconds = elapsed.as_secs_f64();
    text.push_str(&format!("\n{} evaluations in {seconds:.2} s", grouped(executed)));
    if executed > 0 {
        text.push_str(&format!(", {}/s", grouped(rate)));
    }
    let kernels: f64 = summary.kernels.iter().map(|kernel| kernel.device_us).sum();
    if kernels > 0.0 {
        text.push_str(&format!("; {:.2} s on devices", kernels / 1e6));
    }
    if summary.attempts_lost > 0 {
        text.push_str(&format!("\nattempts lost: {}", grouped(summary.attempts_lost)));
    }
    let statuses = named(&summary.statuses);
    if !statuses.is_empty() {
        let words: Vec<_> =
            statuses.iter().map(|(name, count)| format!("{} {name}", grouped(*count))).collect();
        text.push_str(&format!("\nverdicts: {}", words.join(", ")));
    }
    if *checked > 0 {
        text.push_str(&format!("\n{} verdicts equal the reference's", grouped(*checked)));
    }
    text.push_str(&format!("\n{} of {} tasks solved", tally.solved(), tasks.list().len()));
    text
}

/// The time since the first job was dispatched: a pool may have started before.
pub(super) fn since_dispatch(started: Instant, summary: &SearchSummary) -> Duration {
    started.elapsed().saturating_sub(Duration::from_micros(summary.queue_us.unwrap_or(0)))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is rounded"
)]
fn rate(count: u64, elapsed: Duration) -> u64 {
    (count as f64 / elapsed.as_secs_f64().max(1e-6)) as u64
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

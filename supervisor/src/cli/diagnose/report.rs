//! The report: all checks, for people and as JSON.
//!
//! Owns the words around the checks, and the exit code. May not check anything itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use gridpool_protocol::diagnose::{Check, Group, Outcome};
use gridpool_protocol::exit::cli as exit;
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::faults::impersonal;
use crate::cli::show::printable;
use crate::cli::text::wrap;

/// Columns of a check's name; a longer name pushes the rest to the right.
const NAME_COLUMNS: usize = 22;
/// Columns before a check's sentence.
const SAYS_COLUMNS: usize = 2 + 4 + 2 + NAME_COLUMNS + 2;
/// The fewest columns of a check's sentence, even on a narrow screen.
const SAYS_MIN: usize = 24;

/// All checks so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    checks: Vec<Check>,
    /// Group and device of the last printed line.
    heading: Option<(Group, Option<String>)>,
    /// Passes that are printed together, before the next other line.
    quiet: Vec<Check>,
}

/// The number of checks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct DiagnoseDocument<'a> {
    version: &'static str,
    checks: &'a [Check],
    summary: Summary,
    elapsed_s: f64,
}

/// The layout of the report for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Every pass on its own line.
    pub(super) all: bool,
    pub(super) color: bool,
    pub(super) columns: usize,
}

impl Report {
    /// Adds a check, and gives the lines to print now.
    pub(super) fn add(&mut self, check: Check, layout: Layout) -> String {
        let mut text = String::new();
        let is_one_of_many = matches!(check.group, Group::Batches) && !layout.all;
        let heading = (check.group, check.device.clone());
        if self.heading.as_ref() != Some(&heading) {
            text.push_str(&self.grouped_passes(layout));
            text.push_str(&title(&heading));
            self.heading = Some(heading);
        }
        if is_one_of_many && check.outcome == Outcome::Pass {
            self.quiet.push(check.clone());
        } else {
            let shown = self.seen_on(&check).map(|device| Check {
                says: format!("as on {device}"),
                next: String::new(),
                ..check.clone()
            });
            text.push_str(&lines(shown.as_ref().unwrap_or(&check), layout));
        }
        self.checks.push(check);
        text
    }

    /// Another device on which this check has failed or was skipped for the same reason.
    fn seen_on(&self, check: &Check) -> Option<&str> {
        let here = check.device.as_deref().filter(|_| check.outcome != Outcome::Pass)?;
        let says = impersonal(here, &check.says);
        self.checks.iter().find_map(|known| {
            let there = known.device.as_deref().filter(|&there| there != here)?;
            let is_alike = known.group == check.group
                && known.name == check.name
                && known.outcome == check.outcome
                && impersonal(there, &known.says) == says;
            is_alike.then_some(there)
        })
    }

    /// The last lines, after passes that are not printed yet.
    pub(super) fn end(&mut self, elapsed: Duration, layout: Layout) -> String {
        let mut text = self.grouped_passes(layout);
        let failed: Vec<_> =
            self.checks.iter().filter(|check| check.outcome == Outcome::Fail).collect();
        if !failed.is_empty() {
            text.push_str("\nwhat failed\n");
            for check in &failed {
                let device = check.device.as_ref().map_or(String::new(), |on| format!(" on {on}"));
                let size = check.first_failing;
                let size =
                    size.map_or(String::new(), |at| format!(", first at {}", HumanCount(at)));
                let line = format!("  {}: {}{device}{size}\n", check.group, printable(&check.name));
                text.push_str(&line);
            }
        }
        let Summary { passed, failed, skipped } = self.summary();
        let skips = match skipped {
            0 => String::new(),
            _ => format!(", {skipped} skipped (not passed)"),
        };
        let seconds = elapsed.as_secs_f64();
        text.push_str(&format!("\n{passed} passed, {failed} failed{skips}; {seconds:.1} s\n"));
        text
    }

    /// Whether the report has an equal check.
    pub(super) fn has(&self, check: &Check) -> bool {
        let key = |check: &Check| {
            let Check { group, name, device, outcome, says, .. } = check.clone();
            (group, name, device, outcome, says)
        };
        let wanted = key(check);
        self.checks.iter().any(|known| known.name == check.name && key(known) == wanted)
    }

    pub(super) fn summary(&self) -> Summary {
        let count = |outcome| self.checks.iter().filter(|check| check.outcome == outcome).count();
        Summary {
            passed: count(Outcome::Pass),
            failed: count(Outcome::Fail),
            skipped: count(Outcome::Skip),
        }
    }

    pub(super) fn document(
        &self,
        version: &'static str,
        elapsed: Duration,
    ) -> DiagnoseDocument<'_> {
        let elapsed_s = elapsed.as_secs_f64();
        DiagnoseDocument { version, checks: &self.checks, summary: self.summary(), elapsed_s }
    }

    /// 0 only if nothing failed.
    pub(super) fn exit_code(&self) -> u8 {
        if self.summary().failed == 0 { exit::OK } else { exit::JOB }
    }

    /// A line for each sentence of the passes that are not printed yet.
    fn grouped_passes(&mut self, layout: Layout) -> String {
        let mut by_words: BTreeMap<String, Vec<Check>> = BTreeMap::new();
        for check in self.quiet.drain(..) {
            by_words.entry(check.says.clone()).or_default().push(check);
        }
        let line = |(says, checks): (String, Vec<Check>)| match checks.as_slice() {
            [one] => lines(one, layout),
            many => {
                let first = many.first().expect("a key has a check");
                let items =
                    many.iter().filter_map(|check| check.facts.get("items")?.parse::<u64>().ok());
                let items = HumanCount(items.sum());
                let says = format!("each {says}; {items} items in all");
                lines(&Check { name: format!("{} ops", many.len()), says, ..first.clone() }, layout)
            }
        };
        by_words.into_iter().map(line).collect()
    }
}

fn title((group, device): &(Group, Option<String>)) -> String {
    match device {
        Some(device) => format!("{group} on {device}\n"),
        None => format!("{group}\n"),
    }
}

/// A check, and below it what to do.
fn lines(check: &Check, layout: Layout) -> String {
    let (word, color) = match check.outcome {
        Outcome::Pass => ("pass", "32"),
        Outcome::Fail => ("FAIL", "1;31"),
        Outcome::Skip => ("skip", "33"),
    };
    let word = if layout.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word.to_owned() };
    let columns = layout.columns.saturating_sub(SAYS_COLUMNS).max(SAYS_MIN);
    let mut text = String::new();
    let mut put = |head: &str, says: &str| {
        for (number, line) in wrap(&printable(says), columns).iter().enumerate() {
            let head = if number == 0 { head } else { "" };
            let fill = SAYS_COLUMNS.saturating_sub(width(head));
            let line = format!("{head}{:fill$}{line}", "");
            writeln!(text, "{}", line.trim_end()).expect("a text takes a line");
        }
    };
    put(&format!("  {word}  {}  ", printable(&check.name)), &check.says);
    if !check.next.is_empty() {
        put(&format!("{:width$}", "", width = SAYS_COLUMNS), &format!("-> {}", check.next));
    }
    text
}

/// Columns of a text that may hold a coloured word.
fn width(text: &str) -> usize {
    let mut inside = false;
    text.chars()
        .filter(|&c| {
            let counts = !inside && c != '\x1b';
            inside = (inside || c == '\x1b') && c != 'm';
            counts
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { all: false, color: false, columns: 80 };

    fn op(name: &str, says: &str) -> Check {
        let check = Check::pass(Group::Batches, format!("op {name}"), says).fact("items", 15);
        Check { device: Some("cpu0".to_owned()), ..check }
    }

    #[test]
    fn passes_of_many_ops_are_one_line_and_a_failure_has_its_own() {
        let mut report = Report::default();
        assert_eq!(report.add(op("rot90", "36 sizes"), LAYOUT), "batches on cpu0\n");
        assert_eq!(report.add(op("rot180", "36 sizes"), LAYOUT), "");
        let bad = Check::fail(Group::Batches, "op crop", "item 3 differs", "restart it").at(1_000);
        let bad = Check { device: Some("cpu0".to_owned()), ..bad };
        let text = report.add(bad, LAYOUT);
        assert_eq!(text.lines().next().unwrap(), "  FAIL  op crop                 item 3 differs");
        assert!(text.lines().nth(1).unwrap().ends_with("  -> restart it"));
        let text = report.end(Duration::from_millis(1_500), LAYOUT);
        let want = [
            "  pass  2 ops                   each 36 sizes; 30 items in all",
            "",
            "what failed",
            "  batches: op crop on cpu0, first at 1,000",
            "",
            "2 passed, 1 failed; 1.5 s",
            "",
        ];
        assert_eq!(text, want.join("\n"));
        assert_eq!(report.exit_code(), exit::JOB);
    }

    #[test]
    fn an_equal_check_of_another_process_is_known() {
        let mut report = Report::default();
        let check = Check::pass(Group::Environment, "nvml", "2 GPUs");
        report.add(check.clone(), LAYOUT);
        assert!(report.has(&check.clone().took(5).fact("a", 1)));
        assert!(!report.has(&Check { device: Some("gpu1".to_owned()), ..check.clone() }));
        assert!(!report.has(&Check { says: "1 GPU".to_owned(), ..check }));
    }

    #[test]
    fn a_reason_that_several_devices_share_is_printed_once() {
        let mut report = Report::default();
        let fail = |device: &str, says: &str| Check {
            device: Some(device.to_owned()),
            ..Check::fail(Group::Models, "start of the pool", says, "mend it")
        };
        let first = report.add(fail("cpu0", "cpu0#2 died: no library"), LAYOUT);
        assert!(first.contains("cpu0#2 died: no library") && first.contains("-> mend it"));
        let second = report.add(fail("cpu1", "cpu1#4 died: no library"), LAYOUT);
        assert_eq!(second, "models on cpu1\n  FAIL  start of the pool       as on cpu0\n");
        let third = report.add(fail("cpu2", "cpu2#2 died: no memory"), LAYOUT);
        assert!(third.contains("cpu2#2 died: no memory"), "{third}");
    }

    #[test]
    fn a_skip_does_not_count_as_a_pass() {
        let mut report = Report::default();
        let skip = Check::skip(Group::Models, "models", "none is named", "name one with --model");
        report.add(skip, LAYOUT);
        report.add(op("rot90", "36 sizes"), LAYOUT);
        let text = report.end(Duration::from_secs(1), LAYOUT);
        assert!(text.ends_with("1 passed, 0 failed, 1 skipped (not passed); 1.0 s\n"));
        assert_eq!(report.exit_code(), exit::OK);
        let document = serde_json::to_value(report.document("1", Duration::ZERO)).unwrap();
        assert_eq!(document["summary"]["skipped"], 1);
        assert_eq!(document["checks"][0]["outcome"], "skip");
    }

    #[test]
    fn sentences_wrap_within_their_column_and_colours_take_no_width() {
        let says = "one two three four five six seven eight nine ten eleven twelve";
        let check = Check::skip(Group::Environment, "libcuda", says, "");
        let layout = Layout { columns: 60, ..LAYOUT };
        let text = lines(&check, layout);
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        let painted = lines(&check, Layout { color: true, ..layout });
        assert_eq!(painted.replace("\x1b[33m", "").replace("\x1b[0m", ""), text);
    }

    #[test]
    fn control_characters_of_other_programs_do_not_reach_the_screen() {
        let check = Check::fail(Group::Environment, "x", "\x1b[2Jgone", "\x07");
        assert!(!lines(&check, LAYOUT).contains('\x1b'));
    }
}

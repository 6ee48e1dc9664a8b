//! What was found, for people and as JSON.
//!
//! Owns the words around the checks, and the exit code. May not look at anything.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use gridpool_protocol::diagnose::{Check, Group, Outcome};
use gridpool_protocol::exit::cli as exit;
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::show::printable;
use crate::cli::text::wrap;

/// Columns of a check's name; a longer one pushes the rest to the right.
const NAME_COLUMNS: usize = 22;
/// Columns in front of what a check says.
const SAYS_COLUMNS: usize = 2 + 4 + 2 + NAME_COLUMNS + 2;
/// The fewest columns for what a check says, however narrow the screen is.
const SAYS_MIN: usize = 24;

/// All checks so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    checks: Vec<Check>,
    /// What the last line printed was about.
    heading: Option<(Group, Option<String>)>,
    /// Passes that are told together when something else is told.
    quiet: Vec<Check>,
}

/// How many there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// Everything, for other programs.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    version: &'static str,
    checks: &'a [Check],
    summary: Summary,
    elapsed_s: f64,
}

/// How checks are shown to people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Every pass on a line of its own.
    pub(super) all: bool,
    pub(super) color: bool,
    pub(super) columns: usize,
}

impl Report {
    /// Adds a check, and gives the lines that may be printed now.
    pub(super) fn add(&mut self, check: Check, look: Look) -> String {
        let mut text = String::new();
        let is_one_of_many = matches!(check.group, Group::Batches) && !look.all;
        let heading = (check.group, check.device.clone());
        if self.heading.as_ref() != Some(&heading) {
            text.push_str(&self.told_together(look));
            text.push_str(&title(&heading));
            self.heading = Some(heading);
        }
        if is_one_of_many && check.outcome == Outcome::Pass {
            self.quiet.push(check.clone());
        } else {
            text.push_str(&lines(&check, look));
        }
        self.checks.push(check);
        text
    }

    /// What is left to be printed, and the last lines.
    pub(super) fn end(&mut self, elapsed: Duration, look: Look) -> String {
        let mut text = self.told_together(look);
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
            _ => format!(", {skipped} skipped, which is not passed"),
        };
        let seconds = elapsed.as_secs_f64();
        text.push_str(&format!("\n{passed} passed, {failed} failed{skips}; {seconds:.1} s\n"));
        text
    }

    /// Whether the same was found before.
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

    pub(super) fn document(&self, version: &'static str, elapsed: Duration) -> Document<'_> {
        let elapsed_s = elapsed.as_secs_f64();
        Document { version, checks: &self.checks, summary: self.summary(), elapsed_s }
    }

    /// 0 only if nothing failed.
    pub(super) fn exit_code(&self) -> u8 {
        if self.summary().failed == 0 { exit::OK } else { exit::JOB }
    }

    /// One line for all passes since the last, by what they say.
    fn told_together(&mut self, look: Look) -> String {
        let mut by_words: BTreeMap<String, Vec<Check>> = BTreeMap::new();
        for check in self.quiet.drain(..) {
            by_words.entry(check.says.clone()).or_default().push(check);
        }
        let line = |(says, checks): (String, Vec<Check>)| match checks.as_slice() {
            [one] => lines(one, look),
            many => {
                let first = many.first().expect("a key has a check");
                let items =
                    many.iter().filter_map(|check| check.facts.get("items")?.parse::<u64>().ok());
                let items = HumanCount(items.sum());
                let says = format!("each {says}; {items} items in all");
                lines(&Check { name: format!("{} ops", many.len()), says, ..first.clone() }, look)
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

/// A check on a line, and below it what to do.
fn lines(check: &Check, look: Look) -> String {
    let word = match check.outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "FAIL",
        Outcome::Skip => "skip",
    };
    let color = match check.outcome {
        Outcome::Pass => "32",
        Outcome::Fail => "1;31",
        Outcome::Skip => "33",
    };
    let word = if look.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word.to_owned() };
    let columns = look.columns.saturating_sub(SAYS_COLUMNS).max(SAYS_MIN);
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

/// Columns of a text that may hold one painted word.
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

    const LOOK: Look = Look { all: false, color: false, columns: 80 };

    fn op(name: &str, says: &str) -> Check {
        let check = Check::pass(Group::Batches, format!("op {name}"), says).fact("items", 15);
        Check { device: Some("cpu0".to_owned()), ..check }
    }

    #[test]
    fn passes_of_many_ops_are_one_line_and_a_failure_has_its_own() {
        let mut report = Report::default();
        assert_eq!(report.add(op("rot90", "36 sizes"), LOOK), "batches on cpu0\n");
        assert_eq!(report.add(op("rot180", "36 sizes"), LOOK), "");
        let bad = Check::fail(Group::Batches, "op crop", "item 3 differs", "restart it").at(1_000);
        let bad = Check { device: Some("cpu0".to_owned()), ..bad };
        let text = report.add(bad, LOOK);
        assert_eq!(text.lines().next().unwrap(), "  FAIL  op crop                 item 3 differs");
        assert!(text.lines().nth(1).unwrap().ends_with("  -> restart it"));
        let text = report.end(Duration::from_millis(1_500), LOOK);
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
    fn what_two_processes_find_alike_is_known() {
        let mut report = Report::default();
        let check = Check::pass(Group::Environment, "nvml", "2 GPUs");
        report.add(check.clone(), LOOK);
        assert!(report.has(&check.clone().took(5).fact("a", 1)));
        assert!(!report.has(&Check { device: Some("gpu1".to_owned()), ..check.clone() }));
        assert!(!report.has(&Check { says: "1 GPU".to_owned(), ..check }));
    }

    #[test]
    fn a_skip_is_said_not_to_be_a_pass() {
        let mut report = Report::default();
        let skip = Check::skip(Group::Models, "models", "none is named", "name one with --model");
        report.add(skip, LOOK);
        report.add(op("rot90", "36 sizes"), LOOK);
        let text = report.end(Duration::from_secs(1), LOOK);
        assert!(text.ends_with("1 passed, 0 failed, 1 skipped, which is not passed; 1.0 s\n"));
        assert_eq!(report.exit_code(), exit::OK);
        let document = serde_json::to_value(report.document("1", Duration::ZERO)).unwrap();
        assert_eq!(document["summary"]["skipped"], 1);
        assert_eq!(document["checks"][0]["outcome"], "skip");
    }

    #[test]
    fn long_words_wrap_within_their_column_and_colour_takes_none() {
        let says = "one two three four five six seven eight nine ten eleven twelve";
        let check = Check::skip(Group::Environment, "libcuda", says, "");
        let look = Look { columns: 60, ..LOOK };
        let text = lines(&check, look);
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        let painted = lines(&check, Look { color: true, ..look });
        assert_eq!(painted.replace("\x1b[33m", "").replace("\x1b[0m", ""), text);
    }

    #[test]
    fn what_another_program_says_cannot_paint_the_screen() {
        let check = Check::fail(Group::Environment, "x", "\x1b[2Jgone", "\x07");
        assert!(!lines(&check, LOOK).contains('\x1b'));
    }
}

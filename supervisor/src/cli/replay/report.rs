//! What `gridpool replay` prints.

use std::fmt::Write;

use gridpool_protocol::exit::cli as exit;
use serde::Serialize;

use super::difference::Difference;
use super::load::Load;
use super::run::{Results, Run};
use super::sanitizer::Sanitized;
use crate::capsule::{Capsule, Manner};
use crate::cli::show::printable;
use crate::config::DeviceSelection;

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The capsule's name.
    capsule: String,
    /// The worker that died, and how.
    worker: String,
    manner: Manner,
    /// What the capsule lacks, a sentence each, and whether that may be what the worker died of.
    lacks: Vec<String>,
    may_lack_cause: bool,
    /// What is another on this machine than on that of the capsule, a sentence each.
    pub(super) differs: Vec<String>,
    /// What a unit is, and how many were run.
    units: String,
    count: usize,
    runs: Vec<Ran>,
    /// The first difference between the results of the processor and of the device, if both ran to their end.
    pub(super) difference: Option<Difference>,
    pub(super) bisected: Option<Bisected>,
    pub(super) sanitized: Option<Sanitized>,
}

/// One run of the whole.
#[derive(Debug, Serialize)]
struct Ran {
    devices: String,
    verdict: String,
    reason: String,
    /// How its worker ended; `null` if it did not.
    manner: Option<Manner>,
    /// Whether that is how the worker of the capsule ended; `null` if none died.
    same: Option<bool>,
}

/// What a bisection has found.
#[derive(Debug, Serialize)]
pub(super) struct Bisected {
    pub(super) units: String,
    pub(super) of: usize,
    /// The smallest part that dies.
    pub(super) names: Vec<String>,
    pub(super) runs: u32,
    /// Nothing of it can be left out. If not, the runs were used up, or Ctrl-C came.
    pub(super) is_done: bool,
}

/// Names that are printed for people.
const NAMES_SHOWN: usize = 20;

impl Report {
    pub(super) fn new(capsule: &Capsule, load: &Load) -> Self {
        let worker = capsule.death.get("worker").and_then(|worker| worker.as_str());
        Self {
            capsule: capsule.name.clone(),
            worker: worker.unwrap_or("a worker").to_owned(),
            manner: capsule.manner.clone(),
            lacks: load.lacks.clone(),
            may_lack_cause: load.may_lack_cause,
            differs: Vec::new(),
            units: load.unit().to_owned(),
            count: load.units(),
            runs: Vec::new(),
            difference: None,
            bisected: None,
            sanitized: None,
        }
    }

    /// Takes a run in; returns its results.
    pub(super) fn ran(&mut self, devices: &[DeviceSelection], run: Run) -> Option<Results> {
        let devices = devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let is_ok = |verdict: &str| verdict == "OK";
        let worst = run.receipts.iter().find(|receipt| !is_ok(receipt.verdict.name()));
        let worst = worst.or_else(|| run.receipts.first());
        let same = run.manner.as_ref().map(|manner| manner.is_like(&self.manner));
        self.runs.push(Ran {
            devices,
            verdict: worst.map_or("", |receipt| receipt.verdict.name()).to_owned(),
            reason: worst.map_or_else(String::new, |receipt| receipt.reason.clone()),
            manner: run.manner,
            same,
        });
        run.results
    }

    /// Whether a worker died in the last run.
    pub(super) fn last_died(&self) -> bool {
        self.last_manner().is_some()
    }

    pub(super) fn last_manner(&self) -> Option<&Manner> {
        self.runs.last()?.manner.as_ref()
    }

    /// The exit code: whether no worker died, every job was OK, and the results agree; and whether that says anything.
    pub(super) fn code(&self) -> u8 {
        let is_well = |ran: &Ran| ran.manner.is_none() && ran.verdict == "OK";
        let is_clean = self.runs.iter().all(is_well)
            && self.difference.is_none()
            && self.sanitized.as_ref().is_none_or(Sanitized::is_clean);
        match (is_clean, self.may_lack_cause) {
            (false, _) => exit::JOB,
            (true, true) => exit::DATA,
            (true, false) => exit::OK,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut say = |line: &str| {
            writeln!(text, "{}", printable(line)).expect("a string takes what is written")
        };
        say(&format!("{}: {} died: {}", self.capsule, self.worker, self.manner.words()));
        self.lacks.iter().for_each(|lack| say(&format!("the capsule is not whole: {lack}")));
        self.differs.iter().for_each(|differs| say(differs));
        for ran in &self.runs {
            let Ran { devices, verdict, reason, manner, same } = ran;
            let (count, units) = (self.count, &self.units);
            say(&match (manner, same) {
                (Some(manner), Some(true)) => format!("{devices}: dies again: {}", manner.words()),
                (Some(manner), _) => format!("{devices}: dies, but otherwise: {}", manner.words()),
                (None, _) if verdict == "OK" => {
                    format!("{devices}: runs to its end: {count} {units}, OK")
                }
                (None, _) => format!("{devices}: no worker dies; {verdict}: {reason}"),
            });
        }
        if let [one, other] = &*self.runs
            && one.verdict == "OK"
            && other.verdict == "OK"
        {
            say(&match &self.difference {
                None => "the results agree".to_owned(),
                Some(difference) => {
                    format!(
                        "the results part at {} {}: {}",
                        self.units, difference.unit, difference.what
                    )
                }
            });
        }
        if self.code() == exit::DATA {
            say(
                "what it died of may be among what the capsule does not have: a larger `bytes_max` keeps more",
            );
        }
        if let Some(Bisected { units, of, names, runs, is_done }) = &self.bisected {
            let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(NAMES_SHOWN);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let end = if *is_done { "" } else { "; stopped before the end" };
            say(&format!(
                "{} of {of} {units} still do ({runs} runs{end}): {shown}{more}",
                names.len()
            ));
        }
        if let Some(Sanitized { ended, errors, lines, .. }) = &self.sanitized {
            let count = errors.map_or_else(String::new, |count| format!(", {count} errors"));
            say(&format!("under compute-sanitizer: {ended}{count}"));
            lines.iter().for_each(|line| say(&format!("    {line}")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::load::tests::capsule_of;
    use super::*;

    #[test]
    fn a_hostile_capsule_steers_no_terminal() {
        let capsule = capsule_of(json!({"worker": "a\u{1b}[2Jb\nc"}), &[]);
        let load = Load::of(&capsule).expect("it can be run");
        let text = Report::new(&capsule, &load).text();
        assert_eq!(text, "x: a\u{fffd}[2Jb\u{fffd}c died: signal 11 (SIGSEGV)\n");
    }
}

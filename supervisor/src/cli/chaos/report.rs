//! The report of `gridpool chaos` about an injected fault: for people, and as JSON.
//!
//! Owns the words, and decides whether the pool recovered as it should. May not ask the pool.

use std::time::Duration;

use gridpool_protocol::chaos::{Chaos, ChaosFault};
use gridpool_protocol::receipt::{Receipt, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::Lost;
use crate::cli::show::{outcome_in_words, printable};

/// How the pool recovered; its fields are the JSON document.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Report {
    fault: &'static str,
    summary: &'static str,
    /// How many attempts of the job were to meet it.
    attempts: u32,
    verdict: Verdict,
    /// Whether the job's result is right; null without one.
    right: Option<bool>,
    receipt: Receipt,
    /// An ordinary job that was answered rightly after it.
    pub(super) served_again: Option<ServedAgain>,
    /// The workers that replaced lost ones, or the one with wrong results.
    pub(super) replaced: Vec<Replaced>,
    /// Devices that went out of service because of it, including those that are back.
    pub(super) quarantined: Vec<String>,
    pub(in crate::cli) recovered: bool,
    /// What went wrong; empty if the pool recovered.
    why: String,
}

/// The first ordinary job with the right result.
#[derive(Debug, Serialize)]
pub(super) struct ServedAgain {
    /// From the verdict of the job that met the fault.
    pub(super) after_ms: f64,
    pub(super) receipt: Receipt,
}

/// A worker that is gone, and the worker that serves its device now.
#[derive(Debug, Serialize)]
pub(super) struct Replaced {
    pub(super) worker: String,
    /// What ended it, by the pool's status; empty if the status does not say.
    pub(super) fault: String,
    pub(super) by: String,
    /// As in [`ServedAgain`].
    pub(super) after_ms: f64,
}

impl Report {
    pub(super) fn new(chaos: Chaos, right: Option<bool>, receipt: Receipt) -> Self {
        Self {
            fault: chaos.fault.name(),
            summary: chaos.fault.summary(),
            attempts: chaos.attempts,
            verdict: receipt.verdict,
            right,
            receipt,
            served_again: None,
            replaced: Vec::new(),
            quarantined: Vec::new(),
            recovered: false,
            why: String::new(),
        }
    }

    /// Decides whether the pool recovered: the verdict is one of `expected`, the result is right (wrong if
    /// the fault `is_wrong`), the pool serves, and it has replaced all of `lost`.
    pub(super) fn judge(&mut self, expected: &[Verdict], is_wrong: bool, lost: &[Lost]) {
        let mut why = Vec::new();
        if !expected.contains(&self.verdict) {
            let names: Vec<_> = expected.iter().map(Verdict::to_string).collect();
            why.push(format!("the verdict should be {}", names.join(" or ")));
        }
        match (self.right, is_wrong) {
            (Some(false), false) => why.push("the result is wrong".to_owned()),
            (Some(true), true) => why.push("the result should be wrong".to_owned()),
            (Some(true), false) | (Some(false), true) | (None, _) => {}
        }
        if self.served_again.is_none() {
            why.push("the pool answered no ordinary job rightly in time".to_owned());
        }
        for lost in lost {
            let worker = lost.worker.to_string();
            if self.replaced.iter().all(|replaced| replaced.worker != worker) {
                why.push(format!("the pool did not replace {worker} in time"));
            }
        }
        self.recovered = why.is_empty();
        self.why = why.join("; ");
    }

    /// The report in one sentence.
    pub(in crate::cli) fn sentence(&self) -> String {
        let mut clauses = vec![format!("the job that met the fault: {}", self.verdict)];
        let replaced = self.replaced.iter();
        clauses.extend(replaced.map(|Replaced { worker, by, after_ms, .. }| {
            format!("{by} replaced {worker} {after_ms} ms after the verdict")
        }));
        clauses.extend(self.served_again.as_ref().map(|ServedAgain { after_ms, .. }| {
            format!("the next job was right {after_ms} ms after the verdict")
        }));
        if !self.recovered {
            clauses.push(format!("NOT recovered: {}", self.why));
        }
        clauses.join("; ")
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!("{}: {}", self.fault, self.summary)];
        let result = match self.right {
            Some(true) => "; the result is right",
            Some(false) => "; the result is wrong",
            None => "",
        };
        let total = ms(Duration::from_micros(self.receipt.total_us));
        lines.push(format!("{} after {total} ms{result}", self.verdict));
        if !self.receipt.reason.is_empty() {
            lines.push(format!("  {}", printable(&self.receipt.reason)));
        }
        for attempt in &self.receipt.attempts {
            let outcome = outcome_in_words(attempt.outcome, &printable(&attempt.detail));
            lines.push(format!("  {}  {outcome}", attempt.worker));
        }
        for device in &self.quarantined {
            lines.push(format!(
                "the fault put {device} out of service; chaos waited for its return"
            ));
        }
        for Replaced { worker, fault, by, after_ms } in &self.replaced {
            if !fault.is_empty() {
                lines.push(printable(fault));
            }
            // A late worker may have finished, and serve on.
            let what = if worker == by { "serves on" } else { "was replaced" };
            lines.push(format!("{worker} {what}: {by} serves {after_ms} ms after the verdict"));
        }
        if let Some(ServedAgain { after_ms, receipt }) = &self.served_again {
            let by = receipt.attempts.last().map_or("no worker", |attempt| &attempt.worker);
            lines.push(format!("{by} answered the next job {after_ms} ms after the verdict"));
        }
        lines.push(match self.recovered {
            true => "the pool recovered as it should".to_owned(),
            false => format!("NOT recovered: {}", self.why),
        });
        lines.join("\n")
    }
}

/// The line to print while a device is out of service.
pub(super) fn waits(device: &str, timeout: Duration) -> String {
    format!(
        "the fault put {device} out of service; waiting up to {:.0} s for its return: `gridpool status` \
         says when the pool tries it again, `gridpool release {device}` has it tried now",
        timeout.as_secs_f64()
    )
}

/// Milliseconds, to a hundredth.
pub(super) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 1e2
}

/// A line for each fault.
pub(super) fn list() -> String {
    let line = |fault: ChaosFault| format!("  {:<12}{}\n", fault.name(), fault.summary());
    ChaosFault::ALL.into_iter().map(line).collect()
}

/// The faults as JSON.
pub(super) fn faults() -> Value {
    let row = |fault: ChaosFault| json!({"fault": fault.name(), "summary": fault.summary()});
    ChaosFault::ALL.into_iter().map(row).collect()
}

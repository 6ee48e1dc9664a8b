//! What `gridpool chaos` says came of a fault: for people, and as JSON.
//!
//! Owns the words, and the judgement whether the pool did as it should. May not look at the pool.

use std::time::Duration;

use gridpool_protocol::chaos::{Chaos, ChaosFault};
use gridpool_protocol::receipt::{Receipt, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::Lost;
use crate::cli::show::{fate, printable};

/// All of it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Report {
    fault: &'static str,
    summary: &'static str,
    /// So many attempts of the job were to meet it.
    attempts: u32,
    verdict: Verdict,
    /// Whether the job's result is right; null without one.
    right: Option<bool>,
    receipt: Receipt,
    /// An ordinary job that was answered rightly after it.
    pub(super) served_again: Option<ServedAgain>,
    /// What took the place of workers that were lost, or that lied.
    pub(super) replaced: Vec<Replaced>,
    /// Devices that went out of service because of it, whether or not they are back.
    pub(super) quarantined: Vec<String>,
    pub(in crate::cli) recovered: bool,
    /// What was not as it should be; empty if all was.
    why: String,
}

/// The first ordinary job with the right result.
#[derive(Debug, Serialize)]
pub(super) struct ServedAgain {
    /// From the verdict of the job that met the fault.
    pub(super) after_ms: f64,
    pub(super) receipt: Receipt,
}

/// A worker that is gone, and who serves its device.
#[derive(Debug, Serialize)]
pub(super) struct Replaced {
    pub(super) worker: String,
    /// What ended it, as the pool's status says; empty if that says it no more, or not yet.
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

    /// Whether all is as it should be: the verdict is one of `expected`, a result is right unless the
    /// fault is that it is not, the pool serves, and all of `lost` is replaced.
    pub(super) fn judge(&mut self, expected: &[Verdict], lies: bool, lost: &[Lost]) {
        let mut why = Vec::new();
        if !expected.contains(&self.verdict) {
            let names: Vec<_> = expected.iter().map(Verdict::to_string).collect();
            why.push(format!("the verdict should be {}", names.join(" or ")));
        }
        match (self.right, lies) {
            (Some(false), false) => why.push("the result is wrong".to_owned()),
            (Some(true), true) => why.push("no wrong result was given".to_owned()),
            (Some(true), false) | (Some(false), true) | (None, _) => {}
        }
        if self.served_again.is_none() {
            why.push("no ordinary job was answered rightly in time".to_owned());
        }
        for lost in lost {
            let worker = lost.worker.to_string();
            if self.replaced.iter().all(|replaced| replaced.worker != worker) {
                why.push(format!("nobody took the place of {worker} in time"));
            }
        }
        self.recovered = why.is_empty();
        self.why = why.join("; ");
    }

    /// The same in one sentence.
    pub(in crate::cli) fn sentence(&self) -> String {
        let mut parts = vec![format!("the job that met it: {}", self.verdict)];
        let replaced = self.replaced.iter();
        parts.extend(replaced.map(|Replaced { worker, by, after_ms, .. }| {
            format!("{worker} was replaced by {by} {after_ms} ms after that")
        }));
        parts.extend(self.served_again.as_ref().map(|ServedAgain { after_ms, .. }| {
            format!("the next job was right {after_ms} ms after it")
        }));
        if !self.recovered {
            parts.push(format!("NOT as it should be: {}", self.why));
        }
        parts.join("; ")
    }

    /// The same for people.
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
            let fate = fate(attempt.outcome, &printable(&attempt.detail));
            lines.push(format!("  {}  {fate}", attempt.worker));
        }
        for device in &self.quarantined {
            lines.push(format!("{device} was put out of service by this, and waited for"));
        }
        for Replaced { worker, fault, by, after_ms } in &self.replaced {
            if !fault.is_empty() {
                lines.push(printable(fault));
            }
            // One that was late may have come to its end, and serve on.
            let what = if worker == by { "serves on" } else { "was replaced" };
            lines.push(format!("{worker} {what}: {by} serves {after_ms} ms after the verdict"));
        }
        if let Some(ServedAgain { after_ms, receipt }) = &self.served_again {
            let on = receipt.attempts.last().map_or("nobody", |attempt| &attempt.worker);
            lines.push(format!(
                "the next job was answered {after_ms} ms after the verdict, by {on}"
            ));
        }
        lines.push(match self.recovered {
            true => "the pool recovered as it should".to_owned(),
            false => format!("NOT as it should be: {}", self.why),
        });
        lines.join("\n")
    }
}

/// What is said while a device is out of service.
pub(super) fn waits(device: &str, patience: Duration) -> String {
    format!(
        "{device} was put out of service by this; waiting up to {:.0} s for it to be back: `gridpool \
         status` says when it is tried, `gridpool release {device}` has it tried now",
        patience.as_secs_f64()
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

/// The same as JSON.
pub(super) fn faults() -> Value {
    let row = |fault: ChaosFault| json!({"fault": fault.name(), "summary": fault.summary()});
    ChaosFault::ALL.into_iter().map(row).collect()
}

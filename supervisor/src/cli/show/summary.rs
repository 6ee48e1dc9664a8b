//! The last lines: counts, verdicts, and the share of each worker, all from the receipts.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use gridpool_protocol::ids::WorkerName;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, Verdict};
use indicatif::HumanCount;

use super::super::input::Inputs;
use super::super::results::Results;
use super::{NO_VERDICT, counted, invalid, item_word, printable};

/// The share of one worker in all jobs.
#[derive(Default)]
struct Share<'a> {
    items: u64,
    /// Parts of jobs that were cut, each answered once.
    parts: u64,
    /// Kernels in order of first launch, and their launches.
    kernels: Vec<(&'a str, u64)>,
    /// Attempts without an answer, by whether they were at a part of a job, and by their outcome.
    lost: BTreeMap<(bool, String), u64>,
}

/// Workers in the order of their names' numbers, `gpu2#1` before `gpu10#1`.
type Shares<'a> = BTreeMap<(Option<WorkerName>, &'a str), Share<'a>>;

pub(super) fn write(
    out: &mut dyn Write,
    inputs: &Inputs,
    results: &Results,
    elapsed: Duration,
) -> io::Result<()> {
    let items = |count: u64| counted(count, item_word(inputs.unit()));
    let (input_count, item_count) = (inputs.list().len() as u64, inputs.item_count() as u64);
    write!(out, "{}, {}: ", counted(input_count, "input"), items(item_count))?;
    write!(out, "{}", verdicts(inputs, results).join(", "))?;
    let errors = results.item_errors().map_err(invalid)?;
    if !errors.is_empty() {
        let codes = errors.iter().map(|(code, count)| format!("{} {code}", HumanCount(*count)));
        let codes = codes.collect::<Vec<_>>().join(", ");
        write!(out, "; {}: {codes}", counted(errors.values().sum(), "item error"))?;
    }
    writeln!(out, "; {:.2} s", elapsed.as_secs_f64())?;
    let shares = shares(results.receipts());
    let width = shares.keys().map(|(_, name)| name.len()).max().unwrap_or(0);
    for ((_, name), share) in &shares {
        if share.items > 0 {
            let kernels: Vec<String> = share
                .kernels
                .iter()
                .map(|(name, launches)| format!("{name} x{launches}"))
                .collect();
            let items = items(share.items);
            let parts = match share.parts {
                0 => String::new(),
                parts => format!(" in {}", counted(parts, "part")),
            };
            writeln!(out, "{name:width$}  {items}{parts}  {}", kernels.join(", "))?;
        }
        for ((of_part, outcome), times) in &share.lost {
            let of_part = if *of_part { " at a part" } else { "" };
            writeln!(out, "{name:width$}  {}{of_part} {outcome}", counted(*times, "attempt"))?;
        }
    }
    Ok(())
}

/// `398 OK`, `2 POISON`: inputs by their worst verdict, then inputs without a verdict.
fn verdicts(inputs: &Inputs, results: &Results) -> Vec<String> {
    let mut counts: BTreeMap<Verdict, u64> = BTreeMap::new();
    let mut without: u64 = 0;
    for (first, input) in inputs.numbered() {
        let items = first..first + input.item_count(inputs.unit());
        match results.verdict(items) {
            Some(verdict) => *counts.entry(verdict).or_default() += 1,
            None => without += 1,
        }
    }
    let words = counts.iter().map(|(verdict, count)| format!("{} {verdict}", HumanCount(*count)));
    let without = (without > 0).then(|| format!("{} {NO_VERDICT}", HumanCount(without)));
    words.chain(without).collect()
}

fn shares<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> Shares<'a> {
    let mut shares = Shares::new();
    for receipt in receipts {
        for attempt in &receipt.attempts {
            let name = &*attempt.worker;
            let share = shares.entry((name.parse().ok(), name)).or_default();
            if attempt.outcome != AttemptOutcome::Ok {
                let outcome = outcome_in_words(attempt.outcome, &printable(&attempt.detail));
                *share.lost.entry((receipt.is_part(attempt), outcome)).or_default() += 1;
                continue;
            }
            share.items += u64::from(attempt.part.len());
            share.parts += u64::from(receipt.is_part(attempt));
            for kernel in &*attempt.kernels {
                let launches = u64::from(kernel.launches);
                match share.kernels.iter_mut().find(|(name, _)| *name == kernel.name) {
                    Some((_, sum)) => *sum += launches,
                    None => share.kernels.push((&kernel.name, launches)),
                }
            }
        }
    }
    shares
}

/// The outcome of an attempt in words.
pub(in crate::cli) fn outcome_in_words(outcome: AttemptOutcome, detail: &str) -> String {
    let words = match outcome {
        AttemptOutcome::Cancelled => "stopped, the job was cancelled",
        AttemptOutcome::Deadline => "stopped at the deadline",
        AttemptOutcome::DeviceError => "ended by a device error",
        AttemptOutcome::Hang => "stopped, the worker did not answer",
        AttemptOutcome::Ok => "answered",
        AttemptOutcome::Preempted => "stopped because of another attempt",
        AttemptOutcome::Refused => "refused by the worker",
        AttemptOutcome::WorkerDied => "lost, the worker died",
    };
    if detail.is_empty() { words.to_owned() } else { format!("{words}: {detail}") }
}

//! How a storm was, in words and numbers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Options;
use super::board::{Times, percentile};
use super::chaos::Deeds;
use super::checker::Broken;
use super::ledger::Found;
use super::server::Gauge;

/// Reported beside the latencies of honest clients; no test depends on it.
pub const LATENCY_P99_BOUND: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Debug)]
pub struct Report {
    /// What was asked for.
    pub options: Options,
    /// Workers that were ended after the first gauge.
    pub deaths: u64,
    /// How long that took.
    pub span: Duration,
    /// All signals, those before the first gauge included.
    pub deeds: Deeds,
    /// Deeds of hostile clients.
    pub harassed: u64,
    /// The most dead children that the supervisor had at any look.
    pub zombies: u64,
    /// What the clients found.
    pub found: Found,
    /// Recoveries and latencies.
    pub times: Times,
    /// What the supervisor held before.
    pub first: Gauge,
    /// What it held in the end.
    pub last: Gauge,
    /// What it left behind.
    pub left: Vec<String>,
}

impl Report {
    /// Everything that should not have been, one sentence each; nothing if all is well.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.found.violations.iter().map(ToString::to_string).collect();
        faults.extend(self.last.growth(&self.first));
        faults.extend(self.left.iter().cloned());
        if self.deaths == 0 {
            faults.push("no worker died: this was no storm".to_owned());
        }
        if self.found.tally.ok == 0 {
            faults.push("no job ended OK".to_owned());
        }
        faults
    }

    /// Violations of one kind.
    fn broken(&self, kind: Broken) -> u64 {
        self.found.broken.get(&kind).copied().unwrap_or_default()
    }

    /// Workers ended in a second.
    #[must_use]
    pub fn deaths_per_second(&self) -> f64 {
        self.deaths as f64 / self.span.as_secs_f64()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, deaths, found, deeds, .. } = self;
        let (setup, tally) = (&options.setup, &found.tally);
        writeln!(
            f,
            "storm      seed {}, devices {}, standby {}: {deaths} workers ended in {:.1} s, {:.1} a second",
            options.seed,
            setup.devices,
            setup.standby,
            self.span.as_secs_f64(),
            self.deaths_per_second()
        )?;
        let count = |deeds: &AtomicU64| deeds.load(Ordering::Relaxed);
        writeln!(
            f,
            "signals    {} SIGKILL, {} SIGSEGV or SIGABRT, {} stopped for good, {} stopped for a while \
             (warm-up included)",
            count(&deeds.kills),
            count(&deeds.faults),
            count(&deeds.hangs),
            count(&deeds.pauses)
        )?;
        writeln!(
            f,
            "clients    {} wire, {} library, {} processes ({} of them killed), {} hostile with {} deeds",
            options.wire_clients,
            options.library_clients,
            options.processes,
            found.died,
            options.hostiles,
            self.harassed
        )?;
        writeln!(
            f,
            "jobs       {} submitted, {} accepted, {} OK, {} ended otherwise with a reason, {} retries, \
             {} replayed, {} refused",
            tally.submitted,
            tally.accepted,
            tally.ok,
            tally.not_ok,
            tally.retries,
            tally.replayed,
            tally.refused
        )?;
        self.write_promises(f)?;
        self.write_times(f)?;
        self.write_gauges(f)?;
        let faults = self.faults();
        for fault in &faults {
            writeln!(f, "FAULT      {fault}")?;
        }
        let kept =
            if faults.is_empty() { "every promise was kept" } else { "a promise was broken" };
        write!(f, "verdict    {kept}")
    }
}

impl Report {
    fn write_promises(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [Broken::Lost, Broken::Doubled, Broken::Wrong];
        let others: u64 = self.found.broken.values().sum();
        let others = others - named.iter().map(|&kind| self.broken(kind)).sum::<u64>();
        let [lost, doubled, wrong] = named.map(|kind| self.broken(kind));
        writeln!(
            f,
            "promises   {lost} lost, {doubled} duplicated, {wrong} wrong, {others} others broken"
        )?;
        // The rule of three: with none seen in N, at most 3/N with a confidence of 95 %.
        let bound = |n: u64| 3.0 / n.max(1) as f64;
        let (deaths, jobs) = (self.deaths, self.found.tally.accepted);
        writeln!(
            f,
            "bound      3/N: {:.2e} a death (N = {deaths}), {:.2e} an accepted job (N = {jobs})",
            bound(deaths),
            bound(jobs)
        )
    }

    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Times { device, job, latency } = &self.times;
        let row = |times: &[u32]| {
            let ms = |share| f64::from(percentile(times, share)) / 1_000.0;
            let [p50, p99, max] = [ms(50.0), ms(99.0), ms(100.0)];
            format!("p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms (n = {})", times.len())
        };
        writeln!(f, "recovery   signal to the device's next right answer: {}", row(device))?;
        writeln!(f, "failover   signal to the right answer of a job that ran there: {}", row(job))?;
        let bound = LATENCY_P99_BOUND.as_micros();
        let within = u128::from(percentile(latency, 99.0)) <= bound;
        let says = if within { "within" } else { "over" };
        writeln!(
            f,
            "latency    honest clients, submission to right answer: {}; p99 {says} {LATENCY_P99_BOUND:?}",
            row(latency)
        )
    }

    fn write_gauges(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, zombies, .. } = self;
        writeln!(
            f,
            "supervisor {} -> {} descriptors, {} -> {} threads, {} -> {} KiB held; at most {zombies} \
             zombies at a look, {} in the end",
            first.descriptors,
            last.descriptors,
            first.threads,
            last.threads,
            first.held_kib,
            last.held_kib,
            last.zombies
        )
    }
}

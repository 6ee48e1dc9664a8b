//! Adds up what receipts say about where jobs ran, and refuses a receipt that does not show the device at
//! work.

use gridpool_protocol::bench::{Hops, Launches, Proof};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, DeviceInfo, Receipt, Verdict};
use gridpool_protocol::tensor::model::InferReport;

/// Receipts of jobs, added up.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    proof: Proof,
    /// Launches by kernel, in shares: a job that shared a launch counts its items' share of it.
    launches: Vec<(String, f64)>,
    /// Rows of each inference request.
    rows: u32,
}

#[cfg(feature = "infer")]
impl Evidence {
    /// Evidence of inference requests with this many rows each.
    pub(super) fn of_requests(rows: u32) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Adds the engine's report of a request that did not go through a pool.
    pub(super) fn add_run(&mut self, report: &InferReport, device: &DeviceInfo) {
        self.proof.jobs += 1;
        self.add_worker("direct", device);
        self.add_report(report);
        let share = f64::from(self.rows) / f64::from(report.joined_rows.max(1));
        self.launch(&report.model, f64::from(report.runs) * share.min(1.0));
        self.proof.h2d_bytes += report.h2d_bytes;
        self.proof.d2h_bytes += report.d2h_bytes;
    }
}

impl Evidence {
    fn add_report(&mut self, report: &InferReport) {
        if self.proof.nodes.is_empty() {
            self.proof.nodes.clone_from(&report.nodes);
        }
    }

    fn add_worker(&mut self, worker: &str, device: &DeviceInfo) {
        if !self.proof.workers.iter().any(|known| known == worker) {
            let DeviceInfo { kind, name, uuid, .. } = device;
            let space = if uuid.is_empty() { "" } else { " " };
            self.proof.workers.push(worker.to_owned());
            self.proof.devices.push(format!("{kind} {name}{space}{uuid}"));
        }
    }

    /// Adds a job's receipt. The error says why it proves nothing: the job did not end OK, ran on another kind of
    /// device, or counted no launch.
    pub(super) fn add(&mut self, receipt: &Receipt, kind: DeviceKind) -> Result<(), String> {
        if receipt.verdict != Verdict::Ok {
            return Err(format!("a job ended {}: {}", receipt.verdict, receipt.reason));
        }
        self.proof.jobs += 1;
        self.proof.item_errors += u64::from(receipt.item_errors);
        let mut ran = false;
        for attempt in receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok) {
            self.add_attempt(attempt, kind)?;
            ran = true;
        }
        if ran { Ok(()) } else { Err("a job ended OK and its receipt names no worker".to_owned()) }
    }

    fn add_attempt(&mut self, attempt: &Attempt, kind: DeviceKind) -> Result<(), String> {
        let (worker, device) = (&attempt.worker, &attempt.device);
        if device.kind != kind {
            let (got, name) = (device.kind, &device.name);
            return Err(format!("{worker} ran it on a {got} ({name}) in a pool of {kind} devices"));
        }
        if attempt.kernels.iter().all(|kernel| kernel.launches == 0) {
            return Err(format!("{worker} answered, and its launch counters did not move"));
        }
        self.add_worker(worker, device);
        // An inference request is one item, and shares runs by its rows.
        let items = match &attempt.infer {
            None => attempt.part.len(),
            Some(report) => {
                self.add_report(report);
                self.rows
            }
        };
        let share = f64::from(items) / f64::from(attempt.joined_items.max(1));
        for kernel in &*attempt.kernels {
            self.launch(&kernel.name, f64::from(kernel.launches) * share.min(1.0));
        }
        self.proof.h2d_bytes += attempt.h2d_bytes;
        self.proof.d2h_bytes += attempt.d2h_bytes;
        self.proof.allocations += u64::from(attempt.allocations);
        Ok(())
    }

    fn launch(&mut self, name: &str, share: f64) {
        match self.launches.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += share,
            None => self.launches.push((name.to_owned(), share)),
        }
    }

    /// Adds another sum to this one.
    pub(super) fn merge(&mut self, other: Self) {
        let (ours, theirs) = (&mut self.proof, other.proof);
        for (worker, device) in theirs.workers.into_iter().zip(theirs.devices) {
            if !ours.workers.contains(&worker) {
                ours.workers.push(worker);
                ours.devices.push(device);
            }
        }
        ours.jobs += theirs.jobs;
        ours.h2d_bytes += theirs.h2d_bytes;
        ours.d2h_bytes += theirs.d2h_bytes;
        ours.allocations += theirs.allocations;
        ours.item_errors += theirs.item_errors;
        if ours.nodes.is_empty() {
            ours.nodes = theirs.nodes;
        }
        for (name, share) in other.launches {
            self.launch(&name, share);
        }
    }

    /// The sum, with the launches that the supervisor dispatched meanwhile.
    pub(super) fn into_proof(mut self, runs: u64) -> Proof {
        self.proof.workers.sort_unstable();
        let launches = |(name, sum): (String, f64)| Launches { name, launches: whole(sum) };
        self.proof.kernels = self.launches.into_iter().map(launches).collect();
        Proof { runs, ..self.proof }
    }
}

/// The nearest whole number of launches. Shares add up to one, apart from rounding. A launch that was shared
/// with other clients counts as a share.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of positive shares, and `as` ends at the largest number"
)]
fn whole(sum: f64) -> u64 {
    if sum > 0.0 { sum.round().max(1.0) as u64 } else { 0 }
}

/// Splits the `took_us` that a client measured into hops. Shards of a split job ran at the same time, so the
/// longest counts.
pub(super) fn hops(receipt: &Receipt, took_us: f64) -> Hops {
    let us = super::count;
    let answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
    let longest = answered.max_by_key(|attempt| attempt.service_us);
    let service_us = longest.map_or(0.0, |attempt| us(attempt.service_us));
    let kernels = longest.map_or(&[][..], |attempt| &attempt.kernels);
    let device_us: f64 = kernels.iter().map(|kernel| kernel.device_us).sum();
    let (queue_us, total_us) = (us(receipt.queue_us), us(receipt.total_us));
    Hops {
        client_us: took_us - total_us,
        queue_us,
        channel_us: total_us - queue_us - service_us,
        // On a CPU device, the functions' times are sums over threads.
        worker_us: (service_us - device_us).max(0.0),
        device_us: device_us.min(service_us),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{DeviceInfo, ItemRange, KernelUse, RunReport};

    use super::*;

    fn receipt(kind: DeviceKind, launches: u32, items: u32, joined_items: u32) -> Receipt {
        let device = DeviceInfo { kind, name: "a device".to_owned(), ..DeviceInfo::default() };
        let report = RunReport {
            items: 1,
            joined_items,
            kernels: [KernelUse { name: "rot90".to_owned(), launches, device_us: 5.0 }].into(),
            h2d_bytes: 10,
            d2h_bytes: 20,
            service_us: 40,
            ..RunReport::default()
        };
        let part = ItemRange { start: 0, end: items };
        Receipt {
            host: String::new(),
            job: "1".to_owned(),
            key: "1".to_owned(),
            program_hash: "".into(),
            trace_id: String::new(),
            items,
            item_errors: 0,
            verdict: Verdict::Ok,
            reason: String::new(),
            queue_us: 3,
            total_us: 60,
            attempts: vec![Attempt::answered("gpu0#1", device, part, report)],
        }
    }

    #[test]
    fn a_shared_launch_counts_once() {
        let mut evidence = Evidence::default();
        for _ in 0..3 {
            evidence.add(&receipt(DeviceKind::Gpu, 2, 5, 15), DeviceKind::Gpu).unwrap();
        }
        let mut other = Evidence::default();
        other.add(&receipt(DeviceKind::Gpu, 2, 7, 7), DeviceKind::Gpu).unwrap();
        evidence.merge(other);
        let proof = evidence.into_proof(2);
        assert_eq!(proof.kernels, [Launches { name: "rot90".to_owned(), launches: 4 }]);
        assert_eq!((proof.jobs, proof.runs, proof.h2d_bytes, proof.d2h_bytes), (4, 2, 40, 80));
        assert_eq!(proof.workers, ["gpu0#1"]);
    }

    #[test]
    fn an_idle_device_or_another_device_proves_nothing() {
        let refused = |receipt: &Receipt| {
            Evidence::default().add(receipt, DeviceKind::Gpu).expect_err("it proves nothing")
        };
        let still = refused(&receipt(DeviceKind::Gpu, 0, 1, 1));
        assert!(still.contains("launch counters did not move"), "{still}");
        let other = refused(&receipt(DeviceKind::Cpu, 1, 1, 1));
        assert!(other.contains("on a cpu (a device) in a pool of gpu devices"), "{other}");
        let mut failed = receipt(DeviceKind::Gpu, 1, 1, 1);
        failed.verdict = Verdict::Failed;
        assert!(refused(&failed).contains("FAILED"));
        let mut nameless = receipt(DeviceKind::Gpu, 1, 1, 1);
        nameless.attempts.clear();
        assert!(refused(&nameless).contains("names no worker"));
    }

    #[test]
    fn hops_add_up_to_what_the_client_saw() {
        let hops = hops(&receipt(DeviceKind::Gpu, 1, 1, 1), 75.0);
        let want = Hops {
            client_us: 15.0,
            queue_us: 3.0,
            channel_us: 17.0,
            worker_us: 35.0,
            device_us: 5.0,
        };
        assert_eq!(hops, want);
    }
}

//! The verdict of a job, and the proof of where and how it ran. These types are also the JSON of the command
//! line, so field names are part of the interface. The wire format is not self-describing, so never skip or
//! flatten a field.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ContentHash, DeviceId, DeviceKind};
use crate::limits::{JOIN_MAX, REPORT_BYTES_MAX, REPORT_US_MAX};
use crate::named::named;
use crate::search::SearchReport;
use crate::tensor::model::InferReport;

named! {
    /// How a job ended. Every accepted job gets exactly one.
    #[derive(Default)]
    pub enum Verdict {
        /// Its client cancelled it.
        Cancelled = "CANCELLED",
        /// Its deadline passed.
        Deadline = "DEADLINE",
        /// No device was left to run it.
        DeviceLost = "DEVICE_LOST",
        /// It failed; the receipt has the reason.
        #[default]
        Failed = "FAILED",
        /// Every item has a result or an error of its own.
        Ok = "OK",
        /// It killed its worker twice while it ran there alone.
        Poison = "POISON",
    }
}

/// What follows the reason in a pool's verdict POISON, before the content's hash.
const REFUSED_UNTIL: &str = "; the same program and batch is refused until `gridpool release ";

/// The reason of a pool's verdict POISON: why, and the order that takes it back.
#[must_use]
pub fn poison_reason(why: &str, content: ContentHash) -> String {
    format!("{why}{REFUSED_UNTIL}{content}`")
}

/// The parts of such a reason; `None` if it names no content.
#[must_use]
pub fn parse_poison_reason(reason: &str) -> Option<(&str, ContentHash)> {
    let (why, content) = reason.split_once(REFUSED_UNTIL)?;
    Some((why, content.strip_suffix('`')?.parse().ok()?))
}

/// The device of a worker, as the worker found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Position among the devices of its kind on this host.
    pub index: u32,
    /// The product's name.
    pub name: String,
    /// `GPU-…` as the driver gives it; empty on a CPU device.
    pub uuid: String,
    /// Version of the NVIDIA driver; empty on a CPU device.
    pub driver: String,
}

impl DeviceInfo {
    /// The device's name in the pool.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId { kind: self.kind, index: self.index }
    }
}

/// The use of one kernel in an attempt: on a CPU device of a reference function, in a model's request of the
/// model. [`RunReport::infer`] has more about a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelUse {
    /// The kernel, the function or the model.
    pub name: String,
    /// The number of launches, calls or runs.
    pub launches: u32,
    /// Microseconds. For a kernel, device time from CUDA events. For a reference function, its time. For a
    /// model, the time of its runs by the worker's clock ([`InferReport::device_us`]); device time is not
    /// measured.
    pub device_us: f64,
}

/// Neighbouring items of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRange {
    /// The first.
    pub start: u32,
    /// One past the last.
    pub end: u32,
}

impl ItemRange {
    /// The number of items.
    #[must_use]
    pub fn len(self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What one attempt did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// SHA-256 of the kernels that ran (the PTX; on a CPU device the reference's source).
    pub module_hash: Arc<str>,
    /// The attempt's own items; for a model, rows.
    pub items: u32,
    /// All items of the launch, those of other jobs included.
    pub joined_items: u32,
    /// Items with an error in place of a result.
    pub item_errors: u32,
    /// Kernels, in the order of their first launch.
    pub kernels: Arc<[KernelUse]>,
    /// Bytes copied to the device, or read by kernels over the bus.
    pub h2d_bytes: u64,
    /// Bytes copied back, or written by kernels over the bus.
    pub d2h_bytes: u64,
    /// From the message's arrival in the worker to its answer, microseconds.
    pub service_us: u64,
    /// Buffers made or enlarged, and arenas registered, for it. In the steady state this is 0.
    pub allocations: u32,
    /// How a model's request ran; `None` for a program.
    pub infer: Option<Box<InferReport>>,
    /// What a search did; `None` for other work.
    pub search: Option<Box<SearchReport>>,
}

/// An impossible number in a report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReportError {
    /// A number of attempts.
    #[error("it answers {attempts} attempts together; the limit is {JOIN_MAX}")]
    Attempts {
        /// The attempts.
        attempts: usize,
    },
    /// A number of bytes.
    #[error("its report says {bytes} bytes copied one way; the limit is {REPORT_BYTES_MAX}")]
    Bytes {
        /// The bytes.
        bytes: u64,
    },
    /// A place of a result.
    #[error("its report says that a result of {bytes} bytes has bytes {start} to {end}")]
    Place {
        /// The first byte.
        start: u32,
        /// One past the last.
        end: u32,
        /// The bytes there are.
        bytes: usize,
    },
    /// A time.
    #[error("its report says {us} us in {what}; the limits are 0 and {REPORT_US_MAX:e}")]
    Time {
        /// The kernel, function or model, or the attempt.
        what: String,
        /// The time, microseconds.
        us: f64,
    },
}

impl RunReport {
    /// Checks that its numbers are possible. The pool adds them up, and one NaN would spoil a sum for good.
    ///
    /// # Errors
    /// The first [`ReportError`] in it.
    pub fn check(&self) -> Result<(), ReportError> {
        #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
        let service = ("the attempt", self.service_us as f64);
        let kernels = self.kernels.iter().map(|kernel| (&*kernel.name, kernel.device_us));
        let runs = self.infer.iter().map(|infer| (&*infer.model, infer.device_us));
        let steps = || self.infer.iter().flat_map(|infer| &infer.steps);
        let times = steps().map(|step| (&*step.name, step.device_us));
        for (what, us) in kernels.chain(runs).chain(times).chain([service]) {
            if !(0.0..=REPORT_US_MAX).contains(&us) {
                return Err(ReportError::Time { what: what.to_owned(), us });
            }
        }
        let handed = steps().map(|step| step.device_bytes.max(step.host_bytes)).max();
        check_bytes(self.h2d_bytes.max(self.d2h_bytes).max(handed.unwrap_or(0)))
    }
}

/// The part of [`RunReport::check`] about bytes.
pub(crate) fn check_bytes(most: u64) -> Result<(), ReportError> {
    match most > REPORT_BYTES_MAX {
        true => Err(ReportError::Bytes { bytes: most }),
        false => Ok(()),
    }
}

named! {
    /// How one attempt ended.
    pub enum AttemptOutcome {
        /// The pool stopped its worker because the client cancelled the job.
        Cancelled = "cancelled",
        /// The pool stopped its worker because the deadline passed.
        Deadline = "deadline",
        /// The device reported an error that concerns this job only.
        DeviceError = "device_error",
        /// Its worker stopped answering.
        Hang = "hang",
        /// It answered.
        Ok = "ok",
        /// Its worker was stopped, or died, because of another attempt.
        Preempted = "preempted",
        /// The worker refused the batch.
        Refused = "refused",
        /// Its worker ended without an answer.
        WorkerDied = "worker_died",
    }
}

/// One attempt of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The worker, as `gpu0#4`.
    pub worker: Arc<str>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Details, for instance `signal 11 (SIGSEGV)`; empty after success.
    pub detail: String,
    /// The capsule of its worker's death, if the pool keeps one; see `gridpool replay`. Old capsules go.
    pub capsule: String,
    /// The device.
    pub device: Arc<DeviceInfo>,
    /// Its items: all of the job, or a shard.
    pub part: ItemRange,
    /// From the job's acceptance to the dispatch of this attempt, microseconds.
    pub begun_us: u64,
    /// From the job's acceptance to the end of this attempt as the pool saw it, microseconds.
    pub ended_us: u64,
    /// See [`RunReport::module_hash`]. This and all fields below are empty if the worker never answered.
    pub module_hash: Arc<str>,
    /// See [`RunReport::joined_items`].
    pub joined_items: u32,
    /// See [`RunReport::kernels`].
    pub kernels: Arc<[KernelUse]>,
    /// See [`RunReport::h2d_bytes`].
    pub h2d_bytes: u64,
    /// See [`RunReport::d2h_bytes`].
    pub d2h_bytes: u64,
    /// See [`RunReport::service_us`].
    pub service_us: u64,
    /// See [`RunReport::allocations`].
    pub allocations: u32,
    /// See [`RunReport::infer`].
    pub infer: Option<InferReport>,
    /// See [`RunReport::search`].
    pub search: Option<SearchReport>,
}

impl Attempt {
    /// An attempt that ended without a report.
    #[must_use]
    pub fn unreported(
        worker: impl Into<Arc<str>>,
        device: impl Into<Arc<DeviceInfo>>,
        part: ItemRange,
        outcome: AttemptOutcome,
        detail: String,
    ) -> Self {
        Self { outcome, detail, ..Self::answered(worker, device, part, RunReport::default()) }
    }

    /// An attempt that answered.
    #[must_use]
    pub fn answered(
        worker: impl Into<Arc<str>>,
        device: impl Into<Arc<DeviceInfo>>,
        part: ItemRange,
        report: RunReport,
    ) -> Self {
        Self {
            worker: worker.into(),
            outcome: AttemptOutcome::Ok,
            detail: String::new(),
            capsule: String::new(),
            device: device.into(),
            part,
            begun_us: 0,
            ended_us: 0,
            module_hash: report.module_hash,
            joined_items: report.joined_items,
            kernels: report.kernels,
            h2d_bytes: report.h2d_bytes,
            d2h_bytes: report.d2h_bytes,
            service_us: report.service_us,
            allocations: report.allocations,
            infer: report.infer.map(|infer| *infer),
            search: report.search.map(|search| *search),
        }
    }
}

/// The proof of where and how a job ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The supervisor's number; of a job of a bundle the bundle's and its place there, `job7.3`.
    pub job: String,
    /// The client's key.
    pub key: String,
    /// Hash of the program, tie mode included.
    pub program_hash: Arc<str>,
    /// The trace that it is a part of, 32 hexadecimal digits; empty if there is none.
    pub trace_id: String,
    /// The host whose pool ran it, if it came through a cluster; else empty.
    pub host: String,
    /// Items submitted.
    pub items: u32,
    /// Items with an error in place of a result.
    pub item_errors: u32,
    /// How the job ended.
    pub verdict: Verdict,
    /// The reason of a verdict other than OK; else empty.
    pub reason: String,
    /// From acceptance to the first dispatch, microseconds.
    pub queue_us: u64,
    /// From acceptance to the verdict, microseconds.
    pub total_us: u64,
    /// Every attempt, the last one last.
    pub attempts: Vec<Attempt>,
}

impl Receipt {
    /// The items that were answered, by shards, in no order.
    #[must_use]
    pub fn items_done(&self) -> Vec<ItemRange> {
        let done = self.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Ok);
        done.map(|attempt| attempt.part).collect()
    }

    /// Whether an attempt was at a part of the job: not all of its items.
    #[must_use]
    pub fn is_part(&self, attempt: &Attempt) -> bool {
        !attempt.part.is_empty() && attempt.part.len() < self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RunReport {
        let kernel = KernelUse { name: "rot90".to_owned(), launches: 1, device_us: 1.5 };
        RunReport {
            module_hash: "".into(),
            items: 3,
            joined_items: 3,
            item_errors: 0,
            kernels: [kernel].into(),
            h2d_bytes: REPORT_BYTES_MAX,
            d2h_bytes: 0,
            service_us: 5,
            allocations: 0,
            infer: None,
            search: None,
        }
    }

    #[test]
    fn a_report_with_possible_numbers_is_accepted() {
        assert_eq!(report().check(), Ok(()));
        let mut none = report();
        Arc::make_mut(&mut none.kernels)[0].device_us = 0.0;
        assert_eq!(none.check(), Ok(()));
        Arc::make_mut(&mut none.kernels)[0].device_us = REPORT_US_MAX;
        assert_eq!(none.check(), Ok(()));
    }

    #[test]
    fn an_impossible_time_is_refused() {
        let infer = |device_us| InferReport {
            model: "m".to_owned(),
            runs: 1,
            joined_rows: 1,
            device_us,
            ..InferReport::default()
        };
        assert_eq!(RunReport { infer: Some(Box::new(infer(2.0))), ..report() }.check(), Ok(()));
        for us in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 3.7e13] {
            let mut kernel = report();
            Arc::make_mut(&mut kernel.kernels)[0].device_us = us;
            let why = kernel.check().unwrap_err().to_string();
            assert_eq!(
                why,
                format!("its report says {us} us in rot90; the limits are 0 and 3.6e13")
            );
            let model = RunReport { infer: Some(Box::new(infer(us))), ..report() };
            assert!(matches!(model.check(), Err(ReportError::Time { what, .. }) if what == "m"));
        }
        let endless = RunReport { service_us: u64::MAX, ..report() };
        assert!(matches!(endless.check(), Err(ReportError::Time { .. })));
    }

    #[test]
    fn an_impossible_number_of_bytes_is_refused() {
        let bytes = REPORT_BYTES_MAX + 1;
        for wrong in
            [RunReport { h2d_bytes: bytes, ..report() }, RunReport { d2h_bytes: bytes, ..report() }]
        {
            assert_eq!(wrong.check(), Err(ReportError::Bytes { bytes }));
        }
    }
}

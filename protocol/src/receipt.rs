//! What a job ended as, and the proof of where and how it ran. Serialises to the JSON of the
//! command line; field names are part of the interface. The same types travel on the wire, whose format
//! is not self-describing: no field is ever skipped or flattened.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DeviceId, DeviceKind};
use crate::limits::{REPORT_BYTES_MAX, REPORT_US_MAX};
use crate::tensor::model::InferReport;

/// How a job ended. Every accepted job gets exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Its client asked for that.
    Cancelled,
    /// Its deadline passed.
    Deadline,
    /// No device was left to run it.
    DeviceLost,
    /// It could not be run; the receipt says why.
    Failed,
    /// Every item has a result or an error of its own.
    Ok,
    /// It killed its worker twice while it was alone there.
    Poison,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "CANCELLED",
            Self::Deadline => "DEADLINE",
            Self::DeviceLost => "DEVICE_LOST",
            Self::Failed => "FAILED",
            Self::Ok => "OK",
            Self::Poison => "POISON",
        })
    }
}

/// The device behind a worker, as the worker itself found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// One kernel's part in an attempt; on a CPU device, one reference function's; of a request of a model,
/// that model's ([`RunReport::infer`] is there then, and this row says the same in short).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelUse {
    /// The kernel, the function or the model.
    pub name: String,
    /// How often it was launched, called or run.
    pub launches: u32,
    /// Of a kernel its time on the device from CUDA events, microseconds; of a reference function its own
    /// time. Of a model the time of ONNX Runtime's runs by the worker's clock
    /// ([`InferReport::device_us`]): nobody has measured how much of that the device was busy.
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
    /// How many there are.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// SHA-256 of the kernels that ran (the PTX; on a CPU device the reference's source).
    pub module_hash: String,
    /// Its own items in the launch; of a request of a model, rows.
    pub items: u32,
    /// Items in the launch, those of other jobs included.
    pub joined_items: u32,
    /// Items that have an error in place of a result.
    pub item_errors: u32,
    /// Kernels in order of first launch.
    pub kernels: Vec<KernelUse>,
    /// Bytes copied to the device, or read by kernels over the bus.
    pub h2d_bytes: u64,
    /// Bytes copied back, or written by kernels over the bus.
    pub d2h_bytes: u64,
    /// From the message's arrival in the worker to its answer, microseconds.
    pub service_us: u64,
    /// Buffers made or enlarged and arenas registered for it; 0 once a worker has seen the like.
    pub allocations: u32,
    /// If it was a request of a model: how that ran.
    pub infer: Option<InferReport>,
}

/// What a report says that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReportError {
    /// A number of bytes.
    #[error("its report tells of {bytes} bytes copied one way; at most {REPORT_BYTES_MAX} can be")]
    Bytes {
        /// How many.
        bytes: u64,
    },
    /// A time.
    #[error("its report tells of {us} us in {what}; 0 to {REPORT_US_MAX:e} can be")]
    Time {
        /// Of what: a kernel, a function, a model, or the attempt.
        what: String,
        /// How long.
        us: f64,
    },
}

impl RunReport {
    /// Whether its numbers can be: they are added up, and one that is none would spoil a sum for good.
    ///
    /// # Errors
    /// The first [`ReportError`] in it.
    pub fn check(&self) -> Result<(), ReportError> {
        #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
        let service = ("the attempt", self.service_us as f64);
        let kernels = self.kernels.iter().map(|kernel| (&*kernel.name, kernel.device_us));
        let runs = self.infer.iter().map(|infer| (&*infer.model, infer.device_us));
        for (what, us) in kernels.chain(runs).chain([service]) {
            if !(0.0..=REPORT_US_MAX).contains(&us) {
                return Err(ReportError::Time { what: what.to_owned(), us });
            }
        }
        let most = self.h2d_bytes.max(self.d2h_bytes);
        if most > REPORT_BYTES_MAX {
            return Err(ReportError::Bytes { bytes: most });
        }
        Ok(())
    }
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Its worker was stopped because the client cancelled the job.
    Cancelled,
    /// Its worker was stopped because the deadline passed.
    Deadline,
    /// The device reported an error that does not concern other jobs.
    DeviceError,
    /// Its worker stopped answering.
    Hang,
    /// It answered.
    Ok,
    /// Its worker was stopped, or died, because of another attempt.
    Preempted,
    /// The worker refused the batch.
    Refused,
    /// Its worker ended without an answer.
    WorkerDied,
}

impl AttemptOutcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Cancelled,
        Self::Deadline,
        Self::DeviceError,
        Self::Hang,
        Self::Ok,
        Self::Preempted,
        Self::Refused,
        Self::WorkerDied,
    ];

    /// As JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::DeviceError => "device_error",
            Self::Hang => "hang",
            Self::Ok => "ok",
            Self::Preempted => "preempted",
            Self::Refused => "refused",
            Self::WorkerDied => "worker_died",
        }
    }
}

/// One attempt of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The worker, as `gpu0#4`.
    pub worker: String,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// More about it, for instance `killed by signal 9 (SIGKILL)`; empty if it went well.
    pub detail: String,
    /// The device.
    pub device: DeviceInfo,
    /// The items that it was about: all, or a part of a batch that was split.
    pub part: ItemRange,
    /// See [`RunReport::module_hash`]; empty if the worker never answered, as all that follows.
    pub module_hash: String,
    /// See [`RunReport::joined_items`].
    pub joined_items: u32,
    /// See [`RunReport::kernels`].
    pub kernels: Vec<KernelUse>,
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
}

impl Attempt {
    /// An attempt that ended without a report.
    #[must_use]
    pub fn unreported(
        worker: String,
        device: DeviceInfo,
        part: ItemRange,
        outcome: AttemptOutcome,
        detail: String,
    ) -> Self {
        Self {
            worker,
            outcome,
            detail,
            device,
            part,
            module_hash: String::new(),
            joined_items: 0,
            kernels: Vec::new(),
            h2d_bytes: 0,
            d2h_bytes: 0,
            service_us: 0,
            allocations: 0,
            infer: None,
        }
    }

    /// An attempt that answered.
    #[must_use]
    pub fn answered(
        worker: String,
        device: DeviceInfo,
        part: ItemRange,
        report: RunReport,
    ) -> Self {
        Self {
            module_hash: report.module_hash,
            joined_items: report.joined_items,
            kernels: report.kernels,
            h2d_bytes: report.h2d_bytes,
            d2h_bytes: report.d2h_bytes,
            service_us: report.service_us,
            allocations: report.allocations,
            infer: report.infer,
            ..Self::unreported(worker, device, part, AttemptOutcome::Ok, String::new())
        }
    }
}

/// The proof of where and how a job ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The supervisor's number.
    pub job: String,
    /// The client's key.
    pub key: String,
    /// Hash of the program, tie mode included.
    pub program_hash: String,
    /// Items submitted.
    pub items: u32,
    /// Items with an error in place of a result.
    pub item_errors: u32,
    /// How the job ended.
    pub verdict: Verdict,
    /// Why, where the verdict is not OK; else empty.
    pub reason: String,
    /// From acceptance to the first dispatch, microseconds.
    pub queue_us: u64,
    /// From acceptance to the verdict, microseconds.
    pub total_us: u64,
    /// Every attempt, the last one last.
    pub attempts: Vec<Attempt>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RunReport {
        let kernel = KernelUse { name: "rot90".to_owned(), launches: 1, device_us: 1.5 };
        RunReport {
            module_hash: String::new(),
            items: 3,
            joined_items: 3,
            item_errors: 0,
            kernels: vec![kernel],
            h2d_bytes: REPORT_BYTES_MAX,
            d2h_bytes: 0,
            service_us: 5,
            allocations: 0,
            infer: None,
        }
    }

    #[test]
    fn a_report_whose_numbers_can_be_is_taken() {
        assert_eq!(report().check(), Ok(()));
        let mut none = report();
        none.kernels[0].device_us = 0.0;
        assert_eq!(none.check(), Ok(()));
        none.kernels[0].device_us = REPORT_US_MAX;
        assert_eq!(none.check(), Ok(()));
    }

    #[test]
    fn a_time_that_is_no_number_or_cannot_be_is_refused() {
        let infer = |device_us| InferReport {
            model: "m".to_owned(),
            sha256: String::new(),
            onnxruntime: String::new(),
            nodes: Vec::new(),
            runs: 1,
            joined_rows: 1,
            device_us,
            h2d_bytes: 0,
            d2h_bytes: 0,
        };
        assert_eq!(RunReport { infer: Some(infer(2.0)), ..report() }.check(), Ok(()));
        for us in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 3.7e13] {
            let mut kernel = report();
            kernel.kernels[0].device_us = us;
            let why = kernel.check().unwrap_err().to_string();
            assert_eq!(why, format!("its report tells of {us} us in rot90; 0 to 3.6e13 can be"));
            let model = RunReport { infer: Some(infer(us)), ..report() };
            assert!(matches!(model.check(), Err(ReportError::Time { what, .. }) if what == "m"));
        }
        let endless = RunReport { service_us: u64::MAX, ..report() };
        assert!(matches!(endless.check(), Err(ReportError::Time { .. })));
    }

    #[test]
    fn bytes_that_cannot_be_are_refused() {
        let bytes = REPORT_BYTES_MAX + 1;
        for wrong in
            [RunReport { h2d_bytes: bytes, ..report() }, RunReport { d2h_bytes: bytes, ..report() }]
        {
            assert_eq!(wrong.check(), Err(ReportError::Bytes { bytes }));
        }
    }
}

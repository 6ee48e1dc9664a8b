//! The known-answer test of a serving worker: when it is due. No job waits for more than one step of it.
//!
//! A device may begin to compute wrong results without an error code or a signal. So its worker tests it
//! regularly, in the gaps between jobs. If there are no gaps, it tests between two batches once the test is
//! long overdue.

use std::time::{Duration, Instant};

use gridpool_device::device::Device;
use gridpool_device::fault::Fault;
use gridpool_device::self_test::SelfTest;

/// A worker that is never idle tests its device after this many test intervals.
pub(crate) const LATEST: u32 = 10;

/// When the device was tested, and how far the next test is.
#[derive(Debug)]
pub(crate) struct Checkup {
    every: Duration,
    test: SelfTest,
    /// The end of the last whole test.
    passed: Instant,
}

impl Checkup {
    /// A device that has just passed the test; the next test is due after `every`.
    #[must_use]
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self { every, test: SelfTest::new(), passed: now }
    }

    /// When the next step is due if the worker is idle.
    #[must_use]
    pub(crate) fn due(&self) -> Instant {
        // A test that has begun continues at once.
        if self.test.has_begun() { self.passed } else { self.passed + self.every }
    }

    /// Whether the next step must run before the next job.
    #[must_use]
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.passed) >= self.every.saturating_mul(LATEST)
    }

    /// Runs one step; `now` is when it began.
    ///
    /// # Errors
    /// A fault that ends the worker: a wrong answer, or a fault of the device. After a lesser fault the test
    /// starts again when it is due again.
    pub(crate) fn step(&mut self, device: &mut dyn Device, now: Instant) -> Result<(), Fault> {
        match self.test.step(device) {
            Ok(false) => return Ok(()),
            Ok(true) => tracing::debug!("the device has passed its known-answer test again"),
            Err(fault) if fault.ends_worker() => return Err(fault),
            Err(fault) => tracing::warn!(%fault, "the known-answer test could not run"),
        }
        self.passed = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gridpool_device::chaos::FaultInjector;
    use gridpool_device::cpu::CpuDevice;
    use gridpool_ipc::clock;
    use gridpool_kernels::known_answer::KNOWN_ANSWERS;
    use gridpool_protocol::chaos::{ChaosFault, ReplyFault};

    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn device() -> FaultInjector {
        FaultInjector::new(Box::new(CpuDevice::open(0, 1).unwrap()))
    }

    #[test]
    fn a_test_is_due_after_its_time_and_late_after_ten_times_that() {
        let start = clock::now();
        let mut checkup = Checkup::new(EVERY, start);
        assert_eq!(checkup.due(), start + EVERY);
        let latest = start + EVERY * LATEST;
        assert!(!checkup.is_late(latest.checked_sub(Duration::from_nanos(1)).unwrap()));
        assert!(checkup.is_late(latest));
        let mut device = device();
        let mut steps = 0;
        loop {
            checkup.step(&mut device, latest).unwrap();
            steps += 1;
            if !checkup.test.has_begun() {
                break;
            }
            assert!(checkup.due() <= start, "what has begun goes on at once");
            assert!(checkup.is_late(latest), "it is late to its end");
        }
        assert_eq!(steps, KNOWN_ANSWERS.len(), "one known answer a step");
        assert_eq!(checkup.due(), latest + EVERY);
        assert!(!checkup.is_late(latest));
    }

    #[test]
    fn a_device_that_becomes_wrong_is_detected() {
        let start = clock::now();
        let mut checkup = Checkup::new(EVERY, start);
        let mut device = device();
        checkup.step(&mut device, start).unwrap();
        device.arm(Some(ChaosFault::Reply(ReplyFault::Wrong)));
        let fault = (1..KNOWN_ANSWERS.len()).find_map(|_| checkup.step(&mut device, start).err());
        let fault = fault.expect("some step finds it");
        assert!(matches!(fault, Fault::WrongAnswer { .. }), "{fault}");
        assert_eq!(fault.exit_code(), gridpool_protocol::exit::worker::DEVICE_LOST);
    }
}

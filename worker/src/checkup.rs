//! The known-answer test of a worker that serves: when it is due, and that no job waits for more than
//! one step of it.
//!
//! A device may begin to compute something else than it did at the start, and nothing says so: no code,
//! no signal. So its worker tests it again every so often, in the gaps between jobs; where there are
//! none, between two batches, once the test has been due for long.

use std::time::{Duration, Instant};

use crate::device::Device;
use crate::fault::Fault;
use crate::self_test::SelfTest;

/// A worker that is never idle tests its device all the same, after so many times the time in which an
/// idle one does.
pub const LATEST: u32 = 10;

/// When the device was tested, and how far the next test is.
#[derive(Debug)]
pub struct Checkup {
    every: Duration,
    test: SelfTest,
    /// The end of the last whole test.
    passed: Instant,
}

impl Checkup {
    /// A device that has just passed the test is tested again after `every`.
    #[must_use]
    pub fn new(every: Duration, now: Instant) -> Self {
        Self { every, test: SelfTest::new(), passed: now }
    }

    /// When the next step should be made if there is nothing else to do.
    #[must_use]
    pub fn due(&self) -> Instant {
        // What has begun goes on at once.
        if self.test.has_begun() { self.passed } else { self.passed + self.every }
    }

    /// Whether the next step should be made before the next job.
    #[must_use]
    pub fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.passed) >= self.every.saturating_mul(LATEST)
    }

    /// Makes one step; `now` is when it began.
    ///
    /// # Errors
    /// A fault that ends the worker: a wrong answer, or one of the device itself. After a lesser one
    /// the test begins anew when it is due again.
    pub fn step(&mut self, device: &mut dyn Device, now: Instant) -> Result<(), Fault> {
        match self.test.step(device) {
            Ok(false) => return Ok(()),
            Ok(true) => tracing::debug!("the device has passed its known-answer test again"),
            Err(fault) if fault.ends_worker() => return Err(fault),
            Err(fault) => tracing::warn!(%fault, "the known-answer test could not be done"),
        }
        self.passed = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::known_answer::KNOWN_ANSWERS;
    use gridpool_protocol::chaos::{ChaosFault, ReplyFault};
    use gridpool_protocol::clock;

    use super::*;
    use crate::chaos::Saboteur;
    use crate::cpu::CpuDevice;

    const EVERY: Duration = Duration::from_secs(60);

    fn device() -> Saboteur {
        Saboteur::new(Box::new(CpuDevice::open(0, 1).unwrap()))
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
    fn a_device_that_has_begun_to_lie_is_found_out() {
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

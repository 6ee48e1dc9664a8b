//! The test that a device passes before its worker says that it is ready, and again while it serves:
//! known answers for grids and for pairs, and a launch counted for the op of every step of every
//! program. A device that is initialised and never called fails here, not in production.

use std::sync::Arc;

use gridpool_kernels::known_answer::{self, KNOWN_ANSWERS};
use gridpool_kernels::module::kernels_of;
use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;
use gridpool_protocol::shared::SharedSlice;

use crate::device::{Device, DispatchReport, GridAttempt, GridDispatch};
use crate::fault::Fault;

/// Runs every known answer on `device`.
///
/// # Errors
/// [`Fault::WrongAnswer`] at the first program with a wrong result or an op that was not launched;
/// any fault of the device itself.
pub fn self_test(device: &mut dyn Device) -> Result<(), Fault> {
    let mut test = SelfTest::new();
    while !test.step(device)? {}
    Ok(())
}

/// The test in steps, so that a job waits for at most one step.
#[derive(Debug)]
pub struct SelfTest {
    grids: GridBatch,
    pairs: GridBatch,
    next: usize,
}

impl SelfTest {
    /// A test before its first step.
    #[must_use]
    pub fn new() -> Self {
        Self { grids: known_answer::batch(), pairs: known_answer::pair_batch(), next: 0 }
    }

    /// Whether the test has begun and is not finished.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.next > 0
    }

    /// Runs the next known answer and returns `true` after the last. After the last, and after a fault, the test
    /// starts again.
    ///
    /// # Errors
    /// As for [`self_test`].
    pub fn step(&mut self, device: &mut dyn Device) -> Result<bool, Fault> {
        let known = &KNOWN_ANSWERS[std::mem::take(&mut self.next)..];
        let (known, rest) = known.split_first().expect("the last step has set it back");
        let program = known.program();
        let batch = if known.takes_pairs() { &self.pairs } else { &self.grids };
        let (outputs, work) = run_batch(device, &program, batch)?;
        let wrong =
            |error: known_answer::WrongAnswer| Fault::WrongAnswer { detail: error.to_string() };
        known.check(&outputs).map_err(wrong)?;
        for name in expected_launches(device.info().kind, &program) {
            let launched =
                work.kernels.iter().any(|kernel| kernel.name == name && kernel.launches > 0);
            if !launched {
                let detail = format!("`{}`: no launch of {name} was counted", known.text);
                return Err(Fault::WrongAnswer { detail });
            }
        }
        if !rest.is_empty() {
            self.next = KNOWN_ANSWERS.len() - rest.len();
        }
        Ok(rest.is_empty())
    }
}

impl Default for SelfTest {
    fn default() -> Self {
        Self::new()
    }
}

/// The launches that a run of `program` must have counted.
fn expected_launches(kind: DeviceKind, program: &Program) -> Vec<&'static str> {
    match kind {
        DeviceKind::Cpu => program.steps().iter().map(|step| step.op.name()).collect(),
        DeviceKind::Gpu => kernels_of(program, 0, 1).map(|kernel| kernel.name).collect(),
    }
}

/// Runs `program` over a batch in private memory.
///
/// # Errors
/// Any fault of the device.
///
/// # Panics
/// If `batch` is empty or not what the program takes, or if its result might be too large for a job.
pub fn run_batch(
    device: &mut dyn Device,
    program: &Program,
    batch: &GridBatch,
) -> Result<(Outputs, DispatchReport), Fault> {
    let layout = batch.layout().expect("the caller's batch has grids");
    let output_layout =
        OutputLayout::new(program, layout).expect("the caller's batch suits its program");
    let mut input = vec![0; layout.bytes()];
    let mut output = vec![0; output_layout.bytes()];
    let input = SharedSlice::private(&mut input);
    let place = SharedSlice::private(&mut output);
    batch.write_to(layout, &input);
    let attempt = GridAttempt::new(program, layout, 0..layout.items(), input, place);
    let attempt = attempt.expect("the places have the layouts' lengths");
    let work = device.run(&GridDispatch { program, attempts: &[attempt] })?;
    let outputs = Outputs::new(program.clone(), Arc::new(batch.clone()), output);
    Ok((outputs.expect("the output is as long as its layout says"), work))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::chaos::DeviceFault;
    use gridpool_protocol::receipt::DeviceInfo;

    use super::*;
    use crate::cpu::CpuDevice;
    use crate::gauges::Gauges;
    use crate::search::SearchAttempt;

    /// Gives right results and reports no launches.
    struct Silent(CpuDevice);

    impl Device for Silent {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }

        fn module_hash(&self) -> &str {
            self.0.module_hash()
        }

        fn gauges(&self) -> Arc<Gauges> {
            self.0.gauges()
        }

        fn run(&mut self, dispatch: &GridDispatch<'_>) -> Result<DispatchReport, Fault> {
            Ok(DispatchReport { kernels: Vec::new(), ..self.0.run(dispatch)? })
        }

        fn search(&mut self, attempts: &[SearchAttempt<'_>]) -> Result<DispatchReport, Fault> {
            Ok(DispatchReport { kernels: Vec::new(), ..self.0.search(attempts)? })
        }

        fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
            self.0.adopt(arena)
        }

        fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
            self.0.release(arena)
        }

        fn inject(&mut self, fault: DeviceFault) -> Result<(), Fault> {
            self.0.inject(fault)
        }
    }

    #[test]
    fn right_results_without_a_launch_do_not_pass() {
        let error = self_test(&mut Silent(CpuDevice::open(0, 1).unwrap())).unwrap_err();
        assert!(error.to_string().contains("no launch of identity"), "{error}");
    }
}

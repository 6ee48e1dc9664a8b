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

use crate::device::{Device, Task, TaskMember, Work};
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

/// The test in steps, so that whoever waits for the device waits for one of them at most.
#[derive(Debug)]
pub struct SelfTest {
    grids: GridBatch,
    pairs: GridBatch,
    next: usize,
}

impl SelfTest {
    /// A test that begins with its next step.
    #[must_use]
    pub fn new() -> Self {
        Self { grids: known_answer::batch(), pairs: known_answer::pair_batch(), next: 0 }
    }

    /// Whether some of its steps were made and some are left.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.next > 0
    }

    /// Runs the next known answer; `true` after the last. Then, and after a fault, the test begins
    /// anew.
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

/// What a device must have launched to have run `program`.
fn expected_launches(kind: DeviceKind, program: &Program) -> Vec<&'static str> {
    match kind {
        DeviceKind::Cpu => program.steps().iter().map(|step| step.op.name()).collect(),
        DeviceKind::Gpu => kernels_of(program, 0).map(|kernel| kernel.name).collect(),
    }
}

/// Runs `program` over a batch in private memory.
///
/// # Errors
/// Any fault of the device.
///
/// # Panics
/// If `batch` is empty, has not what the program takes, or its result might be too large for a job.
pub fn run_batch(
    device: &mut dyn Device,
    program: &Program,
    batch: &GridBatch,
) -> Result<(Outputs, Work), Fault> {
    let layout = batch.layout().expect("the caller's batch has grids");
    let output_layout =
        OutputLayout::new(program, layout).expect("the caller's batch suits its program");
    let mut input = vec![0; layout.bytes()];
    let mut output = vec![0; output_layout.bytes()];
    let input = SharedSlice::private(&mut input);
    let place = SharedSlice::private(&mut output);
    batch.write_to(layout, &input);
    let member = TaskMember::new(program, layout, 0..layout.items(), input, place);
    let member = member.expect("the places have the layouts' lengths");
    let work = device.run(&Task { program, members: &[member] })?;
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

    /// Gives the right results and says nothing of how.
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

        fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault> {
            Ok(Work { kernels: Vec::new(), ..self.0.run(task)? })
        }

        fn adopt(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
            self.0.adopt(arena)
        }

        fn release(&mut self, arena: SharedSlice<'_>) -> Result<(), Fault> {
            self.0.release(arena)
        }

        fn meet(&mut self, fault: DeviceFault) -> Result<(), Fault> {
            self.0.meet(fault)
        }
    }

    #[test]
    fn right_results_without_a_launch_do_not_pass() {
        let error = self_test(&mut Silent(CpuDevice::open(0, 1).unwrap())).unwrap_err();
        assert!(error.to_string().contains("no launch of identity"), "{error}");
    }
}

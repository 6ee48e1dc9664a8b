//! Which kernels a program launches over a chunk, on which buffers, in which order.

#![expect(unsafe_code, reason = "vouches for the arguments of every kernel")]

use gridpool_kernels::module::Kernel;
use gridpool_protocol::program::{Grouping, Kind, Op, Program, Ties};

use super::driver::{DeviceAddress, Driver};
use super::launch::{Argument, BatchArgument, Launcher, Module, StageArgument};
use crate::fault::Fault;

/// Where a chunk and its result lie on the device. Places of parts that the result does not have
/// are never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) batch: BatchArgument,
    pub(super) status: DeviceAddress,
    pub(super) input: StageArgument,
    /// Grids between two ops.
    pub(super) between: [StageArgument; 2],
    /// The result's shapes and cells.
    pub(super) output: StageArgument,
    pub(super) values: DeviceAddress,
    pub(super) palettes: DeviceAddress,
    pub(super) counts: DeviceAddress,
    pub(super) labels_low: DeviceAddress,
    pub(super) labels_high: DeviceAddress,
}

/// How many of the buffers between ops `program` needs.
pub(super) fn between_count(program: &Program, result_has_cells: bool) -> usize {
    let grid_ops = program.ops().iter().filter(|op| op.gives() == Kind::Grid).count();
    grid_ops.saturating_sub(usize::from(result_has_cells)).min(2)
}

/// Launches the check of the cells and then each op.
///
/// # Safety
/// Every place must be as long as the chunk needs, for the parts that the result has and for
/// [`between_count`] buffers, until the launcher's stream has been waited for.
pub(super) unsafe fn launch_program(
    launcher: &mut Launcher,
    driver: &Driver,
    module: &Module,
    program: &Program,
    result_has_cells: bool,
    places: &Places,
) -> Result<(), Fault> {
    let mut launch = |kernel, arguments: &[Argument]| {
        // SAFETY: the lists below are those of kernels/cuda; the caller vouches for the places.
        unsafe { launcher.launch(driver, module, kernel, places.batch.items, arguments) }
    };
    let batch = Argument::Batch(places.batch);
    let status = Argument::Address(places.status);
    launch(Kernel::VALIDATE, &[batch, Argument::Stage(places.input), status])?;
    let last_grid_op = program.ops().iter().rposition(|op| op.gives() == Kind::Grid);
    let mut stage = places.input;
    for (index, &op) in program.ops().iter().enumerate() {
        let from = Argument::Stage(stage);
        let next = if result_has_cells && Some(index) == last_grid_op {
            places.output
        } else {
            places.between[index % 2]
        };
        let to = Argument::Stage(next);
        let ties = Argument::Number(match program.ties() {
            Ties::Cpython => 0,
            Ties::Lowest => 1,
        });
        let number = |number: u8| Argument::Number(number.into());
        let flag = |flag: bool| Argument::Number(flag.into());
        let values = Argument::Address(places.values);
        let kernel = Kernel::of(op);
        match op {
            Op::Symmetry(_) => launch(kernel, &[batch, from, to])?,
            Op::Replace { old, new } => {
                launch(kernel, &[batch, from, to, number(old), number(new)])?;
            }
            Op::Switch { a, b } => launch(kernel, &[batch, from, to, number(a), number(b)])?,
            Op::LeastColor | Op::MostColor => launch(kernel, &[batch, from, ties, values])?,
            Op::NumColors => launch(kernel, &[batch, from, values])?,
            Op::ColorCount { color } => launch(kernel, &[batch, from, number(color), values])?,
            Op::Palette => {
                launch(kernel, &[batch, from, ties, Argument::Address(places.palettes)])?;
            }
            Op::Objects(Grouping { univalued, diagonal, without_bg }) => {
                let switches = [flag(univalued), flag(diagonal), flag(without_bg), ties];
                let parts =
                    [places.output.shapes, places.counts, places.labels_low, places.labels_high];
                let parts = parts.map(Argument::Address);
                launch(kernel, &[&[batch, from], &switches[..], &parts[..]].concat())?;
            }
        }
        if op.gives() == Kind::Grid {
            stage = next;
        }
    }
    Ok(())
}

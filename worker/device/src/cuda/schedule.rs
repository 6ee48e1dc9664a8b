//! Which kernels a program launches over a chunk, on which memory, in which order. Pure: it returns a
//! list and launches nothing.

use gridpool_kernels::argument::{
    self, DeviceAddress, ExtentArgument, OpArgument, PicturesArgument, StepArgument,
};
use gridpool_kernels::module::{self, Kernel, Segment, is_small, segments};
use gridpool_protocol::program::{Kind, Program};

use super::scratch::{STAGES_MAX, leaves_pictures, picture_capacity};

/// Memory of grids between two launches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StagePlaces {
    pub(super) shapes: DeviceAddress,
    pub(super) cells: DeviceAddress,
}

/// Memory for values between two launches, as in `ScratchLayout`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchPlaces {
    pub(super) status: [DeviceAddress; 2],
    pub(super) stages: [StagePlaces; STAGES_MAX],
    pub(super) labels_low: DeviceAddress,
    pub(super) labels_high: DeviceAddress,
    pub(super) sums: DeviceAddress,
}

/// The parts of the result, laid out for the values of the last step. Parts that the result does not have
/// are null.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResultPlaces {
    pub(super) status: DeviceAddress,
    pub(super) shapes: DeviceAddress,
    pub(super) origins: DeviceAddress,
    pub(super) offsets: DeviceAddress,
    pub(super) numbers: DeviceAddress,
    pub(super) palettes: DeviceAddress,
    pub(super) counts: DeviceAddress,
    pub(super) labels_low: DeviceAddress,
    pub(super) labels_high: DeviceAddress,
    pub(super) cells: DeviceAddress,
}

/// Where a chunk, its result and everything between lie on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) items: u32,
    /// Cells of the chunk.
    pub(super) cells: usize,
    /// Cells of its largest grid.
    pub(super) area_max: usize,
    pub(super) input: StagePlaces,
    /// Where the input's grids start, counted from the chunk's first cell.
    pub(super) offsets: DeviceAddress,
    pub(super) scratch: ScratchPlaces,
    pub(super) result: ResultPlaces,
    /// Cells of each grid of the result, if all have as many and lie one behind the other, without tables.
    pub(super) even: Option<u32>,
    /// Where the results are laid at the end, if they are to lie in planes.
    pub(super) planes: Option<PlanePlaces>,
}

/// Grids of several sizes in planes of one size: [`Kernel::PUT_PLANES`] lays them there.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanePlaces {
    /// Rows and columns of the planes of the grids, and of those of the results.
    pub(super) planes: [[u8; 2]; 2],
    /// The size of each grid; null if all are as large as their planes.
    pub(super) sizes_before: DeviceAddress,
    pub(super) cells: DeviceAddress,
    pub(super) status: DeviceAddress,
    pub(super) sizes: DeviceAddress,
}

impl PlanePlaces {
    /// The same from an item on.
    pub(super) fn starting_at(self, item: usize) -> Self {
        let area: usize = self.planes[1].map(usize::from).iter().product();
        let is_whole = self.sizes_before == DeviceAddress::NULL;
        Self {
            sizes_before: self.sizes_before.plus(if is_whole { 0 } else { 16 * item }),
            cells: self.cells.plus(area * item),
            status: self.status.plus(2 * item),
            sizes: self.sizes.plus(16 * item),
            ..self
        }
    }

    /// Adds them to the argument of the kernel.
    pub(super) fn add_to(&self, step: StepArgument) -> StepArgument {
        let mut step = StepArgument {
            to: PicturesArgument { cells: self.cells, ..step.to },
            status: self.status,
            sizes: self.sizes,
            ..step
        };
        self.add_sizes_to(&mut step);
        step
    }

    /// Adds what says how large the grids and the planes are.
    pub(super) fn add_sizes_to(&self, step: &mut StepArgument) {
        step.sizes_before = self.sizes_before;
        step.op_count = 1;
        let [[h, w], [rows, columns]] = self.planes;
        step.ops[0].args = [h, w, rows, columns].map(i16::from);
    }
}

/// Grids, and the stage that they occupy.
#[derive(Clone, Copy, Debug, Default)]
struct Grids {
    pictures: PicturesArgument,
    stage: Option<usize>,
}

/// The kernels of `program` over a chunk, in order, each with its argument: the program's segments, then the
/// kernels that pack a packed result.
pub(super) fn launches(program: &Program, places: &Places) -> Vec<(&'static Kernel, StepArgument)> {
    let mut planner = Planner::new(program, places);
    let mut launches = Vec::new();
    let is_small = is_small(program, places.area_max);
    for (order, segment) in segments(program).into_iter().enumerate() {
        match segment {
            Segment::Chain(steps, kernel) => {
                let ops = argument::chain(program, steps.clone());
                let mut step = planner.launch(order, steps.end.checked_sub(1), &ops);
                step.values_per_warp = kernel.rounds(step.values);
                launches.push((kernel, step));
                if !is_small && kernel != Kernel::IMAGES {
                    launches.push((Kernel::CHAIN_LARGE, step));
                }
            }
            Segment::Tuple(at, kernel) => {
                let op = argument::of_tuples(program, at);
                launches.push((kernel, planner.launch(order, Some(at), &[op])));
            }
        }
    }
    if let Some(planes) = &places.planes {
        let width = planner.width;
        let made = StepArgument { from: planner.grids.pictures, ..planner.argument(width, width) };
        launches.push((Kernel::PUT_PLANES, planes.add_to(made)));
    } else if program.is_packed() && places.even.is_none() {
        launches.extend(packing(planner.pack()));
    }
    launches
}

/// The kernels that pack a result, each with its argument.
pub(super) fn packing(pack: StepArgument) -> impl Iterator<Item = (&'static Kernel, StepArgument)> {
    module::packing(pack.values).iter().map(move |kernel| (*kernel, pack))
}

/// Progress through a program: where the next launch finds its input.
struct Planner<'a> {
    program: &'a Program,
    places: &'a Places,
    status: DeviceAddress,
    width: usize,
    grids: Grids,
}

impl<'a> Planner<'a> {
    fn new(program: &'a Program, places: &'a Places) -> Self {
        let StagePlaces { shapes, cells } = places.input;
        let first = program.steps().first().expect("a program has at least one step");
        let origins = DeviceAddress::NULL;
        let pictures = PicturesArgument { shapes, origins, cells, extent: first.from.into() };
        Self {
            program,
            places,
            status: places.scratch.status[0],
            width: program.takes().width(),
            grids: Grids { pictures, stage: None },
        }
    }

    /// The arguments that all kernels share.
    fn argument(&self, width_before: usize, width: usize) -> StepArgument {
        let count = |n: usize| u32::try_from(n).expect("a tuple has at most 30 elements");
        StepArgument {
            values: self.places.items * count(width),
            width_before: count(width_before),
            width: count(width),
            ties: self.program.ties() as u32,
            offsets: self.places.offsets,
            status_before: self.status,
            status: self.status,
            ..StepArgument::default()
        }
    }

    /// Launch number `order`, whose last step is `at`; `None` if it only validates the cells.
    fn launch(&mut self, order: usize, at: Option<usize>, ops: &[OpArgument]) -> StepArgument {
        let gives = at.map(|at| self.program.steps()[at].gives);
        let width = gives.map_or(self.width, |gives| gives.width());
        let is_last = at.is_some_and(|at| at + 1 == self.program.steps().len());
        let turn = self.places.scratch.status[(order + 1) % 2];
        let mut launch = StepArgument {
            validates: u32::from(order == 0),
            op_count: u32::try_from(ops.len()).expect("a program has at most 64 steps"),
            // Statuses alternate between two buffers, so that no kernel writes what its others still read.
            status: if is_last { self.places.result.status } else { turn },
            from: self.grids.pictures,
            ..self.argument(self.width, width)
        };
        launch.ops[..ops.len()].copy_from_slice(ops);
        if let Some(at) = at {
            let held = self.target(at, is_last);
            launch.to = held.pictures;
            if is_last {
                self.add_result(&mut launch);
            }
            self.grids = held;
        }
        self.status = launch.status;
        self.width = width;
        launch
    }

    /// Adds the parts of the result that are not pictures.
    fn add_result(&self, launch: &mut StepArgument) {
        let (scratch, result) = (&self.places.scratch, &self.places.result);
        let packed = self.program.is_packed();
        let is_list = self.program.gives().kind == Kind::Objects;
        // In place, a failed value's cells are visible; packed, it has none.
        launch.blanks = u32::from(!packed);
        launch.numbers = result.numbers;
        launch.palettes = result.palettes;
        if is_list {
            launch.counts = result.counts;
            // Labels of a result in place are made there; labels of a packed one are gathered later.
            (launch.labels_low, launch.labels_high) = match packed {
                true => (scratch.labels_low, scratch.labels_high),
                false => (result.labels_low, result.labels_high),
            };
        }
    }

    /// Where a launch writes the pictures of its last step.
    fn target(&self, at: usize, is_last: bool) -> Grids {
        let result = &self.places.result;
        let extent = picture_capacity(self.program, at);
        let extent = extent.clamped(self.places.cells, self.places.items as usize).into();
        let mut pictures = PicturesArgument { extent, ..PicturesArgument::default() };
        let even = self.places.even.filter(|_| is_last);
        let stage = leaves_pictures(self.program, at) && even.is_none();
        let stage = stage.then(|| self.free_stage());
        if let Some(cells) = even {
            pictures.extent = ExtentArgument { per_value: cells, ..ExtentArgument::default() };
        }
        if let Some(stage) = stage {
            let StagePlaces { shapes, cells } = self.places.scratch.stages[stage];
            (pictures.shapes, pictures.cells) = (shapes, cells);
        } else {
            pictures.cells = result.cells;
        }
        if is_last {
            (pictures.shapes, pictures.origins) = (result.shapes, result.origins);
        }
        Grids { pictures, stage }
    }

    /// A stage that the launch does not read.
    fn free_stage(&self) -> usize {
        if self.grids.stage == Some(0) { 1 } else { 0 }
    }

    /// The argument that all packing kernels share.
    fn pack(&self) -> StepArgument {
        let (scratch, result) = (&self.places.scratch, &self.places.result);
        let is_list = self.program.gives().kind == Kind::Objects;
        let null = DeviceAddress::NULL;
        StepArgument {
            from: self.grids.pictures,
            to: PicturesArgument { cells: result.cells, ..PicturesArgument::default() },
            counts: result.counts,
            labels_low: if is_list { scratch.labels_low } else { null },
            labels_high: if is_list { scratch.labels_high } else { null },
            sums: scratch.sums,
            places: result.offsets,
            packed_low: result.labels_low,
            packed_high: result.labels_high,
            ..self.argument(self.width, self.width)
        }
    }
}

#[cfg(test)]
#[expect(dead_code, reason = "the tests of a GPU draw grids too")]
#[path = "../../tests/random/mod.rs"]
pub(super) mod random;

#[cfg(test)]
mod tests;

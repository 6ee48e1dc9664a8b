//! Which kernels a program launches over a chunk, on which memory, in which order. Pure: it makes a
//! list and launches nothing.

use gridpool_kernels::module::Kernel;
use gridpool_protocol::program::{Kind, Program, Step};

use super::arguments::arguments;
use super::driver::DeviceAddress;
use super::launch::{PicturesArgument, StepArgument};
use super::scratch::STAGES_MAX;

/// Memory of pictures between two steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StagePlaces {
    pub(super) shapes: DeviceAddress,
    pub(super) origins: DeviceAddress,
    pub(super) cells: DeviceAddress,
}

/// Memory for what lies between two steps, as in `ScratchLayout`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchPlaces {
    pub(super) status: [DeviceAddress; 2],
    pub(super) stages: [StagePlaces; STAGES_MAX],
    pub(super) counts: DeviceAddress,
    pub(super) labels_low: DeviceAddress,
    pub(super) labels_high: DeviceAddress,
    pub(super) sums: DeviceAddress,
}

/// The parts of the result, made for the values that the last step gives. Those that it does not have
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

/// Where a chunk, its result and all between lie on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) items: u32,
    /// Cells of the chunk.
    pub(super) cells: usize,
    pub(super) input: StagePlaces,
    /// Where the input's grids start, counted from the chunk's first cell.
    pub(super) offsets: DeviceAddress,
    pub(super) scratch: ScratchPlaces,
    pub(super) result: ResultPlaces,
    /// If the result is packed, where the chunk's cells start in the whole of it.
    pub(super) base: Option<u32>,
    /// The step that writes its grids straight into the result.
    pub(super) step_in_place: Option<usize>,
}

/// Pictures, and which of the stages they occupy.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    pictures: PicturesArgument,
    stage: Option<usize>,
}

/// The kernels of `program` over a chunk, in order, each with its argument: the check of the cells,
/// each step, and what packs the result where it must be packed.
pub(super) fn launches(program: &Program, places: &Places) -> Vec<(&'static Kernel, StepArgument)> {
    let mut course = Course::new(program, places);
    let mut launches = vec![(Kernel::VALIDATE, course.validate())];
    for (at, step) in program.steps().iter().enumerate() {
        launches.push((Kernel::of(step.op), course.step(at, step)));
    }
    if let Some(base) = places.base {
        let pack = course.pack(base);
        launches.extend([Kernel::ADD_AREAS, Kernel::PLACE, Kernel::PACK].map(|k| (k, pack)));
    }
    launches
}

/// How far a program has come: what the next step finds where.
struct Course<'a> {
    program: &'a Program,
    places: &'a Places,
    status: DeviceAddress,
    /// The grids or, once values are of another kind, their ground.
    grids: Held,
    /// The objects or patches, once values are such.
    pieces: Held,
}

impl<'a> Course<'a> {
    fn new(program: &'a Program, places: &'a Places) -> Self {
        let StagePlaces { shapes, origins: _, cells } = places.input;
        let first = program.steps().first().expect("a program has at least one step");
        let origins = DeviceAddress::default();
        let pictures = PicturesArgument { shapes, origins, cells, extent: first.from.into() };
        Self {
            program,
            places,
            status: places.scratch.status[0],
            grids: Held { pictures, stage: None },
            pieces: Held::default(),
        }
    }

    /// What every kernel is told.
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

    fn validate(&self) -> StepArgument {
        let width = self.program.takes().width();
        StepArgument { from: self.grids.pictures, ..self.argument(width, width) }
    }

    fn step(&mut self, at: usize, step: &Step) -> StepArgument {
        let to = self.target(at, step);
        let ground = if step.takes.kind.has_ground() { self.grids } else { Held::default() };
        let (labels_low, labels_high) = self.labels(at);
        let argument = StepArgument {
            takes: step.takes.kind as u32,
            op: u32::try_from(at).expect("a program has at most 64 steps"),
            args: arguments(step.op),
            blanks: self.blanks(at).into(),
            status: self.status_after(at),
            from: self.held_as(step.takes.kind).pictures,
            ground: ground.pictures,
            to: to.pictures,
            counts: self.counts(at),
            labels_low,
            labels_high,
            numbers: self.if_last(at, self.places.result.numbers),
            palettes: self.if_last(at, self.places.result.palettes),
            ..self.argument(step.takes.width(), step.gives.width())
        };
        self.status = argument.status;
        match step.gives.kind {
            Kind::Grid => (self.grids, self.pieces) = (to, Held::default()),
            Kind::Object | Kind::Patch => self.pieces = to,
            Kind::Objects => self.pieces = Held::default(),
            Kind::Colors | Kind::Flag | Kind::Number | Kind::Vector => {}
        }
        argument
    }

    /// Where the pictures of values of a kind lie; of objects in a list, those of their ground.
    fn held_as(&self, kind: Kind) -> Held {
        if matches!(kind, Kind::Object | Kind::Patch) { self.pieces } else { self.grids }
    }

    fn is_last(&self, at: usize) -> bool {
        at + 1 == self.program.steps().len()
    }

    /// A part of the result: earlier steps may give more values than it has room for.
    fn if_last(&self, at: usize, part: DeviceAddress) -> DeviceAddress {
        if self.is_last(at) { part } else { DeviceAddress::default() }
    }

    /// Whether a step gives the lists of objects that are the result, or what they are chosen from,
    /// and so as many as the result has.
    fn lists_result(&self, at: usize) -> bool {
        self.program.steps()[at..].iter().all(|step| step.gives.kind == Kind::Objects)
    }

    /// Statuses go back and forth, so that no kernel writes what its other threads still read.
    fn status_after(&self, at: usize) -> DeviceAddress {
        let turn = self.places.scratch.status[(at + 1) % 2];
        if self.is_last(at) { self.places.result.status } else { turn }
    }

    /// Where the numbers of objects lie that a step gives, or works on.
    fn counts(&self, at: usize) -> DeviceAddress {
        let Places { scratch, result, .. } = self.places;
        if self.lists_result(at) { result.counts } else { scratch.counts }
    }

    /// Labels of a result in place are made there; those of a packed one are gathered later.
    fn labels(&self, at: usize) -> (DeviceAddress, DeviceAddress) {
        let Places { scratch, result, .. } = self.places;
        if self.lists_result(at) && self.places.base.is_none() {
            (result.labels_low, result.labels_high)
        } else {
            (scratch.labels_low, scratch.labels_high)
        }
    }

    /// Whether a step writes where the client will see it, the places of failed values included.
    fn blanks(&self, at: usize) -> bool {
        let is_seen = self.lists_result(at) || self.places.step_in_place == Some(at);
        self.places.base.is_none() && is_seen
    }

    /// Where a step writes its pictures.
    fn target(&self, at: usize, step: &Step) -> Held {
        let result = &self.places.result;
        let null = DeviceAddress::default();
        let extent = step.to.clamped(self.places.cells, self.places.items as usize).into();
        match step.gives.kind {
            Kind::Grid if self.places.step_in_place == Some(at) => {
                let (shapes, cells) = (result.shapes, result.cells);
                let pictures = PicturesArgument { shapes, origins: null, cells, extent };
                Held { pictures, stage: None }
            }
            Kind::Grid | Kind::Object | Kind::Patch => {
                let stage = self.free_stage();
                let StagePlaces { shapes, origins, cells } = self.places.scratch.stages[stage];
                let origins = if step.gives.kind == Kind::Grid { null } else { origins };
                let mut pictures = PicturesArgument { shapes, origins, cells, extent };
                if self.is_last(at) {
                    (pictures.shapes, pictures.origins) = (result.shapes, result.origins);
                }
                Held { pictures, stage: Some(stage) }
            }
            Kind::Objects => {
                // The shapes of the result's grounds, unless those lie in the result itself.
                let is_there = self.grids.pictures.shapes == result.shapes;
                let is_asked = self.lists_result(at) && !is_there;
                let shapes = if is_asked { result.shapes } else { null };
                let pictures = PicturesArgument { shapes, ..PicturesArgument::default() };
                Held { pictures, stage: None }
            }
            Kind::Colors | Kind::Flag | Kind::Number | Kind::Vector => Held::default(),
        }
    }

    /// A stage that the step does not read.
    fn free_stage(&self) -> usize {
        let is_free =
            |stage: &usize| ![self.grids.stage, self.pieces.stage].contains(&Some(*stage));
        (0..STAGES_MAX).find(is_free).expect("two of three stages are held at most")
    }

    /// The argument of all kernels that pack.
    fn pack(&self, base: u32) -> StepArgument {
        let gives = self.program.gives();
        let (scratch, result) = (&self.places.scratch, &self.places.result);
        let Held { pictures, .. } = self.held_as(gives.kind);
        StepArgument {
            base,
            from: PicturesArgument { shapes: result.shapes, ..pictures },
            to: PicturesArgument { cells: result.cells, ..PicturesArgument::default() },
            labels_low: scratch.labels_low,
            labels_high: scratch.labels_high,
            sums: scratch.sums,
            places: result.offsets,
            packed_low: result.labels_low,
            packed_high: result.labels_high,
            ..self.argument(gives.width(), gives.width())
        }
    }
}

#[cfg(test)]
#[expect(dead_code, reason = "the tests of a GPU draw grids too")]
#[path = "../../tests/random/mod.rs"]
pub(super) mod random;

#[cfg(test)]
mod tests;

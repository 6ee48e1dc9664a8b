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

/// The parts of the result. Those that it does not have are null.
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
        let result = &self.places.result;
        StepArgument {
            values: self.places.items * count(width),
            width_before: count(width_before),
            width: count(width),
            ties: self.program.ties() as u32,
            offsets: self.places.offsets,
            status_before: self.status,
            status: self.status,
            counts: result.counts.or(self.places.scratch.counts),
            numbers: result.numbers,
            palettes: result.palettes,
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
        let (labels_low, labels_high) = self.labels();
        let argument = StepArgument {
            takes: step.takes.kind as u32,
            op: u32::try_from(at).expect("a program has at most 64 steps"),
            args: arguments(step.op),
            blanks: self.blanks(at, step).into(),
            status: self.status_after(at),
            from: self.held_as(step.takes.kind).pictures,
            ground: ground.pictures,
            to: to.pictures,
            labels_low,
            labels_high,
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

    /// Statuses go back and forth, so that no kernel writes what its other threads still read.
    fn status_after(&self, at: usize) -> DeviceAddress {
        let turn = self.places.scratch.status[(at + 1) % 2];
        if self.is_last(at) { self.places.result.status } else { turn }
    }

    /// Labels of a result in place are made there; those of a packed one are gathered later.
    fn labels(&self) -> (DeviceAddress, DeviceAddress) {
        let (scratch, result) = (&self.places.scratch, &self.places.result);
        if self.places.base.is_some() {
            return (scratch.labels_low, scratch.labels_high);
        }
        (result.labels_low.or(scratch.labels_low), result.labels_high.or(scratch.labels_high))
    }

    /// Whether a step writes where the client will see it, the places of failed values included.
    fn blanks(&self, at: usize, step: &Step) -> bool {
        let labels_result =
            step.gives.kind == Kind::Objects && self.program.gives().kind == Kind::Objects;
        self.places.base.is_none() && (labels_result || self.places.step_in_place == Some(at))
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
                // The shapes of the ground, unless it lies in the result itself.
                let is_there = self.grids.pictures.shapes == result.shapes;
                let shapes = if is_there { null } else { result.shapes };
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
mod tests {
    use gridpool_protocol::batch::BatchLayout;
    use gridpool_protocol::output::OutputLayout;
    use gridpool_protocol::program::Ties;

    use super::super::scratch::step_in_place;
    use super::*;

    /// Every place has an address of its own.
    fn places(program: &Program) -> Places {
        let grids_per_item = program.grids_per_item();
        let layout = BatchLayout::new(7, grids_per_item, 100).unwrap();
        let result = OutputLayout::new(program, layout).unwrap();
        let mut last = DeviceAddress::default();
        let mut next = || {
            last = last.plus(1 << 20);
            last
        };
        let mut stage = || StagePlaces { shapes: next(), origins: next(), cells: next() };
        let input = stage();
        let stages = [(); STAGES_MAX].map(|()| stage());
        let scratch = ScratchPlaces {
            status: [next(), next()],
            stages,
            counts: next(),
            labels_low: next(),
            labels_high: next(),
            sums: next(),
        };
        let mut part = |range: std::ops::Range<usize>| {
            if range.is_empty() { DeviceAddress::default() } else { next() }
        };
        Places {
            items: 7,
            cells: 100,
            input,
            offsets: part(layout.offsets()),
            scratch,
            base: result.is_packed().then_some(50),
            step_in_place: step_in_place(program, &result),
            result: ResultPlaces {
                status: part(result.status()),
                shapes: part(result.shapes()),
                origins: part(result.origins()),
                offsets: part(result.offsets()),
                numbers: part(result.numbers()),
                palettes: part(result.palettes()),
                counts: part(result.counts()),
                labels_low: part(result.labels_low()),
                labels_high: part(result.labels_high()),
                cells: part(result.cells()),
            },
        }
    }

    const PROGRAMS: [&str; 12] = [
        "rot90 | replace(1, 2) | rot90 | rot90",
        "identity | palette",
        "o_g(5) | argmax(size) | box | outbox | delta | fill(3) | o_g(5) | sizefilter(3)",
        "ofcolor(3) | shift(1, 2) | toobject | upscale(2) | paint | crop(0, 0, 3, 3)",
        "crop(0, 0, 9, 9) | o_g(5) | colorfilter(3)",
        "o_g(5) | first | move(1, 1)",
        "hsplit(3) | apply(rot90) | hconcat",
        "apply(o_g(5) | merge | toindices)",
        "second | trim | vsplit(2)",
        "asobject | centerofmass",
        "ofcolor(1) | subgrid | ofcolor(2) | cover | ofcolor(3) | subgrid",
        "identity | o_g(1)",
    ];

    fn each_program(check: impl Fn(&Program, &Places, &[StepArgument])) {
        for text in PROGRAMS {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let places = places(&program);
            let launches = launches(&program, &places);
            let names: Vec<_> = launches.iter().map(|(kernel, _)| kernel.name).collect();
            let want: Vec<_> =
                gridpool_kernels::module::kernels_of(&program).map(|kernel| kernel.name).collect();
            assert_eq!(names, want);
            let steps: Vec<_> = launches.into_iter().map(|(_, step)| step).collect();
            check(&program, &places, &steps);
        }
    }

    #[test]
    fn no_step_writes_pictures_where_it_reads() {
        each_program(|program, places, steps| {
            for step in steps {
                for read in [step.from, step.ground] {
                    for (read, written) in [
                        (read.cells, step.to.cells),
                        (read.shapes, step.to.shapes),
                        (read.origins, step.to.origins),
                    ] {
                        let null = DeviceAddress::default();
                        assert!(read != written || read == null, "{}", program.text());
                    }
                }
                assert_ne!(step.to.cells, places.input.cells, "{}", program.text());
            }
        });
    }

    #[test]
    fn each_status_is_read_where_the_step_before_wrote_it_and_the_last_is_the_results() {
        each_program(|program, places, steps| {
            let count = program.steps().len();
            for (at, step) in steps[1..=count].iter().enumerate() {
                assert_eq!(step.status_before, steps[at].status, "{}", program.text());
                assert_ne!(step.status_before, step.status, "{}", program.text());
            }
            assert_eq!(steps[count].status, places.result.status, "{}", program.text());
        });
    }

    #[test]
    fn each_step_reads_what_the_one_before_made() {
        each_program(|program, places, steps| {
            let mut cells = places.input.cells;
            for (step, argument) in program.steps().iter().zip(&steps[1..]) {
                if step.takes.kind != Kind::Objects {
                    assert_eq!(argument.from.cells, cells, "{}", program.text());
                }
                if argument.to.cells != DeviceAddress::default() {
                    cells = argument.to.cells;
                }
            }
        });
    }

    #[test]
    fn every_part_of_the_result_is_written() {
        each_program(|program, places, steps| {
            let written = |address: DeviceAddress| {
                address == DeviceAddress::default()
                    || steps.iter().any(|step| {
                        let to = [step.to.shapes, step.to.origins, step.to.cells, step.counts];
                        let labels = [step.labels_low, step.labels_high, step.packed_low];
                        let others = [step.packed_high, step.places, step.numbers, step.palettes];
                        [&to[..], &labels, &others].concat().contains(&address)
                    })
            };
            let result = &places.result;
            for part in [
                result.shapes,
                result.origins,
                result.offsets,
                result.numbers,
                result.palettes,
                result.counts,
                result.labels_low,
                result.labels_high,
                result.cells,
            ] {
                assert!(written(part), "{}", program.text());
            }
        });
    }
}

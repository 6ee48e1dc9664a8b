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
mod random;

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::LazyLock;

    use gridpool_kernels::known_answer::{KNOWN_ANSWERS, KnownAnswer};
    use gridpool_kernels::module::{TILE_VALUES, kernels_of};
    use gridpool_protocol::batch::BatchLayout;
    use gridpool_protocol::output::{OutputLayout, PALETTE_BYTES};
    use gridpool_protocol::program::{Extent, Ties};

    use super::super::scratch::{ScratchLayout, step_in_place};
    use super::random::Random;
    use super::*;

    /// The places of a chunk, each part of it with an address of its own, as in a lane.
    struct Memory {
        batch: BatchLayout,
        result: OutputLayout,
        places: Places,
        /// Where each part starts, and its bytes.
        parts: Vec<(DeviceAddress, usize)>,
    }

    impl Memory {
        /// `None` if no job may be so large.
        fn new(program: &Program, items: u32, cells: u32) -> Option<Self> {
            let batch = BatchLayout::new(items, program.grids_per_item(), cells).unwrap();
            let result = OutputLayout::new(program, batch).ok()?;
            let layout = ScratchLayout::new(program, &batch, &result);
            let mut parts = Vec::new();
            let mut last = DeviceAddress::default();
            // Every place has room until 2^40 bytes further on, so that no two are mistaken.
            let mut at = |range: Range<usize>| {
                last = last.plus(1 << 40);
                parts.push((last, range.len()));
                last
            };
            let input = StagePlaces {
                shapes: at(batch.shapes()),
                origins: DeviceAddress::default(),
                cells: at(batch.cells()),
            };
            let offsets = at(batch.offsets());
            let scratch = ScratchPlaces {
                status: layout.status.clone().map(&mut at),
                stages: layout.stages.clone().map(|stage| StagePlaces {
                    shapes: at(stage.shapes),
                    origins: at(stage.origins),
                    cells: at(stage.cells),
                }),
                counts: at(layout.counts.clone()),
                labels_low: at(layout.labels_low.clone()),
                labels_high: at(layout.labels_high.clone()),
                sums: at(layout.sums.clone()),
            };
            let mut part = |range: Range<usize>| {
                if range.is_empty() { DeviceAddress::default() } else { at(range) }
            };
            let places = Places {
                items,
                cells: batch.cell_count(),
                input,
                offsets,
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
            };
            Some(Self { batch, result, places, parts })
        }

        fn bytes_at(&self, address: DeviceAddress) -> usize {
            let part = self.parts.iter().find(|(start, _)| *start == address);
            part.expect("a launch names the starts of parts, or null").1
        }

        /// The cells of room that pictures of this extent need.
        fn room(&self, extent: Extent) -> usize {
            let (cells, items) = (self.batch.cell_count(), self.batch.items());
            usize::try_from(extent.clamped(cells, items).capacity(cells, items)).unwrap()
        }
    }

    const PROGRAMS: [&str; 17] = [
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
        "hsplit(30) | apply(o_g(5) | merge | paint) | first",
        "vsplit(30) | apply(fgpartition | merge | paint) | hconcat | o_g(5) | colorfilter(1)",
        "hsplit(30) | apply(ofcolor(1) | toobject | paint) | nth(29) | palette",
        "apply(o_g(5) | argmax(size) | fill(1)) | second | asobject | height",
        "hsplit(30) | apply(o_g(5) | size)",
    ];

    static ALL_PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
        let compile = |text: &&str| Program::compile(text, Ties::Cpython).unwrap();
        let mut random = Random(11);
        let drawn = (0..1_000).map(|_| random.program(10));
        let known = KNOWN_ANSWERS.iter().map(KnownAnswer::program);
        PROGRAMS.iter().map(compile).chain(known).chain(drawn).collect()
    });

    fn each_program(check: impl Fn(&Program, &Memory, &[StepArgument])) {
        for program in ALL_PROGRAMS.iter() {
            for (items, cells) in [(7, 100), (400, 400), (1, 8_000)] {
                let cells = cells.max(items * program.grids_per_item());
                let Some(memory) = Memory::new(program, items, cells) else { continue };
                let launches = launches(program, &memory.places);
                let names: Vec<_> = launches.iter().map(|(kernel, _)| kernel.name).collect();
                let want: Vec<_> = kernels_of(program).map(|kernel| kernel.name).collect();
                assert_eq!(names, want);
                let steps: Vec<_> = launches.into_iter().map(|(_, step)| step).collect();
                check(program, &memory, &steps);
            }
        }
    }

    /// The parts that the kernel of a step writes, each with the bytes that it has for the step's
    /// values; null where it writes nothing.
    fn written(
        memory: &Memory,
        step: &Step,
        argument: &StepArgument,
    ) -> Vec<(DeviceAddress, usize)> {
        let values = argument.values as usize;
        let status = (argument.status, 2 * values);
        let shapes = (argument.to.shapes, 2 * values);
        let mut written = vec![status];
        match step.gives.kind {
            Kind::Grid | Kind::Object | Kind::Patch => {
                let cells = (argument.to.cells, memory.room(step.to));
                written.extend([shapes, (argument.to.origins, 4 * values), cells]);
            }
            Kind::Objects => {
                let labels = [argument.labels_low, argument.labels_high];
                written.extend([shapes, (argument.counts, 2 * values)]);
                written.extend(labels.map(|plane| (plane, memory.room(step.ground))));
            }
            Kind::Colors => written.push((argument.palettes, PALETTE_BYTES * values)),
            Kind::Flag | Kind::Number | Kind::Vector => {
                written.push((argument.numbers, 4 * values));
            }
        }
        written
    }

    /// The same of the three kernels that pack.
    fn packed(memory: &Memory, argument: &StepArgument) -> Vec<(DeviceAddress, usize)> {
        let (values, room) = (argument.values as usize, memory.result.room());
        let planes = [argument.to.cells, argument.packed_low, argument.packed_high];
        let sums = values.div_ceil(TILE_VALUES as usize) + 1;
        let others = [(argument.places, 4 * values), (argument.sums, 4 * sums)];
        planes.map(|plane| (plane, room)).into_iter().chain(others).collect()
    }

    /// The same of every launch of a program.
    fn all_written(
        program: &Program,
        memory: &Memory,
        launches: &[StepArgument],
    ) -> Vec<Vec<(DeviceAddress, usize)>> {
        let (validate, others) = launches.split_first().unwrap();
        let (steps, packs) = others.split_at(program.steps().len());
        let first = vec![(validate.status, 2 * validate.values as usize)];
        let steps = program.steps().iter().zip(steps);
        let steps = steps.map(|(step, argument)| written(memory, step, argument));
        let packs = packs.iter().map(|argument| packed(memory, argument));
        std::iter::once(first).chain(steps).chain(packs).collect()
    }

    #[test]
    fn every_part_has_room_for_all_that_is_written_there() {
        each_program(|program, memory, launches| {
            for (at, parts) in all_written(program, memory, launches).iter().enumerate() {
                let named = parts.iter().filter(|(part, _)| *part != DeviceAddress::default());
                for &(part, bytes) in named {
                    let (text, room) = (program.text(), memory.bytes_at(part));
                    assert!(bytes <= room, "{text} launch {at}: {bytes} bytes in room for {room}");
                }
            }
        });
    }

    #[test]
    fn only_the_last_step_names_numbers_and_palettes() {
        each_program(|program, _, launches| {
            for argument in &launches[..program.steps().len()] {
                let null = DeviceAddress::default();
                assert_eq!((argument.numbers, argument.palettes), (null, null));
            }
        });
    }

    #[test]
    fn no_step_writes_pictures_where_it_reads() {
        each_program(|program, memory, steps| {
            let places = &memory.places;
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
        each_program(|program, memory, steps| {
            let count = program.steps().len();
            for (at, step) in steps[1..=count].iter().enumerate() {
                assert_eq!(step.status_before, steps[at].status, "{}", program.text());
                assert_ne!(step.status_before, step.status, "{}", program.text());
            }
            assert_eq!(steps[count].status, memory.places.result.status, "{}", program.text());
        });
    }

    #[test]
    fn each_step_reads_what_the_one_before_made() {
        each_program(|program, memory, steps| {
            let mut cells = memory.places.input.cells;
            for (step, argument) in program.steps().iter().zip(&steps[1..]) {
                if step.takes.kind != Kind::Objects {
                    assert_eq!(argument.from.cells, cells, "{}", program.text());
                }
                if argument.to.cells != DeviceAddress::default() {
                    cells = argument.to.cells;
                }
            }
            let lists = |step: &StepArgument| (step.counts, step.labels_low, step.labels_high);
            for (at, step) in program.steps().iter().enumerate() {
                if step.takes.kind == Kind::Objects {
                    assert_eq!(lists(&steps[at]), lists(&steps[at + 1]), "{}", program.text());
                }
            }
        });
    }

    #[test]
    fn every_part_of_the_result_is_written() {
        each_program(|program, memory, steps| {
            let written = all_written(program, memory, steps).concat();
            let result = &memory.places.result;
            for part in [
                result.status,
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
                let is_written = written.iter().any(|(address, _)| *address == part);
                assert!(is_written || part == DeviceAddress::default(), "{}", program.text());
            }
        });
    }
}

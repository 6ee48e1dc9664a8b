//! Every launch of many programs: what it reads was written, what it writes has room.

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
fn written(memory: &Memory, step: &Step, argument: &StepArgument) -> Vec<(DeviceAddress, usize)> {
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

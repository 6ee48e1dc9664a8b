//! Every launch of many programs reads what was written, and writes within its capacity.

use std::ops::Range;
use std::sync::LazyLock;

use gridpool_kernels::known_answer::{KNOWN_ANSWERS, KnownAnswer};
use gridpool_kernels::module::{self, TILE_VALUES, chain_code, kernels_of};
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::limits::GRID_CELLS_MAX;
use gridpool_protocol::output::{OutputLayout, PALETTE_BYTES};
use gridpool_protocol::program::{Extent, Ties};

use super::super::scratch::ScratchLayout;
use super::random::Random;
use super::*;

/// The places of a chunk, each part with an address of its own, as in a lane.
struct Memory {
    batch: BatchLayout,
    result: OutputLayout,
    places: Places,
    /// Where each part starts, and its bytes.
    parts: Vec<(DeviceAddress, usize)>,
}

impl Memory {
    /// `None` if no job may be this large.
    fn new(program: &Program, items: u32, cells: u32) -> Option<Self> {
        let batch = BatchLayout::new(items, program.grids_per_item(), cells).unwrap();
        let result = OutputLayout::new(program, batch).ok()?;
        let layout = ScratchLayout::new(program, &batch);
        let mut parts = Vec::new();
        let mut last = DeviceAddress::default();
        // Each place is 2^40 bytes after the one before, so that no two are mistaken for each other.
        let mut at = |range: Range<usize>| {
            last = last.plus(1 << 40);
            parts.push((last, range.len()));
            last
        };
        let input = StagePlaces { shapes: at(batch.shapes()), cells: at(batch.cells()) };
        let offsets = at(batch.offsets());
        let scratch = ScratchPlaces {
            status: layout.status.clone().map(&mut at),
            stages: layout
                .stages
                .clone()
                .map(|stage| StagePlaces { shapes: at(stage.shapes), cells: at(stage.cells) }),
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
            area_max: batch.cell_count().min(GRID_CELLS_MAX),
            input,
            offsets,
            scratch,
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
            even: None,
            planes: None,
        };
        Some(Self { batch, result, places, parts })
    }

    fn bytes_at(&self, address: DeviceAddress) -> usize {
        let part = self.parts.iter().find(|(start, _)| *start == address);
        part.expect("a launch names the starts of parts, or null").1
    }

    /// The capacity in cells that pictures of this extent need.
    fn capacity(&self, extent: Extent) -> usize {
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
        for (items, cells) in [(7, 100), (400, 400), (1_200, 1_300), (1, 8_000)] {
            let cells = cells.max(items * program.grids_per_item());
            let Some(memory) = Memory::new(program, items, cells) else { continue };
            let launches = launches(program, &memory.places);
            let names: Vec<_> = launches.iter().map(|(kernel, _)| kernel.name).collect();
            let want = kernels_of(program, memory.places.area_max, items).map(|kernel| kernel.name);
            assert_eq!(names, want.collect::<Vec<_>>());
            let steps: Vec<_> = launches.into_iter().map(|(_, step)| step).collect();
            check(program, &memory, &steps);
        }
    }
}

/// Launches that make or move values, without those that only pack.
fn makers<'a>(program: &Program, launches: &'a [StepArgument]) -> &'a [StepArgument] {
    let packs = |launch: &StepArgument| module::packing(launch.values).len();
    let packing = launches.last().filter(|_| program.is_packed()).map_or(0, packs);
    &launches[..launches.len() - packing]
}

/// The last step that a launch does, by the place of its last op.
fn last_step(launch: &StepArgument) -> Option<usize> {
    let ops = &launch.ops[..launch.op_count as usize];
    ops.last().map(|op| usize::from(op.place))
}

/// The parts that a launch writes, each with the bytes that it may write; null where it writes nothing.
fn written(
    memory: &Memory,
    program: &Program,
    launch: &StepArgument,
) -> Vec<(DeviceAddress, usize)> {
    let values = launch.values as usize;
    let capacity = last_step(launch).map_or(0, |at| {
        // Neighbouring images are one op, at the place of the first: all have the same capacity.
        memory.capacity(picture_capacity(program, at))
    });
    vec![
        (launch.status, 2 * values),
        (launch.to.shapes, 2 * values),
        (launch.to.origins, 4 * values),
        (launch.to.cells, capacity),
        (launch.counts, 2 * values),
        (launch.labels_low, capacity),
        (launch.labels_high, capacity),
        (launch.numbers, 4 * values),
        (launch.palettes, PALETTE_BYTES * values),
    ]
}

/// The parts that the packing kernels write.
fn packed(memory: &Memory, argument: &StepArgument) -> Vec<(DeviceAddress, usize)> {
    let (values, capacity) = (argument.values as usize, memory.result.capacity());
    let planes = [argument.to.cells, argument.packed_low, argument.packed_high];
    let sums = values.div_ceil(TILE_VALUES as usize) + 1;
    let others = [(argument.places, 4 * values), (argument.sums, 4 * sums)];
    planes.map(|plane| (plane, capacity)).into_iter().chain(others).collect()
}

/// The parts that all launches of a program write.
fn all_written(
    program: &Program,
    memory: &Memory,
    launches: &[StepArgument],
) -> Vec<Vec<(DeviceAddress, usize)>> {
    let makers = makers(program, launches);
    let made = makers.iter().map(|launch| written(memory, program, launch));
    let packs = launches[makers.len()..].iter().map(|argument| packed(memory, argument));
    made.chain(packs).collect()
}

const NULL: DeviceAddress = DeviceAddress::NULL;

#[test]
fn no_launch_writes_more_than_a_part_holds() {
    each_program(|program, memory, launches| {
        for (at, parts) in all_written(program, memory, launches).iter().enumerate() {
            for &(part, bytes) in parts.iter().filter(|(part, _)| *part != NULL) {
                let (text, capacity) = (program.text(), memory.bytes_at(part));
                assert!(
                    bytes <= capacity,
                    "{text} launch {at}: {bytes} bytes in a part of {capacity}"
                );
            }
        }
    });
}

#[test]
fn every_step_is_an_op_of_one_launch_or_an_image_made_one_with_those_before_it() {
    each_program(|program, _, launches| {
        let makers = makers(program, launches);
        let mut places = Vec::new();
        for (at, launch) in makers.iter().enumerate() {
            let ops = &launch.ops[..launch.op_count as usize];
            if at > 0 && makers[at - 1].status == launch.status {
                assert_eq!(ops, &makers[at - 1].ops[..ops.len()], "a second try does the same");
            } else {
                places.extend(ops.iter().map(|op| usize::from(op.place)));
            }
        }
        assert_eq!(places[0], 0, "{}", program.text());
        places.push(program.steps().len());
        for pair in places.windows(2) {
            let merged = &program.steps()[pair[0]..pair[1]];
            let are_images = || merged.iter().all(|step| chain_code(step.op) == 0);
            assert!(merged.len() == 1 || are_images(), "{}", program.text());
        }
    });
}

#[test]
fn only_the_last_launch_names_parts_of_the_result_that_are_no_pictures() {
    each_program(|program, memory, launches| {
        let result_status = memory.places.result.status;
        for launch in makers(program, launches).iter().filter(|l| l.status != result_status) {
            let parts = [launch.numbers, launch.palettes, launch.counts, launch.labels_low];
            assert_eq!(parts, [NULL; 4], "{}", program.text());
        }
    });
}

#[test]
fn no_launch_writes_where_it_reads() {
    each_program(|program, memory, launches| {
        for launch in makers(program, launches) {
            assert!(launch.from.cells != launch.to.cells, "{}", program.text());
            assert!(launch.from.shapes != launch.to.shapes, "{}", program.text());
            assert_ne!(launch.to.cells, memory.places.input.cells, "{}", program.text());
            assert_ne!(launch.status, launch.status_before, "{}", program.text());
        }
    });
}

#[test]
fn each_launch_reads_the_result_of_the_launch_before_and_the_first_reads_the_cells() {
    each_program(|program, memory, launches| {
        let makers = makers(program, launches);
        let mut made = (memory.places.input.cells, memory.places.input.shapes);
        let mut status = None;
        for (at, launch) in makers.iter().enumerate() {
            let is_second_try = at > 0 && makers[at - 1].status == launch.status;
            if !is_second_try {
                assert_eq!(launch.validates, u32::from(at == 0), "{}", program.text());
                assert_eq!((launch.from.cells, launch.from.shapes), made, "{}", program.text());
                assert!(status.is_none_or(|s| s == launch.status_before), "{}", program.text());
            }
            if launch.to.cells != NULL {
                made = (launch.to.cells, launch.to.shapes);
            }
            status = Some(launch.status);
        }
        assert_eq!(status, Some(memory.places.result.status), "{}", program.text());
        for pack in &launches[makers.len()..] {
            assert_eq!((pack.from.cells, pack.from.shapes), made, "{}", program.text());
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
            assert!(is_written || part == NULL, "{}", program.text());
        }
    });
}

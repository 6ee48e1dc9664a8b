//! Runs kernels by name, from the bytes of their argument, on the reference: each reads and writes what its
//! original in `kernels/cuda` does, launch by launch.
//!
//! A chain leaves values that need much capacity to the kernel after it, as the real one does. Here only their
//! grids decide which ones.

#![expect(unsafe_code, reason = "a launch passes addresses of values")]

mod chain;
mod planes;
pub(crate) mod search;
mod solve;
mod tuple;

use std::ffi::c_void;
use std::sync::LazyLock;

use gridpool_kernels::argument::{
    DeviceAddress, ExtentArgument, OpArgument, PicturesArgument, StepArgument,
};
use gridpool_kernels::chaos::ChaosKernel;
use gridpool_kernels::module::{KERNELS, TILE_VALUES};
use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::Evaluator;
use gridpool_kernels::solve::{PREPARE, SEARCH, SOLVE, SearchArgument, SolveArgument, TEMPLATE};
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::output::{OutputLayout, PALETTE_BYTES};
use gridpool_protocol::program::{Program, Ties};

use crate::cuda::code;
use crate::memory::{Illegal, Memory};
use chain::Takes;

/// `(code, op)` of a value.
type Status = [u8; 2];

const OK: Status = [0; 2];
/// The status of a value that its kernel leaves to the next one: `LATER` of `kernels/cuda/chain.cuh`.
const LATER: Status = [0xff; 2];

/// A kernel with its argument.
#[derive(Clone, Debug)]
pub(crate) enum Launch {
    /// One of gridpool's.
    Step(&'static str, Box<StepArgument>),
    /// That of searches.
    Search(Box<SearchArgument>),
    /// That of solvers.
    Solve(Box<SolveArgument>),
    /// The kernel that measures a round trip.
    Echo { from: DeviceAddress, to: DeviceAddress, bytes: u32 },
    /// A kernel that faults on purpose: the context is lost, with this code.
    Fault(u32),
    /// A kernel that never ends.
    Endless,
}

impl Launch {
    /// Reads the argument of the kernel `name`, as a launch does.
    ///
    /// # Safety
    /// `arguments` must point at what the parameters of the kernel need.
    pub(crate) unsafe fn read(name: &str, arguments: *mut *mut c_void) -> Result<Self, u32> {
        if let Some(kernel) = KERNELS.iter().find(|kernel| kernel.name == name) {
            // SAFETY: all of these kernels take one `Step`.
            let step = unsafe { argument(arguments, 0) };
            return Ok(Self::Step(kernel.name, Box::new(step)));
        }
        if name == SOLVE {
            // SAFETY: it takes one `Solve`.
            return Ok(Self::Solve(Box::new(unsafe { argument(arguments, 0) })));
        }
        if name == SEARCH || name == TEMPLATE {
            // SAFETY: it takes one `Search`.
            return Ok(Self::Search(Box::new(unsafe { argument(arguments, 0) })));
        }
        if name == PREPARE {
            // SAFETY: it takes one `Search`. The reference needs nothing prepared.
            let search: SearchArgument = unsafe { argument(arguments, 0) };
            return Ok(Self::Search(Box::new(SearchArgument { evaluations_count: 0, ..search })));
        }
        let chaos = |fault| ChaosKernel::of(fault).is_some_and(|kernel| kernel.name == name);
        if chaos(DeviceFault::Endless) {
            return Ok(Self::Endless);
        }
        if let Some(&(_, code)) = code::FAULTS.iter().find(|&&(fault, _)| chaos(fault)) {
            return Ok(Self::Fault(code));
        }
        if name != "gp_echo" {
            return Err(code::NOT_SUPPORTED);
        }
        // SAFETY: it takes two addresses and a length; this is the first.
        let from = unsafe { argument(arguments, 0) };
        // SAFETY: the second.
        let to = unsafe { argument(arguments, 1) };
        // SAFETY: the length.
        let bytes = unsafe { argument(arguments, 2) };
        Ok(Self::Echo { from, to, bytes })
    }
}

/// Argument number `at` of a launch.
///
/// # Safety
/// There must be such an argument, and it must be a `T`.
unsafe fn argument<T: Copy>(arguments: *mut *mut c_void, at: usize) -> T {
    // SAFETY: by this function's own contract.
    let place = unsafe { arguments.add(at) };
    // SAFETY: by this function's own contract.
    let place = unsafe { place.read() };
    // SAFETY: by this function's own contract.
    unsafe { place.cast::<T>().read_unaligned() }
}

/// Runs a kernel at once, other than that of searches. Returns the address of the first byte of content that it wrote:
/// no status, no shape.
pub(crate) fn run(launch: &Launch, memory: &Memory) -> Result<Option<usize>, Illegal> {
    let (name, step) = match launch {
        Launch::Step(name, step) => (*name, step),
        Launch::Solve(argument) => return solve::run(argument, memory),
        &Launch::Echo { from, to, bytes } => {
            let bytes = memory.read(number(from), bytes as usize)?;
            return memory.write(number(to), &bytes).map(|()| Some(number(to)));
        }
        Launch::Endless | Launch::Fault(_) | Launch::Search(_) => return Ok(None),
    };
    let mut device = Device { memory, step, content: None };
    match name {
        "gp_chain" | "gp_lists" => device.chain(Takes::Small)?,
        "gp_chain_large" => device.chain(Takes::Left)?,
        "gp_images" => device.chain(Takes::All)?,
        "gp_add_areas" => device.add_areas()?,
        "gp_place" => device.place()?,
        "gp_pack" => device.pack()?,
        "gp_take_planes" => device.take_planes()?,
        "gp_put_planes" => device.put_planes()?,
        _ => device.tuples(name.trim_start_matches("gp_"))?,
    }
    Ok(device.content)
}

/// Makes a packed result claim that a value lies elsewhere, after packing.
pub(crate) fn misplace(
    launch: &Launch,
    memory: &Memory,
    value: usize,
    place: u32,
) -> Result<(), Illegal> {
    match launch {
        Launch::Step("gp_pack", step) => {
            memory.write(number(step.places.plus(4 * value)), &place.to_le_bytes())
        }
        Launch::Echo { .. }
        | Launch::Endless
        | Launch::Fault(_)
        | Launch::Search(..)
        | Launch::Solve(..)
        | Launch::Step(..) => Ok(()),
    }
}

/// The layout of some packed result: it makes pictures follow each other without gaps, no matter how much
/// capacity a launch has for them.
static PACKED: LazyLock<OutputLayout> = LazyLock::new(|| {
    let packed = Program::compile("trim", Ties::Cpython).expect("it is a program");
    let one = BatchLayout::new(1, 1, 1).expect("a batch of one cell");
    OutputLayout::new(&packed, one).expect("its result fits a job")
});

/// A launch while it runs.
struct Device<'a> {
    memory: &'a Memory,
    step: &'a StepArgument,
    content: Option<usize>,
}

/// A value that a launch has made.
struct Made<'a> {
    shape: [u8; 2],
    origin: &'a [u8],
    cells: &'a [u8],
    number: &'a [u8],
    palette: &'a [u8],
    objects: &'a [u8],
    labels: [&'a [u8]; 2],
}

fn number(address: DeviceAddress) -> usize {
    usize::try_from(address.number()).expect("addresses have 64 bits")
}

fn is_null(address: DeviceAddress) -> bool {
    address == DeviceAddress::NULL
}

fn area([h, w]: [u8; 2]) -> usize {
    usize::from(h) * usize::from(w)
}

fn ties(step: &StepArgument) -> Ties {
    if step.ties == Ties::Lowest as u32 { Ties::Lowest } else { Ties::Cpython }
}

impl Device<'_> {
    fn array<const N: usize>(&self, address: DeviceAddress, at: usize) -> Result<[u8; N], Illegal> {
        let bytes = self.memory.read(number(address.plus(N * at)), N)?;
        Ok(bytes.try_into().expect("as many as were read"))
    }

    fn u32(&self, address: DeviceAddress, at: usize) -> Result<u32, Illegal> {
        self.array(address, at).map(u32::from_le_bytes)
    }

    /// Where the input's grid starts, counted from the chunk's first cell.
    fn offset(&self, grid: usize) -> Result<usize, Illegal> {
        self.u32(self.step.offsets, grid).map(|offset| offset as usize)
    }

    /// `Extent::start` of `kernels/cuda/step.cuh`.
    fn start(&self, extent: ExtentArgument, value: usize) -> Result<usize, Illegal> {
        let ExtentArgument { per_cell, per_value, width, grids } = extent;
        let [per_cell, per_value, width, grids] =
            [per_cell, per_value, width, grids].map(|n| n as usize);
        // A launch without pictures has no capacity.
        if per_cell == 0 {
            return Ok(per_value * value);
        }
        let (item, element) = (value / width, value % width);
        let before = self.offset(item * grids)?;
        let share = if element == 0 {
            0
        } else {
            per_cell * element * (self.offset((item + 1) * grids)? - before) / width
        };
        Ok(per_cell * before + share + per_value * value)
    }

    fn status_before(&self, value: usize) -> Result<Status, Illegal> {
        self.array(self.step.status_before, value)
    }

    fn set_status(&self, value: usize, status: Status) -> Result<(), Illegal> {
        self.memory.write(number(self.step.status.plus(2 * value)), &status)
    }

    /// A grid before the launch.
    fn grid(&self, value: usize) -> Result<([u8; 2], Vec<u8>), Illegal> {
        let PicturesArgument { shapes, cells, extent, .. } = self.step.from;
        let shape = self.array::<2>(shapes, value)?;
        let start = self.start(extent, value)?;
        Ok((shape, self.memory.read(number(cells.plus(start)), area(shape))?))
    }

    /// Writes a part of a value, if the launch has a place for it.
    fn put(&self, plane: DeviceAddress, at: usize, bytes: &[u8]) -> Result<(), Illegal> {
        if is_null(plane) { Ok(()) } else { self.memory.write(number(plane.plus(at)), bytes) }
    }

    /// Writes content, if the launch has a place for it.
    fn put_content(
        &mut self,
        plane: DeviceAddress,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), Illegal> {
        if !is_null(plane) && !bytes.is_empty() {
            self.content.get_or_insert_with(|| number(plane.plus(at)));
        }
        self.put(plane, at, bytes)
    }

    fn put_value(&mut self, value: usize, made: &Made<'_>) -> Result<(), Illegal> {
        let step = self.step;
        self.put(step.to.shapes, 2 * value, &made.shape)?;
        self.put(step.to.origins, 4 * value, made.origin)?;
        self.put(step.counts, 2 * value, made.objects)?;
        let start = self.start(step.to.extent, value)?;
        self.put_content(step.to.cells, start, made.cells)?;
        self.put_content(step.palettes, PALETTE_BYTES * value, made.palette)?;
        self.put_content(step.numbers, 4 * value, made.number)?;
        self.put_content(step.labels_low, start, made.labels[0])?;
        let many = made.objects.get(1).is_some_and(|&high| high > 0);
        if many { self.put(step.labels_high, start, made.labels[1]) } else { Ok(()) }
    }

    /// Writes a failed value.
    fn put_nothing(&self, value: usize) -> Result<(), Illegal> {
        let step = self.step;
        if step.blanks != 0 && !(is_null(step.to.cells) && is_null(step.counts)) {
            let (start, end) = (self.offset(value)?, self.offset(value + 1)?);
            let blank = vec![0; end - start];
            self.put(step.to.cells, start, &blank)?;
            self.put(step.labels_low, start, &blank)?;
        }
        self.put(step.to.shapes, 2 * value, &[0; 2])?;
        self.put(step.to.origins, 4 * value, &[0; 4])?;
        self.put(step.palettes, PALETTE_BYTES * value, &[0; PALETTE_BYTES])?;
        self.put(step.numbers, 4 * value, &[0; 4])?;
        self.put(step.counts, 2 * value, &[0; 2])
    }

    /// Bytes of a value to pack: `area_of` of `kernels/cuda/pack.cuh`.
    fn area_before(&self, value: usize) -> Result<usize, Illegal> {
        match self.step.lengths {
            DeviceAddress::NULL => self.array(self.step.from.shapes, value).map(area),
            lengths => self.u32(lengths, value).map(|length| length as usize),
        }
    }

    /// Where a value lies in the cells before.
    fn start_before(&self, value: usize) -> Result<usize, Illegal> {
        match self.step.places_before {
            DeviceAddress::NULL => self.start(self.step.from.extent, value),
            places => self.u32(places, value).map(|place| place as usize),
        }
    }

    /// Writes the area of every tile to the sums.
    fn add_areas(&self) -> Result<(), Illegal> {
        let (values, tile) = (self.step.values as usize, TILE_VALUES as usize);
        for (at, first) in (0..values).step_by(tile).enumerate() {
            let areas = (first..values.min(first + tile)).map(|value| self.area_before(value));
            let sum: usize = areas.sum::<Result<_, _>>()?;
            self.put(self.step.sums, 4 * at, &word(sum))?;
        }
        Ok(())
    }

    /// Writes a place for every value, and the total area after the sums.
    fn place(&self) -> Result<(), Illegal> {
        let (values, tile) = (self.step.values as usize, TILE_VALUES as usize);
        let mut start = 0;
        for value in 0..values {
            if value % tile == 0 {
                let before = (0..value / tile).map(|at| self.u32(self.step.sums, at));
                start = before.sum::<Result<u32, _>>()? as usize;
            }
            self.put(self.step.places, 4 * value, &word(start))?;
            start += self.area_before(value)?;
        }
        match values {
            0 => Ok(()),
            _ => self.put(self.step.sums, 4 * values.div_ceil(tile), &word(start)),
        }
    }

    /// Gathers the planes that the result has.
    fn pack(&mut self) -> Result<(), Illegal> {
        let step = self.step;
        if step.values <= TILE_VALUES {
            self.place()?;
        }
        for value in 0..step.values as usize {
            let from = self.start_before(value)?;
            let to = self.u32(step.places, value)? as usize;
            let bytes = self.area_before(value)?;
            let plane = |plane: DeviceAddress| self.memory.read(number(plane.plus(from)), bytes);
            if !is_null(step.to.cells) {
                let cells = plane(step.from.cells)?;
                self.put_content(step.to.cells, to, &cells)?;
            }
            if !is_null(step.packed_low) {
                let plane =
                    |plane: DeviceAddress| self.memory.read(number(plane.plus(from)), bytes);
                let low = plane(step.labels_low)?;
                self.put_content(step.packed_low, to, &low)?;
                if self.array::<2>(step.counts, value)?[1] > 0 {
                    let plane = self.memory.read(number(step.labels_high.plus(from)), bytes)?;
                    self.put(step.packed_high, to, &plane)?;
                }
            }
        }
        Ok(())
    }

    /// Writes an evaluator's results: its value `at` is value `indexes[at]` of the launch.
    fn put_all(&mut self, made: &mut Evaluator, indexes: &[usize]) -> Result<(), Illegal> {
        made.finish(&PACKED, &ItemSpan { items: 0..0, cells: 0..0 });
        let status = made.part(Part::Status).as_chunks::<2>().0;
        let shapes = made.part(Part::Shapes).as_chunks::<2>().0;
        let part = |part, per_value: usize, at: usize| {
            let range = per_value * at..per_value * (at + 1);
            made.part(part).get(range).unwrap_or_default()
        };
        let mut start = 0;
        for (at, &value) in indexes.iter().enumerate() {
            self.set_status(value, status[at])?;
            let cells = start..start + area(shapes[at]);
            let plane = |part| made.part(part).get(cells.clone()).unwrap_or_default();
            start = cells.end;
            if status[at] != OK {
                self.put_nothing(value)?;
                continue;
            }
            self.put_value(
                value,
                &Made {
                    shape: shapes[at],
                    origin: part(Part::Origins, 4, at),
                    cells: plane(Part::Cells),
                    number: part(Part::Numbers, 4, at),
                    palette: part(Part::Palettes, PALETTE_BYTES, at),
                    objects: part(Part::Counts, 2, at),
                    labels: [plane(Part::LabelsLow), plane(Part::LabelsHigh)],
                },
            )?;
        }
        Ok(())
    }

    /// The ops of the launch.
    fn ops(&self) -> &[OpArgument] {
        &self.step.ops[..self.step.op_count as usize]
    }
}

fn word(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("a chunk has at most 2^30 cells").to_le_bytes()
}

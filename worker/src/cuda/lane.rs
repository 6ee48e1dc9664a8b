//! Takes one chunk of a batch through the device: tables and cells in, kernels, parts out.
//!
//! A chunk is laid out on the device as the protocol lays out any batch and any result. A lane has
//! one stream and buffers of its own, so that several lanes can overlap.

#![expect(unsafe_code, reason = "starts copies and kernels over this lane's own buffers")]

use std::ops::Range;

use gridpool_kernels::module::TILE_VALUES;
use gridpool_kernels::part::{Part, Run};
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::OutputLayout;

use super::driver::{DeviceAddress, Driver, Stream};
use super::launch::{Launcher, Module};
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::schedule::{Places, ResultPlaces, ScratchPlaces, StagePlaces, launches};
use super::scratch::{ScratchLayout, step_in_place};
use crate::device::Task;
use crate::fault::Fault;
use crate::tally::Tally;

/// Of the area of a packed result, behind the staged parts.
const AREA_BYTES: usize = 4;

/// One stream and the memory that a chunk needs.
#[derive(Debug)]
pub(super) struct Lane {
    driver: Driver,
    stream: Stream,
    launcher: Launcher,
    input: DeviceBuffer,
    scratch: DeviceBuffer,
    output: DeviceBuffer,
    input_staging: PinnedBuffer,
    output_staging: PinnedBuffer,
}

/// Which ends of a task lie in arenas that the device copies by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    pub(super) input: bool,
    pub(super) output: bool,
}

/// What a lane has done, chunk after chunk.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) tally: Tally,
    pub(super) item_errors: u32,
    pub(super) h2d_bytes: u64,
    pub(super) d2h_bytes: u64,
}

/// A chunk of a task, with the layouts that it has on the device.
struct Pass<'a> {
    task: &'a Task<'a>,
    chunk: &'a Run,
    direct: Direct,
    batch: BatchLayout,
    result: OutputLayout,
    scratch: ScratchLayout,
}

/// A part of a chunk's result: where it lies there and in the task's.
struct Copy {
    part: Part,
    from: Range<usize>,
    to: Range<usize>,
}

impl<'a> Pass<'a> {
    fn new(task: &'a Task<'a>, chunk: &'a Run, direct: Direct) -> Self {
        let count = |n: usize| u32::try_from(n).expect("a chunk is no larger than its batch");
        let (items, cells) = (count(chunk.items.len()), count(chunk.cells.len()));
        let batch = BatchLayout::new(items, count(task.batch.grids_per_item()), cells)
            .expect("a part of a batch is a batch");
        let result = OutputLayout::new(task.program, batch)
            .expect("the result of a part is no larger than that of the whole");
        let scratch = ScratchLayout::new(task.program, &batch, &result);
        Self { task, chunk, direct, batch, result, scratch }
    }

    /// The grids of the chunk's items.
    fn grids(&self) -> Range<usize> {
        let per_item = self.batch.grids_per_item();
        per_item * self.chunk.items.start..per_item * self.chunk.items.end
    }

    /// The parts that the result has. Of those with cells only the first `area` bytes if the
    /// result is packed.
    fn copies(&self, area: usize) -> impl Iterator<Item = Copy> {
        Part::ALL.into_iter().filter_map(move |part| {
            let to = part.span(&self.task.output_layout, self.chunk)?;
            let from = part.range(&self.result);
            let has_cells = part.bytes_per_value().is_none();
            let bytes = if has_cells && self.result.is_packed() { area } else { from.len() };
            let cut = |range: Range<usize>| range.start..range.start + bytes;
            Some(Copy { part, from: cut(from), to: cut(to) })
        })
    }

    /// Whether a part comes back through staging. The status always does: it is counted, and an
    /// arena could change under the count.
    fn stages(&self, part: Part) -> bool {
        !self.direct.output || part == Part::Status
    }

    /// Where the parts with cells start: all before them are copied as they are.
    fn fixed_bytes(&self) -> usize {
        self.result.counts().end
    }

    /// Bytes of the result that may come back through staging.
    fn staged_bytes(&self) -> usize {
        if self.direct.output { self.result.status().end } else { self.result.bytes() }
    }

    /// Where the area of a packed result lies in the scratch, behind the sums, and in staging.
    fn area_places(&self) -> (usize, usize) {
        let tiles = self.result.values_count().div_ceil(TILE_VALUES as usize);
        (self.scratch.sums.start + 4 * tiles, self.staged_bytes())
    }
}

impl Lane {
    pub(super) fn open(driver: Driver) -> Result<Self, Fault> {
        let stream = driver.stream()?;
        Ok(Self {
            driver,
            stream,
            launcher: Launcher::new(stream),
            input: DeviceBuffer::default(),
            scratch: DeviceBuffer::default(),
            output: DeviceBuffer::default(),
            input_staging: PinnedBuffer::default(),
            output_staging: PinnedBuffer::default(),
        })
    }

    /// Launches every kernel over no values: a driver loads a kernel at its first launch, and a
    /// failure to do so should end a worker before it serves.
    pub(super) fn load_kernels(&mut self, module: &Module) -> Result<(), Fault> {
        self.launcher.launch_all_over_nothing(&self.driver, module)?;
        self.driver.synchronize(self.stream)?;
        self.launcher.collect(&self.driver, &mut Tally::default())
    }

    /// Takes a chunk from its first copy to its last and waits for it.
    pub(super) fn run(
        &mut self,
        module: &Module,
        task: &Task<'_>,
        chunk: &Run,
        direct: Direct,
        done: &mut Done,
    ) -> Result<(), Fault> {
        let pass = Pass::new(task, chunk, direct);
        self.reserve(&pass)?;
        self.fill_input_staging(&pass);
        let started = self.start(module, &pass, done);
        self.wait(started)?;
        self.launcher.collect(&self.driver, &mut done.tally)?;
        let area = self.area(&pass)?;
        if area > 0 {
            let started = self.download_packed(&pass, area, done);
            self.wait(started)?;
        }
        self.empty_output_staging(&pass, area, done);
        Ok(())
    }

    /// Waits for what was started, after a lesser failure too: it still uses the task's memory.
    /// After a failure that ends the worker no call is made.
    fn wait(&self, started: Result<(), Fault>) -> Result<(), Fault> {
        if started.as_ref().is_err_and(Fault::ends_worker) {
            return started;
        }
        self.driver.synchronize(self.stream).and(started)
    }

    fn reserve(&mut self, pass: &Pass<'_>) -> Result<(), Fault> {
        let driver = &self.driver;
        let (batch, result) = (&pass.batch, &pass.result);
        self.input.reserve(driver, batch.bytes())?;
        self.scratch.reserve(driver, pass.scratch.bytes)?;
        self.output.reserve(driver, result.bytes())?;
        let staged_input = if pass.direct.input { batch.offsets().end } else { batch.bytes() };
        self.input_staging.reserve(driver, staged_input)?;
        self.output_staging.reserve(driver, pass.staged_bytes() + AREA_BYTES)
    }

    /// Tables come from the worker's checked copy, offsets counted from the chunk's first cell.
    fn fill_input_staging(&mut self, pass: &Pass<'_>) {
        let Pass { task, chunk, batch, .. } = pass;
        let grids = pass.grids();
        let staging = self.input_staging.bytes();
        let shapes = &task.tables.shapes()[grids.clone()];
        staging[batch.shapes()].copy_from_slice(shapes.as_flattened());
        let offsets = &task.tables.offsets()[grids.start..=grids.end];
        let places = staging[batch.offsets()].as_chunks_mut::<4>().0;
        for (place, offset) in places.iter_mut().zip(offsets) {
            *place = (offset - offsets[0]).to_le_bytes();
        }
        if !pass.direct.input {
            let from = task.batch.cells().start + chunk.cells.start;
            task.input.read(from, &mut staging[batch.cells()]);
        }
    }

    /// Puts the copies and kernels of a chunk into the stream, but for what only its area tells.
    fn start(&mut self, module: &Module, pass: &Pass<'_>, done: &mut Done) -> Result<(), Fault> {
        self.upload(pass, done)?;
        self.launcher.reset();
        for (kernel, step) in launches(pass.task.program, &self.places(pass)) {
            // SAFETY: `reserve` has made every buffer as long as the layouts say, and `run` waits.
            unsafe { self.launcher.launch(&self.driver, module, kernel, &step)? };
        }
        self.download(pass, done)
    }

    fn places(&self, pass: &Pass<'_>) -> Places {
        let (batch, scratch) = (&pass.batch, &pass.scratch);
        let items = u32::try_from(batch.items()).expect("a batch counts its items in 32 bits");
        let base = pass.chunk.room(&pass.task.output_layout).start;
        let base = u32::try_from(base).expect("a result has at most 2^30 cells");
        Places {
            items,
            cells: batch.cell_count(),
            input: StagePlaces {
                shapes: self.input.at(batch.shapes().start),
                origins: DeviceAddress::default(),
                cells: self.input.at(batch.cells().start),
            },
            offsets: self.input.at(batch.offsets().start),
            scratch: self.scratch_places(scratch),
            result: self.result_places(&pass.result),
            base: pass.result.is_packed().then_some(base),
            step_in_place: step_in_place(pass.task.program, &pass.result),
        }
    }

    fn scratch_places(&self, layout: &ScratchLayout) -> ScratchPlaces {
        let at = |part: &Range<usize>| self.scratch.at(part.start);
        ScratchPlaces {
            status: layout.status.each_ref().map(at),
            stages: layout.stages.each_ref().map(|stage| StagePlaces {
                shapes: at(&stage.shapes),
                origins: at(&stage.origins),
                cells: at(&stage.cells),
            }),
            counts: at(&layout.counts),
            labels_low: at(&layout.labels_low),
            labels_high: at(&layout.labels_high),
            sums: at(&layout.sums),
        }
    }

    fn result_places(&self, layout: &OutputLayout) -> ResultPlaces {
        let at = |part: Range<usize>| {
            if part.is_empty() { DeviceAddress::default() } else { self.output.at(part.start) }
        };
        ResultPlaces {
            status: at(layout.status()),
            shapes: at(layout.shapes()),
            origins: at(layout.origins()),
            offsets: at(layout.offsets()),
            numbers: at(layout.numbers()),
            palettes: at(layout.palettes()),
            counts: at(layout.counts()),
            labels_low: at(layout.labels_low()),
            labels_high: at(layout.labels_high()),
            cells: at(layout.cells()),
        }
    }

    fn upload(&mut self, pass: &Pass<'_>, done: &mut Done) -> Result<(), Fault> {
        let batch = &pass.batch;
        let staging = self.input_staging.bytes().as_ptr();
        let staged = if pass.direct.input { batch.offsets().end } else { batch.cells().end };
        self.copy_in(self.input.at(0), staging, staged, done)?;
        if pass.direct.input {
            let first = pass.task.batch.cells().start + pass.chunk.cells.start;
            let cells = pass.task.input.as_ptr().wrapping_add(first);
            self.copy_in(self.input.at(batch.cells().start), cells, batch.cells().len(), done)?;
        }
        Ok(())
    }

    /// Copies back all of a result in place; of a packed one the parts without cells and its area.
    fn download(&mut self, pass: &Pass<'_>, done: &mut Done) -> Result<(), Fault> {
        let packed = pass.result.is_packed();
        if packed {
            let (from, to) = pass.area_places();
            let to = self.staged(to);
            self.copy_out(to, self.scratch.at(from), AREA_BYTES, done)?;
        }
        if !pass.direct.output {
            let bytes = if packed { pass.fixed_bytes() } else { pass.result.bytes() };
            let to = self.staged(0);
            return self.copy_out(to, self.output.at(0), bytes, done);
        }
        self.copy_parts(pass, 0, done, |part| !packed || part.bytes_per_value().is_some())
    }

    /// Copies back the cells of a packed result.
    fn download_packed(
        &mut self,
        pass: &Pass<'_>,
        area: usize,
        done: &mut Done,
    ) -> Result<(), Fault> {
        self.copy_parts(pass, area, done, |part| part.bytes_per_value().is_none())
    }

    fn copy_parts(
        &mut self,
        pass: &Pass<'_>,
        area: usize,
        done: &mut Done,
        wanted: impl Fn(Part) -> bool,
    ) -> Result<(), Fault> {
        for Copy { part, from, to } in pass.copies(area).filter(|copy| wanted(copy.part)) {
            let host = if pass.stages(part) {
                self.staged(from.start)
            } else {
                pass.task.output.as_ptr().wrapping_add(to.start)
            };
            self.copy_out(host, self.output.at(from.start), from.len(), done)?;
        }
        Ok(())
    }

    /// A byte of the output's staging.
    fn staged(&mut self, offset: usize) -> *mut u8 {
        self.output_staging.bytes()[offset..].as_mut_ptr()
    }

    /// The area of a packed result, as the device has added it up; 0 if it is in place. What comes
    /// from the device is bounded before it is a length.
    fn area(&mut self, pass: &Pass<'_>) -> Result<usize, Fault> {
        if !pass.result.is_packed() {
            return Ok(0);
        }
        let (_, at) = pass.area_places();
        let bytes = self.output_staging.bytes()[at..].first_chunk().expect("`reserve` made room");
        let area = u32::from_le_bytes(*bytes) as usize;
        let room = pass.chunk.room(&pass.task.output_layout).len().min(pass.result.room());
        if area > room {
            let detail = format!("a result of {area} cells where there is room for {room}");
            return Err(Fault::WrongResult { detail });
        }
        Ok(area)
    }

    fn copy_in(
        &self,
        to: DeviceAddress,
        from: *const u8,
        bytes: usize,
        done: &mut Done,
    ) -> Result<(), Fault> {
        // SAFETY: callers name parts of buffers that `reserve` made long enough, or of the task's
        // input by its checked layout; `run` waits for the stream before either changes.
        unsafe { self.driver.copy_to_device(to, from, bytes, self.stream)? };
        done.h2d_bytes += bytes as u64;
        Ok(())
    }

    fn copy_out(
        &self,
        to: *mut u8,
        from: DeviceAddress,
        bytes: usize,
        done: &mut Done,
    ) -> Result<(), Fault> {
        // SAFETY: as for `copy_in`, with the task's output.
        unsafe { self.driver.copy_to_host(to, from, bytes, self.stream)? };
        done.d2h_bytes += bytes as u64;
        Ok(())
    }

    /// Puts the staged parts in place and counts the items in error.
    fn empty_output_staging(&mut self, pass: &Pass<'_>, area: usize, done: &mut Done) {
        let staging = self.output_staging.bytes();
        for Copy { part, from, to } in pass.copies(area) {
            if pass.stages(part) {
                pass.task.output.write(to.start, &staging[from]);
            }
        }
        let status = staging[pass.result.status()].as_chunks::<2>().0;
        let items = status.chunks_exact(pass.result.width());
        let has_error = |values: &&[[u8; 2]]| values.iter().any(|&[code, _]| code != 0);
        let errors = items.filter(has_error).count();
        done.item_errors += u32::try_from(errors).expect("no more errors than items");
    }
}

//! Takes one chunk of a batch through the device: tables and cells in, kernels, parts out.
//!
//! A chunk is laid out on the device as the protocol lays out any batch and any result. A lane has
//! one stream and buffers of its own, so that several lanes can overlap.

#![expect(unsafe_code, reason = "starts copies and kernels over this lane's own buffers")]

use std::ops::Range;

use gridpool_kernels::part::Part;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::output::OutputLayout;

use super::driver::{DeviceAddress, Driver, Stream};
use super::launch::{BatchArgument, Launcher, Module, StageArgument};
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::schedule::{Places, between_count, launch_program};
use crate::chunk::Chunk;
use crate::device::Task;
use crate::fault::Fault;
use crate::tally::Tally;

/// One stream and the memory that a chunk needs.
#[derive(Debug)]
pub(super) struct Lane {
    driver: Driver,
    stream: Stream,
    launcher: Launcher,
    input: DeviceBuffer,
    between: [DeviceBuffer; 2],
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
    chunk: &'a Chunk,
    direct: Direct,
    items: u32,
    batch: BatchLayout,
    result: OutputLayout,
}

impl Pass<'_> {
    /// Parts that the result has: where each lies in the chunk's result and in the task's.
    fn parts(&self) -> impl Iterator<Item = (Part, Range<usize>, Range<usize>)> {
        Part::ALL.into_iter().filter_map(|part| {
            let whole = &self.task.output_layout;
            let to = part.span(whole, &self.chunk.items, &self.chunk.cells)?;
            Some((part, part.range(&self.result), to))
        })
    }

    /// Whether a part comes back through staging. The status always does: it is counted, and an
    /// arena could change under the count.
    fn stages(&self, part: Part) -> bool {
        !self.direct.output || part == Part::Status
    }

    fn has_cells(&self) -> bool {
        !self.result.cells().is_empty()
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
            between: Default::default(),
            output: DeviceBuffer::default(),
            input_staging: PinnedBuffer::default(),
            output_staging: PinnedBuffer::default(),
        })
    }

    /// Launches every kernel over no items: a driver loads a kernel at its first launch, and a
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
        chunk: &Chunk,
        direct: Direct,
        done: &mut Done,
    ) -> Result<(), Fault> {
        let count = |n: usize| u32::try_from(n).expect("a chunk is no larger than its batch");
        let (items, cells) = (count(chunk.items.len()), count(chunk.cells.len()));
        let batch = BatchLayout::new(items, cells).expect("a part of a batch is a batch");
        let result = OutputLayout::new(task.program, batch);
        let pass = Pass { task, chunk, direct, items, batch, result };
        self.reserve(&pass)?;
        self.fill_input_staging(&pass);
        let started = self.start(module, &pass, done);
        if started.as_ref().is_err_and(Fault::ends_worker) {
            return started;
        }
        // After a lesser failure too: what was started still uses the task's memory.
        self.driver.synchronize(self.stream).and(started)?;
        self.launcher.collect(&self.driver, &mut done.tally)?;
        self.empty_output_staging(&pass, done);
        Ok(())
    }

    fn reserve(&mut self, pass: &Pass<'_>) -> Result<(), Fault> {
        let driver = &self.driver;
        let (batch, result) = (&pass.batch, &pass.result);
        self.input.reserve(driver, batch.bytes())?;
        self.output.reserve(driver, result.bytes())?;
        for buffer in &mut self.between[..between_count(pass.task.program, pass.has_cells())] {
            buffer.reserve(driver, batch.bytes())?;
        }
        let staged_input = if pass.direct.input { batch.offsets().end } else { batch.bytes() };
        let staged_result = if pass.direct.output { result.status().end } else { result.bytes() };
        self.input_staging.reserve(driver, staged_input)?;
        self.output_staging.reserve(driver, staged_result)
    }

    /// Tables come from the worker's checked copy, offsets counted from the chunk's first cell.
    fn fill_input_staging(&mut self, pass: &Pass<'_>) {
        let Pass { task, chunk, batch, .. } = pass;
        let staging = self.input_staging.bytes();
        let shapes = &task.tables.shapes()[chunk.items.clone()];
        staging[batch.shapes()].copy_from_slice(shapes.as_flattened());
        let offsets = &task.tables.offsets()[chunk.items.start..=chunk.items.end];
        let places = staging[batch.offsets()].as_chunks_mut::<4>().0;
        for (place, offset) in places.iter_mut().zip(offsets) {
            *place = (offset - offsets[0]).to_le_bytes();
        }
        if !pass.direct.input {
            let from = task.batch.cells().start + chunk.cells.start;
            task.input.read(from, &mut staging[batch.cells()]);
        }
    }

    /// Puts all copies and kernels of a chunk into the stream.
    fn start(&mut self, module: &Module, pass: &Pass<'_>, done: &mut Done) -> Result<(), Fault> {
        self.upload(pass, done)?;
        self.launcher.reset();
        let places = self.places(pass);
        let (program, has_cells) = (pass.task.program, pass.has_cells());
        // SAFETY: `reserve` has made every buffer as long as the layouts say, and `run` waits.
        unsafe {
            launch_program(&mut self.launcher, &self.driver, module, program, has_cells, &places)?;
        }
        self.download(pass, done)
    }

    fn places(&self, pass: &Pass<'_>) -> Places {
        let (batch, result) = (&pass.batch, &pass.result);
        let stage = |buffer: &DeviceBuffer| StageArgument {
            shapes: buffer.at(batch.shapes().start),
            cells: buffer.at(batch.cells().start),
        };
        let output = |part: Range<usize>| self.output.at(part.start);
        Places {
            batch: BatchArgument {
                items: pass.items,
                offsets: self.input.at(batch.offsets().start),
            },
            status: output(result.status()),
            input: stage(&self.input),
            between: [stage(&self.between[0]), stage(&self.between[1])],
            output: StageArgument {
                shapes: output(result.shapes()),
                cells: output(result.cells()),
            },
            values: output(result.values()),
            palettes: output(result.palettes()),
            counts: output(result.counts()),
            labels_low: output(result.labels_low()),
            labels_high: output(result.labels_high()),
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

    fn download(&mut self, pass: &Pass<'_>, done: &mut Done) -> Result<(), Fault> {
        let staging = self.output_staging.bytes().as_mut_ptr();
        if !pass.direct.output {
            return self.copy_out(staging, self.output.at(0), pass.result.bytes(), done);
        }
        for (part, from, to) in pass.parts() {
            let host = if pass.stages(part) {
                staging.wrapping_add(from.start)
            } else {
                pass.task.output.as_ptr().wrapping_add(to.start)
            };
            self.copy_out(host, self.output.at(from.start), from.len(), done)?;
        }
        Ok(())
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
    fn empty_output_staging(&mut self, pass: &Pass<'_>, done: &mut Done) {
        let staging = self.output_staging.bytes();
        for (part, from, to) in pass.parts() {
            if pass.stages(part) {
                pass.task.output.write(to.start, &staging[from]);
            }
        }
        let status = staging[pass.result.status()].as_chunks::<2>().0;
        done.item_errors += status.iter().map(|&[code, _]| u32::from(code != 0)).sum::<u32>();
    }
}

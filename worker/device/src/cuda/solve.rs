//! Runs solvers: `kernels/cuda/solve.cu` over one chunk after the other.
//!
//! The modules are loaded at the first solver or search; `search` runs those. A warp has a small arena in shared
//! memory, which is enough for most items. An item that needs more is run again by another module with a larger arena
//! in global memory and fewer warps (`kernel`); what needs more than the largest is run by the reference on the
//! processor. So only the machine's own limits end an item, on every device. An item whose result does not fit behind
//! the others is run again when those have been copied out.
//!
//! A launch may run for minutes. Once nobody wants any of its results, it is stopped (`stop`).

#![expect(unsafe_code, reason = "starts copies and kernels over its own buffers")]

pub(super) mod kernel;
mod search;
mod stop;
mod tables;

use std::ffi::c_void;
use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::part::Part;
use gridpool_kernels::reference::machine::Runner;
use gridpool_kernels::solve::{NEEDS_MEMORY, NEEDS_ROOM, SOLVE, SOLVERS, STOPPED, SolveArgument};
use gridpool_protocol::limits::{GRID_CELLS_MAX, RESULT_BYTES_MAX};
use gridpool_protocol::program::{Kind, Program};
use gridpool_protocol::solver::Solver;

use super::driver::{Driver, Event, Stream};
use super::gpu::Gpu;
use super::memory::{DeviceBuffer, PinnedBuffer};
use crate::chunk::{ChunkLimits, Feed, Piece, Span, number};
use crate::device::{AttemptRefusal, GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::search::SearchAttempt;
use crate::tally::Totals;
use kernel::{Kernel, Launch};
use search::Searching;
use stop::Stop;
use tables::{Came, Input, Parts, Tables, deliver, word};

/// Keeps a chunk's tables and results small, and the time until a cancelled job ends short.
const CHUNK_LIMITS: ChunkLimits = ChunkLimits { items_max: (1 << 16) - 1, cells_max: 16 << 20 };

/// Chunks of solvers and searches are worked on one after the other.
const PLACE: usize = 0;

/// Bytes of results that a launch may write: more than one result, and most chunks' results.
const RESULTS_BYTES: usize = 32 << 20;

// Whatever the results before it took, one fits a buffer that is empty.
const _: () = assert!(RESULTS_BYTES > RESULT_BYTES_MAX && RESULTS_BYTES > GRID_CELLS_MAX);

/// The kernel with streams and buffers, which are kept from chunk to chunk.
#[derive(Debug)]
pub(super) struct Solving {
    kernel: Kernel,
    stream: Stream,
    stop: Stop,
    around: [Event; 2],
    input: DeviceBuffer,
    input_staging: PinnedBuffer,
    tables: DeviceBuffer,
    tables_staging: PinnedBuffer,
    results: DeviceBuffer,
    results_staging: PinnedBuffer,
    arenas: DeviceBuffer,
    /// For what needs more than the largest arena.
    runner: Runner,
    /// Items that did not fit the arenas of a first launch, so far.
    pub(super) unfit: u64,
    /// Once there was a search: it has threads of its own.
    searching: Option<Searching>,
}

impl Solving {
    /// Of the GPU of this driver.
    pub(super) fn new(driver: &Driver) -> Result<Self, Fault> {
        Ok(Self {
            kernel: Kernel::new(driver, SOLVERS)?,
            stream: driver.stream()?,
            stop: Stop::new(driver)?,
            around: [driver.event()?, driver.event()?],
            input: DeviceBuffer::default(),
            input_staging: PinnedBuffer::default(),
            tables: DeviceBuffer::default(),
            tables_staging: PinnedBuffer::default(),
            results: DeviceBuffer::default(),
            results_staging: PinnedBuffer::default(),
            arenas: DeviceBuffer::default(),
            runner: Runner::default(),
            unfit: 0,
            searching: None,
        })
    }

    /// Runs searches.
    pub(super) fn search(
        &mut self,
        gpu: &mut Gpu,
        attempts: &[SearchAttempt<'_>],
        done: &mut Totals,
    ) -> Result<(), Fault> {
        let searching = match &mut self.searching {
            Some(searching) => searching,
            None => self.searching.insert(Searching::new(&gpu.driver)?),
        };
        searching.run(gpu, &mut self.arenas, attempts, done)
    }

    /// Runs a solver over all items of a dispatch.
    pub(super) fn run(
        &mut self,
        gpu: &mut Gpu,
        dispatch: &GridDispatch<'_>,
        solver: &Solver,
        limits: ChunkLimits,
        done: &mut Totals,
    ) -> Result<(), Fault> {
        let limits = ChunkLimits {
            items_max: limits.items_max.min(CHUNK_LIMITS.items_max),
            cells_max: limits.cells_max.min(CHUNK_LIMITS.cells_max),
        };
        let attempts = dispatch.attempts.iter().enumerate();
        let mut rest: Vec<_> =
            attempts.map(|(attempt, of)| Span { attempt, items: of.items() }).collect();
        let mut feed = Feed::new(dispatch, &mut rest, limits, limits.cells_max);
        let (mut shapes, mut offsets, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
        while !feed.is_empty() {
            let grids = feed.plan();
            shapes.resize(grids, [0; 2]);
            offsets.resize(grids + 1, [0; 4]);
            feed.fill(&mut shapes, &mut offsets, &mut pieces, |attempt, refusal| {
                done.attempts[attempt] = Err(refusal);
            });
            if !pieces.is_empty() {
                self.run_chunk(gpu, dispatch, solver, (&shapes, &offsets, &pieces), done)?;
            }
        }
        Ok(())
    }

    fn run_chunk(
        &mut self,
        gpu: &mut Gpu,
        dispatch: &GridDispatch<'_>,
        solver: &Solver,
        (shapes, offsets, pieces): (&[[u8; 2]], &[[u8; 4]], &[Piece]),
        done: &mut Totals,
    ) -> Result<(), Fault> {
        let items = pieces.last().map_or(0, |piece| piece.of_chunk.items.end);
        gpu.allocator.gauges().position.pieces_begin(PLACE, pieces);
        let input =
            self.upload(gpu, dispatch, solver, (&shapes[..items], &offsets[..=items], pieces))?;
        let tables = Tables::new(items);
        self.tables.reserve(&mut gpu.allocator, tables.bytes)?;
        self.tables_staging.reserve(&mut gpu.allocator, tables.bytes)?;
        self.results.reserve(&mut gpu.allocator, RESULTS_BYTES)?;
        self.results_staging.reserve(&mut gpu.allocator, RESULTS_BYTES)?;
        self.stop.prepare(gpu)?;
        let wanted = || pieces.iter().map(|piece| &dispatch.attempts[piece.attempt]);
        let is_cancelled = || wanted().all(GridAttempt::is_cancelled);
        let argument = self.argument(&input, &tables, dispatch.program);
        let mut came = vec![Came::default(); items];
        let (mut bytes, mut copied) = (Vec::new(), [input.bytes as u64, 0]);
        let mut left: Vec<u32> = (0..).take(items).collect();
        for &words in self.kernel.arena_words() {
            let mut larger = Vec::new();
            while !left.is_empty() {
                let launched =
                    self.launch(gpu, (&argument, &tables), words, &left, (done, &is_cancelled))?;
                if is_cancelled() {
                    gpu.allocator.gauges().position.chunk_is_done(PLACE);
                    refuse(done, pieces);
                    return Ok(());
                }
                gpu.allocator.gauges().chunk_is_done();
                copied[0] += launched[0];
                copied[1] += launched[1];
                let mut again = Vec::new();
                for item in &left {
                    let of = self.came(&tables, *item);
                    match of.status[0] {
                        NEEDS_MEMORY => larger.push(*item),
                        NEEDS_ROOM => again.push(*item),
                        STOPPED => {
                            let detail = format!("item {item} was stopped, and is wanted");
                            return Err(Fault::WrongResult { detail });
                        }
                        _ => {
                            let place = self.place(of)?;
                            let start = bytes.len();
                            bytes.extend_from_slice(&self.results_staging.bytes()[place]);
                            came[*item as usize] = Came { start, ..of };
                        }
                    }
                }
                left = again;
            }
            if words == self.kernel.arena_words()[0] {
                self.unfit += larger.len() as u64;
            }
            left = larger;
            if left.is_empty() {
                break;
            }
        }
        let on_processor = left;
        for (at, piece) in pieces.iter().enumerate() {
            let attempt = &dispatch.attempts[piece.attempt];
            let of_piece = &mut came[piece.of_chunk.items.clone()];
            for item in
                on_processor.iter().filter(|item| piece.of_chunk.items.contains(&(**item as usize)))
            {
                let index = *item as usize;
                let of_item = (shapes[index], offsets[index]);
                match self.by_reference(solver, attempt, piece, of_item, &mut bytes) {
                    Some(of) => of_piece[index - piece.of_chunk.items.start] = of,
                    None => {
                        refuse(done, std::slice::from_ref(piece));
                        break;
                    }
                }
            }
            if done.attempts[piece.attempt].is_err() {
                continue;
            }
            let errors = deliver(attempt, &piece.of_batch, of_piece, &bytes)?;
            // Bytes that pieces share are divided by items; the last piece gets the remainder.
            let is_last = at + 1 == pieces.len();
            if let Ok(sum) = &mut done.attempts[piece.attempt] {
                let until = |end: usize| copied.map(|bytes| bytes * end as u64 / items as u64);
                let (before, after) =
                    (until(piece.of_chunk.items.start), until(piece.of_chunk.items.end));
                let after = if is_last { copied } else { after };
                sum.item_errors += errors;
                sum.h2d_bytes += after[0] - before[0];
                sum.d2h_bytes += after[1] - before[1];
            }
        }
        gpu.allocator.gauges().position.chunk_is_done(PLACE);
        Ok(())
    }

    /// Copies program, tables and cells to the device.
    fn upload(
        &mut self,
        gpu: &mut Gpu,
        dispatch: &GridDispatch<'_>,
        solver: &Solver,
        (shapes, offsets, pieces): (&[[u8; 2]], &[[u8; 4]], &[Piece]),
    ) -> Result<Input, Fault> {
        let program = solver.code().to_bytes();
        let cells = pieces.last().map_or(0, |piece| piece.of_chunk.cells.end);
        let mut parts = Parts::default();
        let place_of_program = parts.add(program.len());
        let place_of_shapes = parts.add(2 * shapes.len());
        let place_of_offsets = parts.add(4 * offsets.len());
        let place_of_cells = parts.add(cells);
        let bytes = place_of_cells.end;
        let input = Input {
            shapes: place_of_shapes.start,
            offsets: place_of_offsets.start,
            cells: place_of_cells.start,
            bytes,
        };
        self.input.reserve(&mut gpu.allocator, bytes)?;
        self.input_staging.reserve(&mut gpu.allocator, bytes)?;
        let staging = self.input_staging.bytes();
        staging[place_of_program].copy_from_slice(&program);
        staging[place_of_shapes].copy_from_slice(shapes.as_flattened());
        staging[place_of_offsets].copy_from_slice(offsets.as_flattened());
        for piece in pieces {
            let attempt = &dispatch.attempts[piece.attempt];
            let from = attempt.batch().cells().start + piece.of_batch.cells.start;
            let to = &mut staging[place_of_cells.clone()][piece.of_chunk.cells.clone()];
            attempt.input().read(from, to);
        }
        let (to, from) = (self.input.at(0), self.input_staging.at(0));
        // SAFETY: both buffers have these bytes, and the stream is waited for before they change.
        unsafe { gpu.driver.copy_to_device(to, from, bytes, self.stream)? };
        Ok(input)
    }

    fn argument(&self, input: &Input, tables: &Tables, program: &Program) -> SolveArgument {
        let gives_grid = program.gives().kind == Kind::Grid;
        let at = |part: &Range<usize>| self.tables.at(part.start);
        SolveArgument {
            program: self.input.at(0),
            shapes: self.input.at(input.shapes),
            offsets: self.input.at(input.offsets),
            cells: self.input.at(input.cells),
            items: at(&tables.items),
            status: at(&tables.status),
            instructions: at(&tables.instructions),
            out_shapes: if gives_grid { at(&tables.shapes) } else { DeviceAddress::NULL },
            places: at(&tables.places),
            lengths: at(&tables.lengths),
            results: self.results.at(0),
            used: at(&tables.used),
            steps: DeviceAddress::NULL,
            arenas: DeviceAddress::NULL,
            items_count: 0,
            arena_words: 0,
            steps_max: program.step_limit(),
            results_max: number(RESULTS_BYTES),
            place_base: 0,
            again: 0,
        }
    }

    /// Runs items with arenas of so many words and waits until their tables and results have come. Returns the bytes
    /// that were copied in and out.
    fn launch(
        &mut self,
        gpu: &mut Gpu,
        (argument, tables): (&SolveArgument, &Tables),
        words: u32,
        items: &[u32],
        (done, is_cancelled): (&mut Totals, &dyn Fn() -> bool),
    ) -> Result<[u64; 2], Fault> {
        let count = number(items.len());
        let Launch { function, shape, arenas, .. } =
            self.kernel.launch(gpu, &mut self.arenas, words, count)?;
        let mut argument =
            SolveArgument { items_count: count, arena_words: words, arenas, ..*argument };
        let listed = 4 * items.len();
        let staging = self.tables_staging.bytes();
        for (to, item) in staging[tables.items.clone()].chunks_exact_mut(4).zip(items) {
            to.copy_from_slice(&item.to_le_bytes());
        }
        staging[tables.used.clone()].fill(0);
        let driver = gpu.driver;
        let in_bytes = tables.used.end;
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        let (on_device, staged) = (self.tables.at(0), self.tables_staging.at(0));
        // SAFETY: both buffers are as long as `Tables` says; the stream is waited for below.
        unsafe { driver.copy_to_device(on_device, staged, in_bytes, self.stream)? };
        driver.record(self.around[0], self.stream)?;
        gpu.allocator.gauges().position.launches(PLACE, SOLVE);
        // SAFETY: all buffers are as long as `Tables`, `Input` and `words` say; the stream is waited for below.
        unsafe {
            driver.launch(function, shape, &mut arguments, self.stream)?;
        }
        driver.record(self.around[1], self.stream)?;
        // SAFETY: as for the copy to the device.
        unsafe { driver.copy_to_host(staged, on_device, tables.bytes, self.stream)? };
        self.stop.wait(&driver, self.stream, self.tables.at(tables.stop()), is_cancelled)?;
        done.tally.add(SOLVE, driver.elapsed_us(self.around[0], self.around[1])?);
        let used = word(&self.tables_staging.bytes()[tables.used.clone()]).min(RESULTS_BYTES);
        // SAFETY: both buffers have so many bytes; the stream is waited for at once.
        unsafe {
            driver.copy_to_host(
                self.results_staging.at(0),
                self.results.at(0),
                used,
                self.stream,
            )?
        };
        driver.synchronize(self.stream)?;
        Ok([(listed + 4) as u64, (tables.bytes + used) as u64])
    }

    /// What came out for an item.
    fn came(&mut self, tables: &Tables, item: u32) -> Came {
        let at = item as usize;
        let bytes = &*self.tables_staging.bytes();
        let four = |part: &Range<usize>| &bytes[part.start + 4 * at..][..4];
        let two =
            |part: &Range<usize>| [bytes[part.start + 2 * at], bytes[part.start + 2 * at + 1]];
        Came {
            status: two(&tables.status),
            shape: two(&tables.shapes),
            instruction: number(word(four(&tables.instructions))).to_le_bytes(),
            start: word(four(&tables.places)),
            length: word(four(&tables.lengths)),
        }
    }

    /// Where an item's bytes lie in the staging of results. Numbers from the device are checked before they are used.
    fn place(&self, of: Came) -> Result<Range<usize>, Fault> {
        if of.length > RESULTS_BYTES || of.start > RESULTS_BYTES - of.length {
            let detail =
                format!("a result of {} bytes at {} of {RESULTS_BYTES}", of.length, of.start);
            return Err(Fault::WrongResult { detail });
        }
        Ok(of.start..of.start + of.length)
    }

    /// Runs an item on the processor; `None` if its attempt is cancelled meanwhile.
    fn by_reference(
        &mut self,
        solver: &Solver,
        attempt: &GridAttempt<'_>,
        piece: &Piece,
        (shape, offset): ([u8; 2], [u8; 4]),
        bytes: &mut Vec<u8>,
    ) -> Option<Came> {
        let first = attempt.batch().cells().start + piece.of_batch.cells.start;
        let from = first + word(&offset) - piece.of_chunk.cells.start;
        self.runner.load(&[shape], |cells| attempt.input().read(from, cells));
        let layout = attempt.output_layout();
        if !self.runner.run(solver, layout, &piece.of_batch, || attempt.is_cancelled()) {
            return None;
        }
        let two =
            |part: Part| self.runner.part(part).first_chunk::<2>().copied().unwrap_or_default();
        let instruction = self.runner.part(Part::Numbers).first_chunk::<4>().copied();
        let made = self.runner.part(Part::Cells);
        let start = bytes.len();
        bytes.extend_from_slice(made);
        Some(Came {
            status: two(Part::Status),
            shape: two(Part::Shapes),
            instruction: instruction.unwrap_or_default(),
            start,
            length: made.len(),
        })
    }
}

/// Notes that the attempts of these pieces were cancelled.
fn refuse(done: &mut Totals, pieces: &[Piece]) {
    for piece in pieces {
        if let all @ Ok(_) = &mut done.attempts[piece.attempt] {
            *all = Err(AttemptRefusal::Cancelled);
        }
    }
}

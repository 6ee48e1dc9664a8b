//! Takes chunks through the device, one at a time: tables and cells in, kernels, parts out.
//!
//! A lane has a stream and buffers of its own, so that several overlap. It starts work and is polled
//! later. Until the work is done, neither its buffers nor the memory of the chunk's attempts may be
//! touched.

#![expect(unsafe_code, reason = "starts kernels over this lane's own buffers")]

mod copies;
mod places;
mod solver;

use std::ops::Range;
use std::time::Instant;

use gridpool_kernels::argument::StepArgument;
use gridpool_kernels::module::Kernel;
use gridpool_kernels::part::Part;
use gridpool_protocol::program::Program;

use super::deliver;
use super::driver::{Driver, Stream};
use super::gpu::Gpu;
use super::launch::Launcher;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::pass::{Bytes, Ends, InputLayout, Pass};
use super::schedule::launches;
use super::solve::Work;
use crate::chunk::{Feed, Piece};
use crate::device::{AttemptRefusal, GridDispatch};
use crate::fault::Fault;
use crate::tally::Totals;
use solver::Rest;

/// One stream and the memory that a chunk needs.
#[derive(Debug)]
pub(super) struct Lane {
    /// Its number among the lanes.
    number: usize,
    driver: Driver,
    stream: Stream,
    launcher: Launcher,
    input: DeviceBuffer,
    scratch: DeviceBuffer,
    output: DeviceBuffer,
    input_staging: PinnedBuffer,
    output_staging: PinnedBuffer,
    /// High bytes of labels that kernels write, if no arena takes them.
    high_labels: PinnedBuffer,
    /// The chunk's pieces; kept from chunk to chunk.
    pieces: Vec<Piece>,
    flight: Option<Flight>,
}

/// A chunk under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) pass: Pass,
    pub(super) bytes: Bytes,
    /// Each piece's cells in the chunk's result, once they are known.
    pub(super) areas: Vec<Range<usize>>,
    progress: Progress,
    /// It is of a solver, and nobody has seen to what its first launch left.
    may_have_left: bool,
    /// When what runs of it was last told to stop.
    stopped: Option<Instant>,
}

/// How far a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The tables of a packed result are being copied; the parts that they describe are copied after that.
    Tables,
    /// They have come, and say that a solver's first launch left items, or was stopped.
    Left,
    /// Everything is being copied.
    All,
}

impl Lane {
    pub(super) fn open(driver: Driver, number: usize) -> Result<Self, Fault> {
        let stream = driver.stream()?;
        Ok(Self {
            number,
            driver,
            stream,
            launcher: Launcher::new(stream),
            input: DeviceBuffer::default(),
            scratch: DeviceBuffer::default(),
            output: DeviceBuffer::default(),
            input_staging: PinnedBuffer::default(),
            output_staging: PinnedBuffer::default(),
            high_labels: PinnedBuffer::default(),
            pieces: Vec::new(),
            flight: None,
        })
    }

    pub(super) fn launcher(&mut self) -> &mut Launcher {
        &mut self.launcher
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// Takes the next chunk of `feed` and starts everything that needs no waiting.
    pub(super) fn begin(
        &mut self,
        gpu: &mut Gpu,
        work: &mut Work<'_>,
        feed: &mut Feed<'_>,
        done: &mut Totals,
    ) -> Result<(), Fault> {
        assert!(self.flight.is_none(), "a lane takes one chunk at a time");
        let dispatch = work.dispatch;
        let code = work.solver.as_ref().map_or(&[][..], |solver| &solver.code);
        let input = self.read_tables(gpu, code, feed, done)?;
        if self.pieces.is_empty() {
            return Ok(());
        }
        gpu.allocator.gauges().position.pieces_begin(self.number, &self.pieces);
        let ends = self.pieces.iter().map(|piece| {
            let attempt = &dispatch.attempts[piece.attempt];
            let input = gpu.mapped(&attempt.input()).is_some();
            Ends { input, output: gpu.mapped(&attempt.output()) }
        });
        let ends = ends.collect();
        let area_max = self.area_max(dispatch.program);
        let pass = Pass::new(
            dispatch.program,
            &self.pieces,
            (input, feed.cells_max()),
            area_max,
            (ends, gpu.staging),
        );
        self.reserve(gpu, &pass)?;
        self.stage_cells(dispatch, &pass);
        let bytes = Bytes { own: vec![[0; 2]; self.pieces.len()], ..Bytes::default() };
        let may_have_left = work.solver.is_some();
        let progress = if pass.result.is_packed() { Progress::Tables } else { Progress::All };
        let (areas, stopped) = (Vec::new(), None);
        let mut flight = Flight { pass, bytes, areas, progress, may_have_left, stopped };
        let started = self.start(gpu, work, &mut flight);
        // Even after a failure the stream may hold work.
        self.flight = Some(flight);
        started
    }

    fn start(
        &mut self,
        gpu: &mut Gpu,
        work: &mut Work<'_>,
        flight: &mut Flight,
    ) -> Result<(), Fault> {
        self.upload(work.dispatch, &flight.pass, &mut flight.bytes)?;
        self.compute(gpu, work, &flight.pass)?;
        self.fetch(work.dispatch, flight)
    }

    /// Starts the copies of the result, or of the tables that describe it if it is packed.
    fn fetch(&self, dispatch: &GridDispatch<'_>, flight: &mut Flight) -> Result<(), Fault> {
        let Flight { pass, bytes, .. } = flight;
        if pass.result.is_packed() {
            let is_table = |part: Part| part.bytes_per_value().is_some();
            return self.download(dispatch, pass, bytes, &[], is_table);
        }
        let all = self.pieces.iter().map(|piece| piece.of_chunk.cell_range(&pass.result));
        self.download(dispatch, pass, bytes, &all.collect::<Vec<_>>(), |_| true)
    }

    /// Whether the chunk is done, if there is one, or nothing more comes before [`Lane::finish`]. Once the tables of a
    /// packed result have arrived, it starts the copies of the rest. A solver that nobody wants any more is stopped.
    pub(super) fn poll(&mut self, work: &Work<'_>) -> Result<bool, Fault> {
        if self.flight.is_none() {
            return Ok(true);
        }
        if !self.driver.is_done(self.stream)? {
            return self.stop_unwanted(work).map(|()| false);
        }
        let has_left = self.has_left();
        let flight = self.flight.as_mut().expect("it was there above");
        match flight.progress {
            Progress::All | Progress::Left => Ok(true),
            Progress::Tables if has_left => {
                flight.progress = Progress::Left;
                Ok(true)
            }
            Progress::Tables => self.start_rest(work.dispatch).map(|()| false),
        }
    }

    /// Whether a chunk is under way whose result is packed.
    pub(super) fn is_packed(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.pass.result.is_packed())
    }

    /// Waits for the chunk, if there is one, and delivers its results. Returns where the chunk lies. What is to run
    /// again in smaller chunks goes back to `feed`.
    pub(super) fn finish(
        &mut self,
        gpu: &mut Gpu,
        work: &mut Work<'_>,
        feed: &mut Feed<'_>,
        done: &mut Totals,
    ) -> Result<Option<Pass>, Fault> {
        if self.flight.is_none() {
            return Ok(None);
        }
        let rest = match work.solver.is_some() {
            true => self.finish_solver(gpu, work, done)?,
            false => Rest::Ran,
        };
        self.driver.synchronize(self.stream)?;
        if rest == Rest::Ran && self.flight.as_ref().is_some_and(Flight::has_only_tables) {
            self.start_rest(work.dispatch)?;
            if self.flight.as_ref().is_some_and(|flight| !flight.pass.writes_near) {
                self.driver.synchronize(self.stream)?;
            }
        }
        let flight = self.flight.take().expect("it was there above");
        self.launcher.collect(&self.driver, &mut done.tally)?;
        match rest {
            Rest::Ran => return self.deliver(work.dispatch, flight, done).map(Some),
            Rest::TooLarge => {
                flight.bytes.add_to(&self.pieces, done);
                feed.take_back(&self.pieces);
            }
            Rest::Cancelled => {
                for piece in &self.pieces {
                    let attempt = &mut done.attempts[piece.attempt];
                    if attempt.is_ok() {
                        *attempt = Err(AttemptRefusal::Cancelled);
                    }
                }
            }
        }
        Ok(Some(flight.pass))
    }

    /// Waits for what is under way after a failure that does not end the worker: it still uses the memory of
    /// the dispatch's attempts. Gives up the chunk.
    pub(super) fn settle(&mut self) -> Result<(), Fault> {
        self.launcher.reset();
        match self.flight.take() {
            Some(_) => self.driver.synchronize(self.stream),
            None => Ok(()),
        }
    }

    /// Whether the chunk's first launch was stopped, or left items that [`Lane::finish`] is to run.
    pub(super) fn has_left_some(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.progress == Progress::Left)
    }

    /// Whether a chunk is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.flight.is_some()
    }

    /// Gives up the chunk without another call.
    pub(super) fn forget(&mut self) {
        self.flight = None;
    }

    /// Copies the tables of the next chunk from attempts' memory to where the device copies them from, and the code of
    /// a solver. This is the only copy of them on the host.
    fn read_tables(
        &mut self,
        gpu: &mut Gpu,
        code: &[u8],
        feed: &mut Feed<'_>,
        done: &mut Totals,
    ) -> Result<InputLayout, Fault> {
        let grids_max = feed.plan();
        let layout = InputLayout::new(grids_max, code.len());
        self.input_staging.reserve(&mut gpu.allocator, layout.cells_start())?;
        self.input_staging.bytes()[layout.code()].copy_from_slice(code);
        self.input_staging.bytes()[layout.used()].fill(0);
        let staging = &mut self.input_staging.bytes()[..layout.tables_end()];
        let (shapes, offsets) = staging.split_at_mut(layout.offsets_start());
        let shapes = shapes[..2 * grids_max].as_chunks_mut::<2>().0;
        let offsets = offsets.as_chunks_mut::<4>().0;
        feed.fill(shapes, offsets, &mut self.pieces, |attempt, refusal| {
            done.attempts[attempt] = Err(refusal);
        });
        Ok(layout)
    }

    /// Cells of the largest grid of the chunk whose tables have been read.
    fn area_max(&mut self, program: &Program) -> usize {
        let items = self.pieces.last().map_or(0, |piece| piece.of_chunk.items.end);
        let grids = items * program.takes().width();
        let shapes = self.input_staging.bytes()[..2 * grids].as_chunks::<2>().0;
        let area = |shape: &[u8; 2]| u16::from(shape[0]) * u16::from(shape[1]);
        usize::from(shapes.iter().map(area).max().unwrap_or(0))
    }

    fn reserve(&mut self, gpu: &mut Gpu, pass: &Pass) -> Result<(), Fault> {
        let allocator = &mut gpu.allocator;
        let input_bytes = pass.input.cells_start() + pass.batch.cell_count();
        let is_staged = pass.ends.iter().any(|ends| !ends.input);
        let staged = if is_staged { input_bytes } else { pass.input.cells_start() };
        self.input_staging.reserve(allocator, staged)?;
        self.input.reserve(allocator, input_bytes)?;
        self.scratch.reserve(allocator, pass.scratch.bytes)?;
        self.output.reserve(allocator, pass.output_bytes())?;
        self.output_staging.reserve(allocator, pass.staged_output_bytes())?;
        let high_bytes =
            if pass.only_output().is_some() { 0 } else { pass.part(Part::LabelsHigh).len() };
        self.high_labels.reserve(allocator, high_bytes)
    }

    /// Stages cells that the device cannot copy from their place.
    fn stage_cells(&mut self, dispatch: &GridDispatch<'_>, pass: &Pass) {
        for (piece, _) in self.pieces.iter().zip(&pass.ends).filter(|(_, ends)| !ends.input) {
            let attempt = &dispatch.attempts[piece.attempt];
            let from = attempt.batch().cells().start + piece.of_batch.cells.start;
            let to = cells_of(pass, piece);
            attempt.input().read(from, &mut self.input_staging.bytes()[to]);
        }
    }

    /// Puts the kernels of a chunk into the stream.
    pub(super) fn compute(
        &mut self,
        gpu: &mut Gpu,
        work: &mut Work<'_>,
        pass: &Pass,
    ) -> Result<(), Fault> {
        let Work { dispatch, solver } = work;
        self.launcher.reset();
        match solver {
            Some(solver) => self.solve(gpu, solver, dispatch, pass),
            None => {
                let places = self.places(dispatch, pass);
                self.launch_all(gpu, launches(dispatch.program, &places))
            }
        }
    }

    fn launch_all(
        &mut self,
        gpu: &Gpu,
        launches: impl IntoIterator<Item = (&'static Kernel, StepArgument)>,
    ) -> Result<(), Fault> {
        for (kernel, step) in launches {
            gpu.allocator.gauges().position.launches(self.number, kernel.name);
            // SAFETY: `reserve` has made every buffer as long as the layouts say, and they stay as
            // they are until the stream has been waited for.
            unsafe { self.launcher.launch(&self.driver, &gpu.module, kernel, &step)? };
        }
        Ok(())
    }

    /// Starts copying the parts that a packed result's tables describe.
    fn start_rest(&mut self, dispatch: &GridDispatch<'_>) -> Result<(), Fault> {
        let mut flight = self.flight.take().expect("a chunk is under way");
        let staging = self.output_staging.bytes();
        let areas = deliver::areas(dispatch, &self.pieces, &flight.pass, staging);
        let started = areas.and_then(|areas| {
            flight.progress = Progress::All;
            let Flight { pass, bytes, .. } = &mut flight;
            let has_cells = |part: Part| part.bytes_per_value().is_none();
            self.download(dispatch, pass, bytes, &areas, has_cells)?;
            flight.areas = areas;
            Ok(())
        });
        self.flight = Some(flight);
        started
    }

    /// Delivers what came through staging, and adds up what was done.
    fn deliver(
        &mut self,
        dispatch: &GridDispatch<'_>,
        mut flight: Flight,
        done: &mut Totals,
    ) -> Result<Pass, Fault> {
        let Self { pieces, input_staging, output_staging, high_labels, .. } = self;
        if flight.areas.is_empty() {
            flight.areas = deliver::areas(dispatch, pieces, &flight.pass, output_staging.bytes())?;
        }
        let came = deliver::Came {
            pass: &flight.pass,
            areas: &flight.areas,
            input: input_staging.bytes(),
            output: output_staging.bytes(),
            high_labels: high_labels.bytes(),
        };
        deliver::deliver(dispatch, pieces, came, &flight.bytes, done)?;
        Ok(flight.pass)
    }
}

impl Flight {
    /// Whether the parts that its tables describe are not copied yet.
    fn has_only_tables(&self) -> bool {
        self.progress == Progress::Tables
    }
}

/// Where the cells of a piece lie in the chunk's input.
fn cells_of(pass: &Pass, piece: &Piece) -> Range<usize> {
    let start = pass.input.cells_start();
    start + piece.of_chunk.cells.start..start + piece.of_chunk.cells.end
}

//! Takes chunks through the device, one at a time: tables and cells in, kernels, parts out.
//!
//! A lane has a stream and buffers of its own, so that several overlap. It starts work and is polled
//! later. Until the work is done, neither its buffers nor the memory of the chunk's attempts may be
//! touched.

#![expect(unsafe_code, reason = "starts kernels over this lane's own buffers")]

mod copies;

use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::part::Part;
use gridpool_protocol::program::Program;

use super::deliver;
use super::driver::{Driver, Stream};
use super::gpu::Gpu;
use super::launch::Launcher;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::pass::{Bytes, Ends, InputLayout, Pass};
use super::schedule::{Places, ResultPlaces, ScratchPlaces, StagePlaces, launches};
use super::scratch::ScratchLayout;
use crate::chunk::{Feed, Piece};
use crate::device::GridDispatch;
use crate::fault::Fault;
use crate::tally::Totals;

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
}

/// How far a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The tables of a packed result are being copied; the parts that they describe are copied after that.
    Tables,
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
        dispatch: &GridDispatch<'_>,
        feed: &mut Feed<'_>,
        done: &mut Totals,
    ) -> Result<(), Fault> {
        assert!(self.flight.is_none(), "a lane takes one chunk at a time");
        let grids_max = feed.plan();
        self.read_tables(gpu, grids_max, feed, done)?;
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
        let pass = Pass::new(dispatch.program, &self.pieces, grids_max, area_max, ends);
        self.reserve(gpu, &pass)?;
        self.stage_cells(dispatch, &pass);
        let bytes = Bytes { own: vec![[0; 2]; self.pieces.len()], ..Bytes::default() };
        let progress = if pass.is_one_go() { Progress::All } else { Progress::Tables };
        let mut flight = Flight { pass, bytes, areas: Vec::new(), progress };
        let started = self.start(gpu, dispatch, &mut flight);
        // Even after a failure the stream may hold work.
        self.flight = Some(flight);
        started
    }

    fn start(
        &mut self,
        gpu: &Gpu,
        dispatch: &GridDispatch<'_>,
        flight: &mut Flight,
    ) -> Result<(), Fault> {
        let Flight { pass, bytes, progress, .. } = flight;
        self.upload(dispatch, pass, bytes)?;
        self.compute(gpu, dispatch, pass)?;
        match progress {
            Progress::All => {
                // A packed result: its whole capacity, because its used area is not known yet.
                let all: Vec<_> = self
                    .pieces
                    .iter()
                    .map(|piece| piece.of_chunk.cell_range(&pass.result))
                    .collect();
                self.download(dispatch, pass, bytes, &all, |_| true)
            }
            Progress::Tables => {
                self.download(dispatch, pass, bytes, &[], |part| part.bytes_per_value().is_some())
            }
        }
    }

    /// Whether the chunk is done, if there is one. Once the tables of a packed result have arrived, it
    /// starts the copies of the rest.
    pub(super) fn poll(&mut self, dispatch: &GridDispatch<'_>) -> Result<bool, Fault> {
        let Some(flight) = &self.flight else { return Ok(true) };
        let progress = flight.progress;
        if !self.driver.is_done(self.stream)? {
            return Ok(false);
        }
        match progress {
            Progress::All => Ok(true),
            Progress::Tables => self.start_rest(dispatch).map(|()| false),
        }
    }

    /// Whether a chunk is under way that needs another copy after its tables have arrived.
    pub(super) fn waits_for_tables(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| !flight.pass.is_one_go())
    }

    /// Waits for the chunk, if there is one, and delivers its results. Returns where the chunk lies.
    pub(super) fn finish(
        &mut self,
        dispatch: &GridDispatch<'_>,
        done: &mut Totals,
    ) -> Result<Option<Pass>, Fault> {
        let Some(flight) = &self.flight else { return Ok(None) };
        let progress = flight.progress;
        self.driver.synchronize(self.stream)?;
        if progress == Progress::Tables {
            self.start_rest(dispatch)?;
            self.driver.synchronize(self.stream)?;
        }
        let flight = self.flight.take().expect("it was there above");
        self.launcher.collect(&self.driver, &mut done.tally)?;
        self.deliver(dispatch, flight, done).map(Some)
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

    /// Gives up the chunk without another call.
    pub(super) fn forget(&mut self) {
        self.flight = None;
    }

    /// Copies the tables of the next chunk from attempts' memory to where the device copies them from. This is
    /// the only copy of them on the host.
    fn read_tables(
        &mut self,
        gpu: &mut Gpu,
        grids_max: usize,
        feed: &mut Feed<'_>,
        done: &mut Totals,
    ) -> Result<(), Fault> {
        let layout = InputLayout::new(grids_max);
        self.input_staging.reserve(&mut gpu.allocator, layout.cells_start())?;
        let staging = &mut self.input_staging.bytes()[..layout.tables_end()];
        let (shapes, offsets) = staging.split_at_mut(layout.offsets_start());
        let shapes = shapes[..2 * grids_max].as_chunks_mut::<2>().0;
        let offsets = offsets.as_chunks_mut::<4>().0;
        feed.fill(shapes, offsets, &mut self.pieces, |attempt, refusal| {
            done.attempts[attempt] = Err(refusal);
        });
        Ok(())
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
        gpu: &Gpu,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
    ) -> Result<(), Fault> {
        let places = self.places(dispatch, pass);
        self.launcher.reset();
        for (kernel, step) in launches(dispatch.program, &places) {
            gpu.allocator.gauges().position.launches(self.number, kernel.name);
            // SAFETY: `reserve` has made every buffer as long as the layouts say, and they stay as
            // they are until the stream has been waited for.
            unsafe { self.launcher.launch(&self.driver, &gpu.module, kernel, &step)? };
        }
        Ok(())
    }

    fn places(&self, dispatch: &GridDispatch<'_>, pass: &Pass) -> Places {
        let items = u32::try_from(pass.batch.items()).expect("a batch counts its items in 32 bits");
        let sums = self.output.at(pass.sums_start());
        let near = pass.is_near().then(|| self.input_staging.on_device());
        let input = near.unwrap_or_else(|| self.input.at(0));
        Places {
            items,
            cells: pass.batch.cell_count(),
            area_max: pass.area_max,
            input: StagePlaces { shapes: input, cells: input.plus(pass.input.cells_start()) },
            offsets: input.plus(pass.input.offsets_start()),
            scratch: self.scratch_places(&pass.scratch, sums),
            result: self.result_places(dispatch, pass),
            even: None,
            planes: None,
        }
    }

    fn scratch_places(&self, layout: &ScratchLayout, sums: DeviceAddress) -> ScratchPlaces {
        let at = |part: &Range<usize>| self.scratch.at(part.start);
        ScratchPlaces {
            status: layout.status.each_ref().map(at),
            stages: layout
                .stages
                .each_ref()
                .map(|stage| StagePlaces { shapes: at(&stage.shapes), cells: at(&stage.cells) }),
            labels_low: at(&layout.labels_low),
            labels_high: at(&layout.labels_high),
            sums,
        }
    }

    fn result_places(&self, dispatch: &GridDispatch<'_>, pass: &Pass) -> ResultPlaces {
        let near = pass.is_near().then(|| self.output_staging.on_device());
        let output = near.unwrap_or_else(|| self.output.at(0));
        let at = |part: Part| {
            let place = pass.part(part);
            if place.is_empty() { DeviceAddress::default() } else { output.plus(place.start) }
        };
        ResultPlaces {
            status: at(Part::Status),
            shapes: at(Part::Shapes),
            origins: at(Part::Origins),
            offsets: at(Part::Offsets),
            numbers: at(Part::Numbers),
            palettes: at(Part::Palettes),
            counts: at(Part::Counts),
            labels_low: at(Part::LabelsLow),
            labels_high: self.high_labels_place(dispatch, pass),
            cells: at(Part::Cells),
        }
    }

    /// Where kernels write the second bytes of labels. They are few, so they go straight to host memory.
    fn high_labels_place(&self, dispatch: &GridDispatch<'_>, pass: &Pass) -> DeviceAddress {
        let piece = &self.pieces[0];
        let layout = dispatch.attempts[piece.attempt].output_layout();
        match (Part::LabelsHigh.span(layout, &piece.of_batch), pass.only_output()) {
            (None, _) => DeviceAddress::default(),
            (Some(span), Some(output)) => output.plus(span.start),
            (Some(_), None) => self.high_labels.on_device(),
        }
    }

    /// Starts copying the parts that a packed result's tables describe.
    fn start_rest(&mut self, dispatch: &GridDispatch<'_>) -> Result<(), Fault> {
        let mut flight = self.flight.take().expect("a chunk is under way");
        let staging = self.output_staging.bytes();
        let areas = deliver::areas(dispatch, &self.pieces, &flight.pass, staging);
        let started = areas.and_then(|areas| {
            flight.progress = Progress::All;
            let Flight { pass, bytes, .. } = &mut flight;
            self.download(dispatch, pass, bytes, &areas, |part| part.bytes_per_value().is_none())?;
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

/// Where the cells of a piece lie in the chunk's input.
fn cells_of(pass: &Pass, piece: &Piece) -> Range<usize> {
    let start = pass.input.cells_start();
    start + piece.of_chunk.cells.start..start + piece.of_chunk.cells.end
}

//! A chunk of a solver: the first launch, then one after the other over what that left, at last the reference on the
//! processor, and between them the kernels that pack the results. The first launches of several lanes run side by
//! side; what they left is run while this thread waits, so one set of arenas serves all.

#![expect(unsafe_code, reason = "starts copies and kernels over this lane's own buffers")]

use std::hint;
use std::ops::Range;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_kernels::argument::{DeviceAddress, PicturesArgument, StepArgument};
use gridpool_kernels::part::Part;
use gridpool_kernels::solve::{NEEDS_MEMORY, NEEDS_ROOM, SOLVE, STOPPED, SolveArgument};

use super::{Flight, Lane, Progress};
use crate::chunk::number;
use crate::cuda::gpu::Gpu;
use crate::cuda::pass::{Bytes, Pass};
use crate::cuda::schedule::packing;
use crate::cuda::solve::{ByReference, SolverWork, Work};
use crate::device::{AttemptRefusal, GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::tally::Totals;

/// What came of the items that a launch left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The results are being packed and copied.
    Ran,
    /// Nobody wants any result of the chunk.
    Cancelled,
    /// The results are larger than their place on the device: the chunk is to run again in parts.
    TooLarge,
}

/// How long after it a launch is told to stop once more.
const STOP_AGAIN: Duration = Duration::from_millis(1);

/// Items that a launch left.
#[derive(Debug, Default)]
struct Left {
    /// They need a larger arena.
    items: Vec<u32>,
    /// Some result had no place behind the others.
    is_too_large: bool,
}

impl Lane {
    /// Puts the first launch over the items of a chunk into the stream, and what packs its results.
    pub(super) fn solve(
        &mut self,
        gpu: &mut Gpu,
        work: &mut SolverWork<'_>,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
    ) -> Result<(), Fault> {
        let argument = self.solve_argument(work, dispatch, pass);
        let words = work.solving.kernel.arena_words()[0];
        self.launch_solver(gpu, work, words, argument)?;
        self.pack_solved(gpu, dispatch, pass)
    }

    fn launch_solver(
        &mut self,
        gpu: &mut Gpu,
        work: &mut SolverWork<'_>,
        words: u32,
        argument: SolveArgument,
    ) -> Result<(), Fault> {
        let solving = &mut *work.solving;
        let launch =
            solving.kernel.launch(gpu, &mut solving.arenas, words, argument.items_count)?;
        let argument = SolveArgument { arena_words: words, arenas: launch.arenas, ..argument };
        gpu.allocator.gauges().position.launches(self.number, SOLVE);
        // SAFETY: all buffers are as long as the layouts and `words` say, and stay until the stream is waited for.
        // The program was verified when it was compiled.
        unsafe { self.launcher.solve(&self.driver, &launch, &argument) }
    }

    fn solve_argument(
        &self,
        work: &SolverWork<'_>,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
    ) -> SolveArgument {
        let null = DeviceAddress::NULL;
        let solved = &pass.scratch.solved;
        let scratch = |part: &Range<usize>| self.scratch.at(part.start);
        let result = self.result_places(dispatch, pass);
        SolveArgument {
            program: self.input.at(pass.input.code().start),
            shapes: self.input.at(0),
            offsets: self.input.at(pass.input.offsets_start()),
            cells: self.input.at(pass.input.cells_start()),
            items: null,
            status: result.status,
            instructions: result.numbers,
            out_shapes: if work.gives_grid { result.shapes } else { null },
            places: scratch(&solved.places),
            lengths: scratch(&solved.lengths),
            results: scratch(&solved.made),
            used: self.input.at(pass.input.used().start),
            steps: null,
            arenas: null,
            items_count: number(pass.batch.items()),
            arena_words: 0,
            steps_max: work.steps_max,
            results_max: number(solved.made.len()),
            place_base: 0,
            again: 0,
        }
    }

    /// Lays the results behind each other, in the order of their items.
    fn pack_solved(
        &mut self,
        gpu: &Gpu,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
    ) -> Result<(), Fault> {
        let (solved, result) = (&pass.scratch.solved, self.result_places(dispatch, pass));
        let pictures = |cells| PicturesArgument { cells, ..PicturesArgument::default() };
        let pack = StepArgument {
            values: number(pass.batch.items()),
            from: pictures(self.scratch.at(solved.made.start)),
            to: pictures(result.cells),
            places_before: self.scratch.at(solved.places.start),
            lengths: self.scratch.at(solved.lengths.start),
            sums: self.output(pass).plus(pass.sums_start()),
            places: result.offsets,
            ..StepArgument::default()
        };
        self.launch_all(gpu, packing(pack))
    }

    /// What the launch left of these items, by their statuses in the staging; of all if none are given.
    fn left(&mut self, pass: &Pass, items: Option<&[u32]>) -> Result<Left, Fault> {
        let statuses = &self.output_staging.bytes()[pass.part(Part::Status)];
        let statuses = statuses.as_chunks::<2>().0;
        let mut left = Left::default();
        let mut look = |item: u32| {
            match statuses[item as usize][0] {
                NEEDS_MEMORY => left.items.push(item),
                NEEDS_ROOM => left.is_too_large = true,
                STOPPED => {
                    let detail = format!("item {item} was stopped, and is wanted");
                    return Err(Fault::WrongResult { detail });
                }
                _ => {}
            }
            Ok(())
        };
        match items {
            Some(items) => items.iter().copied().try_for_each(look)?,
            None => (0..number(statuses.len())).try_for_each(&mut look)?,
        }
        Ok(left)
    }

    /// Whether the first launch of a solver left an item, or was stopped. Once more is not asked.
    pub(super) fn has_left(&mut self) -> bool {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.may_have_left) else {
            return false;
        };
        flight.may_have_left = false;
        let statuses = &self.output_staging.bytes()[flight.pass.part(Part::Status)];
        statuses.as_chunks::<2>().0.iter().fold(0, |most, status| most.max(status[0])) >= STOPPED
    }

    /// Waits for the first launch and what it left.
    pub(super) fn finish_solver(
        &mut self,
        gpu: &mut Gpu,
        work: &mut Work<'_>,
        done: &mut Totals,
    ) -> Result<Rest, Fault> {
        while !self.poll(work)? {
            hint::spin_loop();
        }
        let mut flight = self.flight.take().expect("a chunk is under way");
        let Work { dispatch, solver } = work;
        let solver = solver.as_mut().expect("it is a solver's chunk");
        let rest = if flight.stopped.is_some() {
            solver.solving.stop.settle(&self.driver).map(|()| Rest::Cancelled)
        } else if flight.progress == Progress::Left {
            self.run_left(gpu, (solver, dispatch), &mut flight, done)
        } else {
            Ok(Rest::Ran)
        };
        // Even after a failure the stream may hold work.
        self.flight = Some(flight);
        rest
    }

    /// Whether nobody wants any result of the chunk.
    pub(super) fn is_cancelled(&self, dispatch: &GridDispatch<'_>) -> bool {
        let mut wanted = self.pieces.iter().map(|piece| &dispatch.attempts[piece.attempt]);
        wanted.all(GridAttempt::is_cancelled)
    }

    /// Stops what runs of the chunk, once nobody wants any of it.
    pub(super) fn stop_unwanted(&mut self, work: &Work<'_>) -> Result<(), Fault> {
        let Some(flight) = &self.flight else { return Ok(()) };
        if work.solver.is_none() || !self.is_cancelled(work.dispatch) {
            return Ok(());
        }
        // The copy of the chunk's tables clears the word, perhaps after it was set.
        let now = clock::now();
        if flight.stopped.is_some_and(|last| now.saturating_duration_since(last) < STOP_AGAIN) {
            return Ok(());
        }
        self.stop(work)?;
        self.flight.as_mut().expect("it was there above").stopped = Some(now);
        Ok(())
    }

    /// Stops what runs of a solver's chunk, if there is one.
    pub(in crate::cuda) fn stop(&self, work: &Work<'_>) -> Result<(), Fault> {
        match (&work.solver, &self.flight) {
            (Some(SolverWork { solving, .. }), Some(flight)) => {
                solving.stop.set(&self.driver, self.stop_word(&flight.pass))
            }
            (None, _) | (_, None) => Ok(()),
        }
    }

    fn stop_word(&self, pass: &Pass) -> DeviceAddress {
        self.input.at(pass.input.used().start + 4)
    }

    /// Runs what the first launch left, packs all results anew and starts their copies.
    fn run_left(
        &mut self,
        gpu: &mut Gpu,
        (solver, dispatch): (&mut SolverWork<'_>, &GridDispatch<'_>),
        flight: &mut Flight,
        done: &mut Totals,
    ) -> Result<Rest, Fault> {
        // Times of launches do not count what this thread does between them.
        self.launcher.collect(&self.driver, &mut done.tally)?;
        let Flight { pass, bytes, .. } = &mut *flight;
        let mut left = self.left(pass, None)?;
        let unfit = left.items.len() as u64;
        for &words in &solver.solving.kernel.arena_words()[1..] {
            if left.is_too_large || left.items.is_empty() {
                break;
            }
            self.launch_again(gpu, (solver, dispatch), (pass, bytes), (words, &left.items))?;
            self.launcher.collect(&self.driver, &mut done.tally)?;
            if self.is_cancelled(dispatch) {
                return Ok(Rest::Cancelled);
            }
            left = self.left(pass, Some(&left.items))?;
        }
        let refused = |attempt: usize| done.attempts[attempt] = Err(AttemptRefusal::Cancelled);
        let by_reference = |lane: &mut Self, solver: &mut SolverWork<'_>, gpu: &mut Gpu| {
            lane.run_by_reference(gpu, (solver, dispatch), (pass, bytes), &left.items, refused)
        };
        if left.is_too_large || !by_reference(self, solver, gpu)? {
            return Ok(Rest::TooLarge);
        }
        if self.is_cancelled(dispatch) {
            return Ok(Rest::Cancelled);
        }
        solver.solving.unfit += unfit;
        self.pack_solved(gpu, dispatch, pass)?;
        self.fetch(dispatch, flight)?;
        flight.progress = Progress::Tables;
        Ok(Rest::Ran)
    }

    /// Runs items with arenas of so many words, and waits until their statuses have come.
    fn launch_again(
        &mut self,
        gpu: &mut Gpu,
        (solver, dispatch): (&mut SolverWork<'_>, &GridDispatch<'_>),
        (pass, copied): (&Pass, &mut Bytes),
        (words, items): (u32, &[u32]),
    ) -> Result<(), Fault> {
        let list = self.scratch.at(pass.scratch.solved.left.start);
        let bytes = items.iter().flat_map(|item| item.to_le_bytes()).collect::<Vec<_>>();
        self.put(gpu, solver, &[(list, &bytes)], copied)?;
        let argument = SolveArgument {
            items: list,
            items_count: number(items.len()),
            ..self.solve_argument(solver, dispatch, pass)
        };
        self.launch_solver(gpu, solver, words, argument)?;
        if !pass.writes_near {
            let Range { start, end } = pass.part(Part::Status);
            let (to, from) = (self.output_staging.at(start), self.output.at(start));
            // SAFETY: both buffers have these bytes, and the stream is waited for at once.
            unsafe { self.driver.copy_to_host(to, from, end - start, self.stream)? };
            copied.shared[1] += (end - start) as u64;
        }
        let word = self.stop_word(pass);
        let is_cancelled = || self.is_cancelled(dispatch);
        solver.solving.stop.wait(&self.driver, self.stream, word, &is_cancelled)?;
        gpu.allocator.gauges().chunk_is_done();
        Ok(())
    }

    /// Runs items by the reference and puts their results on the device, behind the others. Returns false if they do
    /// not fit there. An attempt that is cancelled meanwhile is `refused`, and its items stay as they are.
    fn run_by_reference(
        &mut self,
        gpu: &mut Gpu,
        (solver, dispatch): (&mut SolverWork<'_>, &GridDispatch<'_>),
        (pass, copied): (&Pass, &mut Bytes),
        items: &[u32],
        mut refused: impl FnMut(usize),
    ) -> Result<bool, Fault> {
        if items.is_empty() {
            return Ok(true);
        }
        let solved = &pass.scratch.solved;
        let mut used = self.used(solver, (pass, copied))?;
        for item in items {
            let at = *item as usize;
            let tables = self.input_staging.bytes();
            let shape = [tables[2 * at], tables[2 * at + 1]];
            let offset = word(&tables[pass.input.offsets_start() + 4 * at..]);
            let piece = self.pieces.iter().find(|piece| piece.of_chunk.items.contains(&at));
            let piece = piece.expect("every item is of a piece");
            let attempt = &dispatch.attempts[piece.attempt];
            if attempt.is_cancelled() {
                refused(piece.attempt);
                continue;
            }
            let first = attempt.batch().cells().start + piece.of_batch.cells.start;
            let from = first + offset - piece.of_chunk.cells.start;
            let Some(made) = solver.by_reference(attempt, piece, shape, from) else {
                refused(piece.attempt);
                continue;
            };
            let ByReference { status, shape, instruction, bytes } = made;
            if bytes.len() > solved.made.len() - used {
                return Ok(false);
            }
            let four = |n: usize| number(n).to_le_bytes();
            let (place, length) = (four(used), four(bytes.len()));
            let (status_at, shape_at) =
                (pass.part(Part::Status).start + 2 * at, pass.part(Part::Shapes).start + 2 * at);
            let shape = if solver.gives_grid { &shape[..] } else { &[] };
            let of_result = [
                (status_at, &status[..]),
                (shape_at, shape),
                (pass.part(Part::Numbers).start + 4 * at, &instruction[..]),
            ];
            let scratch = |part: &Range<usize>, at: usize| self.scratch.at(part.start + at);
            let mut parts = vec![
                (scratch(&solved.places, 4 * at), &place[..]),
                (scratch(&solved.lengths, 4 * at), &length[..]),
                (scratch(&solved.made, used), &bytes[..]),
            ];
            if pass.writes_near {
                for (start, bytes) in of_result {
                    self.output_staging.bytes()[start..start + bytes.len()].copy_from_slice(bytes);
                }
            } else {
                parts.extend(of_result.map(|(start, bytes)| (self.output.at(start), bytes)));
            }
            self.put(gpu, solver, &parts, copied)?;
            used += bytes.len();
        }
        Ok(true)
    }

    /// How many bytes the results on the device take.
    fn used(
        &self,
        solver: &mut SolverWork<'_>,
        (pass, copied): (&Pass, &mut Bytes),
    ) -> Result<usize, Fault> {
        let from = self.input.at(pass.input.used().start);
        let to = solver.solving.staging.at(0);
        // SAFETY: what the list of items was copied from has these bytes; the stream is waited for at once.
        unsafe { self.driver.copy_to_host(to, from, 4, self.stream)? };
        copied.shared[1] += 4;
        self.driver.synchronize(self.stream)?;
        let (used, most) = (word(solver.solving.staging.bytes()), pass.scratch.solved.made.len());
        if used > most {
            let detail = format!("results of {used} bytes in a place of {most}");
            return Err(Fault::WrongResult { detail });
        }
        Ok(used)
    }

    /// Copies bytes to the device, and waits.
    fn put(
        &self,
        gpu: &mut Gpu,
        solver: &mut SolverWork<'_>,
        parts: &[(DeviceAddress, &[u8])],
        copied: &mut Bytes,
    ) -> Result<(), Fault> {
        let staging = &mut solver.solving.staging;
        staging.reserve(&mut gpu.allocator, parts.iter().map(|(_, bytes)| bytes.len()).sum())?;
        let mut start = 0;
        for (to, bytes) in parts.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            staging.bytes()[start..start + bytes.len()].copy_from_slice(bytes);
            let from = staging.at(start);
            // SAFETY: the staging and the part of the lane's buffers have these bytes; the stream is waited for below.
            unsafe { self.driver.copy_to_device(*to, from, bytes.len(), self.stream)? };
            start += bytes.len();
        }
        copied.shared[0] += start as u64;
        self.driver.synchronize(self.stream)
    }
}

/// A number of four bytes.
fn word(bytes: &[u8]) -> usize {
    let bytes = bytes.first_chunk::<4>().copied().unwrap_or_default();
    u32::from_le_bytes(bytes) as usize
}

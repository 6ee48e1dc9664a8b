//! Runs searches: `gp_search` over one chunk of programs after the other, on all pairs, or `gp_template` over one chunk
//! of a template's programs after the other.
//!
//! The pairs are copied unless the attempt before had the same. The next chunk is as large as the last ones say: long
//! enough that its start does not count and the GPU is full, and then short enough that results flow. A launch is
//! stopped once its attempt is cancelled, whatever its programs do. An evaluation that needs more than an arena is made
//! again with a larger one, and at last by the reference on the processor, as a solver's item is.

#![expect(unsafe_code, reason = "starts copies and kernels over its own buffers")]

mod deliver;
mod pairs;
mod programs;
mod stage;

use std::ffi::c_void;
use std::ops::Range;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge_unless};
use gridpool_kernels::solve::{NEEDS_MEMORY, QUEUE_BYTES, SEARCHES, SearchArgument, TEMPLATES};
use gridpool_protocol::search::{Score, SearchReport};

use super::kernel::{Kernel, Launch};
use super::stop::Stop;
use crate::chunk::number;
use crate::cuda::driver::{Driver, Event, Stream};
use crate::cuda::gpu::Gpu;
use crate::cuda::memory::{DeviceBuffer, PinnedBuffer};
use crate::cuda::parts::Parts;
use crate::device::{AttemptRefusal, AttemptReport};
use crate::fault::Fault;
use crate::search::{BY_REFERENCE, Programs, SearchAttempt, SearchInput};
use crate::tally::Totals;
use deliver::{deliver, places_of};
use pairs::OnDevice;
use programs::ChunkPrograms;
use stage::Staged;

/// Most times that a chunk is larger than the one before.
const CHUNK_GROWS: f64 = 8.0;
/// Evaluations of a chunk, at least, however slow they are: sixty for each warp that the largest GPU runs at once. With
/// fewer, most warps wait for the slowest.
const EVALUATIONS_MIN: usize = 1 << 18;
/// Most evaluations of a chunk; one program is always allowed.
const EVALUATIONS_MAX: usize = 4 << 20;
/// Most bytes of the programs of a chunk; one program is always allowed.
const CODE_BYTES_MAX: usize = 32 << 20;
/// Chunks are worked on one after the other.
const PLACE: usize = 0;
/// How long a chunk should run, what the processor does of it included.
const CHUNK_TIME: Duration = Duration::from_millis(20);

/// The kernels of searches and their buffers, which are kept from chunk to chunk.
#[derive(Debug)]
pub(super) struct Searching {
    of_listed: Kernel,
    of_template: Kernel,
    stream: Stream,
    stop: Stop,
    around: [Event; 2],
    /// Where the pairs lie that `pairs` and `pairs_staging` have.
    resident: Option<OnDevice>,
    pairs: DeviceBuffer,
    pairs_staging: PinnedBuffer,
    programs: DeviceBuffer,
    programs_staging: PinnedBuffer,
    /// Programs as the device prepares them.
    images: DeviceBuffer,
    results: DeviceBuffer,
    results_staging: PinnedBuffer,
    list: DeviceBuffer,
    list_staging: PinnedBuffer,
    /// Threads that verify programs and deliver verdicts.
    threads: rayon::ThreadPool,
    /// For what needs more than the largest arena.
    machine: Machine,
    /// Evaluations of the next chunk.
    evaluations: usize,
}

/// Where the results of a chunk lie in their buffer.
struct Results {
    statuses: Range<usize>,
    /// Empty if no scores are wanted.
    scores: Range<usize>,
    bytes: usize,
}

/// A chunk of programs.
struct Chunk<'a> {
    attempt: &'a SearchAttempt<'a>,
    pairs: &'a SearchPairs,
    /// In the attempt.
    span: Range<usize>,
    programs: ChunkPrograms<'a>,
}

/// How many programs a warp runs on a pair before it takes others.
fn run_length(evaluations: usize) -> usize {
    /// Warps of the largest GPU, and how often each should find something left.
    const WARPS: usize = 2 * (1 << 12);
    /// The first program of a run costs most; longer runs gain little.
    const MOST: usize = 64;
    (evaluations / WARPS).clamp(1, MOST)
}

impl Searching {
    /// Of the GPU of this driver.
    pub(super) fn new(driver: &Driver) -> Result<Self, Fault> {
        let builder = rayon::ThreadPoolBuilder::new().thread_name(|n| format!("verify {n}"));
        let threads = builder.build().map_err(|error| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            Fault::Threads { threads, reason: error.to_string() }
        })?;
        Ok(Self {
            of_listed: Kernel::new(driver, SEARCHES)?,
            of_template: Kernel::new(driver, TEMPLATES)?,
            stream: driver.stream()?,
            stop: Stop::new(driver)?,
            around: [driver.event()?, driver.event()?],
            resident: None,
            pairs: DeviceBuffer::default(),
            pairs_staging: PinnedBuffer::default(),
            programs: DeviceBuffer::default(),
            programs_staging: PinnedBuffer::default(),
            images: DeviceBuffer::default(),
            results: DeviceBuffer::default(),
            results_staging: PinnedBuffer::default(),
            list: DeviceBuffer::default(),
            list_staging: PinnedBuffer::default(),
            threads,
            machine: Machine::default(),
            evaluations: EVALUATIONS_MIN,
        })
    }

    /// Runs attempts one after the other.
    pub(super) fn run(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        attempts: &[SearchAttempt<'_>],
        done: &mut Totals,
    ) -> Result<(), Fault> {
        for (at, attempt) in attempts.iter().enumerate() {
            let ran = match attempt.read() {
                Ok(input) => self.run_one(gpu, arenas, (at, attempt, &input), done)?,
                Err(refusal) => Err(refusal),
            };
            done.attempts[at] = ran;
        }
        Ok(())
    }

    /// Runs one attempt, the `at`th. The inner error: it was cancelled.
    fn run_one(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        (at, attempt, input): (usize, &SearchAttempt<'_>, &SearchInput),
        done: &mut Totals,
    ) -> Result<Result<AttemptReport, AttemptRefusal>, Fault> {
        let (on_device, bytes) = self.put_pairs(gpu, input)?;
        let pairs = &*on_device.pairs;
        let none = AttemptReport { h2d_bytes: bytes as u64, ..AttemptReport::default() };
        let mut sum = AttemptReport { search: Some(SearchReport::default()), ..none };
        let mut next = 0;
        while next < attempt.programs().len() {
            if attempt.is_cancelled() {
                return Ok(Err(AttemptRefusal::Cancelled));
            }
            let span = self.span(attempt, input, pairs, next);
            next = span.end;
            let position = &gpu.allocator.gauges().position;
            let first = attempt.programs().start;
            position.chunk_begins(PLACE, (at, first + span.start), (at, first + span.end));
            let programs = self.programs_of(input, &span);
            let chunk = Chunk { attempt, pairs, span, programs };
            let is_whole = self.run_chunk(gpu, arenas, &on_device, &chunk, &mut sum, done)?;
            gpu.allocator.gauges().position.chunk_is_done(PLACE);
            if !is_whole {
                return Ok(Err(AttemptRefusal::Cancelled));
            }
        }
        Ok(Ok(sum))
    }

    /// The programs of the next chunk, from `start` on.
    fn span(
        &self,
        attempt: &SearchAttempt<'_>,
        input: &SearchInput,
        pairs: &SearchPairs,
        start: usize,
    ) -> Range<usize> {
        let most = (self.evaluations / pairs.len()).max(1);
        if let Programs::OfTemplate { .. } = input.programs {
            return start..attempt.programs().len().min(start + most);
        }
        let (mut end, mut bytes) = (start, 0);
        while end < attempt.programs().len() && end - start < most {
            bytes += input.listed(end).len();
            if bytes > CODE_BYTES_MAX && end > start {
                break;
            }
            end += 1;
        }
        start..end
    }

    /// Runs a chunk and writes its verdicts. Returns whether it did: the attempt may be cancelled meanwhile.
    fn run_chunk(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        on_device: &OnDevice,
        chunk: &Chunk<'_>,
        sum: &mut AttemptReport,
        done: &mut Totals,
    ) -> Result<bool, Fault> {
        let pairs = chunk.pairs.len();
        let count = chunk.programs.len() * pairs;
        if count == 0 {
            return self.threads.install(|| deliver(chunk, &[], &[], sum)).map(|()| true);
        }
        let scored = chunk.attempt.layout().score() == Score::Cells;
        let length = run_length(count);
        let staged = self.stage(gpu, &chunk.programs, length)?;
        let mut parts = Parts::default();
        let (statuses, scores) = (parts.add(count), parts.add(if scored { 2 * count } else { 0 }));
        let results = Results { statuses, scores, bytes: parts.bytes };
        self.results.reserve(&mut gpu.allocator, results.bytes)?;
        self.results_staging.reserve(&mut gpu.allocator, results.bytes)?;
        self.stop.prepare(gpu)?;
        let (to, from) = (self.programs.at(0), self.programs_staging.at(0));
        // SAFETY: both buffers have these bytes, and the stream is waited for at once.
        unsafe { gpu.driver.copy_to_device(to, from, staged.bytes, self.stream)? };
        gpu.driver.synchronize(self.stream)?;
        sum.h2d_bytes += staged.bytes as u64;
        let scores =
            if scored { self.results.at(results.scores.start) } else { DeviceAddress::NULL };
        let argument = SearchArgument {
            programs: self.programs.at(staged.code),
            program_offsets: self.programs.at(staged.offsets),
            shapes: self.pairs.at(on_device.shapes.start),
            offsets: self.pairs.at(on_device.offsets.start),
            cells: self.pairs.at(on_device.cells.start),
            evaluations: DeviceAddress::NULL,
            statuses: self.results.at(results.statuses.start),
            scores,
            arenas: DeviceAddress::NULL,
            stop: self.programs.at(staged.stop),
            images: self.images.at(0),
            image_offsets: self.programs.at(staged.image_offsets),
            order: staged.order.map_or(DeviceAddress::NULL, |order| self.programs.at(order)),
            queue: self.programs.at(staged.queue),
            holes: staged.holes.map_or(DeviceAddress::NULL, |holes| self.programs.at(holes)),
            grids: self.pairs.at(on_device.grids.start),
            runs: staged.runs.map_or(DeviceAddress::NULL, |(_, [runs, _])| self.programs.at(runs)),
            shared: staged.runs.map_or(DeviceAddress::NULL, |(_, [_, of])| self.programs.at(of)),
            first: chunk.programs.first(),
            evaluations_count: 0,
            pairs_count: number(pairs),
            arena_words: 0,
            programs_count: number(staged.programs),
            expanded_count: staged.holes.map_or(0, |_| number(chunk.programs.len())),
            run_length: staged.holes.map_or(0, |_| number(length)),
        };
        // Of a template, the last run may be shorter.
        let runs = match (staged.runs, staged.holes) {
            (Some((runs, _)), _) => runs,
            (None, Some(_)) => argument.expanded_count.div_ceil(argument.run_length),
            (None, None) => number(chunk.programs.len()),
        };
        let shared = (chunk.programs.len() - runs as usize) * pairs;
        let mut left: Option<Vec<u32>> = None;
        let mut took = 0.0;
        for &words in self.of_listed.arena_words() {
            let evaluations = left.as_ref().map_or(count, Vec::len);
            if evaluations == 0 {
                break;
            }
            let listed = (words, left.as_deref(), runs * number(pairs));
            let launched = (chunk.attempt, &staged, results.bytes);
            let us = self.launch(gpu, arenas, &argument, listed, launched)?;
            done.tally.add(staged.entry, us);
            gpu.allocator.gauges().chunk_is_done();
            if chunk.attempt.is_cancelled() {
                return Ok(false);
            }
            took += us;
            sum.h2d_bytes += left.as_ref().map_or(0, |left| 4 * left.len()) as u64;
            sum.d2h_bytes += results.bytes as u64;
            let came = &self.results_staging.bytes()[results.statuses.clone()];
            left = Some(match left {
                Some(before) => {
                    let needs = |at: &u32| came[*at as usize] == NEEDS_MEMORY;
                    before.into_iter().filter(needs).collect()
                }
                None => self.threads.install(|| places_of(NEEDS_MEMORY, came)),
            });
        }
        if let Some(left) = left.filter(|left| !left.is_empty()) {
            let started = clock::now();
            if !self.by_reference(chunk, &left, &results) {
                return Ok(false);
            }
            let us = started.elapsed().as_secs_f64() * 1e6;
            done.tally.add(BY_REFERENCE, us);
            took += us;
            let more = SearchReport { on_processor: left.len() as u64, ..SearchReport::default() };
            sum.search = sum.search.map(|search| search.plus(more));
        }
        self.evaluations = next_evaluations(self.evaluations, count, took);
        let more = SearchReport { shared: shared as u64, ..SearchReport::default() };
        sum.search = sum.search.map(|search| search.plus(more));
        let came = &*self.results_staging.bytes();
        let (statuses, scores) = (&came[results.statuses], came[results.scores].as_chunks().0);
        self.threads.install(|| deliver(chunk, statuses, scores, sum))?;
        Ok(true)
    }

    /// Makes evaluations on the processor that no arena is large enough for. Returns whether it did: the attempt may be
    /// cancelled meanwhile.
    fn by_reference(&mut self, chunk: &Chunk<'_>, left: &[u32], results: &Results) -> bool {
        let pairs = chunk.pairs.len();
        let came = self.results_staging.bytes();
        for at in left {
            let at = *at as usize;
            let code = chunk.programs.code(at / pairs);
            let is_cancelled = || chunk.attempt.is_cancelled();
            let judged =
                judge_unless(&mut self.machine, &code, chunk.pairs, at % pairs, is_cancelled);
            let Some((status, score)) = judged else { return false };
            came[results.statuses.start + at] = status.byte();
            if let Some(near) = came[results.scores.clone()].as_chunks_mut::<2>().0.get_mut(at) {
                *near = score.number().to_le_bytes();
            }
        }
        true
    }

    /// Makes evaluations with arenas of so many words, all in so many units or those listed, and waits until their
    /// results, so many bytes, have come. They mean nothing if the attempt is cancelled meanwhile. Returns the device
    /// time, microseconds.
    fn launch(
        &mut self,
        gpu: &mut Gpu,
        arenas: &mut DeviceBuffer,
        argument: &SearchArgument,
        (words, listed, units): (u32, Option<&[u32]>, u32),
        (attempt, staged, bytes): (&SearchAttempt<'_>, &Staged, usize),
    ) -> Result<f64, Fault> {
        let is_template = argument.run_length > 0;
        let units = listed.map_or(units, |listed| number(listed.len()));
        let driver = gpu.driver;
        let kernel = if is_template { &mut self.of_template } else { &mut self.of_listed };
        let Launch { function, before, shape, arenas } =
            kernel.launch(gpu, arenas, words, units)?;
        let mut argument =
            SearchArgument { evaluations_count: units, arena_words: words, arenas, ..*argument };
        if let Some(listed) = listed {
            self.list.reserve(&mut gpu.allocator, 4 * listed.len())?;
            self.list_staging.reserve(&mut gpu.allocator, 4 * listed.len())?;
            let words = self.list_staging.bytes().chunks_exact_mut(4);
            words.zip(listed).for_each(|(to, at)| to.copy_from_slice(&at.to_le_bytes()));
            argument.evaluations = self.list.at(0);
            let (to, from) = (self.list.at(0), self.list_staging.at(0));
            // SAFETY: both buffers have these bytes; the stream is waited for below.
            unsafe { driver.copy_to_device(to, from, 4 * listed.len(), self.stream)? };
            let at = staged.queue;
            let (to, from) = (self.programs.at(at), self.programs_staging.at(at));
            // SAFETY: as above. The queue is as it was staged: not begun.
            unsafe { driver.copy_to_device(to, from, QUEUE_BYTES, self.stream)? };
        }
        let mut arguments = [(&raw mut argument).cast::<c_void>()];
        driver.record(self.around[0], self.stream)?;
        gpu.allocator.gauges().position.launches(PLACE, staged.entry);
        // A template's few programs are prepared for each arena: what was too large for one has no image.
        if let Some(before) = before.filter(|_| is_template || listed.is_none()) {
            // SAFETY: as for the launch behind it.
            unsafe { driver.launch(before, shape, &mut arguments, self.stream)? };
        }
        // SAFETY: all buffers are as long as the numbers of the argument say; the programs were verified; the stream
        // is waited for below.
        unsafe {
            driver.launch(function, shape, &mut arguments, self.stream)?;
        }
        driver.record(self.around[1], self.stream)?;
        let (to, from) = (self.results_staging.at(0), self.results.at(0));
        // SAFETY: both buffers have these bytes; the stream is waited for at once.
        unsafe { driver.copy_to_host(to, from, bytes, self.stream)? };
        self.stop.wait(&driver, self.stream, argument.stop, &|| attempt.is_cancelled())?;
        driver.elapsed_us(self.around[0], self.around[1])
    }
}

/// Learns from the time of a chunk, microseconds, how many evaluations the next one may have; `now` is what it might
/// have.
fn next_evaluations(now: usize, evaluations: usize, us: f64) -> usize {
    let times = CHUNK_TIME.as_secs_f64() * 1e6 / us.max(1.0);
    // A small chunk, such as the last of an attempt, says little of larger ones.
    if times >= 1.0 && evaluations < now / 2 {
        return now;
    }
    let times = times.min(CHUNK_GROWS);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let fits = (evaluations as f64 * times) as usize;
    fits.clamp(EVALUATIONS_MIN, EVALUATIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_and_shrink_with_their_time_but_fill_the_gpu() {
        let now = EVALUATIONS_MIN;
        assert_eq!(next_evaluations(now, now, 5e3), 4 * now);
        assert_eq!(next_evaluations(now, now, 1.0), 8 * now);
        assert_eq!(next_evaluations(now, 100, 1.0), now, "the last of an attempt");
        assert_eq!(next_evaluations(8 * now, 8 * now, 40e3), 4 * now);
        assert_eq!(next_evaluations(8 * now, 8 * now, 9e6), now, "however slow they are");
        assert_eq!(next_evaluations(8 * now, 8 * now, 1.0), EVALUATIONS_MAX);
    }
}

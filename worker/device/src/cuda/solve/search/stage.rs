//! How the programs of a chunk get to the device, and in which order they run.

use gridpool_kernels::runs::{self, Runs};
use gridpool_kernels::solve::{QUEUE_BYTES, SEARCH, TEMPLATE, image_words};
use gridpool_kernels::template::DeviceTemplate;
use gridpool_protocol::search::PROGRAM_ALIGN;
use gridpool_protocol::solver::Code;
use rayon::prelude::*;

use super::Searching;
use super::programs::ChunkPrograms;
use crate::chunk::number;
use crate::cuda::gpu::Gpu;
use crate::cuda::parts::Parts;
use crate::cuda::solve::stop::STOP_BYTES;
use crate::fault::Fault;

/// Where the programs of a chunk lie in their buffer, with the word that stops a launch, the queue of its evaluations,
/// and the order of its programs, or the holes of its template.
pub(super) struct Staged {
    /// The entry point that runs them.
    pub(super) entry: &'static str,
    /// Those that are prepared.
    pub(super) programs: usize,
    pub(super) stop: usize,
    pub(super) queue: usize,
    pub(super) offsets: usize,
    pub(super) image_offsets: usize,
    pub(super) order: Option<usize>,
    /// How many runs there are, where they start, and what each program has in common with the one before.
    pub(super) runs: Option<(u32, [usize; 2])>,
    pub(super) holes: Option<usize>,
    pub(super) code: usize,
    pub(super) bytes: usize,
}

impl Searching {
    /// Puts the programs of a chunk and what belongs to them behind each other.
    pub(super) fn stage(
        &mut self,
        gpu: &mut Gpu,
        programs: &ChunkPrograms<'_>,
        run_length: usize,
    ) -> Result<Staged, Fault> {
        match programs {
            ChunkPrograms::Listed(input, valid) => {
                let runs = self.in_runs(valid, if programs.share() { run_length } else { 1 });
                let programs: Vec<_> = valid.iter().map(|(at, _)| input.listed(*at)).collect();
                self.stage_parts(gpu, &programs, &runs, &[])
            }
            ChunkPrograms::OfTemplate(template, _) => {
                let DeviceTemplate { holes, programs } = DeviceTemplate::new(template);
                let programs: Vec<_> = programs.iter().map(Vec::as_slice).collect();
                let none = Runs::new(Vec::new(), &[], 1);
                self.stage_parts(gpu, &programs, &none, &holes)
            }
        }
    }

    fn stage_parts(
        &mut self,
        gpu: &mut Gpu,
        programs: &[&[u8]],
        runs: &Runs,
        holes: &[u32],
    ) -> Result<Staged, Fault> {
        let padded = |program: &[u8]| program.len().next_multiple_of(PROGRAM_ALIGN);
        let mut parts = Parts::default();
        let stop = parts.add(STOP_BYTES);
        let queue = parts.add(QUEUE_BYTES);
        let offsets = parts.add(4 * (programs.len() + 1));
        let image_offsets = parts.add(4 * (programs.len() + 1));
        let Runs { order, shared, starts } = runs;
        let has_runs = runs.sharing() > 0;
        let [shared, starts]: [&[u32]; 2] = if has_runs { [shared, starts] } else { [&[]; 2] };
        let words = [order, shared, starts, holes];
        let places = words.map(|words| parts.add(4 * words.len()));
        let code = parts.add(programs.iter().map(|program| padded(program)).sum());
        let bytes = parts.bytes;
        self.programs.reserve(&mut gpu.allocator, bytes)?;
        self.programs_staging.reserve(&mut gpu.allocator, bytes)?;
        let staging = self.programs_staging.bytes();
        staging[stop.clone()].fill(0);
        staging[queue.clone()].fill(0);
        let mut put = |start: usize, at: usize, word: u32| {
            staging[start + 4 * at..][..4].copy_from_slice(&word.to_le_bytes());
        };
        let (mut end, mut image_end) = (0, 0);
        for (at, program) in programs.iter().enumerate() {
            put(offsets.start, at, number(end));
            put(image_offsets.start, at, number(image_end));
            end += padded(program);
            image_end += image_words(program);
        }
        put(offsets.start, programs.len(), number(end));
        put(image_offsets.start, programs.len(), number(image_end));
        for (words, to) in words.into_iter().zip(&places) {
            words.iter().enumerate().for_each(|(at, word)| put(to.start, at, *word));
        }
        let mut end = code.start;
        for program in programs {
            staging[end..][..program.len()].copy_from_slice(program);
            end += padded(program);
        }
        self.images.reserve(&mut gpu.allocator, 4 * image_end)?;
        let is_template = !holes.is_empty();
        let [order, shared, starts, holes] = places;
        Ok(Staged {
            entry: if is_template { TEMPLATE } else { SEARCH },
            programs: programs.len(),
            stop: stop.start,
            queue: queue.start,
            offsets: offsets.start,
            image_offsets: image_offsets.start,
            order: (!is_template).then_some(order.start),
            runs: has_runs.then(|| (number(runs.count()), [starts.start, shared.start])),
            holes: is_template.then_some(holes.start),
            code: code.start,
            bytes,
        })
    }

    /// Programs that begin alike in runs of at most so many. If there are none, those with the same opcodes stand
    /// beside each other: a multiprocessor then runs the same code for most of its warps.
    fn in_runs(&self, programs: &[(usize, Code)], most: usize) -> Runs {
        let code = |at: u32| &programs[at as usize].1;
        let ops = |at: &u32| -> Vec<u8> {
            code(*at).instructions().iter().map(|of| of.op as u8).collect()
        };
        let mut order: Vec<u32> = (0..number(programs.len())).collect();
        self.threads.install(|| {
            let common: Vec<usize> = if most > 1 {
                order.par_sort_by_cached_key(|at| runs::key(code(*at)));
                let both = order.par_windows(2);
                both.map(|both| runs::common(code(both[0]), code(both[1]))).collect()
            } else {
                order.par_sort_by_cached_key(ops);
                vec![0; order.len().saturating_sub(1)]
            };
            Runs::new(order, &common, most)
        })
    }
}

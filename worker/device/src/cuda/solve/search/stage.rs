//! How the programs of a chunk get to the device, and in which order they run.

use std::ops::Range;

use gridpool_kernels::solve::{QUEUE_BYTES, image_words};
use rayon::prelude::*;

use super::{Chunk, Searching};
use crate::chunk::number;
use crate::cuda::gpu::Gpu;
use crate::cuda::solve::stop::STOP_BYTES;
use crate::cuda::solve::tables::Parts;
use crate::fault::Fault;

/// Where the programs of a chunk lie in their buffer, with the word that stops a launch, the queue of its evaluations,
/// and the order of its programs.
pub(super) struct Staged {
    pub(super) stop: usize,
    pub(super) queue: usize,
    pub(super) offsets: usize,
    pub(super) image_offsets: usize,
    pub(super) order: usize,
    pub(super) code: usize,
    pub(super) bytes: usize,
}

impl Searching {
    /// Puts offsets and programs behind each other.
    pub(super) fn stage_programs(
        &mut self,
        gpu: &mut Gpu,
        chunk: &Chunk<'_>,
    ) -> Result<Staged, Fault> {
        let programs = || chunk.valid.iter().map(|(at, _)| chunk.input.program(*at));
        let (count, in_order) = (chunk.valid.len(), self.like_beside_like(chunk));
        let mut parts = Parts::default();
        let stop = parts.add(STOP_BYTES);
        let queue = parts.add(QUEUE_BYTES);
        let offsets = parts.add(4 * (count + 1));
        let image_offsets = parts.add(4 * (count + 1));
        let order = parts.add(4 * count);
        let code = parts.add(programs().map(<[u8]>::len).sum());
        let bytes = parts.bytes;
        self.programs.reserve(&mut gpu.allocator, bytes)?;
        self.programs_staging.reserve(&mut gpu.allocator, bytes)?;
        let staging = self.programs_staging.bytes();
        staging[stop.clone()].fill(0);
        staging[queue.clone()].fill(0);
        let mut put = |to: &Range<usize>, at: usize, word: usize| {
            staging[to.start + 4 * at..][..4].copy_from_slice(&number(word).to_le_bytes());
        };
        let (mut end, mut image_end) = (0, 0);
        for (at, program) in programs().enumerate() {
            put(&offsets, at, end);
            put(&image_offsets, at, image_end);
            end += program.len();
            image_end += image_words(program);
        }
        put(&offsets, count, end);
        put(&image_offsets, count, image_end);
        for (at, program) in in_order.into_iter().enumerate() {
            put(&order, at, program);
        }
        let mut end = code.start;
        for program in programs() {
            staging[end..][..program.len()].copy_from_slice(program);
            end += program.len();
        }
        self.images.reserve(&mut gpu.allocator, 4 * image_end)?;
        let [stop, queue, offsets, image_offsets, order, code] =
            [stop, queue, offsets, image_offsets, order, code].map(|part| part.start);
        Ok(Staged { stop, queue, offsets, image_offsets, order, code, bytes })
    }

    /// The programs of a chunk, those with the same opcodes beside each other: a multiprocessor then runs the same code
    /// for most of its warps.
    fn like_beside_like(&self, chunk: &Chunk<'_>) -> Vec<usize> {
        let ops = |at: &usize| -> Vec<u8> {
            chunk.valid[*at].1.instructions().iter().map(|of| of.op as u8).collect()
        };
        let mut order: Vec<usize> = (0..chunk.valid.len()).collect();
        self.threads.install(|| order.par_sort_by_cached_key(ops));
        order
    }
}

//! The pairs of an attempt on the device.

use std::ops::Range;
use std::sync::Arc;

use gridpool_kernels::reference::search::SearchPairs;
use gridpool_kernels::solve::prepared_bytes;

use super::{EVALUATIONS_MIN, Searching};
use crate::cuda::gpu::Gpu;
use crate::cuda::parts::Parts;
use crate::fault::Fault;
use crate::search::SearchInput;

/// Where the pairs of an attempt lie on the device.
#[derive(Clone, Debug)]
pub(super) struct OnDevice {
    pub(super) shapes: Range<usize>,
    pub(super) offsets: Range<usize>,
    pub(super) cells: Range<usize>,
    /// The grids as the device prepares them.
    pub(super) grids: Range<usize>,
    /// The same pairs as the reference takes them.
    pub(super) pairs: Arc<SearchPairs>,
}

impl Searching {
    /// Copies the pairs to the device, if it has others. Returns where they lie and how many bytes were copied.
    pub(super) fn put_pairs(
        &mut self,
        gpu: &mut Gpu,
        input: &SearchInput,
    ) -> Result<(OnDevice, usize), Fault> {
        let staging = self.pairs_staging.bytes();
        if let Some(on_device) = &self.resident
            && staging[on_device.shapes.clone()] == *input.shapes.as_flattened()
            && staging[on_device.cells.clone()] == *input.cells
        {
            return Ok((on_device.clone(), 0));
        }
        // What others' programs took says little.
        self.evaluations = EVALUATIONS_MIN;
        self.resident = None;
        let (on_device, bytes) = self.upload_pairs(gpu, input)?;
        self.resident = Some(on_device.clone());
        Ok((on_device, bytes))
    }

    /// Copies the pairs to the device.
    fn upload_pairs(
        &mut self,
        gpu: &mut Gpu,
        input: &SearchInput,
    ) -> Result<(OnDevice, usize), Fault> {
        let mut parts = Parts::default();
        let shapes = parts.add(2 * input.shapes.len());
        let offsets = parts.add(4 * (input.shapes.len() + 1));
        let cells = parts.add(input.cells.len());
        let bytes = parts.bytes;
        let grids = parts.add(prepared_bytes(input.shapes.len()));
        let pairs = Arc::new(SearchPairs::new(&input.shapes, &input.cells));
        let on_device = OnDevice { shapes, offsets, cells, grids, pairs };
        self.pairs.reserve(&mut gpu.allocator, parts.bytes)?;
        self.pairs_staging.reserve(&mut gpu.allocator, bytes)?;
        let staging = self.pairs_staging.bytes();
        staging[on_device.shapes.clone()].copy_from_slice(input.shapes.as_flattened());
        staging[on_device.cells.clone()].copy_from_slice(&input.cells);
        let areas = input.shapes.iter().map(|[h, w]| u32::from(*h) * u32::from(*w));
        let ends = areas.scan(0_u32, |end, area| {
            *end += area;
            Some(*end)
        });
        let words = staging[on_device.offsets.clone()].chunks_exact_mut(4);
        words.zip([0].into_iter().chain(ends)).for_each(|(to, end)| {
            to.copy_from_slice(&end.to_le_bytes());
        });
        let (to, from) = (self.pairs.at(0), self.pairs_staging.at(0));
        // SAFETY: both buffers have these bytes, and the stream is waited for at once.
        unsafe { gpu.driver.copy_to_device(to, from, bytes, self.stream)? };
        gpu.driver.synchronize(self.stream)?;
        Ok((on_device, bytes))
    }
}

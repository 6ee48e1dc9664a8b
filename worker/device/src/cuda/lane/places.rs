//! Where the kernels of a chunk find its input and leave its result: in the lane's buffers, or in its staging.

use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::part::Part;

use super::Lane;
use crate::cuda::pass::Pass;
use crate::cuda::schedule::{Places, ResultPlaces, ScratchPlaces, StagePlaces};
use crate::cuda::scratch::ScratchLayout;
use crate::device::GridDispatch;

impl Lane {
    pub(super) fn places(&self, dispatch: &GridDispatch<'_>, pass: &Pass) -> Places {
        let items = u32::try_from(pass.batch.items()).expect("a batch counts its items in 32 bits");
        let sums = self.output(pass).plus(pass.sums_start());
        let near = pass.reads_near.then(|| self.input_staging.on_device());
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

    /// Where kernels write the sums and the result.
    pub(super) fn output(&self, pass: &Pass) -> DeviceAddress {
        if pass.writes_near { self.output_staging.on_device() } else { self.output.at(0) }
    }

    pub(super) fn result_places(&self, dispatch: &GridDispatch<'_>, pass: &Pass) -> ResultPlaces {
        let output = self.output(pass);
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
}

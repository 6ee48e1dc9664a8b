//! Jobs that run programs over pairs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::message::{Packing, Work};
use gridpool_protocol::output::Bytes;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::search::{
    CellScore, JobPrograms, PackedPrograms, Score, SearchError, SearchLayout, SearchSize,
};
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::trace::{TraceContext, TraceState};

use super::outcomes::Outcomes;
use crate::connection::Connection;
use crate::runnable::{Produces, Runnable};
use crate::{BatchLayout, ClientError, GridBatch, Job};

/// The pairs of a search, packed once.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) layout: BatchLayout,
    packed: Vec<u8>,
    pub(super) score: Score,
}

impl Pairs {
    pub(super) fn new(batch: &GridBatch, score: Score) -> Result<Self, SearchError> {
        if batch.grids_per_item() != 2 {
            return Err(SearchError::Grids);
        }
        let layout = batch.layout()?;
        let mut packed = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut packed));
        // A job of one program must fit.
        let one = SearchSize { programs: 1, ..PackedPrograms::default().size(layout) };
        SearchLayout::new(one, score)?;
        Ok(Self { layout, packed, score })
    }

    pub(super) fn count(&self) -> usize {
        self.layout.items()
    }
}

/// Programs and the pairs that they run over.
#[derive(Debug)]
pub(super) struct OverPairs {
    pairs: Arc<Pairs>,
    programs: JobPrograms,
    layout: SearchLayout,
}

impl OverPairs {
    pub(super) fn new(pairs: &Arc<Pairs>, programs: JobPrograms) -> Result<Self, SearchError> {
        let layout = SearchLayout::new(programs.size(pairs.layout), pairs.score)?;
        Ok(Self { pairs: Arc::clone(pairs), programs, layout })
    }

    /// A job of some of its programs.
    pub(super) fn part(&self, programs: Range<usize>) -> Result<Self, SearchError> {
        Self::new(&self.pairs, self.programs.part(programs))
    }

    pub(super) fn programs(&self) -> &JobPrograms {
        &self.programs
    }

    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// Room for what comes of its programs.
    pub(super) fn outcomes(&self) -> Outcomes {
        let Pairs { layout, score, .. } = self.pairs();
        Outcomes::new(self.programs.len(), layout.items(), *score == Score::Cells)
    }
}

/// The verdicts of a job.
#[derive(Debug)]
pub(super) struct SearchOutputs {
    layout: SearchLayout,
    bytes: Bytes,
    /// The programs that have verdicts, in order.
    done: Vec<Range<usize>>,
}

impl SearchOutputs {
    /// The programs that have verdicts, in order.
    pub(super) fn done(&self) -> &[Range<usize>] {
        &self.done
    }

    /// Copies the statuses of some programs.
    pub(super) fn statuses(&self, programs: &Range<usize>, to: &mut [u8]) {
        self.bytes.read(self.layout.statuses(programs).start, to);
    }

    /// Copies the scores of some programs. Returns whether they are scores.
    pub(super) fn scores(&self, programs: &Range<usize>, to: &mut [u16]) -> bool {
        let places = self.layout.scores(programs);
        let mut bytes = vec![0; places.len()];
        self.bytes.read(places.start, &mut bytes);
        let numbers = bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
        to.iter().all(|number| CellScore::from_number(*number).is_some())
    }
}

impl Runnable for OverPairs {
    fn work(&self) -> Work {
        Work::Search { score: self.pairs.score }
    }

    fn packing(&self) -> Packing {
        Packing::Search(self.programs.size(self.pairs.layout))
    }

    fn input_bytes(&self) -> usize {
        self.layout.input_bytes()
    }

    fn output_bytes(&self, _connection: &Connection) -> Result<Option<u64>, ClientError> {
        Ok(Some(self.layout.output_bytes() as u64))
    }

    fn write_to(&self, memory: &SharedSlice<'_>) {
        memory.write(0, &self.pairs.packed);
        self.programs.write_to(self.layout, memory);
    }
}

impl Produces<SearchOutputs> for OverPairs {
    fn outputs(&self, bytes: Bytes) -> Result<SearchOutputs, ClientError> {
        Ok(SearchOutputs {
            layout: self.layout,
            bytes,
            done: std::iter::once(0..self.layout.programs()).collect(),
        })
    }

    fn partial(
        &self,
        bytes: Bytes,
        done: Vec<ItemRange>,
    ) -> Result<Option<SearchOutputs>, ClientError> {
        let done = done.into_iter().map(|range| range.start as usize..range.end as usize);
        let mut done: Vec<_> = done.collect();
        done.sort_by_key(|range| range.start);
        Ok(Some(SearchOutputs { layout: self.layout, bytes, done }))
    }
}

/// What all jobs of a search have in common.
#[derive(Clone, Debug)]
pub(super) struct JobTerms {
    pub(super) deadline: Duration,
    pub(super) trace: Option<TraceContext>,
    pub(super) trace_state: Option<TraceState>,
}

impl Job<SearchOutputs> {
    /// Whoever sends it waits for shared memory, so that a search can be stopped meanwhile.
    pub(super) fn search(work: &Arc<OverPairs>, terms: JobTerms) -> Self {
        let job = Self::new(Arc::<OverPairs>::clone(work));
        let mut job = job
            .with_deadline(terms.deadline)
            .with_trace(terms.trace)
            .with_trace_state(terms.trace_state);
        job.options.wait_for_memory = false;
        job
    }
}

//! What the clients of a storm submit: programs of several kinds over batches of many sizes, with what
//! the right result of each, by the reference.
//!
//! Every job begins with an item of its own, its *tag*: a grid that spells its number. So no two jobs
//! have the same result, and a reply with another job's result, or with what an earlier job left in a
//! buffer, is seen for what it is.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemError, MalformedOutput, Output, OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};

use crate::oracle::samples::{SplitMix64, random_grid, random_pair};

/// Programs over grids. The first keep all that the tag says; the last two do not.
const GRID_PROGRAMS: [&str; 8] = [
    "rot90 | replace(1, 7)",
    "hmirror | vmirror",
    "objects(true, false, true)",
    "upscale(2)",
    "o_g(5)",
    "rot90 | o_g(1) | argmax(size) | subgrid",
    "o_g(5) | merge | fill(8)",
    "palette",
];
const PAIR_PROGRAMS: [&str; 2] = ["mapply(rot90)", "first | vmirror"];

/// Items of a batch beside its tag.
const SMALL: [usize; 3] = [0, 2, 9];
const MIDDLE: [usize; 2] = [60, 250];
const LARGE: [usize; 1] = [1_500];

/// Digits of a tag.
const TAG_DIGITS: usize = 20;

/// How large a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A few grids, in the message.
    Small,
    /// In shared memory.
    Middle,
    /// In shared memory, and split over the devices.
    Large,
}

/// One item's result.
type ItemResult = Result<Output, ItemError>;

/// One program over one batch.
#[derive(Debug)]
struct Template {
    program: Program,
    body: Body,
    values: Vec<ItemResult>,
    hashes: Vec<u64>,
}

#[derive(Debug)]
enum Body {
    Grids(Vec<Grid>),
    Pairs(Vec<(Grid, Option<Grid>)>),
}

/// Every job that a client may draw.
#[derive(Debug)]
pub struct Workload {
    small: Vec<Arc<Template>>,
    middle: Vec<Arc<Template>>,
    large: Vec<Arc<Template>>,
}

/// A job, and its right result.
#[derive(Clone, Debug)]
pub struct Request {
    template: Arc<Template>,
    batch: Arc<GridBatch>,
    tag: Arc<ItemResult>,
    expected: u64,
}

impl Workload {
    /// The workload that belongs to `seed`, with large jobs or without.
    #[must_use]
    pub fn new(seed: u64, has_large: bool) -> Self {
        let mut rng = SplitMix64::new(seed);
        let mut templates = |programs: &[&str], counts: &[usize]| -> Vec<Arc<Template>> {
            let each = counts.iter().flat_map(|&count| programs.iter().map(move |&p| (p, count)));
            each.map(|(text, count)| Arc::new(Template::new(text, count, &mut rng))).collect()
        };
        let all: Vec<&str> = GRID_PROGRAMS.iter().chain(&PAIR_PROGRAMS).copied().collect();
        Self {
            small: templates(&all, &SMALL),
            middle: templates(&all, &MIDDLE),
            large: templates(&GRID_PROGRAMS[..3], if has_large { &LARGE } else { &[] }),
        }
    }

    /// One job of this size, with this number on its tag.
    ///
    /// # Panics
    /// If `size` is large and the workload has no large jobs.
    pub fn request(&self, size: Size, tag: u64, rng: &mut SplitMix64) -> Request {
        let templates = match size {
            Size::Small => &self.small,
            Size::Middle => &self.middle,
            Size::Large => &self.large,
        };
        Request::new(Arc::clone(&templates[rng.below(templates.len())]), tag)
    }

    /// Small jobs of one program, with these numbers on their tags.
    pub fn alike(&self, tags: Range<u64>, rng: &mut SplitMix64) -> Vec<Request> {
        let template = &self.small[rng.below(self.small.len())];
        tags.map(|tag| Request::new(Arc::clone(template), tag)).collect()
    }

    /// A small job of the first program, whose result is as long for every tag.
    #[must_use]
    pub fn plain(&self, tag: u64) -> Request {
        Request::new(Arc::clone(&self.small[0]), tag)
    }
}

impl Template {
    fn new(text: &str, count: usize, rng: &mut SplitMix64) -> Self {
        let program =
            Program::compile(text, Ties::Cpython).expect("the workload's programs compile");
        let body = match program.grids_per_item() {
            1 => Body::Grids((0..count).map(|_| random_grid(rng)).collect()),
            _ => Body::Pairs((0..count).map(|_| random_pair(rng)).collect()),
        };
        let batch = body.batch(None);
        let values = if count == 0 { Vec::new() } else { by_reference(&program, &batch) };
        let hashes = values.iter().map(hash).collect();
        Self { program, body, values, hashes }
    }
}

impl Body {
    /// The tag, if there is one, and the items.
    fn batch(&self, tag: Option<&Grid>) -> GridBatch {
        let batch = match self {
            Self::Grids(grids) => GridBatch::from_grids(tag.into_iter().chain(grids)),
            Self::Pairs(pairs) => {
                let pairs = pairs.iter().map(|(input, output)| (input, output.as_ref()));
                GridBatch::from_pairs(tag.map(|tag| (tag, Some(tag))).into_iter().chain(pairs))
            }
        };
        batch.expect("the workload's batches are within the limits")
    }

    fn tag(&self, tag: &Grid) -> GridBatch {
        match self {
            Self::Grids(_) => Self::Grids(Vec::new()).batch(Some(tag)),
            Self::Pairs(_) => Self::Pairs(Vec::new()).batch(Some(tag)),
        }
    }
}

impl Request {
    fn new(template: Arc<Template>, tag: u64) -> Self {
        let grid = tag_grid(tag);
        let batch = Arc::new(template.body.batch(Some(&grid)));
        let values = by_reference(&template.program, &template.body.tag(&grid));
        let tag = values.into_iter().next().expect("a result for the tag");
        let hashes = std::iter::once(hash(&tag)).chain(template.hashes.iter().copied());
        let expected = fold(hashes);
        Self { template, batch, tag: Arc::new(tag), expected }
    }

    /// What runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.template.program
    }

    /// Over what.
    #[must_use]
    pub fn batch(&self) -> &Arc<GridBatch> {
        &self.batch
    }

    /// The digest of the right result.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// Bytes of the packed batch and of its packed result.
    ///
    /// # Panics
    /// Never: the workload's jobs are within the limits.
    #[must_use]
    pub fn packed_bytes(&self) -> (usize, usize) {
        let layout = self.batch.layout().expect("it has a tag");
        let output = OutputLayout::new(self.program(), layout).expect("it is within the limits");
        (layout.bytes(), output.bytes())
    }

    /// The digest of a result: the expected one if, and only if, every item is what the reference gives.
    ///
    /// # Errors
    /// [`MalformedOutput`] for the first item that is none.
    pub fn digest(&self, outputs: &Outputs) -> Result<u64, MalformedOutput> {
        let expected = || std::iter::once(&*self.tag).chain(&self.template.values);
        let mut is_right = outputs.len() == 1 + self.template.values.len();
        let mut items = Vec::with_capacity(outputs.len());
        for (item, value) in (0..outputs.len()).zip(expected()) {
            let found = outputs.item(item)?;
            is_right &= found == *value;
            items.push(found);
        }
        if is_right {
            return Ok(self.expected);
        }
        Ok(fold(items.iter().map(hash)))
    }

    /// The digest of a packed result, from an answer or an arena.
    ///
    /// # Errors
    /// [`MalformedOutput`] if it is none of this job.
    pub fn digest_packed(&self, bytes: Vec<u8>) -> Result<u64, MalformedOutput> {
        self.digest(&Outputs::new(self.program().clone(), Arc::clone(&self.batch), bytes)?)
    }
}

/// A number as a row of digits, which are colours.
fn tag_grid(tag: u64) -> Grid {
    let digits = format!("{tag:0TAG_DIGITS$}");
    let cells = digits.bytes().map(|digit| digit - b'0').collect();
    Grid::new(2, TAG_DIGITS / 2, cells).expect("twenty colours")
}

fn by_reference(program: &Program, batch: &GridBatch) -> Vec<ItemResult> {
    let outputs = run_batch(program, batch).expect("the workload's jobs are within the limits");
    let item = |item| outputs.item(item).expect("the reference's results are well formed");
    (0..outputs.len()).map(item).collect()
}

fn hash(item: &ItemResult) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{item:?}").hash(&mut hasher);
    hasher.finish()
}

fn fold(hashes: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hashes.for_each(|hash| hash.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_its_own_digest_and_no_other() {
        let workload = Workload::new(1, false);
        let mut rng = SplitMix64::new(2);
        for size in [Size::Small, Size::Middle] {
            for tag in 0..40 {
                let request = workload.request(size, tag, &mut rng);
                let outputs = run_batch(request.program(), request.batch()).unwrap();
                assert_eq!(request.digest(&outputs).unwrap(), request.expected());
                let mut bytes = outputs.packed().into_owned();
                let layout = request.batch().layout().unwrap();
                let at = OutputLayout::new(request.program(), layout).unwrap().status().start;
                bytes[at] = 1;
                assert_ne!(request.digest_packed(bytes).unwrap(), request.expected());
            }
        }
    }

    #[test]
    fn another_jobs_result_has_that_jobs_digest() {
        let workload = Workload::new(3, false);
        let (one, two) = (workload.plain(1), workload.plain(2));
        assert_ne!(one.expected(), two.expected());
        let bytes = run_batch(two.program(), two.batch()).unwrap().packed().into_owned();
        assert_eq!(one.digest_packed(bytes).unwrap(), two.expected());
    }
}

//! Small jobs that are sent together go to the pool as one: a bundle. Each keeps its handle, and gets its own part of
//! the result and a receipt of its own items.
//!
//! Owns which jobs may go so, and what each gets of the answer. If the pool gives a bundle back, its jobs are submitted
//! one by one.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::limits::{BUNDLE_BYTES_MAX, BUNDLE_JOBS_MAX};
use gridpool_protocol::message::Inline;
use gridpool_protocol::output::Bytes;
use gridpool_protocol::receipt::{ItemRange, Receipt, Verdict};

use super::ClientError;
use super::buffers::Buffers;
use super::connection::{Connection, Outgoing};
use super::program::OverGrids;
use super::runnable::{AnyJob, JobOptions, Produces, Runnable};
use super::source::Source;
use super::state::{Pending, Stage, State};

/// No connection has this number.
const NO_EPOCH: u64 = u64::MAX;

/// Jobs that were sent as one.
#[derive(Debug)]
pub(super) struct Bundle {
    all: Arc<OverGrids>,
    parts: Vec<Part>,
}

/// One of the jobs of a bundle.
#[derive(Debug)]
struct Part {
    key: JobKey,
    job: Arc<dyn Runnable>,
    items: Range<usize>,
}

/// The answer to a bundle, which its jobs share.
#[derive(Debug)]
pub(super) struct BundleAnswer {
    bundle: Arc<Bundle>,
    receipt: Receipt,
    bytes: Option<Bytes>,
}

/// A verdict with its result.
#[derive(Debug)]
pub(super) enum Verdicted {
    /// Of the job.
    Own(Box<Receipt>, Option<Inline>),
    /// Of the bundle in which it was so many-th.
    Shared(Arc<BundleAnswer>, usize),
}

impl Bundle {
    /// How many jobs it stands for.
    pub(super) fn jobs(&self) -> u32 {
        u32::try_from(self.parts.len()).expect("a bundle has few jobs")
    }

    /// The keys of its jobs, in order.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = JobKey> {
        self.parts.iter().map(|part| part.key)
    }

    /// The receipt of one of its jobs.
    fn receipt(&self, part: usize, of_all: &Receipt) -> Receipt {
        let Part { key, items, .. } = &self.parts[part];
        let [start, end] = [items.start, items.end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let mut receipt = of_all.clone();
        (receipt.key, receipt.items) = (key.to_string(), end - start);
        // The pool knows the number of all.
        receipt.job = format!("{}.{}", of_all.job, part + 1);
        for attempt in &mut receipt.attempts {
            let ItemRange { start: first, end: last } = attempt.part;
            let within = |at: u32| at.clamp(start, end) - start;
            attempt.part = ItemRange { start: within(first), end: within(last) };
            let all = last.saturating_sub(first).max(1);
            let share = |bytes: u64| {
                let share = u128::from(bytes) * u128::from(attempt.part.len());
                u64::try_from(share / u128::from(all)).unwrap_or(bytes)
            };
            (attempt.h2d_bytes, attempt.d2h_bytes) =
                (share(attempt.h2d_bytes), share(attempt.d2h_bytes));
        }
        // Shards of the others' items alone were none of its attempts.
        receipt.attempts.retain(|attempt| !attempt.part.is_empty());
        receipt
    }

    /// The receipt of one of its jobs that its client has cancelled.
    pub(super) fn cancelled(&self, key: JobKey) -> Receipt {
        let items =
            self.parts.iter().find(|part| part.key == key).map_or(0, |part| part.items.len());
        Receipt {
            key: key.to_string(),
            items: u32::try_from(items).unwrap_or(u32::MAX),
            verdict: Verdict::Cancelled,
            reason: "cancelled by its client".to_owned(),
            ..Receipt::default()
        }
    }
}

impl BundleAnswer {
    pub(super) fn new(bundle: Arc<Bundle>, receipt: Receipt, bytes: Option<Bytes>) -> Self {
        Self { bundle, receipt, bytes }
    }

    /// The receipt and the packed result of one of the jobs.
    pub(super) fn take(&self, part: usize) -> Result<(Receipt, Option<Bytes>), ClientError> {
        let Bundle { all, parts } = &*self.bundle;
        let mut receipt = self.bundle.receipt(part, &self.receipt);
        let (Verdict::Ok, Some(bytes)) = (receipt.verdict, &self.bytes) else {
            // Whose they are is not known.
            receipt.item_errors = 0;
            return Ok((receipt, None));
        };
        let Part { job, items, .. } = &parts[part];
        let own = job.private_grids().expect("only such jobs are bundled");
        let outputs = all.outputs(bytes.clone())?;
        if receipt.item_errors > 0 {
            receipt.item_errors = outputs.errors_in(items.clone());
        }
        let tables = own.batch().expect("their grids are in private memory").tables();
        let part = outputs.part(items.clone(), own.output_layout(), tables)?;
        Ok((receipt, Some(Bytes::Private(Arc::new(part)))))
    }
}

/// Puts together what may go as one: neighbouring jobs of one program on the same terms.
pub(super) fn gather(connection: &Connection, jobs: Vec<Outgoing>) -> Vec<Outgoing> {
    let mut gathered = Vec::with_capacity(jobs.len());
    let (mut run, mut bytes) = (Vec::new(), 0);
    for job in jobs {
        let own = job.job.runnable.input_bytes();
        let goes_on = run.first().is_some_and(|first: &Outgoing| may_join(&first.job, &job.job))
            && run.len() < BUNDLE_JOBS_MAX as usize
            && bytes + own <= BUNDLE_BYTES_MAX;
        if !goes_on {
            gathered.extend(bundled(connection, std::mem::take(&mut run)));
            bytes = 0;
        }
        bytes += own;
        run.push(job);
    }
    gathered.extend(bundled(connection, run));
    gathered
}

/// Whether two jobs may go as one.
fn may_join(first: &AnyJob, other: &AnyJob) -> bool {
    let JobOptions { key, idempotent, wait_if_busy, chaos, output_bytes, trace, .. } =
        &first.options;
    // Where only some have room, those that do not wait are refused one by one.
    let is_plain =
        key.is_none() && *idempotent && *wait_if_busy && chaos.is_none() && output_bytes.is_none();
    let program = |job: &'_ AnyJob| job.runnable.private_grids().map(OverGrids::program).cloned();
    // Equal without being compared, if it is the same one.
    is_plain
        && trace.is_none()
        && first.options == other.options
        && program(first).is_some_and(|first| program(other) == Some(first))
}

/// Jobs that may go as one, as one, if there are several.
fn bundled(connection: &Connection, jobs: Vec<Outgoing>) -> Vec<Outgoing> {
    if jobs.len() < 2 {
        return jobs;
    }
    let Some((all, parts)) = joined(&jobs) else { return jobs };
    let job = AnyJob {
        output_bytes: all.output_layout().bytes() as u64,
        runnable: Arc::clone(&all) as Arc<dyn Runnable>,
        options: jobs[0].job.options.clone(),
    };
    let (key, deadline) = (connection.next_key(), jobs[0].deadline);
    let bundle = Some((Arc::new(Bundle { all, parts }), jobs));
    vec![Outgoing { key, job, deadline, buffers: Buffers::default(), bundle }]
}

/// One job over the items of all of them; `None` if that is no job, such as one whose result would be too large.
fn joined(jobs: &[Outgoing]) -> Option<(Arc<OverGrids>, Vec<Part>)> {
    let program = jobs.first()?.job.runnable.private_grids()?.program();
    let mut batch = GridBatch::of_items(program.grids_per_item());
    let mut parts = Vec::with_capacity(jobs.len());
    for own in jobs {
        let start = batch.len();
        batch.append(own.job.runnable.private_grids()?.batch()?).ok()?;
        let (key, job) = (own.key, Arc::clone(&own.job.runnable));
        parts.push(Part { key, job, items: start..batch.len() });
    }
    let all = OverGrids::new(Arc::clone(program), Source::Private(Arc::new(batch))).ok()?;
    Some((Arc::new(all), parts))
}

impl Outgoing {
    /// The keys and deadlines of the jobs that have handles: its own, or those of the jobs that go as this one.
    pub(super) fn handles(&self) -> Vec<(JobKey, Instant)> {
        let own = |job: &Self| (job.key, job.deadline);
        self.bundle
            .as_ref()
            .map_or_else(|| vec![own(self)], |(_, jobs)| jobs.iter().map(own).collect())
    }
}

impl State {
    /// There is news of a job, or of those in a bundle.
    pub(super) fn call(&mut self, key: JobKey) {
        self.sleepers.call(key);
        if let Some(bundle) = self.jobs.get(&key).and_then(|pending| pending.bundle.as_ref()) {
            bundle.keys().for_each(|own| self.sleepers.call(own));
        }
    }

    /// The pool's last message about a bundle: each of its jobs that is still wanted gets its part.
    pub(super) fn unbundle(&mut self, key: JobKey, bundle: &Arc<Bundle>, stage: Stage) {
        let Some(mut pending) = self.jobs.remove(&key) else { return };
        self.wakers.extend(pending.waker.take());
        let lane = pending.lane();
        let answer = if let Stage::Done(Verdicted::Own(receipt, inline)) = stage {
            let bytes = pending.take_result(&receipt, inline);
            Ok(Arc::new(BundleAnswer::new(Arc::clone(bundle), *receipt, bytes)))
        } else {
            Err(stage)
        };
        for (at, own) in bundle.keys().enumerate() {
            let Some(part) = self.jobs.get_mut(&own).filter(|part| part.is_in(key)) else {
                continue;
            };
            part.stage = match &answer {
                Ok(answer) => Stage::Done(Verdicted::Shared(Arc::clone(answer), at)),
                Err(Stage::Refused(why)) => Stage::Refused(why.clone()),
                Err(_) => Stage::Lost,
            };
            // A future that sends it again keeps its waker.
            if !part.is_refused_for_now() {
                self.wakers.extend(part.waker.take());
            } else if part.waits_to_be_sent_alone() {
                self.held.give_back(clock::now(), &lane, own);
            }
            self.sleepers.call(own);
        }
    }

    /// The job that went to the pool for the one of this key: its bundle, or itself.
    pub(super) fn sent_for(&self, key: JobKey) -> Option<(JobKey, &Pending)> {
        let own = self.jobs.get(&key)?;
        let Stage::Bundled(bundle) = own.stage else { return Some((key, own)) };
        Some((bundle, self.jobs.get(&bundle)?))
    }

    /// Cancels a job that went in a bundle, and returns that. The pool runs the others, so the verdict is given here.
    pub(super) fn cancel_in_bundle(&mut self, key: JobKey) -> Option<JobKey> {
        let Stage::Bundled(of) = self.jobs.get(&key)?.stage else { return None };
        let receipt = self.jobs.get(&of)?.bundle.as_ref()?.cancelled(key);
        let pending = self.jobs.get_mut(&key)?;
        pending.is_cancelled = true;
        pending.stage = Stage::Done(Verdicted::Own(Box::new(receipt), None));
        self.wakers.extend(pending.waker.take());
        self.sleepers.call(key);
        Some(of)
    }

    /// Whether none of a bundle's jobs is wanted any more.
    pub(super) fn is_left(&self, key: JobKey) -> bool {
        let bundle = self.jobs.get(&key).and_then(|pending| pending.bundle.as_ref());
        let is_in = |own| self.jobs.get(&own).is_some_and(|part| part.is_in(key));
        bundle.is_some_and(|bundle| !bundle.keys().any(is_in))
    }
}

impl Pending {
    /// How many jobs it stands for.
    pub(super) fn count(&self) -> u32 {
        self.bundle.as_ref().map_or(1, |bundle| bundle.jobs())
    }

    /// Whether it is in the bundle of this key.
    fn is_in(&self, bundle: JobKey) -> bool {
        matches!(self.stage, Stage::Bundled(own) if own == bundle)
    }

    /// Whether a job of a bundle that was given back can be sent as soon as the pool takes it.
    fn waits_to_be_sent_alone(&mut self) -> bool {
        let is_shared = self.job.shares_input() || self.job.shares_output();
        if is_shared {
            // Whoever waits for it gets it memory first, as after a reconnect.
            self.epoch = NO_EPOCH;
        }
        !is_shared
    }
}

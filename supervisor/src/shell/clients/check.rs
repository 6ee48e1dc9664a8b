//! Everything about a submission that can be wrong without looking into shared memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridpool_core::event::{self, JobRequest, Size};
use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::ids::{ArenaId, ClientId, JobId};
use gridpool_protocol::limits::{BUNDLE_JOBS_MAX, INLINE_BYTES_MAX};
use gridpool_protocol::message::{
    Destination, Inline, Input, Packing, Payload, Slice, Submission, Terms, Work,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::principal::Principal;
use gridpool_protocol::program::Program;
use gridpool_protocol::search::{ProgramForm, Score, SearchLayout, SearchSize};
use gridpool_protocol::status::RUN_TEXT_MAX;

use super::{ClientArena, Connection, HeldJob, Shared};
use crate::gateway::Holders;
use crate::traces::JobSpan;

/// Why a job that brings a fault is refused.
const NO_CHAOS: &str = "this pool takes no faults on purpose; to have it take them, start it with \
                        `gridpool serve --allow-chaos`";

/// The arenas that a job uses.
type Arenas = BTreeMap<ArenaId, Arc<ClientArena>>;

/// A submission that can run, as far as can be told without looking into shared memory.
#[derive(Debug)]
pub(super) struct Checked {
    work: event::Work,
    arenas: Arenas,
    principal: Principal,
    holders: Option<Arc<Holders>>,
    span: Option<JobSpan>,
    fingerprint: u64,
    label: Arc<str>,
    items: u32,
    cost: u64,
    inline_bytes: u64,
    bytes: u64,
}

impl Checked {
    /// The job that is for the core, and what is kept of it.
    pub(super) fn into_job(self, client: ClientId, submission: Submission) -> NewJob {
        let Self { work, arenas, principal, holders, span, fingerprint, label, .. } = self;
        let Self { items, cost, inline_bytes, bytes, .. } = self;
        let Submission { key, ref payload, terms, jobs, .. } = submission;
        let Terms { priority, idempotent, .. } = terms;
        let is_inline = matches!(payload.output, Destination::Inline);
        let request = Box::new(JobRequest {
            job: JobId(0),
            // Each shard writes its own items' places of the result, which tensors do not have.
            divisible: !is_inline && work.model().is_none(),
            work: work.clone(),
            principal: principal.clone(),
            key,
            fingerprint,
            label,
            jobs,
            items,
            cost,
            inline_bytes,
            bytes,
            deadline: terms.deadline(),
            priority,
            idempotent,
            answer_inline: is_inline,
            trace: submission.trace.map(|context| context.trace),
            content: None,
        });
        let held = HeldJob { client, principal, holders, submission, span, work, arenas };
        NewJob { request, held: Arc::new(held) }
    }

    /// Gives the job a span of its trace, or of a new one, if this pool sends traces. The gateway's own health checks
    /// get none.
    pub(super) fn trace(&mut self, shared: &Shared, submission: &mut Submission) {
        // A state belongs to the trace that it came with, and not to one that the pool begins.
        submission.trace_state = submission.trace.and_then(|_| submission.trace_state.take());
        if let Some(tracer) = shared.tracer.get()
            && self.principal != Principal::Gateway
            && let Some(span) = tracer.begin(submission.trace)
        {
            (submission.trace, self.span) = (Some(span.own), Some(span));
        }
    }
}

/// A job that has no number yet, and what is kept of it until its verdict. Small: another thread may take it to the
/// core.
#[derive(Debug)]
pub(in crate::shell) struct NewJob {
    request: Box<JobRequest>,
    held: Arc<HeldJob>,
}

impl NewJob {
    /// Gives the job its number. Only under the core's lock: numbers tell in which order jobs came.
    pub(in crate::shell) fn number(mut self, shared: &Shared) -> (Box<JobRequest>, Arc<HeldJob>) {
        self.request.job = JobId(shared.next_id());
        (self.request, self.held)
    }
}

/// What depends on the kind of work.
struct Known {
    work: event::Work,
    items: u32,
    /// How much work it is, if that does not follow from its bytes.
    size: Option<Size>,
    /// Bytes of the input and of the result, where the work says them.
    bytes: Option<(u64, u64)>,
}

/// The bytes of a job that were claimed.
#[derive(Default)]
struct Claimed {
    arenas: Arenas,
    inline_bytes: u64,
    arena_bytes: u64,
}

impl Connection {
    /// Checks a submission.
    pub(super) fn check(&mut self, submission: &Submission) -> Result<Checked, String> {
        let Submission { work, payload, terms, principal, .. } = submission;
        let chaos = terms.chaos;
        let principal = self.peer.principal(self.who.account, principal.as_ref())?;
        if chaos.is_some() && !self.shared.allows_chaos.load(Ordering::Relaxed) {
            return Err(NO_CHAOS.to_owned());
        }
        let gateway =
            self.shared.gateway.get().filter(|_| matches!(principal, Principal::Token(_)));
        let holders = gateway.map(|gateway| gateway.holders());
        let known = match (work, payload.packing) {
            (Work::Program { text, ties, steps }, Packing::Grids { items, cells }) => {
                let program = self.programs.compile(text, *ties, *steps);
                let program = program.map_err(|error| error.to_string())?;
                let known = check_program(&program, items, cells)?;
                check_bundle(submission, items)?;
                known
            }
            (Work::Model { .. } | Work::Search { .. }, _) if submission.jobs != 1 => {
                return Err("only jobs that run a program can be bundled".to_owned());
            }
            (Work::Model { name }, Packing::Tensors) => {
                if chaos.is_some() {
                    return Err("programs meet faults on purpose, models do not".to_owned());
                }
                let work = event::Work::Model { name: name.as_str().into() };
                Known { work, items: 1, size: None, bytes: None }
            }
            (Work::Search { score }, Packing::Search(size)) => check_search(*score, size)?,
            (Work::Search { .. }, Packing::Grids { .. } | Packing::Tensors) => {
                return Err("a search runs over programs and pairs".to_owned());
            }
            (Work::Program { .. } | Work::Model { .. }, Packing::Search(_)) => {
                return Err("only a search runs over programs and pairs".to_owned());
            }
            (Work::Program { .. }, Packing::Tensors) => {
                return Err("a program runs over grids, not over tensors".to_owned());
            }
            (Work::Model { .. }, Packing::Grids { .. }) => {
                return Err("a model runs over tensors, not over grids".to_owned());
            }
        };
        let claimed = self.claim(payload, known.bytes)?;
        let Claimed { arenas, inline_bytes, arena_bytes } = claimed;
        let bytes = arena_bytes.saturating_add(inline_bytes);
        Ok(Checked {
            fingerprint: fingerprint(&known, submission),
            work: known.work,
            arenas,
            principal,
            holders,
            span: None,
            label: self.label(work.text()),
            items: known.items,
            cost: known.size.unwrap_or(Size::Model { bytes }).cost(),
            inline_bytes,
            bytes,
        })
    }

    /// As much of a program or of a model's name as logs show. Jobs that follow each other often have the same.
    fn label(&mut self, text: &str) -> Arc<str> {
        let label = match text.char_indices().nth(RUN_TEXT_MAX) {
            Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
            None => Cow::Borrowed(text),
        };
        if *self.label != *label {
            self.label = label.into();
        }
        Arc::clone(&self.label)
    }

    /// Claims the input and the place of the result.
    fn claim(&self, payload: &Payload, bytes: Option<(u64, u64)>) -> Result<Claimed, String> {
        let mut claimed = Claimed::default();
        let (input_bytes, output_bytes) = bytes.unzip();
        match &payload.input {
            Input::Inline(Inline(own)) => {
                let (got, want) = (own.len(), input_bytes.unwrap_or(own.len() as u64));
                if got as u64 != want || got > INLINE_BYTES_MAX {
                    return Err(format!(
                        "an inline input of {got} bytes; it takes {want}, and at most \
                         {INLINE_BYTES_MAX} may travel inline"
                    ));
                }
                claimed.inline_bytes += want;
            }
            Input::Arena(slice) => self.claim_slice(*slice, input_bytes, &mut claimed)?,
        }
        match &payload.output {
            Destination::Inline => {
                // How much a model gives is not known: at most that much.
                let bytes = output_bytes.unwrap_or(INLINE_BYTES_MAX as u64);
                if bytes > INLINE_BYTES_MAX as u64 {
                    return Err(format!(
                        "a result of {bytes} bytes cannot travel inline; at most {INLINE_BYTES_MAX} may"
                    ));
                }
                claimed.inline_bytes += bytes;
            }
            Destination::Arena(slice) => {
                self.claim_slice(*slice, output_bytes, &mut claimed)?;
                if matches!(&payload.input, Input::Arena(input) if slice.overlaps(input)) {
                    return Err("the result would overwrite the input".to_owned());
                }
            }
        }
        Ok(claimed)
    }

    /// Checks that a slice lies in an arena of this client and is as long as it must be.
    fn claim_slice(
        &self,
        slice: Slice,
        want: Option<u64>,
        claimed: &mut Claimed,
    ) -> Result<(), String> {
        let Slice { arena: id, offset, bytes } = slice;
        let want = want.unwrap_or(bytes);
        let arena = self.arenas.get(&id);
        let arena = arena.ok_or_else(|| format!("{id} is no arena of this connection"))?;
        if offset.checked_add(bytes).is_none_or(|end| end > arena.bytes()) {
            return Err(format!(
                "{bytes} bytes at {offset} do not lie in {id}, which has {}",
                arena.bytes()
            ));
        }
        if bytes != want || !offset.is_multiple_of(PART_ALIGN as u64) {
            return Err(format!(
                "a slice of {bytes} bytes at {offset}; it must have {want} bytes and start at a \
                 multiple of {PART_ALIGN}"
            ));
        }
        claimed.arena_bytes += bytes;
        claimed.arenas.insert(id, Arc::clone(arena));
        Ok(())
    }
}

/// A number for a job: equal for two submissions of the same one. It covers the work, the packing, an inline input,
/// the lengths of slices, and the terms but the deadline, of which less is left when a job is submitted
/// again. Shared memory is not read: that would take long.
fn fingerprint(known: &Known, Submission { payload, terms, jobs, .. }: &Submission) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Terms { deadline_ms: _, priority, idempotent, chaos } = terms;
    (&known.work, payload.packing, priority, idempotent, chaos, jobs).hash(&mut hasher);
    match &payload.input {
        Input::Inline(Inline(bytes)) => bytes.hash(&mut hasher),
        Input::Arena(slice) => slice.bytes.hash(&mut hasher),
    }
    match payload.output {
        Destination::Inline => 0.hash(&mut hasher),
        Destination::Arena(slice) => slice.bytes.hash(&mut hasher),
    }
    hasher.finish()
}

/// Checks how many jobs a submission stands for.
fn check_bundle(Submission { jobs, terms, .. }: &Submission, items: u32) -> Result<(), String> {
    let most = BUNDLE_JOBS_MAX.min(items);
    if !(1..=most).contains(jobs) {
        return Err(format!(
            "it stands for {jobs} jobs; one of {items} items may stand for 1 to {most}"
        ));
    }
    if *jobs > 1 && (!terms.idempotent || terms.chaos.is_some()) {
        return Err(
            "jobs that may run only once, or meet a fault on purpose, cannot be bundled".to_owned()
        );
    }
    Ok(())
}

/// What is known of a program over a batch of this size.
fn check_program(program: &Program, items: u32, cells: u32) -> Result<Known, String> {
    let batch = BatchLayout::new(items, program.grids_per_item(), cells);
    let batch = batch.map_err(|error| error.to_string())?;
    let output = OutputLayout::new(program, batch).map_err(|error| error.to_string())?;
    Ok(Known {
        work: event::Work::Program { hash: program.shared_hash() },
        items,
        size: Some(Size::Program { cells, steps: program.length() }),
        bytes: Some((batch.bytes() as u64, output.bytes() as u64)),
    })
}

/// What a program of a template costs, as bytes of a listed one: two instructions, as most of it is shared.
const TEMPLATE_BYTES_PER_PROGRAM: u32 = 16;

/// What is known of a search of this size. Its programs are in the input; the worker verifies them.
fn check_search(score: Score, size: SearchSize) -> Result<Known, String> {
    let layout = SearchLayout::new(size, score).map_err(|error| error.to_string())?;
    let SearchSize { programs, cells, .. } = size;
    let program_bytes = match size.form {
        ProgramForm::Listed | ProgramForm::Alone => size.program_bytes,
        ProgramForm::Template { .. } => programs.saturating_mul(TEMPLATE_BYTES_PER_PROGRAM),
    };
    Ok(Known {
        work: event::Work::Search { score },
        items: programs,
        size: Some(Size::Search { cells, program_bytes }),
        bytes: Some((layout.input_bytes() as u64, layout.output_bytes() as u64)),
    })
}

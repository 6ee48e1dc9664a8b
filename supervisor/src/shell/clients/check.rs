//! Everything about a submission that can be wrong without looking into shared memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::ids::{ArenaId, JobId, Role};
use gridpool_protocol::limits::{DEADLINE_MAX, INFER_INLINE_BYTES_MAX, INLINE_BYTES_MAX};
use gridpool_protocol::message::{
    Destination, InferSubmission, Inline, Input, ModelCall, Payload, Slice, Submission,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::status::RUN_TEXT_MAX;

use super::{ClientArena, Connection};
use crate::pool::event::JobRequest;

/// What a job costs its client's share beside its cells: about what a launch takes in cells.
const COST_PER_JOB: u64 = 4_096;

/// Why a job that brings a fault is refused.
const NO_CHAOS: &str = "this pool takes no faults on purpose; to have it take them, start it with \
                        `gridpool serve --allow-chaos`";

impl Connection {
    /// A program over grids: what the core has to know of it, and the arenas that it uses.
    pub(super) fn check(
        &mut self,
        submission: &Submission,
    ) -> Result<(JobRequest, BTreeMap<ArenaId, Arc<ClientArena>>), String> {
        if submission.chaos.is_some() && !self.shared.allows_chaos.load(Ordering::Relaxed) {
            return Err(NO_CHAOS.to_owned());
        }
        let call = &submission.call;
        let program = self.programs.compile(&call.program, call.ties);
        let program = &*program.map_err(|error| error.to_string())?;
        let Payload { items, cells, .. } = &call.payload;
        let (items, cells) = (*items, *cells);
        let grids = program.grids_per_item();
        let batch = BatchLayout::new(items, grids, cells).map_err(|error| error.to_string())?;
        let output = OutputLayout::new(program, batch).map_err(|error| error.to_string())?;
        let output_bytes = output.bytes();
        let mut arenas = BTreeMap::new();
        let mut inline_bytes = 0;
        match &call.payload.input {
            Input::Inline(bytes) => {
                let (got, want) = (bytes.0.len(), batch.bytes());
                if got != want || got > INLINE_BYTES_MAX {
                    return Err(format!(
                        "an inline batch of {got} bytes; its layout takes {want}, \
                                        and at most {INLINE_BYTES_MAX} may travel inline"
                    ));
                }
                inline_bytes += got;
            }
            Input::Arena(slice) => self.claim(slice, batch.bytes() as u64, &mut arenas)?,
        }
        match &call.payload.output {
            Destination::Inline if output_bytes > INLINE_BYTES_MAX => {
                return Err(format!(
                    "a result of {output_bytes} bytes cannot travel inline; at \
                                    most {INLINE_BYTES_MAX} may"
                ));
            }
            Destination::Inline => inline_bytes += output_bytes,
            Destination::Arena(slice) => {
                self.claim(slice, output_bytes as u64, &mut arenas)?;
                if let Input::Arena(input) = &call.payload.input
                    && slice.overlaps(input)
                {
                    return Err("the result would overwrite the batch".to_owned());
                }
            }
        }
        let request = JobRequest {
            job: JobId(self.shared.next_id()),
            role: Role::Grid,
            model: None,
            key: submission.key,
            label: label(&call.program),
            program_hash: program.shared_hash(),
            items: call.payload.items,
            cost: u64::from(call.payload.cells) * program.steps().len() as u64 + COST_PER_JOB,
            inline_bytes: inline_bytes as u64,
            deadline: Duration::from_millis(submission.deadline_ms).min(DEADLINE_MAX),
            priority: submission.priority,
            idempotent: submission.idempotent,
            divisible: matches!(call.payload.output, Destination::Arena(_)),
            answer_inline: matches!(call.payload.output, Destination::Inline),
            content: None,
        };
        Ok((request, arenas))
    }

    /// A request of a model. What its tensors are is looked at in the worker.
    pub(super) fn check_request(
        &self,
        submission: &InferSubmission,
    ) -> Result<(JobRequest, BTreeMap<ArenaId, Arc<ClientArena>>), String> {
        let ModelCall { model, input, output } = &submission.call;
        self.shared.lock().check_model(model)?;
        let mut arenas = BTreeMap::new();
        let (mut bytes, mut inline_bytes) = (0, 0);
        match input {
            Input::Inline(Inline(own)) if own.len() > INFER_INLINE_BYTES_MAX => {
                return Err(format!(
                    "inline inputs of {} bytes; at most {INFER_INLINE_BYTES_MAX} may travel inline",
                    own.len()
                ));
            }
            Input::Inline(Inline(own)) => inline_bytes += own.len() as u64,
            Input::Arena(slice) => {
                bytes += slice.bytes;
                self.claim(slice, slice.bytes, &mut arenas)?;
            }
        }
        match output {
            // How much it will be is not known: at most so much.
            Destination::Inline => inline_bytes += INFER_INLINE_BYTES_MAX as u64,
            Destination::Arena(slice) => {
                bytes += slice.bytes;
                self.claim(slice, slice.bytes, &mut arenas)?;
                if let Input::Arena(input) = input
                    && slice.overlaps(input)
                {
                    return Err("the outputs would overwrite the inputs".to_owned());
                }
            }
        }
        let request = JobRequest {
            job: JobId(self.shared.next_id()),
            role: Role::Infer,
            model: Some(model.as_str().into()),
            key: submission.key,
            label: label(model),
            program_hash: format!("model:{model}").into(),
            items: 1,
            cost: bytes.saturating_add(inline_bytes).saturating_add(COST_PER_JOB),
            inline_bytes,
            deadline: Duration::from_millis(submission.deadline_ms).min(DEADLINE_MAX),
            priority: submission.priority,
            idempotent: submission.idempotent,
            divisible: false,
            answer_inline: matches!(output, Destination::Inline),
            content: None,
        };
        Ok((request, arenas))
    }

    /// Checks that a slice lies in an arena of this client and is as long as it must be.
    fn claim(
        &self,
        slice: &Slice,
        want: u64,
        claimed: &mut BTreeMap<ArenaId, Arc<ClientArena>>,
    ) -> Result<(), String> {
        let Slice { arena: id, offset, bytes } = *slice;
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
                "a slice of {bytes} bytes at {offset}; it must have {want} bytes \
                                and start at a multiple of {}",
                PART_ALIGN
            ));
        }
        claimed.insert(id, Arc::clone(arena));
        Ok(())
    }
}

/// As much of a program or of a model's name as logs show.
fn label(text: &str) -> Arc<str> {
    match text.char_indices().nth(RUN_TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

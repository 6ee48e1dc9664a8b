//! Which deaths are worth a capsule: those that the work of the worker may have caused. A capsule holds that work, so
//! that the death can be looked into later; the shell writes it. Decides nothing about jobs or devices.

use std::sync::Arc;

use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::Attempt;

use super::Pool;
use super::losses::{Loss, LossKind};
use super::outstanding::{Outstanding, Sent};
use crate::action::Action;

impl Pool {
    /// The names of capsules begin so from now on. Without this, no death is worth one.
    pub(crate) fn name_capsules(&mut self, prefix: &str) {
        self.capsules = Some(prefix.into());
    }

    /// The attempts of a job so far.
    pub(crate) fn attempts_of(&self, job: JobId) -> Vec<Attempt> {
        match self.jobs.get(job) {
            Some(live) => live.attempts().to_vec(),
            None => self.verdicts.find_job(job).map_or_else(Vec::new, |receipt| receipt.attempts),
        }
    }

    /// What a worker runs and has not answered, also while it is ending.
    pub(crate) fn front_attempts(&self, worker: WorkerId) -> Vec<AttemptId> {
        let process = self.slots.find(worker).map(|index| self.slots.process(index));
        let front = process.and_then(|process| Some(&process.outstanding()?.front));
        front.into_iter().flat_map(|front| &front.sent).map(|sent| sent.attempt).collect()
    }

    /// A worker is lost. If what it ran may be the cause, says that the death is worth a capsule, and returns the
    /// capsule's name.
    pub(super) fn suspect_work(
        &mut self,
        worker: WorkerId,
        outstanding: &Outstanding,
        loss: &Loss,
    ) -> Option<Arc<str>> {
        let is_suspect: fn(&Sent) -> bool = match loss.kind {
            _ if loss.is_ordered => |_| false,
            LossKind::Died { .. } | LossKind::Hung { .. } => |_| true,
            LossKind::RanOn => Sent::is_cut_off,
            LossKind::Freed | LossKind::Killed | LossKind::Unbegun => |_| false,
        };
        let prefix = self.capsules.as_ref()?;
        let suspects = outstanding.front.sent.iter().filter(|sent| is_suspect(sent));
        let attempts: Vec<AttemptId> = suspects.map(|sent| sent.attempt).collect();
        if attempts.is_empty() {
            return None;
        }
        let own = worker.name();
        let name: Arc<str> = format!("{prefix}-{}-{}", own.device, own.generation).into();
        self.act(Action::Capsule { worker, name: Arc::clone(&name), attempts });
        Some(name)
    }
}

//! Which deaths are worth a capsule: those that the work of the worker may have caused. A capsule holds that work, so
//! that the death can be looked into later; the shell writes it. Decides nothing about jobs or devices.

use std::sync::Arc;

use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::Attempt;

use super::Pool;
use super::losses::LossKind;
use super::outstanding::{Outstanding, Sent};
use crate::action::Action;

impl Pool {
    /// The names of capsules begin so from now on. Without this, receipts name none.
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

    /// A worker is lost. If what it ran may be the cause, says that the death is worth a capsule, and returns the
    /// capsule's name.
    pub(super) fn suspect_work(
        &mut self,
        worker: WorkerId,
        outstanding: &Outstanding,
        kind: LossKind,
    ) -> Option<Arc<str>> {
        let is_suspect: fn(&Sent) -> bool = match kind {
            LossKind::Died { .. } | LossKind::Hung { .. } => |_| true,
            LossKind::RanOn => Sent::is_cut_off,
            LossKind::Freed | LossKind::Killed | LossKind::Unbegun => |_| false,
        };
        let suspects = outstanding.front.sent.iter().filter(|sent| is_suspect(sent));
        let attempts: Vec<AttemptId> = suspects.map(|sent| sent.attempt).collect();
        if attempts.is_empty() {
            return None;
        }
        let name = self.capsules.as_ref().map(|prefix| {
            let name = worker.name();
            format!("{prefix}-{}-{}", name.device, name.generation).into()
        });
        self.act(Action::Capsule { worker, name: Option::clone(&name), attempts });
        name
    }
}

//! What workers answer.

use std::sync::Arc;

use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, RunReport, Verdict};

use super::outstanding::Answered;
use super::{Pool, meters};
use crate::event::Timestamp;

impl Pool {
    pub(super) fn on_answered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        result: Result<RunReport, AttemptError>,
    ) {
        let Some(index) = self.hear(now, worker) else { return };
        let state = &mut self.groups[worker.group];
        let process = self.slots.process_mut(index);
        let answered = process.answer(now, attempt, state.limits.cancel_grace);
        let Answered::Known { moved, charge, .. } = answered else {
            state.counters.stale += 1;
            return;
        };
        self.accounts.charge(now, &charge.principal, charge.time);
        self.slots[index].worked();
        let service = self.devices.service_of(worker);
        service.worked();
        meters::note(&mut service.work, &result);
        if moved {
            state.counters.stale += 1;
            return;
        }
        // A job that was cut off meanwhile has its verdict, or is about to get it: the answer is dropped.
        let Some(job) = self.jobs.get_mut(attempt.job) else { return };
        let Some(shard) = job.shard_of(attempt) else { return };
        let process = self.slots.process(index);
        let device = process.device_info();
        match result {
            Ok(report) => {
                let name = Arc::clone(&process.name);
                let items = u64::from(job.shards[shard].items.len());
                self.slots[index].items_done += items;
                self.slots[index].graph_replays += meters::graph_replays(&report);
                service.work.items += items;
                state.meters.answered(now, &job.shards[shard], &report);
                job.answered(now, shard, (name, device), report);
                self.finish_if_ended(now, attempt.job);
            }
            Err(AttemptError::Refused(_)) if job.shards[shard].makes_room => {
                state.meters.ended(AttemptOutcome::Preempted);
                let why = "it made room for a smaller job";
                job.preempted(now, shard, device, why.to_owned());
                self.retry_or_fail(now, attempt.job, shard, why);
            }
            Err(AttemptError::Refused(why)) => {
                state.meters.ended(AttemptOutcome::Refused);
                job.failed(now, shard, device, AttemptOutcome::Refused, why.clone());
                self.end_early(now, attempt.job, AttemptOutcome::Preempted);
                self.finish(now, attempt.job, Verdict::Failed, why);
            }
            Err(AttemptError::Device(why)) => {
                state.meters.ended(AttemptOutcome::DeviceError);
                job.failed(now, shard, device, AttemptOutcome::DeviceError, why.clone());
                job.shards[shard].device_errors += 1;
                self.retry_or_fail(now, attempt.job, shard, &why);
            }
        }
    }
}

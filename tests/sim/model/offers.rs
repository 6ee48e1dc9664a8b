//! Workers that have models: who may be asked what, and who waits in vain.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool::pool::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::receipt::Verdict;

use super::quarantine::Service;
use super::seats::{Seat, SeatId, State};
use super::{Broken, Model, holds};

/// What may be hoped for of the devices in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hope {
    Nothing,
    /// A process that has not said yet what it has, or is still to come.
    Later,
    Now,
}

impl Seat {
    /// Whether its process has said that it has what the request asks for.
    pub(super) fn has_for(&self, request: &JobRequest) -> bool {
        request.model.as_ref().is_none_or(|model| self.offers.contains(model))
    }

    fn hope(&self, request: &JobRequest) -> Hope {
        match self.state {
            State::Busy { .. } | State::Ready | State::Standby => match self.has_for(request) {
                true => Hope::Now,
                false => Hope::Nothing,
            },
            State::Absent { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Starting { .. }
            | State::Stopping { .. } => Hope::Later,
            State::Unkillable { .. } => Hope::Nothing,
        }
    }
}

impl Model {
    /// The worker has these models from now on, and no others.
    pub(super) fn models_offered(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        models: &BTreeSet<Arc<str>>,
    ) {
        let Some(at) = self.is_current(now, worker) else { return };
        self.coverage.hit(match self.seat(at).state {
            State::Busy { .. } => "offer: of one that is busy",
            State::Ready => "offer: of one that idles",
            State::Standby => "offer: of a standby",
            State::Starting { .. } => "offer: before READY",
            State::Absent { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Stopping { .. }
            | State::Unkillable { .. } => "offer: of one that ends",
        });
        self.seat_mut(at).offers.clone_from(models);
    }

    /// Whoever waits for a model that no device in service has, or may yet turn out to have, is told so
    /// at once.
    pub(super) fn jobs_have_no_model(&mut self, now: Timestamp) {
        if !self.has_models {
            return;
        }
        let waiting: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.waits()).map(|(&id, _)| id).collect();
        for id in waiting {
            match self.hope(id) {
                Hope::Now => {}
                Hope::Later => self.coverage.hit("model: may yet come"),
                Hope::Nothing => {
                    let job = &self.jobs[&id];
                    self.coverage.hit(match (job.accepted == now, job.begun) {
                        (true, _) => "model: nobody has it",
                        (false, 0) => "model: gone while somebody waited for it",
                        (false, _) => "model: gone while somebody ran with it",
                    });
                    self.fail(now, id, Verdict::DeviceLost);
                }
            }
        }
    }

    fn hope(&self, id: JobId) -> Hope {
        let request = &self.jobs[&id].request;
        let open = self.devices.values().filter(|device| device.service == Service::Open);
        let seats = open.flat_map(|device| &device.seats);
        seats.map(|seat| seat.hope(request)).max().unwrap_or(Hope::Nothing)
    }

    /// Whether some process is to serve that has not said yet what it has.
    pub(super) fn awaits_workers(&self) -> bool {
        let open = self.devices.values().filter(|device| device.service == Service::Open);
        let comes = |seat: &Seat| match seat.state {
            State::Absent { .. }
            | State::Killed { .. }
            | State::Reclaiming { .. }
            | State::Starting { .. }
            | State::Stopping { .. } => true,
            State::Busy { .. } | State::Ready | State::Standby | State::Unkillable { .. } => false,
        };
        self.starts_workers() && { open }.flat_map(|device| &device.seats).any(comes)
    }

    pub(super) fn a_request_goes_to_a_worker_that_has_its_model(
        &self,
        at: SeatId,
        attempt: AttemptId,
    ) -> Result<(), Broken> {
        let rule = "a_request_goes_to_a_worker_that_has_its_model";
        let request = &self.jobs[&attempt.job].request;
        let offers = &self.seat(at).offers;
        holds(rule, self.seat(at).has_for(request), || {
            format!(
                "{attempt} asks {:?} of {}, which has {offers:?}",
                request.model,
                self.worker(at)
            )
        })
    }

    /// Notes which workers were passed over for want of the model that the lead of a launch asks for.
    pub(super) fn note_who_has_no_model(&mut self, now: Timestamp, lead: AttemptId, second: bool) {
        let request = &self.jobs[&lead.job].request;
        let without = |seat: &&Seat| !seat.has_for(request);
        let others = || self.seats().map(|(_, seat)| seat).filter(without);
        let idles = others().any(|seat| self.is_idle(now, seat));
        let has_room = others().any(|seat| self.has_room(now, seat));
        if idles && second {
            self.coverage.hit("dispatch: beside what runs, for who idles has no such model");
        } else if idles {
            self.coverage.hit("dispatch: not to one that idles and has no such model");
        } else if has_room {
            self.coverage.hit("dispatch: not to one that has room and no such model");
        }
    }
}

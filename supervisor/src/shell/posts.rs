//! What the threads of workers, clients and helpers hand to the core.

use std::sync::Arc;

use gridpool_core::action::HelperAction;
use gridpool_core::event::{ClientEvent, Event, Helper, HelperEvent, WorkerEvent};
use gridpool_protocol::ids::{AttemptId, ClientId, WorkerId};
use gridpool_protocol::message::{AttemptAnswer, AttemptError};
use gridpool_protocol::status::WorkerMemory;

use super::link::Link;
use super::monitor::{self, Reclaim};
use super::{Shared, helper};

impl Shared {
    /// A worker answered. Its inline result is there while the core handles that, so an answer that
    /// the core drops leaves nothing behind.
    pub(super) fn answered(
        &self,
        worker: WorkerId,
        attempt: AttemptId,
        result: Result<AttemptAnswer, AttemptError>,
    ) {
        let mut core = self.lock();
        let result = result.map(|AttemptAnswer { report, output }| {
            core.output = output;
            report
        });
        let answered = WorkerEvent::Answered { attempt, result };
        core.handle(self, self.timestamp(), Event::Worker(worker, answered));
        core.output = None;
    }

    /// A worker gave a sign of life and said what it holds.
    pub(super) fn heard(&self, worker: WorkerId, memory: WorkerMemory) {
        let mut core = self.lock();
        core.with_link(worker, |link| {
            link.memory = memory;
            Ok(())
        });
        core.handle(self, self.timestamp(), Event::Worker(worker, WorkerEvent::Heard));
    }

    /// A worker has unmapped the arenas it was told to.
    pub(super) fn forgot(&self, worker: WorkerId) {
        self.lock().with_link(worker, Link::forgot);
    }

    /// Waits until the memory that a process held on its device is free, if anybody can say. The core
    /// has a limit of its own.
    pub(super) fn await_memory(&self, worker: WorkerId, pid: u32) {
        let Some(monitor) = self.monitor.get() else { return };
        match monitor.reclaimed(worker.device, pid, monitor::ANSWER_TIMEOUT) {
            Reclaim::Back => {}
            Reclaim::Held => tracing::warn!(%worker, pid, "a dead worker's memory is not free yet"),
            Reclaim::Unknown => tracing::debug!(%worker, pid, "there is no monitor to ask"),
        }
    }

    /// Does something with the process of a helper, if this pool has one.
    pub(super) fn perform_helper(&self, helper: Helper, action: HelperAction) {
        match helper {
            Helper::Gateway => {
                if let Some(gateway) = self.gateway.get() {
                    gateway.perform(action);
                }
            }
            Helper::Monitor => {
                if let Some(monitor) = self.monitor.get() {
                    monitor.perform(action);
                }
            }
        }
    }

    /// Hands the core what a helper does.
    pub(super) fn helper_post(self: &Arc<Self>, helper: Helper) -> helper::Post {
        let shared = Arc::clone(self);
        Box::new(move |event| {
            let is_exit = event == HelperEvent::Exited;
            shared.post(Event::Helper(helper, event));
            if is_exit {
                shared.ended.notify_all();
            }
        })
    }

    /// Hands the core what a client does.
    pub(super) fn post_client(&self, client: ClientId, event: ClientEvent) {
        self.post(Event::Client(client, event));
    }

    /// Hands the core what a worker does.
    pub(super) fn post_worker(&self, worker: WorkerId, event: WorkerEvent) {
        self.post(Event::Worker(worker, event));
    }
}

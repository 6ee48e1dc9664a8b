//! What the core has for others, and what is sent to them once its lock is released.

use std::sync::{Arc, MutexGuard};

use gridpool_protocol::principal::Principal;

use super::Shared;
use super::core::Core;
use super::held::HeldJob;
use super::outbox::Outbox;
use super::tracer::TracedJob;
use crate::gateway::Holders;
use crate::job_log::Client;

/// What waits until the lock is released.
#[derive(Debug, Default)]
#[must_use = "clients wait for their messages"]
pub(super) struct Told {
    /// Clients with messages that wait to be sent together.
    pub(super) clients: Vec<Outbox>,
    /// Jobs for the tracer.
    pub(super) traced: Vec<TracedJob>,
    /// Verdicts for the job log.
    logged: Vec<Logged>,
}

/// A verdict for the job log, and whose it is.
#[derive(Debug)]
struct Logged {
    principal: Principal,
    holders: Option<Arc<Holders>>,
    /// Encoded.
    receipt: Vec<u8>,
}

impl Told {
    /// Has a verdict for the job log.
    pub(super) fn log(&mut self, held: &HeldJob, receipt: Vec<u8>) {
        let (principal, holders) = (held.principal.clone(), held.holders.clone());
        self.logged.push(Logged { principal, holders, receipt });
    }

    /// Releases the lock, and sends all that.
    pub(super) fn send_after(self, core: MutexGuard<'_, Core>, shared: &Shared) {
        drop(core);
        self.send(shared);
    }

    /// Sends all that.
    pub(super) fn send(self, shared: &Shared) {
        self.clients.iter().for_each(Outbox::send_held);
        if let Some(tracer) = shared.tracer.get() {
            self.traced.into_iter().for_each(|job| job.send(tracer));
        }
        if let Some(log) = shared.job_log.get() {
            self.logged.into_iter().for_each(|Logged { principal, holders, receipt }| {
                let token = holders.and_then(|holders| holders.mark_of(&principal));
                log.keep(Client { principal, token }, receipt);
            });
        }
    }
}

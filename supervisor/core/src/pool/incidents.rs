//! The faults that the driver has told of a device, so that one incident counts once.

use std::collections::BTreeMap;

use gridpool_protocol::fault::FaultCode;

use crate::config::PoolConfig;
use crate::event::Timestamp;

/// The incidents of one device that would be quarantined for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Incidents(BTreeMap<FaultCode, Timestamp>);

/// What a fault is, by what was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    First,
    /// It has been told already.
    Same,
    Repeated,
}

impl Incidents {
    /// An incident lasts for as long as it is told again and again.
    pub(super) fn note(
        &mut self,
        now: Timestamp,
        fault: FaultCode,
        config: &PoolConfig,
    ) -> Incident {
        match self.0.insert(fault, now).map(|at| now.since(at)) {
            Some(ago) if ago <= config.incident_window => Incident::Same,
            Some(ago) if ago <= config.incident_repeat_window => Incident::Repeated,
            Some(_) | None => Incident::First,
        }
    }
}

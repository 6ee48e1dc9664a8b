//! The faults that the driver has reported about a device, so that one incident counts once.

use std::collections::BTreeMap;

use gridpool_protocol::fault::FaultCode;

use crate::config::PoolConfig;
use crate::event::Timestamp;

/// The incidents of one device that quarantine it if they repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Incidents(BTreeMap<FaultCode, Timestamp>);

/// What a fault means, given the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    First,
    /// The driver has reported it already.
    Same,
    Repeated,
}

impl Incidents {
    /// An incident lasts as long as the driver keeps reporting it.
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

//! What the workers report of their models, for requests and for status.

use gridpool_protocol::ids::DeviceId;

use super::*;

impl Models {
    /// Why every worker that has reported a model failed to load it; `None` if one loaded it, or none has
    /// reported it.
    pub(crate) fn why_unavailable(&self, name: &str) -> Option<String> {
        let own = self.holders.iter();
        let mut reports = own.filter_map(|(at, holder)| Some((at, holder.report_of(name)?)));
        let (at, first) = reports.next()?;
        let is_ready = |info: &ModelInfo| info.state == ModelState::Ready;
        (!is_ready(first) && !reports.any(|(_, info)| is_ready(info)))
            .then(|| format!("{at}: {}", first.reason))
    }

    /// The models that each worker reports; for each device that is out of service for this group, why it has none of
    /// them.
    pub(crate) fn rows<'a>(
        &self,
        quarantines: impl Iterator<Item = Quarantine<'a>>,
    ) -> Vec<(String, ModelInfo)> {
        let mut rows = Vec::new();
        for (worker, holder) in &self.holders {
            rows.extend(holder.reported.iter().map(|info| (worker.to_string(), info.clone())));
        }
        for Quarantine { device, why, .. } in quarantines {
            let why = format!("{device} is out of service for models: {why}");
            let row = |name: &str| (device.to_string(), ModelInfo::unavailable(name, why.clone()));
            rows.extend(self.wanted().map(row));
        }
        rows
    }

    /// Device memory of a model, as a worker of the device has measured it; 0 if none has.
    pub(crate) fn measured(&self, name: &str, device: DeviceId) -> u64 {
        let own = self.holders.iter().filter(|(worker, _)| worker.device == device);
        let reports = own.filter_map(|(_, holder)| holder.ready(name));
        reports.map(|info| info.device_bytes).max().unwrap_or(0)
    }

    /// Whether a worker has a model READY, and what the first one says that failed to load it.
    pub(crate) fn reports_of(&self, name: &str) -> (bool, Option<String>) {
        let reports = || {
            let own = self.holders.iter();
            own.filter_map(|(worker, holder)| Some((worker, holder.report_of(name)?)))
        };
        let is_ready = |info: &ModelInfo| info.state == ModelState::Ready;
        let failed = reports().find(|(_, info)| !is_ready(info));
        let why = failed.map(|(worker, info)| format!("{worker}: {}", info.reason));
        (reports().any(|(_, info)| is_ready(info)), why)
    }
}

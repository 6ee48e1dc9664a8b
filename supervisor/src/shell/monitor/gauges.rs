//! What the monitor's lines mean: what is kept of a device, and what is news.

use gridpool_core::event::Event;
use gridpool_core::placing::DeviceMemory;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::monitor::Line;
use gridpool_protocol::status::DeviceStatus;

use super::Inner;

/// Takes in a line about a device; what of it is news.
fn take_in(status: &mut DeviceStatus, device: DeviceId, line: Line) -> Vec<Event> {
    let fault = |fault| Event::DeviceFault { device, fault };
    match line {
        Line::Beat {} | Line::Reclaimed { .. } => Vec::new(),
        Line::Device {
            uuid: _,
            memory_used,
            memory_total,
            busy_percent,
            power_mw,
            processes,
            recovery,
        } => {
            let before = std::mem::replace(&mut status.recovery, recovery);
            let memory = DeviceMemory { used: memory_used, total: memory_total };
            let had = DeviceMemory { used: status.memory_used, total: status.memory_total };
            (status.memory_used, status.memory_total) = (memory_used, memory_total);
            status.busy_percent = busy_percent;
            status.power_mw = power_mw;
            status.processes = processes;
            status.nvml_error = None;
            // That nothing is needed is no news at first.
            let changed = recovery.unwrap_or(0) != before.unwrap_or(0);
            let recovers = changed.then(|| fault(FaultCode::Recovery(recovery.unwrap_or(0))));
            let memory = (memory != had).then_some(Event::DeviceMemory { device, memory });
            memory.into_iter().chain(recovers).collect()
        }
        Line::Failed { call, code, .. } => {
            let is_new = status.nvml_error.replace(code) != Some(code);
            if !is_new {
                return Vec::new();
            }
            tracing::debug!(%device, call, code, "NVML");
            vec![fault(FaultCode::Nvml(code))]
        }
        Line::Unavailable { .. } => {
            tracing::warn!(%device, "the driver says that the GPU cannot be used");
            Vec::new()
        }
        Line::Xid { xid, .. } => {
            let xid = u32::try_from(xid).unwrap_or(u32::MAX);
            status.last_xid = Some(xid);
            status.xids += 1;
            vec![fault(FaultCode::Xid(xid))]
        }
    }
}
impl Inner {
    /// A line and the device that it is about, if it is about one.
    pub(super) fn parse(&self, line: &[u8]) -> Result<(Option<DeviceId>, Line), String> {
        let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        if !line.is_bounded() {
            return Err("a line with more in it than may be".to_owned());
        }
        let uuid = match &line {
            Line::Beat {} | Line::Failed { uuid: None, .. } => return Ok((None, line)),
            Line::Device { uuid, .. }
            | Line::Failed { uuid: Some(uuid), .. }
            | Line::Reclaimed { uuid, .. }
            | Line::Unavailable { uuid }
            | Line::Xid { uuid, .. } => uuid,
        };
        let device = self.devices.iter().find(|device| device.uuid == *uuid);
        let device =
            device.ok_or_else(|| format!("a line about {uuid}, which it does not watch"))?;
        Ok((Some(device.id), line))
    }

    /// Keeps what was said, and passes on what is news.
    pub(super) fn take_in(&self, device: Option<DeviceId>, line: Line, tell: &dyn Fn(Event)) {
        let Some(device) = device else {
            if let Line::Failed { call, code, .. } = line {
                let meaning = FaultCode::Nvml(code).meaning().sentence;
                tracing::warn!(call, code, meaning, "NVML");
            }
            return;
        };
        let mut state = self.state.lock();
        if let Line::Reclaimed { pid, reclaimed, waited_ms, .. } = line {
            tracing::debug!(%device, pid, reclaimed, waited_ms, "memory of a dead process");
            // The thread that asked may have given up.
            if let Some(answer) = state.questions.get_mut(&(device, pid)) {
                *answer = Some(reclaimed);
            }
        }
        let news = take_in(state.gauges.entry(device).or_default(), device, line);
        self.changed.notify_all();
        // Not under the lock: the receiver takes the core's.
        drop(state);
        news.into_iter().for_each(tell);
    }
}

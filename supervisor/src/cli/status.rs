//! `gridpool status` for people: one row per worker, then what waits and what was done.

use std::io::{self, Write};

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::{HttpStatus, QuarantineStatus, Status};

/// Writes the whole status.
pub(super) fn write(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let supervisor = &status.supervisor;
    writeln!(
        out,
        "gridpool {} (pid {}) at {}, up {:.0} s{}; libcuda in this process: {}",
        supervisor.version,
        supervisor.pid,
        supervisor.socket,
        supervisor.uptime_s,
        if supervisor.draining { ", draining" } else { "" },
        if supervisor.cuda_mapped { "YES, which is a fault" } else { "no" },
    )?;
    let header =
        ["WORKER", "ROLE", "PID", "STATE", "JOBS", "RESTARTS", "DEVICE"].map(str::to_owned);
    let mut rows = vec![header];
    for worker in &status.workers {
        let state = format!("{:?}", worker.state).to_lowercase();
        let device = match worker.device.uuid.as_str() {
            "" => worker.device.name.clone(),
            uuid => format!("{} {uuid}", worker.device.name),
        };
        rows.push([
            worker.name.clone(),
            worker.role.clone(),
            if worker.pid == 0 { "-".to_owned() } else { worker.pid.to_string() },
            state,
            worker.jobs_done.to_string(),
            worker.restarts.to_string(),
            device,
        ]);
    }
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let last = column + 1 == row.len();
            if last { writeln!(out, "{cell}")? } else { write!(out, "{cell:width$}  ")? }
        }
    }
    // The processes of a device have one in common.
    let mut faults: Vec<_> = status.workers.iter().map(|worker| &worker.last_fault).collect();
    faults.dedup();
    let is_said = |fault: &String| status.quarantines.iter().any(|out| out.why == *fault);
    for fault in faults.into_iter().filter(|fault| !fault.is_empty() && !is_said(fault)) {
        writeln!(out, "last fault: {fault}")?;
    }
    for quarantine in &status.quarantines {
        writeln!(out, "{}", out_of_service(quarantine))?;
    }
    write_devices(out, status)?;
    let (queue, sums) = (&status.queue, &status.counters);
    writeln!(
        out,
        "{} jobs wait; {} accepted: {} ok, {} failed, {} deadline, {} poison, {} cancelled, {} \
         device lost; {} refused as busy, {} as poison",
        queue.jobs,
        sums.accepted,
        sums.ok,
        sums.failed,
        sums.deadline,
        sums.poison,
        sums.cancelled,
        sums.device_lost,
        sums.refused_busy,
        sums.refused_poison,
    )
}

/// Why a device is out of service, until when, and what to type.
pub(super) fn out_of_service(quarantine: &QuarantineStatus) -> String {
    let QuarantineStatus { device, role, why, tried_in_us } = quarantine;
    let of = if role == Role::Infer.name() { " for models" } else { "" };
    let until = match tried_in_us {
        Some(us) => {
            // Rounded up: at 0 s it has been tried.
            let seconds = us.div_ceil(1_000_000);
            format!("tried again in {seconds} s, or now by `gridpool release {device}`")
        }
        None => format!("not tried again before `gridpool release {device}`"),
    };
    format!("{device} is out of service{of}: {why}; {until}")
}

/// A line for every GPU: what it holds, and what the driver says about it.
fn write_devices(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    const MIB: u64 = 1 << 20;
    for device in &status.devices {
        write!(
            out,
            "{}: {} of {} MiB used, {} processes",
            device.name,
            device.memory_used / MIB,
            device.memory_total / MIB,
            device.processes.len()
        )?;
        let faults = [
            device.recovery.filter(|&action| action != 0).map(FaultCode::Recovery),
            device.nvml_error.map(FaultCode::Nvml),
            device.last_xid.map(FaultCode::Xid),
        ];
        for fault in faults.into_iter().flatten() {
            write!(out, "; {fault}: {}", fault.meaning().sentence)?;
        }
        writeln!(out)?;
    }
    if let Some(http) = &status.http {
        let HttpStatus { address, pid, up, restarts } = http;
        let is =
            if *up { format!("served by pid {pid}") } else { "not served at this moment".into() };
        writeln!(out, "http://{address} is {is}; the gateway was restarted {restarts} times")?;
    }
    match &status.monitor {
        Some(monitor) if !monitor.up => {
            writeln!(
                out,
                "the monitor of the GPUs is not up; it was restarted {} times",
                monitor.restarts
            )
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridpool_protocol::status::{DeviceStatus, MonitorStatus, SupervisorStatus};

    #[test]
    fn a_device_out_of_service_is_said_to_be_with_why_until_when_and_what_to_type() {
        let said = |tried_in_us| {
            let [device, why] = ["gpu0", "gpu0#5 died: exit code 71"].map(str::to_owned);
            let role = "grid".to_owned();
            out_of_service(&QuarantineStatus { device, role, why, tried_in_us })
        };
        assert_eq!(
            said(Some(41_000_001)),
            "gpu0 is out of service: gpu0#5 died: exit code 71; tried again in 42 s, or now by \
             `gridpool release gpu0`"
        );
        assert_eq!(
            said(None),
            "gpu0 is out of service: gpu0#5 died: exit code 71; not tried again before `gridpool \
             release gpu0`"
        );
    }

    #[test]
    fn what_the_driver_says_of_a_gpu_is_said_in_words() {
        let device = DeviceStatus {
            name: "gpu0".to_owned(),
            uuid: "GPU-0".to_owned(),
            memory_used: 5 << 20,
            memory_total: 9 << 30,
            busy_percent: None,
            power_mw: None,
            processes: vec![7],
            recovery: Some(0),
            last_xid: None,
            xids: 0,
            nvml_error: None,
        };
        let ill = DeviceStatus {
            name: "gpu1".to_owned(),
            recovery: Some(2),
            last_xid: Some(79),
            nvml_error: Some(15),
            ..device.clone()
        };
        let status = Status {
            supervisor: SupervisorStatus {
                pid: 1,
                version: String::new(),
                uptime_s: 0.0,
                socket: String::new(),
                cuda_mapped: false,
                draining: false,
                clients: 0,
                arena_bytes: 0,
                arena_bytes_high: 0,
                outbox_bytes_high: 0,
            },
            workers: Vec::new(),
            monitor: Some(MonitorStatus { pid: 0, up: false, restarts: 2 }),
            http: None,
            devices: vec![device, ill],
            quarantines: Vec::new(),
            queue: Default::default(),
            counters: Default::default(),
        };
        let mut out = Vec::new();
        write_devices(&mut out, &status).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "gpu0: 5 of 9216 MiB used, 1 processes",
                "gpu1: 5 of 9216 MiB used, 1 processes; recovery 2: reboot the machine; nvml 15: the \
                 GPU has fallen off the bus; xid 79: the GPU has fallen off the bus: reboot the \
                 machine",
                "the monitor of the GPUs is not up; it was restarted 2 times",
            ]
        );
    }
}

//! `gridpool status` for people: a row for each worker, then faults, devices, and counts of jobs.

use std::io::{self, Write};
use std::path::PathBuf;

use gridpool_protocol::status::{HttpStatus, Status};

use super::columns::COLUMNS;
use super::faults::{driver_faults, out_of_service};
use super::history::{self, Row};
use super::{CommandError, connect, say_json};

/// Prints what every worker of a pool is doing.
pub(super) fn print(socket: Option<PathBuf>, json: bool) -> Result<u8, CommandError> {
    let status = connect(socket)?.status()?;
    if json {
        return say_json(&status);
    }
    super::print(|out| write(out, &status))
}

/// Writes the whole status.
fn write(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let supervisor = &status.supervisor;
    writeln!(
        out,
        "gridpool {} (pid {}) at {}, up {:.0} s{}; libcuda in this process: {}",
        supervisor.version,
        supervisor.pid,
        supervisor.socket,
        supervisor.uptime_s,
        if supervisor.draining { ", draining" } else { "" },
        if supervisor.cuda_mapped { "YES, a fault" } else { "no" },
    )?;
    let columns = || COLUMNS.iter().filter_map(|column| Some((column.status?, column.cell)));
    let mut rows: Vec<Vec<String>> = vec![columns().map(|(title, _)| title.to_owned()).collect()];
    let cells = |row: &Row| columns().map(|(_, cell)| cell(row)).collect();
    rows.extend(history::rows(status).iter().map(cells));
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let last = column + 1 == row.len();
            if last { writeln!(out, "{cell}")? } else { write!(out, "{cell:width$}  ")? }
        }
    }
    // The processes of a device share their last fault.
    let mut faults: Vec<_> = status.workers.iter().map(|worker| &worker.last_fault).collect();
    faults.dedup();
    let is_said = |fault: &String| status.quarantines.iter().any(|out| out.why == *fault);
    for fault in faults.into_iter().filter(|fault| !fault.is_empty() && !is_said(fault)) {
        writeln!(out, "last fault: {fault}")?;
    }
    for line in out_of_service(&status.quarantines) {
        writeln!(out, "{line}")?;
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

/// A line for every GPU: its memory and processes, and the driver's faults.
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
        for fault in driver_faults(device) {
            write!(out, "; {fault}")?;
        }
        writeln!(out)?;
    }
    if let Some(http) = &status.http {
        let HttpStatus { pid, up, restarts, .. } = http;
        let is =
            if *up { format!("served by pid {pid}") } else { "not served at the moment".into() };
        writeln!(out, "{} is {is}; the gateway has restarted {restarts} times", http.url())?;
    }
    match &status.monitor {
        Some(monitor) if !monitor.up => {
            writeln!(
                out,
                "the GPU monitor is not running; it has restarted {} times",
                monitor.restarts
            )
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridpool_protocol::status::{DeviceStatus, MonitorStatus};

    #[test]
    fn the_drivers_faults_of_a_gpu_are_in_words() {
        let device = DeviceStatus {
            name: "gpu0".to_owned(),
            memory_used: 5 << 20,
            memory_total: 9 << 30,
            processes: vec![7],
            recovery: Some(0),
            ..DeviceStatus::default()
        };
        let ill = DeviceStatus {
            name: "gpu1".to_owned(),
            recovery: Some(2),
            last_xid: Some(79),
            nvml_error: Some(15),
            ..device.clone()
        };
        let status = Status {
            monitor: Some(MonitorStatus {
                pid: 0,
                up: false,
                restarts: 2,
                ..MonitorStatus::default()
            }),
            devices: vec![device, ill],
            ..Status::default()
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
                "the GPU monitor is not running; it has restarted 2 times",
            ]
        );
    }
}

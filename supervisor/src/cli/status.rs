//! `gridpool status` for people: one row per worker, then what waits and what was done.

use std::io::{self, Write};

use gridpool_protocol::status::Status;

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
    let header = ["WORKER", "PID", "STATE", "JOBS", "RESTARTS", "DEVICE"].map(str::to_owned);
    let mut rows = vec![header];
    for worker in &status.workers {
        let state = format!("{:?}", worker.state).to_lowercase();
        let device = match worker.device.uuid.as_str() {
            "" => worker.device.name.clone(),
            uuid => format!("{} {uuid}", worker.device.name),
        };
        rows.push([
            worker.name.clone(),
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
    for fault in faults.into_iter().filter(|fault| !fault.is_empty()) {
        writeln!(out, "last fault: {fault}")?;
    }
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

//! The picture as plain lines, for a file, a pipe or a log.

use std::io::{self, Write};

use crate::cli::columns::lay;
use crate::cli::words::{UNKNOWN, bytes, count, span};
use crate::history::{ModelRow, Picture};

/// Columns of the table without a terminal: enough for a usual program.
const COLUMNS: usize = 160;

/// Writes the whole picture.
pub(super) fn write(out: &mut dyn Write, picture: &Picture) -> io::Result<()> {
    let (pool, queue, sums) = (&picture.supervisor, &picture.queue, &picture.counters);
    let draining = if pool.draining { ", draining" } else { "" };
    let (pid, socket, up) = (pool.pid, &pool.socket, pool.uptime_s);
    writeln!(out, "gridpool {} (pid {pid}) at {socket}, up {up:.0} s{draining}", pool.version)?;
    let verdicts = sums.verdicts().map(|(verdict, count)| format!("{count} {verdict}")).join(", ");
    writeln!(out, "{} accepted: {verdicts}; {} refused", sums.accepted, sums.refused_busy)?;
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.to_owned(), count);
    let (jobs, items) = (rate(picture.jobs_rate), rate(picture.items_rate));
    let oldest = queue.oldest_us.map_or_else(String::new, |us| format!(", oldest {}", span(us)));
    let (waits, held) = (queue.jobs, bytes(queue.bytes));
    writeln!(out, "{jobs} jobs/s, {items} items/s; {waits} wait, {held}{oldest}")?;
    let laid = lay(&picture.rows, COLUMNS, false);
    let titles: Vec<_> = laid.iter().map(|one| one.title()).collect();
    writeln!(out, "{}", titles.join(" ").trim_end())?;
    for row in &picture.rows {
        let cells: Vec<_> = laid.iter().map(|one| one.cell(row)).collect();
        writeln!(out, "{}", cells.join(" ").trim_end())?;
    }
    for model in &picture.models {
        let ModelRow { name, ready, workers, contexts, device_bytes, jobs_rate, reason } = model;
        write!(out, "model {name}: ready on {ready} of {workers}, {contexts} contexts, ")?;
        write!(out, "{} on devices", bytes(*device_bytes))?;
        if jobs_rate.is_some() {
            write!(out, ", {} jobs/s", rate(*jobs_rate))?;
        }
        writeln!(out, "{}{reason}", if reason.is_empty() { "" } else { "; " })?;
    }
    picture.faults.iter().try_for_each(|fault| writeln!(out, "{fault}"))
}

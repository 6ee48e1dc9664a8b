//! `gridpool status` for people: a row for each worker, then faults, devices, and counts of jobs.

use std::io::{self, Write};
use std::path::PathBuf;

use gridpool_protocol::status::{DenylistStatus, HttpStatus, NatsStatus, PrincipalStatus, Status};

use super::columns::COLUMNS;
use super::faults::{driver_faults, out_of_service};
use super::words::{UNKNOWN, bytes, counted, span};
use super::{CommandError, connect, say_json};
use crate::history::{self, Row};

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
    write_table(out, &rows)?;
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
    for load in &status.loads {
        writeln!(out, "{} loads `{}`: {}", load.worker, load.model, load.phase)?;
    }
    let is_said = |why: &str| status.quarantines.iter().any(|out| why.contains(&out.why));
    for missing in status.missing.iter().filter(|missing| !is_said(&missing.why)) {
        writeln!(out, "no device has the model `{}`: {}", missing.model, missing.why)?;
    }
    write_denylist(out, &status.denylist)?;
    write_devices(out, status)?;
    write_principals(out, &status.principals)?;
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

pub(super) fn write_table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let last = column + 1 == row.len();
            if last { writeln!(out, "{cell}")? } else { write!(out, "{cell:width$}  ")? }
        }
    }
    Ok(())
}

/// Principals that the table shows; `--json` has all.
const PRINCIPALS_SHOWN: usize = 20;

/// A row for every principal, those with the most jobs first.
fn write_principals(out: &mut dyn Write, principals: &[PrincipalStatus]) -> io::Result<()> {
    const TITLES: [&str; 9] = [
        "PRINCIPAL",
        "CONNECTIONS",
        "QUEUED",
        "RUNNING",
        "DONE",
        "BYTES",
        "DEVICE S",
        "KILLS LEFT",
        "QUOTA",
    ];
    if principals.is_empty() {
        return Ok(());
    }
    let mut principals: Vec<_> = principals.iter().collect();
    principals.sort_by_key(|row| std::cmp::Reverse(row.queued + row.running));
    let cells = |row: &&PrincipalStatus| {
        let name = match &*row.name {
            "" => row.principal.clone(),
            name => format!("{} ({name})", row.principal),
        };
        vec![
            name,
            row.connections.to_string(),
            row.queued.to_string(),
            row.running.to_string(),
            row.done.to_string(),
            bytes(row.bytes.saturating_add(row.arena_bytes)),
            format!("{:.1}", row.device_s),
            row.kills_left.map_or_else(|| UNKNOWN.to_owned(), |left| left.to_string()),
            if row.quota.is_empty() { UNKNOWN.to_owned() } else { row.quota.clone() },
        ]
    };
    let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
    rows.extend(principals.iter().take(PRINCIPALS_SHOWN).map(cells));
    write_table(out, &rows)?;
    match principals.len().saturating_sub(PRINCIPALS_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more: --json shows all"),
    }
}

/// A line for every content that the pool refuses, the newest first.
fn write_denylist(out: &mut dyn Write, denylist: &DenylistStatus) -> io::Result<()> {
    for row in &denylist.latest {
        let (items, ago) = (counted(row.items.into(), "item"), span(row.for_us));
        let what = if row.what.is_empty() { String::new() } else { format!(" ({})", row.what) };
        writeln!(
            out,
            "a job of {items}{what} killed its workers {ago} ago and is refused until `gridpool release {}` allows it \
             again",
            row.content
        )?;
    }
    match denylist.contents.saturating_sub(denylist.latest.len() as u64) {
        0 => Ok(()),
        more => {
            let more = counted(more, "older job");
            writeln!(out, "and {more}: `gridpool release jobs` allows all of them again")
        }
    }
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
        writeln!(out, "{}: {is}; the gateway has restarted {restarts} times", http.url())?;
    }
    if let Some(nats) = &status.nats {
        writeln!(out, "{}", cluster(nats))?;
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

/// Whether a pool takes jobs of its cluster.
fn cluster(nats: &NatsStatus) -> String {
    let NatsStatus { servers, host, up, restarts, server, why_not, since_s, .. } = nats;
    let of = format!("the cluster at {servers}");
    match (up, why_not.as_str(), server.as_str()) {
        (false, ..) => {
            format!("no jobs of {of}: the bridge is not running; it has restarted {restarts} times")
        }
        (true, "", "") => format!("no jobs of {of} yet: the bridge has just started"),
        (true, "", server) => {
            format!(
                "jobs of {of} come here as to host `{host}`; server {server} answers, for {since_s} s"
            )
        }
        (true, why, _) => format!("no jobs of {of}, for {since_s} s: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridpool_protocol::status::{DeniedContent, DeviceStatus, MonitorStatus};

    #[test]
    fn each_job_on_the_denylist_is_named_with_what_allows_it_again() {
        let row = |what: &str| DeniedContent {
            content: "ab".repeat(32),
            what: what.to_owned(),
            items: 3,
            for_us: 61_000_000,
        };
        let said = |contents, latest| {
            let mut out = Vec::new();
            write_denylist(&mut out, &DenylistStatus { contents, latest }).unwrap();
            String::from_utf8(out).unwrap()
        };
        let release = format!("`gridpool release {}` allows it again\n", "ab".repeat(32));
        let job = "killed its workers 1m01s ago and is refused until";
        assert_eq!(said(0, Vec::new()), "");
        assert_eq!(
            said(1, vec![row("model:mlp")]),
            format!("a job of 3 items (model:mlp) {job} {release}")
        );
        let more = "and 2 older jobs: `gridpool release jobs` allows all of them again\n";
        assert_eq!(said(3, vec![row("")]), format!("a job of 3 items {job} {release}{more}"));
    }

    #[test]
    fn a_pool_says_whether_it_takes_jobs_of_its_cluster() {
        let nats = NatsStatus {
            servers: "nats://a,b".into(),
            host: "one".into(),
            up: true,
            server: "n0 (a:4222)".into(),
            since_s: 7,
            ..NatsStatus::default()
        };
        let of = "jobs of the cluster at nats://a,b";
        let said = format!("{of} come here as to host `one`; server n0 (a:4222) answers, for 7 s");
        assert_eq!(cluster(&nats), said);
        let twin = NatsStatus { why_not: "another pool is `one`".into(), ..nats.clone() };
        assert_eq!(cluster(&twin), format!("no {of}, for 7 s: another pool is `one`"));
        let lost =
            NatsStatus { server: String::new(), why_not: "timed out".into(), ..nats.clone() };
        assert_eq!(cluster(&lost), format!("no {of}, for 7 s: timed out"));
        let down = NatsStatus { up: false, ..nats };
        assert!(cluster(&down).contains("the bridge is not running"));
    }

    #[test]
    fn each_principal_has_a_row_and_the_busiest_come_first() {
        let row = |uid: u64, queued| PrincipalStatus {
            principal: format!("uid {uid}"),
            queued,
            kills_left: Some(3),
            ..PrincipalStatus::default()
        };
        let mut all: Vec<_> = (1..=22).map(|uid| row(uid, u64::from(uid == 22))).collect();
        all[21].name = "anna".to_owned();
        (all[21].bytes, all[21].arena_bytes, all[21].device_s) = (1 << 20, 1 << 20, 1.25);
        all[21].quota = "jobs=9".to_owned();
        let mut out = Vec::new();
        write_principals(&mut out, &all).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[1], "uid 22 (anna) 0 1 0 0 2.0M 1.2 3 jobs=9");
        assert_eq!(lines[2], "uid 1 0 0 0 0 0B 0.0 3 -");
        assert_eq!((lines.len(), &*lines[21]), (22, "and 2 more: --json shows all"));
    }

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

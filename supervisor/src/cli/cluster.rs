//! `gridpool cluster`: the hosts of a cluster, what waits in its stream, and convictions.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use gridpool_nats::{Cluster, ClusterStatus, HostRow, LaneRow, VERSION};
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::ids::ContentHash;

use super::error::CommandError;
use super::place::NatsFlags;
use super::{print, say, say_json};

/// Most columns for a host's name; a longer one moves its row. With 13 the table has 80 columns.
const NAME_MAX: usize = 20;

/// Commands about a cluster.
#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Show the hosts with their devices and rates, and the jobs that wait.
    Status {
        #[command(flatten)]
        nats: NatsFlags,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Let a job that was convicted for all hosts run again.
    Release(ReleaseFlags),
}

/// What to release.
#[derive(Debug, Args)]
pub(super) struct ReleaseFlags {
    /// The content of the job, as `gridpool cluster status`, its refusal or a pool's log names it. Exits with 1 if the
    /// servers have no conviction of it.
    content: ContentHash,
    #[command(flatten)]
    nats: NatsFlags,
}

pub(super) fn run(command: &ClusterCommand) -> Result<u8, CommandError> {
    match command {
        ClusterCommand::Status { nats, json } => {
            let status = connect(nats)?.status()?;
            if *json {
                return say_json(&status);
            }
            print(|out| write(out, &status))
        }
        ClusterCommand::Release(ReleaseFlags { content, nats }) => {
            match connect(nats)?.release(*content)? {
                Some(content) => say(&format!("{content} may run again on all hosts")),
                None => {
                    let text = format!(
                        "gridpool: the servers have no conviction of a job with the content {content} (`gridpool \
                         cluster status` lists those that they have); hosts that remember one let it run again"
                    );
                    writeln!(io::stderr(), "{text}").map_err(CommandError::Output)?;
                    Ok(exit::JOB)
                }
            }
        }
    }
}

fn connect(flags: &NatsFlags) -> Result<Cluster, CommandError> {
    let options = flags.keys().options().map_err(CommandError::Usage)?;
    let none =
        || CommandError::Usage("name the servers of the cluster: --nats nats://a,b,c".into());
    Ok(Cluster::connect(&options.ok_or_else(none)?)?)
}

fn write(out: &mut dyn Write, status: &ClusterStatus) -> io::Result<()> {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let hosts = status.hosts.len();
    write!(out, "{hosts} host{}, {} jobs in the stream", plural(hosts), status.jobs)?;
    writeln!(out, " ({} bytes, {} copies)", status.jobs_bytes, status.replicas)?;
    if !status.followers.is_empty() {
        let leader = if status.leader.is_empty() { "nobody" } else { &status.leader };
        write!(out, "{leader} leads it;")?;
        for (name, is_current) in &status.followers {
            write!(
                out,
                " {name} is {}",
                if *is_current { "up to date" } else { "behind or gone" }
            )?;
        }
        writeln!(out)?;
    }
    let names = status.hosts.iter().map(|host| host.host.chars().count());
    let name = names.max().unwrap_or(0).clamp("host".len(), NAME_MAX);
    writeln!(
        out,
        "\n{:<name$} {:<8} {:>7} {:>9} {:>7} {:>11} {:>10} {:>8}",
        "host", "state", "running", "published", "jobs/s", "redelivered", "duplicates", "unwanted"
    )?;
    for host in &status.hosts {
        write_host(out, host, name)?;
    }
    let busy = status.lanes.iter().filter(|lane| lane.waiting + lane.running > 0);
    let busy: Vec<_> = busy.collect();
    if !busy.is_empty() {
        writeln!(out, "\n{:<30} {:>9} {:>9} {:>11}", "jobs", "waiting", "running", "redelivered")?;
        for lane in busy {
            let (name, waiting, running) = (&lane.name, lane.waiting, lane.running);
            writeln!(out, "{name:<30} {waiting:>9} {running:>9} {:>11}", lane.redelivered)?;
        }
    }
    for lane in status.lanes.iter().filter(|lane| lane.unread() > 0) {
        writeln!(out, "\n{}", unread(lane))?;
    }
    for (content, why) in &status.convicted {
        writeln!(out, "\nPOISON {content}: convicted on {}: {}", why.host, why.reason)?;
    }
    Ok(())
}

/// What is said of a lane whose jobs no host takes.
pub(super) fn unread(lane: &LaneRow) -> String {
    let LaneRow { name, protocol, .. } = lane;
    if *protocol == VERSION {
        return format!(
            "{} in {name}: no host takes them now. Those past their deadlines are removed by any host that lives, or a \
             client that finds the stream full",
            lane.unread()
        );
    }
    format!(
        "{} in {name}: no host has the version of gridpool that sent them (its messages are of protocol {protocol}, \
         this one's of {VERSION}); they wait for one until their deadlines",
        lane.unread()
    )
}

/// Writes a host, with so many columns for its name.
fn write_host(out: &mut dyn Write, row: &HostRow, name: usize) -> io::Result<()> {
    let state = match (row.pool, row.draining) {
        (_, true) => "draining",
        (true, false) => "serving",
        (false, false) => "no pool",
    };
    let counts = &row.counts;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = counts.published as f64 / row.uptime_s.max(1) as f64;
    writeln!(
        out,
        "{:<name$} {state:<8} {:>7} {:>9} {rate:>7.1} {:>11} {:>10} {:>8}",
        row.host,
        counts.running,
        counts.published,
        counts.redelivered,
        counts.duplicates,
        counts.unwanted
    )?;
    for device in &row.devices {
        let (name, role, state) = (&device.device, &device.role, &device.state);
        writeln!(out, "  {name} {} ({role}): {state}, {} done", device.name, device.jobs_done)?;
    }
    let models: Vec<_> = row.models.iter().map(|row| row.model.name.as_str()).collect();
    if !models.is_empty() {
        writeln!(out, "  models: {}", models.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gridpool_nats::{Conviction, HostCounts};

    use super::*;

    #[test]
    fn hosts_lanes_and_convictions_are_shown() {
        let counts = HostCounts {
            running: 3,
            published: 200,
            redelivered: 7,
            duplicates: 1,
            unwanted: 2,
            ..HostCounts::default()
        };
        let host = HostRow {
            host: "gpu-node-0001".into(),
            pool: true,
            uptime_s: 10,
            counts,
            ..HostRow::default()
        };
        let lane = LaneRow { name: "grid-high".into(), waiting: 12, ..LaneRow::default() };
        let read = LaneRow { hosts: 1, ..lane.clone() };
        let low =
            LaneRow { name: "grid-low".into(), protocol: VERSION, waiting: 2, ..lane.clone() };
        let why = Conviction {
            host: "two".into(),
            job: "k".into(),
            reason: "it crashed".into(),
            pool: String::new(),
        };
        let status = ClusterStatus {
            hosts: vec![host],
            jobs: 15,
            leader: "n1".into(),
            followers: vec![("n2".into(), true), ("n3".into(), false)],
            lanes: vec![read, low, LaneRow { protocol: 7, waiting: 3, ..lane }, LaneRow::default()],
            convicted: vec![("abc".into(), why)],
            ..ClusterStatus::default()
        };
        let mut out = Vec::new();
        write(&mut out, &status).unwrap();
        let said = String::from_utf8(out).unwrap();
        for part in [
            "1 host, 15 jobs",
            "n1 leads it; n2 is up to date n3 is behind",
            "\nhost          state    running published  jobs/s redelivered duplicates unwanted\n",
            "\ngpu-node-0001 serving        3       200    20.0           7          1        2\n",
            "grid-high                             12",
            "\n2 in grid-low: no host takes them now.",
            "\n3 in grid-high: no host has the version of gridpool that sent them (its messages are of protocol 7,",
            "POISON abc: convicted on two: it crashed",
        ] {
            assert!(said.contains(part), "{part}:\n{said}");
        }
    }
}

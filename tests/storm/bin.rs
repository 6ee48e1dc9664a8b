//! `storm`: a storm of any length over a pool that it starts itself, from binaries that lie where it
//! lies or where it is told. Exits with 1 if a promise was broken.
//!
//! ```sh
//! cargo build --release -p gridpool -p gridpool-worker && cargo build --release -p gridpool-tests --bin storm
//! target/release/storm --kills 100000 --devices cpu:2
//! target/release/storm --kills 500 --devices 0 --standby 1 --kills-only --every 1000
//! ```

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gridpool_tests::storm::chaos::SignalMix;
use gridpool_tests::storm::server::Setup;
use gridpool_tests::storm::{Options, client_processes, run};

/// Deaths before the first gauge: enough to fill all that the supervisor remembers.
const WARM_UP: u64 = 200;

/// Kills workers by the thousand under load and checks that no job is lost, doubled or wrong.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// One client process of a storm; `storm` starts it.
    #[command(hide = true)]
    Client {
        #[arg(long)]
        socket: PathBuf,
        #[arg(long)]
        name: u64,
    },
}

#[derive(Debug, Args)]
struct Flags {
    /// Workers to end.
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// Stop after so many seconds even with fewer.
    #[arg(long, default_value_t = 36_000)]
    seconds: u64,
    /// As after `gridpool serve --devices`.
    #[arg(long, default_value = "cpu:2")]
    devices: String,
    /// Processes that wait on every device.
    #[arg(long, default_value_t = 0)]
    standby: u32,
    /// Decides what is done; drawn from the clock if not given.
    #[arg(long, env = "STORM_SEED")]
    seed: Option<u64>,
    /// Where `gridpool` and `gridpool-worker` lie; without it, beside this program.
    #[arg(long, value_name = "FOLDER")]
    bin_dir: Option<PathBuf>,
    /// Clients that speak the wire format.
    #[arg(long, default_value_t = 4)]
    wire_clients: usize,
    /// Clients that use the library.
    #[arg(long, default_value_t = 2)]
    library_clients: usize,
    /// Clients that are processes of their own and die.
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// Hostile clients.
    #[arg(long, default_value_t = 1)]
    hostiles: usize,
    /// Milliseconds between two deeds of a hostile client.
    #[arg(long, default_value_t = 50)]
    hostile_every: u64,
    /// Nothing but SIGKILLs of workers that have done work.
    #[arg(long)]
    kills_only: bool,
    /// Least milliseconds between two signals; with a standby, as long as its start takes.
    #[arg(long, default_value_t = 0)]
    every: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.role {
        Some(Role::Client { socket, name }) => {
            client_processes::client(&socket, name).map(|()| ExitCode::SUCCESS)
        }
        None => storm(&arguments.flags),
    };
    done.unwrap_or_else(|error| {
        // If this fails too, nothing is left to tell.
        drop(writeln!(std::io::stderr(), "storm: {error}"));
        ExitCode::FAILURE
    })
}

fn storm(flags: &Flags) -> Result<ExitCode, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let beside = || program.parent().map(PathBuf::from).unwrap_or_default();
    let bin_dir = flags.bin_dir.clone().unwrap_or_else(beside);
    let every = Duration::from_millis(flags.every);
    let signals = match flags.kills_only {
        true => SignalMix { faults: 0, pauses: 0, hangs: 0, blind: 0, every },
        false => SignalMix { every, ..SignalMix::LONG },
    };
    let options = Options {
        setup: Setup { bin_dir, devices: flags.devices.clone(), standby: flags.standby },
        program,
        seed: flags.seed.unwrap_or_else(any_seed),
        warm_up: WARM_UP.min(flags.kills),
        kills: flags.kills,
        time_max: Duration::from_secs(flags.seconds),
        wire_clients: flags.wire_clients,
        library_clients: flags.library_clients,
        processes: flags.processes,
        hostiles: flags.hostiles,
        hostile_every: Duration::from_millis(flags.hostile_every),
        signals,
    };
    let report = run(&options)?;
    writeln!(std::io::stdout(), "{report}").map_err(|error| error.to_string())?;
    Ok(if report.faults().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A seed for a run without one: the number of this process.
fn any_seed() -> u64 {
    u64::from(std::process::id())
}

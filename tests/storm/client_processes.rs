//! Clients that are processes of their own, so that they can die, or stand still, at any moment. Those
//! that live to their end check their own histories and say what they found, as a line of JSON.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::board::Board;
use super::checker::{Broken, Tally, Violation, check, tally};
use super::ledger::Ledger;
use super::server::RULES;
use super::wire_client::{JobMix, WireClient};
use super::workload::Workload;
use crate::harness::processes::{go_on, signal};
use crate::harness::wait::pause;
use crate::oracle::samples::SplitMix64;

/// Between two things that happen to a process.
const EVERY: Duration = Duration::from_millis(150);
/// A process stands still for at most so many milliseconds.
const STILL_MS_MAX: usize = 800;
/// Jobs in a round of a client process.
const ROUND: usize = 200;

/// Keeps `count` client processes running until `stop`, and lets them die.
///
/// # Errors
/// A sentence, if one cannot be started.
pub fn keep_running(
    program: &Path,
    socket: &Path,
    count: usize,
    seed: u64,
    ledger: &Ledger,
    stop: &AtomicBool,
) -> Result<(), String> {
    let mut rng = SplitMix64::new(seed);
    let mut clients: Vec<Child> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while clients.len() < count {
            clients.push(start(program, socket, rng.number())?);
        }
        pause(EVERY, stop);
        if clients.is_empty() {
            continue;
        }
        let chosen = rng.below(clients.len());
        match rng.below(3) {
            0 => {
                let mut victim = clients.swap_remove(chosen);
                victim.kill().and_then(|()| victim.wait()).map_err(|error| error.to_string())?;
                ledger.died();
            }
            1 => {
                signal(clients[chosen].id(), Signal::SIGSTOP);
                let still = rng.below(STILL_MS_MAX) as u64;
                pause(Duration::from_millis(still), stop);
                go_on(clients[chosen].id());
            }
            _ => finish(clients.swap_remove(chosen), ledger),
        }
    }
    clients.into_iter().for_each(|child| finish(child, ledger));
    Ok(())
}

fn start(program: &Path, socket: &Path, name: u64) -> Result<Child, String> {
    let mut command = Command::new(program);
    command.arg("client").arg("--socket").arg(socket).args(["--name", &name.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(|error| format!("{}: {error}", program.display()))
}

/// Tells a client to come to its end, and notes what it says.
fn finish(mut child: Child, ledger: &Ledger) {
    drop(child.stdin.take());
    let mut said = String::new();
    let read = child.stdout.take().map(|mut out| out.read_to_string(&mut said));
    let ended = child.wait();
    let broke = |seen: String| Violation { kind: Broken::Broke, key: None, seen };
    match (read, ended, serde_json::from_str(&said)) {
        (Some(Ok(_)), Ok(status), Ok(line)) if status.success() => {
            let (sum, violations) = read_line(&line);
            ledger.add(sum, violations.into_iter().map(broke).collect());
        }
        (_, ended, _) => {
            ledger.add(Tally::default(), vec![broke(format!("a client: {ended:?}: {said}"))]);
        }
    }
}

/// The body of a client process: rounds until its standard input ends, then one line.
///
/// # Errors
/// A sentence, if the pool does not let it in.
pub fn client(socket: &Path, name: u64) -> Result<(), String> {
    static STOP: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        // Whatever ends the input ends the client.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap_or_default();
        STOP.store(true, Ordering::Relaxed);
    });
    let (workload, board) = (Workload::new(name % 4, false), Board::default());
    // A client that is paused may ask again so late that the pool has forgotten the verdict.
    let mix = JobMix { repeated: 0, large: 0, ..JobMix::MIXED };
    let mut wire_client = WireClient::enter(socket, &workload, mix, &board, name)?;
    let (mut sum, mut violations) = (Tally::default(), Vec::new());
    while !STOP.load(Ordering::Relaxed) {
        let history = wire_client.round(ROUND, || STOP.load(Ordering::Relaxed));
        sum += tally(&history);
        violations.extend(check(&history, RULES).iter().map(ToString::to_string));
        if WireClient::is_broken(&history) {
            break;
        }
    }
    let line = write_line(&sum, &violations);
    writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())
}

fn write_line(sum: &Tally, violations: &[String]) -> Value {
    let Tally { submitted, accepted, refused, ok, not_ok, replayed, retries } = sum;
    json!({
        "sums": [submitted, accepted, refused, ok, not_ok, replayed, retries],
        "violations": violations,
    })
}

fn read_line(line: &Value) -> (Tally, Vec<String>) {
    let sum = |at: usize| line["sums"][at].as_u64().unwrap_or_default();
    let tally = Tally {
        submitted: sum(0),
        accepted: sum(1),
        refused: sum(2),
        ok: sum(3),
        not_ok: sum(4),
        replayed: sum(5),
        retries: sum(6),
    };
    let violations = line["violations"].as_array().into_iter().flatten();
    (
        tally,
        violations.map(|v| v.as_str().unwrap_or("a violation without a text").to_owned()).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_client_reads_back() {
        let sum = Tally {
            submitted: 1,
            accepted: 2,
            refused: 3,
            ok: 4,
            not_ok: 5,
            replayed: 6,
            retries: 7,
        };
        let said = ["one".to_owned(), "two".to_owned()];
        assert_eq!(read_line(&write_line(&sum, &said)), (sum, said.to_vec()));
    }
}

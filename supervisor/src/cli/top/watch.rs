//! The thread that talks to the pool: it takes snapshots at intervals and sends commands in between. Only this
//! thread waits for the pool, so a pool that does not answer delays no key.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_client::{Client, ClientError};
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::{DeviceId, Role, WorkerSelector};
use nix::sys::signal::Signal;

use super::input::Command;
use crate::cli::advice::Advised;
use crate::history::Snapshot;
use crate::timeline::Timeline;

/// Between two attempts to reach a pool that is gone.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The pool's answer, or why there is none.
#[derive(Debug)]
pub(super) enum Word {
    Snapshot(Box<Snapshot>),
    /// The result of a command.
    Done(String),
    /// Why there is no snapshot.
    Trouble(String),
    /// The pool was drained and has stopped.
    Ended,
}

/// The observed pool, which may stop and start again.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    client: Option<Client>,
    /// The pool's, as far as it was asked for.
    timeline: Timeline,
    /// The pool drains.
    drains: bool,
}

impl Pool {
    /// Connects to a running pool.
    pub(super) fn connect(socket: PathBuf) -> Result<Self, ClientError> {
        let client = Some(open(&socket)?);
        Ok(Self { socket, client, timeline: Timeline::default(), drains: false })
    }

    /// Takes a snapshot. After an error the next one uses a new connection.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.reopen()?,
        };
        let status = client.status()?;
        let holds_models = status.workers.iter().any(|row| row.role == Role::Infer.name());
        let models = if holds_models { client.models()? } else { Vec::new() };
        loop {
            let part = client.timeline(self.timeline.mark())?;
            let is_last = part.is_last;
            self.timeline.take(part);
            if is_last {
                break;
            }
        }
        self.client = Some(client);
        self.drains = status.supervisor.draining;
        Ok(Snapshot { status, models, past: self.timeline.past() })
    }

    /// A new connection. The pool there may be another, with another timeline.
    fn reopen(&mut self) -> Result<Client, ClientError> {
        self.timeline = Timeline::default();
        open(&self.socket)
    }

    fn carry_out(&mut self, command: &Command) -> Result<String, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.reopen()?,
        };
        let client = self.client.insert(client);
        match command {
            Command::Kill(worker) => {
                client.kill(named::<WorkerSelector>(worker)?, Signal::SIGKILL as i32)
            }
            Command::Drain => {
                let done = client.drain();
                self.drains |= done.is_ok();
                done
            }
            Command::Release(device) => client.release(named::<DeviceId>(device)?),
        }
    }

    /// The meaning of a failed snapshot.
    fn say(&self, error: &ClientError) -> Word {
        let is_gone = matches!(
            error,
            ClientError::Closed(_) | ClientError::Lost | ClientError::NoPool { .. }
        );
        match self.drains && is_gone {
            true => Word::Ended,
            false => Word::Trouble(Chain(&Advised(error)).to_string()),
        }
    }
}

/// Parses an id of the pool's status.
fn named<T: FromStr>(shown: &str) -> Result<T, ClientError> {
    shown.parse().map_err(|_| ClientError::Unexpected(format!("a row named `{shown}`")))
}

/// A connection that does not reconnect by itself, so that its end is noticed.
fn open(socket: &Path) -> Result<Client, ClientError> {
    Client::builder().socket(socket).reconnect_for(Duration::ZERO).connect()
}

/// Starts the thread. It ends when the channel of commands or of words is closed.
pub(super) fn start<T: Send + 'static>(
    mut pool: Pool,
    every: Duration,
    commands: Receiver<Command>,
    tell: Sender<T>,
    heard: fn(Word) -> T,
) -> io::Result<()> {
    let body = move || {
        let mut next = clock::now();
        loop {
            let (word, wait) = match pool.snapshot() {
                Ok(snapshot) => (Word::Snapshot(Box::new(snapshot)), every),
                Err(error) => (pool.say(&error), RETRY_EVERY.max(every)),
            };
            if tell.send(heard(word)).is_err() {
                return;
            }
            // The interval counts from snapshot to snapshot; a missed snapshot is not made up for.
            next = (next + wait).max(clock::now());
            // A command triggers no snapshot, since a rate over a moment means nothing.
            loop {
                match commands.recv_timeout(clock::until(next)) {
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(command) => {
                        let said =
                            pool.carry_out(&command).unwrap_or_else(|e| Chain(&e).to_string());
                        if tell.send(heard(Word::Done(said))).is_err() {
                            return;
                        }
                    }
                }
            }
        }
    };
    thread::Builder::new().name("watch".into()).spawn(body).map(drop)
}

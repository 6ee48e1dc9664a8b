//! The thread that talks to the pool: a look every so often, and orders in between. It alone waits for
//! the pool, so a pool that does not answer holds up no key.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError};
use gridpool_protocol::clock;
use gridpool_protocol::ids::Role;
use nix::sys::signal::Signal;

use super::desk::Order;
use super::model::Look;

/// Between two tries to reach a pool that is gone.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// What the pool has said, or that it does not.
#[derive(Debug)]
pub(super) enum Word {
    Look(Box<Look>),
    /// What came of an order.
    Done(String),
    /// Why there is no look.
    Trouble(String),
    /// The pool was drained, and is gone.
    Ended,
}

/// A pool that is looked at, and that may go and come back.
#[derive(Debug)]
pub(super) struct Pool {
    socket: PathBuf,
    client: Option<Client>,
    /// It was told to drain, by this command or by somebody else.
    drains: bool,
}

impl Pool {
    /// Connects to a pool that must be there.
    pub(super) fn connect(socket: PathBuf) -> Result<Self, ClientError> {
        let client = Some(open(&socket)?);
        Ok(Self { socket, client, drains: false })
    }

    /// How the pool is now. After an error the next look is over a new connection.
    pub(super) fn look(&mut self) -> Result<Look, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => open(&self.socket)?,
        };
        let status = client.status()?;
        let holds_models = status.workers.iter().any(|row| row.role == Role::Infer.name());
        let models = if holds_models { client.models()? } else { Vec::new() };
        self.client = Some(client);
        self.drains = status.supervisor.draining;
        Ok(Look { status, models })
    }

    fn carry_out(&mut self, order: &Order) -> Result<String, ClientError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(open(&self.socket)?),
        };
        match order {
            Order::Kill(worker) => client.kill(worker, Signal::SIGKILL as i32),
            Order::Drain => {
                let done = client.drain();
                self.drains |= done.is_ok();
                done
            }
            Order::Release(device) => client.release(device),
        }
    }

    /// What is said of a look that failed.
    fn say(&self, error: &ClientError) -> Word {
        let is_gone = matches!(
            error,
            ClientError::Closed(_) | ClientError::Lost | ClientError::NoPool { .. }
        );
        match self.drains && is_gone {
            true => Word::Ended,
            false => Word::Trouble(Chain(error).to_string()),
        }
    }
}

/// A connection that is not made again by itself: its end is news.
fn open(socket: &Path) -> Result<Client, ClientError> {
    let no_pool = |source| ClientError::NoPool { path: socket.to_owned(), source };
    Client::from_socket(UnixStream::connect(socket).map_err(no_pool)?)
}

/// Starts the thread. It ends when nobody listens or orders any more.
pub(super) fn start<T: Send + 'static>(
    mut pool: Pool,
    every: Duration,
    orders: Receiver<Order>,
    tell: Sender<T>,
    heard: fn(Word) -> T,
) -> io::Result<()> {
    let body = move || {
        let mut next = clock::now();
        loop {
            let (word, wait) = match pool.look() {
                Ok(look) => (Word::Look(Box::new(look)), every),
                Err(error) => (pool.say(&error), RETRY_EVERY.max(every)),
            };
            if tell.send(heard(word)).is_err() {
                return;
            }
            // From one look to the next, however long a look took; but none is made up for.
            next = (next + wait).max(clock::now());
            // An order brings no look with it: rates over a moment would be no rates.
            loop {
                match orders.recv_timeout(clock::until(next)) {
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Ok(order) => {
                        let said = pool.carry_out(&order).unwrap_or_else(|e| Chain(&e).to_string());
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

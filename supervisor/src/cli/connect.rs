//! How commands reach a running pool.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gridpool_client::{Client, ClientError};
use gridpool_nats::{Patience, Sender};
use gridpool_protocol::chain::Chain;

use super::error::CommandError;
use super::place::PlaceFlags;
use crate::config::{Overrides, Settings};

/// How long a command with a job waits for a pool that starts again.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a pool that must be there.
pub(super) fn connect(socket: Option<PathBuf>) -> Result<Client, CommandError> {
    Ok(Client::connect(socket_path(socket)?)?)
}

/// Connects to a cluster, if the flags name one. Waits for it, if that is wanted: as long as a job may take.
pub(super) fn cluster(
    flags: &PlaceFlags,
    wait: Option<Duration>,
) -> Result<Option<Client>, CommandError> {
    let options = flags.cluster().map_err(CommandError::Usage)?;
    let Some(options) = options else { return Ok(None) };
    let patience = Patience::of_command(wait.unwrap_or_default()).telling(|error, wait| {
        let (error, seconds) = (Chain(error), wait.as_secs());
        let text = format!(
            "gridpool: {error}; waiting up to {seconds} s, the deadline of a job; --no-wait fails at once"
        );
        writeln!(io::stderr(), "{text}")
    });
    // Not by the client's feature `nats`: the worker, which is built together with this, would have all of it too.
    let (sender, socket) = Sender::connect(&options, patience)?;
    Ok(Some(Client::builder().connect_through(socket, Box::new(sender))?))
}

/// What a wait for the cluster, from then on, has left of a job's deadline.
pub(super) fn left_of(deadline: Duration, started: Instant) -> Duration {
    deadline.saturating_sub(started.elapsed()).max(Duration::from_millis(1))
}

/// Connects for a job, and waits for a pool that starts again, unless that is not wanted.
pub(super) fn connect_for_job(
    socket: Option<PathBuf>,
    no_wait: bool,
) -> Result<Client, CommandError> {
    let path = socket_path(socket)?;
    let builder = Client::builder().socket(&path);
    match builder.clone().connect() {
        // Also where there is no folder: a service manager removes it with the pool, and makes it again.
        Err(ClientError::NoPool { .. }) if !no_wait => {
            let (socket, seconds) = (path.display(), POOL_TIMEOUT.as_secs());
            let text = format!(
                "gridpool: no pool at {socket} yet: waiting up to {seconds} s; --no-wait fails at once"
            );
            writeln!(io::stderr(), "{text}").map_err(CommandError::Output)?;
            Ok(builder.wait_for_pool(POOL_TIMEOUT).connect()?)
        }
        connected => Ok(connected?),
    }
}

/// The socket that a flag names, or the default one.
pub(super) fn socket_path(socket: Option<PathBuf>) -> Result<PathBuf, CommandError> {
    let overrides = Overrides { socket, ..Overrides::default() };
    let none: Option<&Path> = None;
    let path = Settings::resolve(overrides, none)?.socket;
    // No pool comes there: to wait for one would be in vain.
    match fs::metadata(&path) {
        Ok(meta) if !meta.file_type().is_socket() => Err(CommandError::Usage(format!(
            "{} is not a socket: name that of a pool with --socket",
            path.display()
        ))),
        Ok(_) | Err(_) => Ok(path),
    }
}

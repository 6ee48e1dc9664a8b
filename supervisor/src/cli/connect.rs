//! How commands reach a running pool.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridpool_client::{Client, ClientError};
use gridpool_nats::Sender;

use super::error::CommandError;
use super::place::PlaceFlags;
use crate::config::{Overrides, Settings};

/// How long a command with a job waits for a pool that starts again.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to a pool that must be there.
pub(super) fn connect(socket: Option<PathBuf>) -> Result<Client, CommandError> {
    Ok(Client::connect(socket_path(socket)?)?)
}

/// Connects to a cluster, if the flags name one.
pub(super) fn cluster(flags: &PlaceFlags) -> Result<Option<Client>, CommandError> {
    let options = flags.cluster().map_err(CommandError::Usage)?;
    let Some(options) = options else { return Ok(None) };
    // Not by the client's feature `nats`: the worker, which is built together with this, would have all of it too.
    let (sender, socket) = Sender::connect(&options)?;
    Ok(Some(Client::builder().connect_through(socket, Box::new(sender))?))
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
    Ok(Settings::resolve(overrides, none)?.socket)
}

//! `gridpool bridge`, the helper process that takes jobs of a cluster: what a helper of the supervisor does before it
//! serves. `gridpool-bridge` is the rest.

use std::io;
use std::path::{Path, PathBuf};

use gridpool_bridge::{BridgeError, BridgeSettings};
use gridpool_ipc::sandbox::Calls;

use crate::helper::{HelperError, HelperFlags, NETWORK_FILES, system};
use crate::logging;

/// What the log may take of a minute.
const LOG_BYTES_PER_MINUTE: usize = 24 << 10;

/// The error of one that a user starts.
const BY_HAND: &str = "`gridpool bridge` is started by `gridpool serve --nats`, and not by hand";

/// Why the bridge does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeModeError {
    /// It does not begin.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// It has served, and cannot go on.
    #[error(transparent)]
    Serving(#[from] BridgeError),
}

/// Serves until the supervisor closes the link or dies. Settings come over standard input.
///
/// # Errors
/// [`BridgeModeError`]; the supervisor then starts another bridge.
pub fn run(flags: HelperFlags) -> Result<(), BridgeModeError> {
    let link = flags.attach(BY_HAND)?;
    let settings: BridgeSettings =
        serde_json::from_reader(io::stdin().lock()).map_err(|_| HelperError::Orphan(BY_HAND))?;
    // It may connect, and reads its credentials.
    let own = settings.nats.files().map(Path::to_owned).collect::<Vec<_>>();
    let reads = NETWORK_FILES.map(PathBuf::from).into_iter().chain(own);
    flags.confine(Calls::Network, reads).map_err(HelperError::from)?;
    // The log is a pipe of the supervisor. A slow reader must not delay jobs.
    logging::write_aside().map_err(system("a thread for the log"))?;
    logging::limit(LOG_BYTES_PER_MINUTE);
    gridpool_bridge::serve(flags.socket, settings, link)?;
    Ok(())
}

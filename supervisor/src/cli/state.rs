//! The state folder of a command's pool, by the settings.

use gridpool_protocol::chain::Chain;

use super::error::CommandError;
use crate::config::StateDir;
use crate::state::StateFolder;

/// The folder of a pool that serves; one of a single command, or of a program that holds the other end of its standard
/// input, has none unless it was asked for. A default that cannot be had costs the folder and not the pool.
pub(super) fn open(
    state_dir: &StateDir,
    is_service: bool,
) -> Result<Option<StateFolder>, CommandError> {
    let asked = || state_dir.of_command().map(|folder| (folder.to_owned(), true));
    let Some((path, is_named)) = (if is_service { state_dir.of_service() } else { asked() }) else {
        return Ok(None);
    };
    match StateFolder::open(&path, is_named) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if is_named => Err(error.into()),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "nothing of this pool is kept beyond its end");
            Ok(None)
        }
    }
}

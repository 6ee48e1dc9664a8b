//! The state folder of a command's pool, by the settings.

use std::io::ErrorKind;
use std::path::Path;

use gridpool_protocol::chain::Chain;

use super::error::CommandError;
use crate::config::StateDir;
use crate::state::{StateError, StateFolder};

/// A pool's state folder.
pub(super) struct State {
    folder: StateFolder,
    /// The user has named it: what cannot be kept there is an error.
    is_named: bool,
}

/// The folder of a pool that serves; one of a single command, or of a program that holds the other end of its standard
/// input, has none unless it was asked for. A default that cannot be had costs the folder and not the pool.
pub(super) fn open(state_dir: &StateDir, is_service: bool) -> Result<Option<State>, CommandError> {
    let asked = || state_dir.of_command().map(|folder| (folder.to_owned(), true));
    let Some((path, is_named)) = (if is_service { state_dir.of_service() } else { asked() }) else {
        return Ok(None);
    };
    match StateFolder::open(&path, is_named) {
        Ok(folder) => Ok(Some(State { folder, is_named })),
        Err(error) => or_warn(error, is_named).map(|()| None),
    }
}

/// The folder of a pool that may have ended, for a command that reads there.
pub(super) fn to_read(named: Option<&Path>) -> Result<StateFolder, CommandError> {
    let state_dir =
        named.map_or(Ok(StateDir::Default), |named| StateDir::parse(named, Path::new("")));
    let state_dir = state_dir.map_err(|why| CommandError::Usage(format!("--state-dir: {why}")))?;
    let Some((path, _)) = state_dir.of_service() else {
        let why = "no pool keeps anything there: name the pool's state folder with --state-dir";
        return Err(CommandError::Usage(why.to_owned()));
    };
    let shown = path.display();
    if path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let why = format!("there is no state folder {shown}: name the pool's with --state-dir");
        return Err(CommandError::Usage(why));
    }
    let opened = StateFolder::open_to_read(&path);
    if let Err(StateError::Io(_, error)) = &opened
        && error.kind() == ErrorKind::PermissionDenied
    {
        let why = "only the pool's user and root can read it";
        return Err(CommandError::NotAllowed(format!("the state folder {shown}: {why}")));
    }
    Ok(opened?)
}

impl State {
    /// Keeps something there.
    pub(super) fn keep(
        &self,
        keep: impl FnOnce(&StateFolder) -> Result<(), StateError>,
    ) -> Result<(), CommandError> {
        keep(&self.folder).or_else(|error| or_warn(error, self.is_named))
    }
}

fn or_warn(error: StateError, is_named: bool) -> Result<(), CommandError> {
    if is_named {
        return Err(error.into());
    }
    tracing::warn!(error = %Chain(&error), "nothing of this pool is kept beyond its end");
    Ok(())
}

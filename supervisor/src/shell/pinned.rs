//! The programs of this pool, held open from its start: replacing them on disk, as an upgrade of the package does,
//! changes nothing under a running pool. All of its processes are of one build.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nix::fcntl::OFlag;

/// A program, as it was when the pool started.
#[derive(Clone, Debug)]
pub struct Pinned {
    path: PathBuf,
    /// `None` if it could not be opened. Then starting it says why.
    file: Option<Arc<File>>,
}

impl Pinned {
    /// Opens a program. The error of one that cannot be opened comes when it is started.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let mut options = OpenOptions::new();
        let opened = options.read(true).custom_flags(OFlag::O_PATH.bits()).open(&path);
        Self { path, file: opened.ok().map(Arc::new) }
    }

    /// The program of this process.
    #[must_use]
    pub(super) fn own() -> Self {
        let mut own = Self::new(PathBuf::from("/proc/self/exe"));
        // For messages and for its arguments.
        own.path = std::env::current_exe().unwrap_or(own.path);
        own
    }

    /// A command that runs it.
    pub(super) fn command(&self) -> Command {
        let Some(file) = &self.file else { return Command::new(&self.path) };
        // By this process's number, and not `self`: an interpreter opens the name again after our descriptor is
        // closed there.
        let (pid, fd) = (std::process::id(), file.as_raw_fd());
        let mut command = Command::new(format!("/proc/{pid}/fd/{fd}"));
        command.arg0(&self.path);
        command
    }
}

impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Path::display(&self.path).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_runs_as_it_was_whatever_takes_its_name_and_one_that_is_missing_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let write = |text: &str| {
            // As a package does it: a new file under the old name.
            let new = folder.path().join("new");
            fs::write(&new, text).unwrap();
            fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        write("#!/bin/sh\nexit 7\n");
        let pinned = Pinned::new(path.clone());
        write("#!/bin/sh\nexit 8\n");
        let code = |pinned: &Pinned| pinned.command().status().unwrap().code();
        assert_eq!((code(&pinned), code(&Pinned::new(path.clone()))), (Some(7), Some(8)));
        let missing = Pinned::new(folder.path().join("none"));
        assert_eq!(missing.command().status().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}

//! What the supervisor does to its own process.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The folder of a supervisor's bootstrap sockets: this, then its process id.
const BOOT_PREFIX: &str = "boot-";

/// Allows as many descriptors as the system lets us have: every client and every arena takes some.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(errno) = raised {
        tracing::warn!(%errno, "the limit of open files stays as it is");
    }
}

/// Puts the sockets that workers first connect to, which live for some milliseconds each, into a
/// folder of this process beside the pool's socket, and removes the folders of supervisors that were
/// killed. Where that cannot be, they stay in the system's folder for temporary files.
pub(super) fn keep_bootstrap_files_in(parent: Option<&Path>) {
    let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) else { return };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    if let Err(error) = made {
        tracing::debug!(%error, "bootstrap sockets stay in the temporary folder");
        return;
    }
    for stale in stale_folders(parent) {
        if let Err(error) = fs::remove_dir_all(&stale) {
            tracing::debug!(%error, path = %stale.display(), "a stale folder stays");
        }
    }
    let own = parent.join(format!("{BOOT_PREFIX}{}", std::process::id()));
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(&own) {
        Ok(()) => {
            // The first pool of a process decides; a second one, as in tests, shares its folder.
            drop(tempfile::env::override_temp_dir(&own));
        }
        Err(error) => tracing::debug!(%error, "bootstrap sockets stay in the temporary folder"),
    }
}

/// Removes this process's folder of bootstrap sockets.
pub(super) fn remove_bootstrap_files(parent: Option<&Path>) {
    let Some(parent) = parent else { return };
    let own = parent.join(format!("{BOOT_PREFIX}{}", std::process::id()));
    if let Err(error) = fs::remove_dir_all(&own) {
        tracing::debug!(%error, path = %own.display(), "no folder to remove");
    }
}

/// Folders of supervisors that are gone.
fn stale_folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix(BOOT_PREFIX));
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    entries.flatten().map(|entry| entry.path()).filter(is_stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_dead_supervisors_are_stale() {
        let parent = tempfile::tempdir().unwrap();
        let own = format!("{BOOT_PREFIX}{}", std::process::id());
        for name in [own.as_str(), "boot-4194305", "other"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        assert_eq!(stale_folders(parent.path()), [parent.path().join("boot-4194305")]);
    }
}

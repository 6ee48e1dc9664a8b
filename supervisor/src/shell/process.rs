//! What the supervisor does to its own process.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;

/// The folder of a supervisor's bootstrap sockets: this, then its process id.
const BOOT_PREFIX: &str = ".gridpool-boot-";

/// Allows as many descriptors as the system lets us have: every client and every arena takes some.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(errno) = raised {
        tracing::warn!(%errno, "the limit of open files stays as it is");
    }
}

/// Descriptors that this process may have open.
pub(super) fn descriptor_limit() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// Puts the sockets that workers first connect to, which live for some milliseconds each, into a
/// folder of this process beside the pool's socket, and removes the folders of supervisors that were
/// killed. Where that cannot be, they stay in the system's folder for temporary files.
pub(super) fn keep_bootstrap_files_in(parent: Option<&Path>) {
    let Some(parent) = parent.filter(|parent| !parent.as_os_str().is_empty()) else { return };
    for stale in stale_folders(parent) {
        if let Err(error) = fs::remove_dir_all(&stale) {
            tracing::debug!(%error, path = %stale.display(), "a stale folder stays");
        }
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).and_then(|()| {
        let own = boot_folder(parent);
        // Not recursive: a folder that is there already is not ours.
        fs::DirBuilder::new().mode(0o700).create(&own).map(|()| own)
    });
    match made {
        // The first pool of a process decides; a second one, as in tests, shares its folder.
        Ok(own) => drop(tempfile::env::override_temp_dir(&own)),
        Err(error) => tracing::debug!(%error, "bootstrap sockets stay in the temporary folder"),
    }
}

/// Removes this process's folder of bootstrap sockets.
pub(super) fn remove_bootstrap_files(parent: Option<&Path>) {
    let Some(parent) = parent else { return };
    let own = boot_folder(parent);
    if is_ours(&own)
        && let Err(error) = fs::remove_dir_all(&own)
    {
        tracing::debug!(%error, path = %own.display(), "the folder stays");
    }
}

fn boot_folder(parent: &Path) -> PathBuf {
    parent.join(format!("{BOOT_PREFIX}{}", std::process::id()))
}

/// Folders of supervisors that are gone: by our own name, with a number that no process has.
fn stale_folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix(BOOT_PREFIX));
        let pid = pid.filter(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) && is_ours(path)
    };
    entries.flatten().map(|entry| entry.path()).filter(is_stale).collect()
}

/// Whether a path is a folder, and no link to one, that we made for ourselves alone.
fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| {
        meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o777 == 0o700
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_folders_of_dead_supervisors_are_stale() {
        let parent = tempfile::tempdir().unwrap();
        let gone = format!("{BOOT_PREFIX}4194305");
        let own = format!("{BOOT_PREFIX}{}", std::process::id());
        let loader = format!("{BOOT_PREFIX}loader");
        for (name, mode) in [(&gone, 0o700), (&own, 0o700), (&loader, 0o700)] {
            fs::DirBuilder::new().mode(mode).create(parent.path().join(name)).unwrap();
        }
        for name in ["boot-4194305", ".gridpool-boot-4194306"] {
            fs::DirBuilder::new().mode(0o755).create(parent.path().join(name)).unwrap();
        }
        let link = parent.path().join(format!("{BOOT_PREFIX}4194307"));
        std::os::unix::fs::symlink(parent.path(), link).unwrap();
        assert_eq!(stale_folders(parent.path()), [parent.path().join(gone)]);
    }
}

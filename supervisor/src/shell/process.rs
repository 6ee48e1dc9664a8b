//! The limits, signals and folders of the supervisor's own process.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use gridpool_ipc::mutex::Mutex;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::geteuid;

use super::claim;

/// The folder of a supervisor's bootstrap sockets: this, then its process id.
const BOOT_PREFIX: &str = ".gridpool-boot-";

/// Locked while a folder for sockets is looked for, made or filled.
static FOLDERS: Mutex<()> = Mutex::new(());

/// While this is held, no thread of this process makes a folder for sockets, or the pool's socket again. A
/// process that is about to end holds it to its end, and clears its folder away.
pub fn lock_folders() -> MutexGuard<'static, ()> {
    FOLDERS.lock()
}

/// Raises the limit of descriptors to the most that the system allows: clients and arenas need them.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(errno) = raised {
        tracing::warn!(%errno, "the limit of open files stays as it is");
    }
}

/// Heaps of glibc, for large blocks and for libraries, that the threads of this process share. By default glibc gives a
/// process eight for each core, and a heap keeps what its threads have freed: with threads that come and go with
/// connections, the process would grow for minutes.
const HEAPS_MAX: libc::c_int = 2;

/// Lets the threads of this process share a few heaps.
pub fn limit_heaps() {
    #[expect(unsafe_code, reason = "a setting of the allocator")]
    // SAFETY: mallopt may be called at any time, and changes where later allocations come from.
    let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX) } == 1;
    if !is_set {
        tracing::warn!("the allocator takes no limit of its heaps");
    }
}

/// Makes shared memory beyond the file size limit (`ulimit -f`) an error, not the end of this process. A client
/// may ask for any size.
pub fn survive_file_size_limit() {
    #[expect(unsafe_code, reason = "a handler may be any function")]
    // SAFETY: to ignore a signal runs no code of ours.
    let ignored = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    if let Err(errno) = ignored {
        tracing::warn!(%errno, "SIGXFSZ is not ignored");
    }
}

/// Descriptors that this process may have open.
#[must_use]
pub fn descriptor_limit() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// The folder of the sockets at which workers listen for their channels. Each socket lives for some milliseconds.
/// The folder is locked as long as its supervisor lives, also if that is killed.
#[derive(Debug)]
pub(super) struct BootFolder {
    path: PathBuf,
    _lock: Flock<File>,
}

/// Puts the bootstrap sockets into a folder of this process beside the pool's socket, and removes the
/// folders of supervisors that were killed. If that fails, the sockets stay in the system's folder for temporary
/// files.
pub(super) fn keep_bootstrap_files_in(parent: Option<&Path>) -> Option<BootFolder> {
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty())?;
    for stale in stale_folders(parent) {
        if let Err(error) = fs::remove_dir_all(&stale) {
            tracing::debug!(%error, path = %stale.display(), "a stale folder stays");
        }
    }
    match BootFolder::make(boot_folder(parent)) {
        Ok(own) => Some(own),
        Err(error) => {
            tracing::debug!(%error, "bootstrap sockets stay in the temporary folder");
            None
        }
    }
}

impl BootFolder {
    fn make(path: PathBuf) -> io::Result<Self> {
        path.parent().map_or(Ok(()), claim::check_folder)?;
        // Not recursive: only this folder is ours.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder again if another process has removed it: without it no worker can start.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), "the folder was gone: it is made again");
                self.path.parent().map_or(Ok(()), claim::make)?;
                *self = Self::make(self.path.clone())?;
                Ok(())
            }
            Ok(_) if is_ours(&self.path) => Ok(()),
            Ok(_) | Err(_) => Err(io::Error::other(format!(
                "{} is not the private folder that this supervisor made: remove it",
                self.path.display()
            ))),
        }
    }
}

/// The lock of a folder. The system releases it when its holder ends.
fn lock(folder: &Path) -> io::Result<Flock<File>> {
    let locked = Flock::lock(File::open(folder)?, FlockArg::LockExclusiveNonblock);
    locked.map_err(|(_, errno)| errno.into())
}

/// The folder of the pool's socket, wherever it may be moved.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    opened: Option<File>,
}

impl SocketFolder {
    pub(super) fn of(socket: &Path) -> Self {
        let path = claim::folder_of(socket).to_owned();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
        let opened = File::options().read(true).custom_flags(flags.bits()).open(&path);
        let failed = |error: &io::Error| {
            tracing::debug!(%error, path = %path.display(), "the folder cannot be opened");
        };
        let opened = opened.inspect_err(failed).ok();
        Self { path, opened }
    }

    /// Removes this process's folder of bootstrap sockets, also from a folder that was moved.
    pub(super) fn remove_bootstrap_files(&self) {
        let moved = self.opened.as_ref().map(|folder| {
            boot_folder(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()))
        });
        for own in [Some(boot_folder(&self.path)), moved].into_iter().flatten() {
            if is_ours(&own)
                && let Err(error) = fs::remove_dir_all(&own)
            {
                tracing::debug!(%error, path = %own.display(), "the folder stays");
            }
        }
    }
}

fn boot_folder(parent: &Path) -> PathBuf {
    parent.join(format!("{BOOT_PREFIX}{}", std::process::id()))
}

/// Folders of supervisors that are gone: they have our name and kind, and are not locked. The process number does
/// not tell: numbers are used again, and each container has its own.
fn stale_folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix(BOOT_PREFIX));
        let pid = pid.filter(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
        pid.is_some() && is_ours(path) && lock(path).is_ok()
    };
    entries.flatten().map(|entry| entry.path()).filter(is_stale).collect()
}

/// Whether a path is a folder, not a link, that this user made with access for itself only.
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
        // In a container, the next supervisor may have the number of the one that was killed.
        for (name, mode) in [(&gone, 0o700), (&own, 0o700), (&loader, 0o700)] {
            fs::DirBuilder::new().mode(mode).create(parent.path().join(name)).unwrap();
        }
        let held = format!("{BOOT_PREFIX}4194308");
        let held = BootFolder::make(parent.path().join(held)).unwrap();
        for name in ["boot-4194305", ".gridpool-boot-4194306"] {
            fs::DirBuilder::new().mode(0o755).create(parent.path().join(name)).unwrap();
        }
        let link = parent.path().join(format!("{BOOT_PREFIX}4194307"));
        std::os::unix::fs::symlink(parent.path(), link).unwrap();
        let mut stale = stale_folders(parent.path());
        stale.sort();
        let mut want = [parent.path().join(gone), parent.path().join(own)];
        want.sort();
        assert_eq!(stale, want);
        drop(held);
        assert_eq!(stale_folders(parent.path()).len(), 3, "its supervisor is gone too");
    }

    #[test]
    fn a_folder_that_was_removed_is_made_again_and_what_is_not_ours_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("runtime").join(format!("{BOOT_PREFIX}1"));
        fs::create_dir(parent.path().join("runtime")).unwrap();
        let mut folder = BootFolder::make(path.clone()).unwrap();
        folder.restore().unwrap();
        fs::remove_dir_all(parent.path().join("runtime")).unwrap();
        folder.restore().unwrap();
        assert!(is_ours(&path) && lock(&path).is_err(), "it is private and locked");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        let refused = folder.restore().unwrap_err().to_string();
        assert!(
            refused.ends_with("is not the private folder that this supervisor made: remove it")
        );
    }
}

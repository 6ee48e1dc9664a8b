//! The folder for the sockets of a command's private pools. It is removed when the process ends, also by a
//! signal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::thread;

use gridpool_ipc::mutex::Mutex;
use nix::sys::signal::{SigSet, Signal, raise};
use tempfile::TempDir;

use crate::shell::lock_folders;

/// The folder, once it exists.
#[derive(Debug)]
pub(super) struct Scratch(Arc<Mutex<Option<TempDir>>>);

impl Scratch {
    /// From now on, a signal that ends this process first removes the folder. Call this before any other
    /// thread starts, since threads inherit the blocked signals.
    pub(super) fn new() -> io::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block()?;
        let scratch = Self(Arc::default());
        let shared = Self(Arc::clone(&scratch.0));
        let wait = move || {
            let Ok(signal) = signals.wait() else { return };
            // Held to the end of the process, so that no thread makes the folder or a socket after this.
            let _folders = lock_folders();
            let kept = shared.kept();
            if let Some(folder) = &*kept
                && let Err(error) = clear(folder.path())
            {
                tracing::warn!(%error, folder = %folder.path().display(), "cannot remove the folder");
            }
            // The process ends by the signal, as it would without this thread.
            if let Err(errno) = signals.thread_unblock().and_then(|()| raise(signal)) {
                tracing::error!(%errno, %signal, "cannot end this process");
            }
        };
        thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(scratch)
    }

    /// Makes the folder, once.
    pub(super) fn make(&self, prefix: &str) -> io::Result<PathBuf> {
        // A signal between making and keeping the folder waits for this lock.
        let _folders = lock_folders();
        let mut kept = self.kept();
        let folder = kept.insert(tempfile::Builder::new().prefix(prefix).tempdir()?);
        Ok(folder.path().to_owned())
    }

    fn kept(&self) -> MutexGuard<'_, Option<TempDir>> {
        self.0.lock()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.kept().take());
    }
}

/// Removes a folder in which threads of a pool may still make sockets.
fn clear(folder: &Path) -> io::Result<()> {
    let aside = folder.with_extension("gone");
    // From here on no thread finds it by its name.
    fs::rename(folder, &aside)?;
    while let Err(error) = fs::remove_dir_all(&aside) {
        if error.kind() != io::ErrorKind::DirectoryNotEmpty {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_cleared_while_a_thread_still_makes_files_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("scratch");
        fs::create_dir_all(folder.join("deep")).unwrap();
        let (began, has_begun) = std::sync::mpsc::channel();
        let places = folder.join("deep");
        let maker = thread::spawn(move || {
            let made = (0..).take_while(|n| fs::write(places.join(n.to_string()), "").is_ok());
            made.inspect(|_| began.send(()).unwrap_or_default()).count()
        });
        (0..10).for_each(|_| has_begun.recv().unwrap());
        clear(&folder).unwrap();
        assert!(maker.join().unwrap() >= 10);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}

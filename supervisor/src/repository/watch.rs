//! Tells when something in a repository changes: by inotify, so that nothing is read while nothing happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::scan::FOLDERS_MAX;

/// Folders above a model's file: the repository, the model, the version.
const LEVELS: usize = 3;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: Inotify,
    root: PathBuf,
    folders: BTreeMap<WatchDescriptor, PathBuf>,
    /// Files that someone has made and still writes.
    unfinished: BTreeSet<PathBuf>,
}

impl Watch {
    pub(super) fn start(root: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        let (folders, unfinished) = (BTreeMap::new(), BTreeSet::new());
        let mut watch = Self { inotify, root: root.to_owned(), folders, unfinished };
        watch.watch_all()?;
        Ok(watch)
    }

    /// Waits for a change. Returns the files that are not whole yet.
    pub(super) fn next(&mut self) -> io::Result<BTreeSet<PathBuf>> {
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            events.iter().for_each(|event| self.note(event));
            self.watch_all()?;
            self.unfinished.retain(|path| path.exists());
            return Ok(self.unfinished.clone());
        }
    }

    fn note(&mut self, event: &InotifyEvent) {
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.folders.remove(&event.wd);
            return;
        }
        let (Some(folder), Some(name)) = (self.folders.get(&event.wd), &event.name) else { return };
        let path = folder.join(name);
        let is_new = event.mask.contains(AddWatchFlags::IN_CREATE);
        // A link is whole when it is made.
        let is_plain = |path: &Path| {
            fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.nlink() == 1)
        };
        if is_new && is_plain(&path) {
            self.unfinished.insert(path);
        } else {
            self.unfinished.remove(&path);
        }
    }

    /// Watches every folder that is there. A folder that is watched already stays so.
    fn watch_all(&mut self) -> io::Result<()> {
        let mut level = vec![self.root.clone()];
        for depth in 0..LEVELS {
            let mut below = Vec::new();
            for folder in level {
                let flags = AddWatchFlags::IN_CREATE
                    | AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_MOVED_FROM
                    | AddWatchFlags::IN_MOVED_TO
                    | AddWatchFlags::IN_ONLYDIR;
                match self.inotify.add_watch(&folder, flags) {
                    Ok(id) => drop(self.folders.insert(id, folder.clone())),
                    // It has gone since it was listed, or it is not ours to read, as `lost+found`.
                    Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) if depth > 0 => continue,
                    Err(errno) => return Err(errno.into()),
                }
                let Ok(entries) = fs::read_dir(&folder) else { continue };
                let folders = entries.filter_map(Result::ok).map(|entry| entry.path());
                below.extend(folders.filter(|path| path.is_dir()).take(FOLDERS_MAX));
            }
            level = below;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_unfinished_from_its_first_byte_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let version = folder.path().join("m/1");
        fs::create_dir_all(&version).unwrap();
        let mut watch = Watch::start(folder.path()).unwrap();
        let path = version.join("model.onnx");
        let mut file = File::create(&path).unwrap();
        assert_eq!(watch.next().unwrap(), BTreeSet::from([path.clone()]));
        file.write_all(b"x").unwrap();
        drop(file);
        assert_eq!(watch.next().unwrap(), BTreeSet::new());
        // Folders that come later are watched too.
        fs::create_dir(folder.path().join("m/2")).unwrap();
        watch.next().unwrap();
        fs::hard_link(&path, folder.path().join("m/2/model.onnx")).unwrap();
        assert_eq!(watch.next().unwrap(), BTreeSet::new(), "a link is whole");
        fs::remove_dir_all(folder.path().join("m/2")).unwrap();
        watch.next().unwrap();
        fs::rename(&path, version.join("other")).unwrap();
        watch.next().unwrap();
    }
}

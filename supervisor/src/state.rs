//! The state folder: what a pool keeps beyond its end. It is one user's alone. A file in it is written whole or not at
//! all, and old files go when there are too many.
//!
//! Owns the folder, its files' modes, and how they are replaced and removed. May not know what is in them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridpool_ipc::{clock, trust};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

/// What the name of a file begins with while it is written.
const UNFINISHED: &str = ".new-";
/// The age from which an unfinished file is one that a killed pool has left.
const UNFINISHED_AGE: Duration = Duration::from_secs(3_600);
/// Most files of a folder that are looked at. A folder that has more is not the pool's alone.
const FILES_MAX: usize = 100_000;

/// Why there is no state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It or a folder above it cannot be made.
    #[error(
        "the state folder {} cannot be made: make it with `mkdir -p -m 700`, name another with --state-dir, or write \
         --state-dir none", .0.display()
    )]
    Unmade(PathBuf, #[source] io::Error),
    /// Its path is a link, which another user may have made.
    #[error("{} is a symbolic link: name the folder that it points to with --state-dir", .0.display())]
    Link(PathBuf),
    /// It is a file.
    #[error("{} is not a folder: name one with --state-dir, or write --state-dir none", .0.display())]
    NotFolder(PathBuf),
    /// It belongs to somebody else.
    #[error(
        "the state folder {} belongs to the user {owner} and not to you ({me}): name a folder of your own with \
         --state-dir", path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        me: u32,
    },
    /// Others may read or write there.
    #[error("others may look into the state folder {path}: mend it with `chmod 700 {path}`", path = .0.display())]
    Open(PathBuf),
    /// It is for all users, as `/tmp` is.
    #[error("{} is for all users: name a folder of your own with --state-dir", .0.display())]
    Shared(PathBuf),
    /// Others could put another folder in its place.
    #[error(
        "everybody may write to {}, and so put another folder in the place of {}: name a folder elsewhere with \
         --state-dir", above.display(), path.display()
    )]
    Movable {
        /// The folder.
        path: PathBuf,
        /// The folder above it.
        above: PathBuf,
    },
    /// The system refused.
    #[error("the state folder {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

/// A folder that is this user's alone, held open: its name may come to mean another folder.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    file: File,
}

/// How much a folder may hold. What is oldest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of all files together.
    pub bytes: u64,
    /// The age of a file.
    pub age: Duration,
    /// The number of files.
    pub files: usize,
}

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name in the folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub written: SystemTime,
}

impl StateFolder {
    /// Opens the folder, and makes it first if it is missing; with those above it unless the user has named it, since
    /// the name may be misspelt.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(path: &Path, is_named: bool) -> Result<Self, StateError> {
        let made = DirBuilder::new().recursive(!is_named).mode(0o700).create(path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StateError::Unmade(path.to_owned(), error));
            }
            Ok(()) | Err(_) => {}
        }
        let above = trust::open_folder(path);
        let above = above.map_err(|error| StateError::Io(path.to_owned(), error))?;
        match above {
            Some(above) => Err(StateError::Movable { path: path.to_owned(), above }),
            None => Self::look(path, path, false),
        }
    }

    /// Opens a folder in this one, and makes it if it is missing.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn below(&self, name: &str) -> Result<Self, StateError> {
        let (at, shown) = (self.entry(name), self.path.join(name));
        match DirBuilder::new().mode(0o700).create(&at) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(StateError::Unmade(shown, error))
            }
            Ok(()) | Err(_) => Self::look(&at, &shown, false),
        }
    }

    /// Opens a folder at `at`, if only this user may look into it. Root may `only_read` in another user's: what is
    /// written there is in that user's hands.
    fn look(at: &Path, shown: &Path, only_read: bool) -> Result<Self, StateError> {
        let path = shown.to_owned();
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(at) {
            Ok(file) => file,
            Err(error) => {
                let is_none = matches!(
                    error.raw_os_error().map(Errno::from_raw),
                    Some(Errno::ENOTDIR | Errno::ELOOP)
                );
                return Err(match fs::symlink_metadata(at) {
                    Ok(meta) if is_none && meta.is_symlink() => StateError::Link(path),
                    Ok(meta) if is_none && !meta.is_dir() => StateError::NotFolder(path),
                    Ok(_) | Err(_) => StateError::Io(path, error),
                });
            }
        };
        let meta = file.metadata().map_err(|error| StateError::Io(path.clone(), error))?;
        let (owner, me) = (meta.uid(), geteuid().as_raw());
        let may_read = only_read && geteuid().is_root();
        if owner != me && !may_read {
            return Err(StateError::Foreign { path, owner, me });
        }
        if meta.mode() & nix::libc::S_ISVTX != 0 {
            return Err(StateError::Shared(path));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(StateError::Open(path));
        }
        Ok(Self { path, file })
    }

    /// The folder of this name in this one to read, if it is there.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn existing(&self, name: &str) -> Result<Option<Self>, StateError> {
        let at = self.entry(name);
        match at.is_dir() {
            true => Self::look(&at, &self.path.join(name), true).map(Some),
            false => Ok(None),
        }
    }

    /// Opens a folder that is there, to read: root may do so in any user's.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open_to_read(path: &Path) -> Result<Self, StateError> {
        Self::look(path, path, true)
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in this very folder.
    fn entry(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.file.as_raw_fd().to_string()).join(name)
    }

    /// Opens a file to read, and follows no link.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        OpenOptions::new().read(true).custom_flags(flags.bits()).open(self.entry(name))
    }

    /// Makes a file to which lines are added; it may not be there yet.
    ///
    /// # Errors
    /// The system's.
    pub fn append(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW;
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600).custom_flags(flags.bits());
        options.open(self.entry(name))
    }

    /// Writes a file whole or not at all; one of that name is replaced.
    ///
    /// # Errors
    /// The system's, or that of `write`. Then nothing is there that was not before.
    pub fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = self.entry(&format!("{UNFINISHED}{name}"));
        remove_if_there(&unfinished)?;
        let flags = OFlag::O_NOFOLLOW;
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(flags.bits())
            .open(&unfinished);
        let mut file = io::BufWriter::new(opened?);
        let written = write(&mut file)
            .and_then(|()| file.flush())
            .and_then(|()| file.get_ref().sync_data())
            .and_then(|()| fs::rename(&unfinished, self.entry(name)));
        if written.is_err() {
            remove_if_there(&unfinished)?;
        }
        written
    }

    /// Its files, the oldest first; those that are not finished apart.
    ///
    /// # Errors
    /// The system's.
    pub fn list(&self) -> io::Result<Vec<Kept>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.entry("."))?.take(FILES_MAX) {
            let entry = entry?;
            // Another pool may remove it at this moment.
            let Ok(meta) = entry.metadata() else { continue };
            if let Ok(name) = entry.file_name().into_string()
                && meta.is_file()
            {
                files.push(Kept { name, bytes: meta.len(), written: meta.modified()? });
            }
        }
        files.sort_by(|a, b| (a.written, &a.name).cmp(&(b.written, &b.name)));
        let (unfinished, files) =
            files.into_iter().partition(|kept| kept.name.starts_with(UNFINISHED));
        self.remove_left(unfinished)?;
        Ok(files)
    }

    /// Removes unfinished files that nobody writes any more.
    fn remove_left(&self, unfinished: Vec<Kept>) -> io::Result<()> {
        let is_left = |kept: &Kept| age(kept) > UNFINISHED_AGE;
        unfinished.iter().filter(|kept| is_left(kept)).try_for_each(|kept| self.remove(&kept.name))
    }

    /// Removes a file that may be gone already.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        remove_if_there(&self.entry(name))
    }

    /// Removes the oldest of the files whose name ends so, until what is left is within the bounds. The number of
    /// files removed.
    ///
    /// # Errors
    /// The system's.
    pub fn prune(&self, suffix: &str, bounds: Bounds) -> io::Result<usize> {
        let files = self.list()?;
        let mut files: Vec<_> = files.iter().filter(|kept| kept.name.ends_with(suffix)).collect();
        let mut bytes: u64 = files.iter().map(|kept| kept.bytes).sum();
        let all = files.len();
        while let Some(oldest) = files.first()
            && (bytes > bounds.bytes || files.len() > bounds.files || age(oldest) > bounds.age)
        {
            self.remove(&oldest.name)?;
            bytes -= oldest.bytes;
            files.remove(0);
        }
        Ok(all - files.len())
    }
}

/// How long ago a file was written; none if the clock has been set back since.
fn age(kept: &Kept) -> Duration {
    clock::time_of_day().duration_since(kept.written).unwrap_or_default()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder() -> (tempfile::TempDir, StateFolder) {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(&parent.path().join("state"), true).unwrap();
        (parent, folder)
    }

    fn names(folder: &StateFolder) -> Vec<String> {
        folder.list().unwrap().into_iter().map(|kept| kept.name).collect()
    }

    #[test]
    fn a_folder_is_made_private_and_one_that_is_not_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let at = parent.path().join("a/b");
        assert!(matches!(StateFolder::open(&at, true), Err(StateError::Unmade(..))));
        let folder = StateFolder::open(&at, false).unwrap();
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o700);
        folder.below("capsules").unwrap();
        assert_eq!(fs::metadata(at.join("capsules")).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&at, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(StateFolder::open(&at, true), Err(StateError::Open(_))));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(matches!(StateFolder::open(&at, true), Err(StateError::Shared(_))));
        let link = parent.path().join("link");
        symlink(at.join("capsules"), &link).unwrap();
        assert!(matches!(StateFolder::open(&link, true), Err(StateError::Link(_))));
        symlink(parent.path(), at.join("away")).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(folder.below("away"), Err(StateError::Link(_))));
        let open = parent.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let movable = StateFolder::open(&open.join("state"), true);
        assert!(matches!(movable, Err(StateError::Movable { .. })), "{movable:?}");
    }

    #[test]
    fn root_reads_in_the_folder_of_another_user_and_keeps_nothing_there() {
        let (parent, folder) = folder();
        folder.below("jobs").unwrap();
        // Others cannot give a folder away.
        let Ok(()) = std::os::unix::fs::chown(parent.path().join("state"), Some(1), None) else {
            return;
        };
        let at = parent.path().join("state");
        assert!(matches!(StateFolder::open(&at, true), Err(StateError::Foreign { owner: 1, .. })));
        let read = StateFolder::open_to_read(&at).unwrap();
        assert!(
            read.existing("jobs").unwrap().is_some() && read.existing("none").unwrap().is_none()
        );
    }

    #[test]
    fn a_file_is_there_whole_with_a_private_mode_or_not_at_all() {
        let (parent, folder) = folder();
        folder.write("one.json", |to| to.write_all(b"1")).unwrap();
        let meta = fs::metadata(parent.path().join("state/one.json")).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.len()), (0o600, 1));
        let failed = folder.write("two.json", |to| {
            to.write_all(b"2")?;
            Err(io::Error::other("no"))
        });
        failed.unwrap_err();
        assert_eq!(fs::read_dir(parent.path().join("state")).unwrap().count(), 1);
        // A link in the place of the file is replaced, and not followed.
        let target = parent.path().join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, parent.path().join("state/three.json")).unwrap();
        folder.write("three.json", |to| to.write_all(b"3")).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        symlink(&target, parent.path().join("state/four.json")).unwrap();
        folder.read("four.json").unwrap_err();
    }

    #[test]
    fn the_oldest_files_go_until_the_rest_is_within_every_bound() {
        let wide = Bounds { bytes: u64::MAX, age: Duration::MAX, files: usize::MAX };
        let of = |bounds| {
            let (_parent, folder) = folder();
            for (number, age) in [(1_u8, 300), (2, 200), (3, 100), (4, 0)] {
                folder.write(&format!("{number}.json"), |to| to.write_all(&[number; 10])).unwrap();
                let file =
                    File::options().write(true).open(folder.entry(&format!("{number}.json")));
                file.unwrap()
                    .set_modified(clock::time_of_day() - Duration::from_secs(age))
                    .unwrap();
            }
            folder.write("other", |to| to.write_all(&[0; 100])).unwrap();
            folder.prune(".json", bounds).unwrap();
            let mut names = names(&folder);
            names.retain(|name| name != "other");
            names.len()
        };
        assert_eq!(of(wide), 4);
        assert_eq!(of(Bounds { files: 3, ..wide }), 3);
        assert_eq!(of(Bounds { bytes: 25, ..wide }), 2);
        assert_eq!(of(Bounds { age: Duration::from_secs(150), ..wide }), 2);
        assert_eq!(of(Bounds { bytes: 0, ..wide }), 0);
    }

    #[test]
    fn what_a_killed_pool_has_left_unfinished_goes_after_an_hour() {
        let (parent, folder) = folder();
        for (name, age) in [("old", 2), ("new", 0)] {
            let path = parent.path().join(format!("state/{UNFINISHED}{name}"));
            fs::write(&path, "").unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(clock::time_of_day() - Duration::from_secs(3_600 * age)).unwrap();
        }
        assert_eq!(names(&folder), [""; 0]);
        assert_eq!(fs::read_dir(parent.path().join("state")).unwrap().count(), 1);
    }
}

//! Whether a socket of another user can be trusted: only its owner, root and we could have put it there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::account::{Account, Barrier};

/// Most links on the way to a socket.
const LINKS_MAX: u32 = 40;

/// The first file or folder on the way to `socket` that a user other than `owner`, root and us could exchange, or
/// has made; `None` if there is none. Where a folder has the sticky bit and others may write to it, a file belongs to
/// the user who made it, and anybody may make it once its name is free: there only root's and ours are trusted, unless
/// the folder is the owner's.
///
/// # Errors
/// The system's, where a file cannot be looked at.
pub fn barrier(socket: &Path, owner: Account) -> io::Result<Option<Barrier>> {
    let is_ours = |uid: u32| [0, Account::mine().uid()].contains(&uid);
    let is_among_others = |at: &Path| -> io::Result<bool> {
        let folder = at.parent().map(fs::symlink_metadata).transpose()?;
        let is_open = |meta: &Metadata| meta.mode() & 0o022 != 0 && meta.uid() != owner.uid();
        Ok(folder.as_ref().is_some_and(is_open))
    };
    let found = first(socket, |at, meta| {
        let is_owners = meta.uid() == owner.uid() && !is_among_others(at)?;
        Ok(is_open(meta, 0o022) || !is_owners && !is_ours(meta.uid()))
    })?;
    Ok(found.map(|(path, meta)| Barrier { path, owner: Account::new(meta.uid()) }))
}

/// The first folder on the way to a file where everybody could exchange what leads there; `None` if there is none.
///
/// # Errors
/// The system's, where a file cannot be looked at.
pub fn open_folder(file: &Path) -> io::Result<Option<PathBuf>> {
    Ok(first(file, |_, meta| Ok(is_open(meta, 0o002)))?.map(|(path, _)| path))
}

/// Whether users whom a mode names may exchange what is in a folder.
fn is_open(meta: &Metadata, others: u32) -> bool {
    meta.is_dir() && meta.mode() & others != 0 && meta.mode() & 0o1000 == 0
}

/// The first file, folder or link on the way to `file` that is such a one.
fn first(
    file: &Path,
    is_such: impl Fn(&Path, &Metadata) -> io::Result<bool>,
) -> io::Result<Option<(PathBuf, Metadata)>> {
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut left = names(&std::path::absolute(file)?);
    loop {
        let meta = fs::symlink_metadata(&at)?;
        if is_such(&at, &meta)? {
            return Ok(Some((at, meta)));
        }
        if meta.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = fs::read_link(&at)?;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            let rest = std::mem::replace(&mut left, names(&target));
            left.extend(rest);
        }
        match left.pop_front() {
            None => return Ok(None),
            Some(name) if name == ".." => drop(at.pop()),
            Some(name) => at.push(name),
        }
    }
}

/// The names in a path, `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::Prefix(_) | Component::RootDir => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const OWNER: u32 = 4_000_007;
    const THIRD: u32 = 4_000_008;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The barrier's path, from below the folder.
    fn found(folder: &Path, socket: &str) -> Option<PathBuf> {
        let barrier = barrier(&folder.join(socket), Account::new(OWNER)).unwrap()?;
        Some(barrier.path.strip_prefix(folder).unwrap().to_owned())
    }

    #[test]
    fn each_folder_and_link_on_the_way_must_be_the_owners_or_roots() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/s"), "").unwrap();
        symlink("a/b", folder.join("link")).unwrap();
        symlink(folder.join("link/../b"), folder.join("away")).unwrap();
        for socket in ["a/b/s", "a/../a/b/s", "link/s", "away/s"] {
            assert_eq!(found(folder, socket), None, "{socket}");
        }
        for (bits, is_barrier) in [(0o775, true), (0o757, true), (0o1777, false), (0o711, false)] {
            mode(&folder.join("a"), bits);
            for socket in ["a/b/s", "link/s", "away/s"] {
                let barrier = is_barrier.then(|| PathBuf::from("a"));
                assert_eq!(found(folder, socket), barrier, "{bits:o} {socket}");
                let open = (bits == 0o757).then(|| folder.join("a"));
                assert_eq!(open_folder(&folder.join(socket)).unwrap(), open, "{bits:o} {socket}");
            }
        }
        symlink("loop", folder.join("loop")).unwrap();
        assert!(barrier(&folder.join("loop/s"), Account::new(OWNER)).is_err());
        if Account::mine().uid() != 0 {
            return;
        }
        let own = |path: &str, uid| {
            std::os::unix::fs::lchown(folder.join(path), Some(uid), None).unwrap()
        };
        chown(folder.join("a/b"), Some(OWNER), None).unwrap();
        assert_eq!(found(folder, "link/s"), None);
        for path in ["a", "a/b", "a/b/s", "link"] {
            own(path, THIRD);
            assert_eq!(found(folder, "link/s"), Some(path.into()));
            own(path, OWNER);
        }
        // Anybody may take the name once it is free.
        mode(&folder.join("a"), 0o1777);
        assert_eq!(found(folder, "link/s"), None, "the folder is the owner's");
        own("a", 0);
        assert_eq!(found(folder, "link/s"), Some("a/b".into()));
        own("a/b", 0);
        assert_eq!(found(folder, "link/s"), None);
        own("a/b", OWNER);
        mode(&folder.join("a"), 0o755);
        assert_eq!(found(folder, "link/s"), None);
    }
}

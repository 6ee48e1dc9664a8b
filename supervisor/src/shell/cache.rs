//! The folder in which the CUDA driver keeps the kernels that it has assembled. The driver's own is `~/.nv`, which
//! all programs of a user share and nobody checks: whoever writes there chooses what a GPU runs. The pool's is its
//! own, one for each role.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use gridpool_protocol::ids::Role;
use nix::unistd::geteuid;

/// The variable that names the folder to the driver.
pub(super) const VARIABLE: &str = "CUDA_CACHE_PATH";
/// The folder of caches below that of the user or of the service, and ours in it.
const NAME: &str = "gridpool/kernels";

/// The folder for workers of a role, made if necessary. `None` leaves the driver to its own: the user has named
/// another, or there is none to be had.
pub(super) fn folder(role: Role) -> Option<PathBuf> {
    let base = base(|name| env::var_os(name))?;
    let folder = base.join(role.name());
    match make(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            let path = folder.display();
            tracing::warn!(%error, %path, "the driver keeps kernels in ~/.nv: {VARIABLE} names another folder");
            None
        }
    }
}

/// The folder of all caches of kernels: of the service (systemd's `CacheDirectory=`) or of the user.
fn base(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    if named(VARIABLE).is_some() {
        return None;
    }
    let service = named("CACHE_DIRECTORY").and_then(|list| env::split_paths(&list).next());
    let user = || named("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(Path::new(&named("HOME")?).join(".cache"));
    let base = service.or_else(user).or_else(home).filter(|base| base.is_absolute());
    base.map(|base| base.join(NAME))
}

/// Makes a folder that is this user's alone.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let meta = fs::symlink_metadata(folder)?;
    match meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other("another user may write there")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_service_goes_before_the_user_and_a_named_folder_before_all() {
        let of = |given: &[(&str, &str)]| {
            base(|name| given.iter().find(|(known, _)| *known == name).map(|(_, at)| at.into()))
        };
        let home = ("HOME", "/h");
        assert_eq!(of(&[home]), Some("/h/.cache/gridpool/kernels".into()));
        assert_eq!(of(&[home, ("XDG_CACHE_HOME", "/x")]), Some("/x/gridpool/kernels".into()));
        let service = ("CACHE_DIRECTORY", "/s:/t");
        assert_eq!(of(&[home, service]), Some("/s/gridpool/kernels".into()));
        assert_eq!(of(&[home, service, (VARIABLE, "/own")]), None);
        assert_eq!(of(&[("XDG_CACHE_HOME", "relative")]), None);
    }

    #[test]
    fn a_folder_is_private_and_one_that_others_may_write_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        make(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        make(&folder).unwrap_err();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path().join("a"), &link).unwrap();
        make(&link).unwrap_err();
    }
}

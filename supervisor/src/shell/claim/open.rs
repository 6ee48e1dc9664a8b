//! Makes the file of a socket.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use gridpool_ipc::socket::PATH_BYTES_MAX;
use nix::unistd::geteuid;

use super::{ListenError, OwnFile, failed};

/// Opens a socket, which gets its name once it listens and is private: whoever finds it there can connect.
pub(super) fn open(path: &Path, name: PathBuf) -> Result<(UnixListener, OwnFile), ListenError> {
    const UNFINISHED: &str = "new";
    let unfinished = name.with_added_extension(UNFINISHED);
    // It is bound in its folder, by a path that takes some of the bytes.
    if let Some(over) = unfinished.as_os_str().len().checked_sub(PATH_BYTES_MAX + 1) {
        let bytes = name.file_name().map_or(0, OsStr::len);
        let most = bytes.saturating_sub(over + 1);
        return Err(ListenError::LongName { path: path.to_owned(), bytes, most });
    }
    clear(path, &name)?;
    clear(&path.with_added_extension(UNFINISHED), &unfinished)?;
    let listener =
        UnixListener::bind(&unfinished).map_err(failed(path, "the socket cannot be opened"))?;
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&unfinished, private)
        .map_err(failed(path, "the socket cannot be made private"))?;
    fs::rename(&unfinished, &name).map_err(failed(path, "the socket cannot get its name"))?;
    let socket = OwnFile::new(name).map_err(failed(path, "the socket cannot be looked at"))?;
    Ok((listener, socket))
}

/// Removes an old socket. The lock is held, so one of ours that nothing serves was left by a supervisor that was
/// killed.
fn clear(path: &Path, name: &Path) -> Result<(), ListenError> {
    match fs::symlink_metadata(name) {
        Ok(meta) if meta.file_type().is_socket() => {
            let is_served = || UnixStream::connect(name).is_ok();
            if meta.uid() != geteuid().as_raw() || is_served() {
                return Err(ListenError::Served(path.to_owned()));
            }
            fs::remove_file(name).map_err(failed(path, "the old socket cannot be removed"))
        }
        Ok(_) => Err(ListenError::NotSocket(path.to_owned())),
        Err(_) => Ok(()),
    }
}

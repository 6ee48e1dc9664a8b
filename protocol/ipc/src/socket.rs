//! The default path of a pool's socket.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use nix::unistd::getuid;

/// The variable that names the socket.
pub const SOCKET_VARIABLE: &str = "GRIDPOOL_SOCKET";
/// The variable with the user's folder for sockets, if the system sets it.
pub const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";
/// The file name of a pool's socket at the default path.
pub const SOCKET_NAME: &str = "pool.sock";

/// Longest path of a Unix socket, from `sun_path` of `sockaddr_un`.
pub const PATH_BYTES_MAX: usize = 107;

/// The folder of the default socket, and whether it comes from [`RUNTIME_VARIABLE`]:
/// `$XDG_RUNTIME_DIR/gridpool`, or the user's own folder under `/tmp`.
#[must_use]
pub fn default_folder() -> (PathBuf, bool) {
    folder_of(env::var_os(RUNTIME_VARIABLE), getuid().as_raw())
}

fn folder_of(runtime_dir: Option<OsString>, user: u32) -> (PathBuf, bool) {
    // The XDG specification says to ignore a relative path.
    match runtime_dir.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(runtime) => (runtime.join("gridpool"), true),
        None => (PathBuf::from(format!("/tmp/gridpool-{user}")), false),
    }
}

/// The default socket, and whether its folder comes from [`RUNTIME_VARIABLE`].
#[must_use]
pub fn default_path() -> (PathBuf, bool) {
    let (folder, is_named) = default_folder();
    (folder.join(SOCKET_NAME), is_named)
}

/// The path at which a client looks for the pool: `GRIDPOOL_SOCKET`, else `pool.sock` in
/// `$XDG_RUNTIME_DIR/gridpool`, else `pool.sock` in the user's own folder under `/tmp`.
#[must_use]
pub fn path_of_environment() -> PathBuf {
    env::var_os(SOCKET_VARIABLE).map_or_else(|| default_path().0, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_socket_lies_in_the_runtime_folder_or_in_one_of_the_users_own() {
        let at = |runtime: Option<&str>| folder_of(runtime.map(OsString::from), 1000);
        assert_eq!(at(Some("/run/user/1000")), (Path::new("/run/user/1000/gridpool").into(), true));
        for runtime in [Some("relative"), Some(""), None] {
            assert_eq!(at(runtime), (Path::new("/tmp/gridpool-1000").into(), false));
        }
    }
}

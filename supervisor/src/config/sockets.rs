//! The path of the pool's socket.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridpool_ipc::socket::{self, PATH_BYTES_MAX, RUNTIME_VARIABLE};

use super::{ConfigError, Origin, Origins, Overrides};

pub(super) fn resolve_socket(
    flags: &Overrides,
    file: Option<PathBuf>,
    origins: &mut Origins,
) -> Result<PathBuf, ConfigError> {
    let Some(path) = &flags.socket else {
        return Ok(file.unwrap_or_else(|| {
            let (socket, is_named) = socket::default_path();
            if is_named {
                let variable = RUNTIME_VARIABLE.to_owned();
                origins.set("socket", Origin::Environment { variable });
            }
            socket
        }));
    };
    match check_socket(path) {
        Ok(()) => Ok(path.clone()),
        Err(reason) => Err(flags.wrong("--socket", reason)),
    }
}

pub(super) fn check_socket(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(
            "the path of the socket is empty: name a file, such as /tmp/pool/pool.sock".to_owned()
        );
    }
    if bytes.len() > PATH_BYTES_MAX {
        return Err(format!(
            "the path of the socket has {} bytes; a Unix socket takes at most \
             {PATH_BYTES_MAX}",
            bytes.len()
        ));
    }
    if bytes.ends_with(b"/") || path.is_dir() {
        let file = path.join(socket::SOCKET_NAME);
        return Err(format!(
            "{} is a folder: name a file in it, such as {}",
            path.display(),
            file.display()
        ));
    }
    Ok(())
}

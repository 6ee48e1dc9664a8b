//! Files that are named by people: a pipe, a device or a socket in the place of one must hold nobody up.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file to read, and never waits, as opening a pipe without a writer would.
///
/// # Errors
/// The system's; `InvalidInput` if it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // It has no effect on a regular file.
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file; name one that is"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, socket, file] = ["pipe", "socket", "file"].map(|name| folder.path().join(name));
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        std::fs::write(&file, "x").unwrap();
        for path in [&*pipe, folder.path(), Path::new("/dev/zero")] {
            let kind = open(path).map_err(|error| error.kind()).unwrap_err();
            assert_eq!(kind, io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert!(open(&socket).is_err());
        open(&file).unwrap();
    }
}

//! The text of the config file, and of the files that it names.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

use crate::config::ConfigError;

/// Largest config file.
pub(super) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Reads a config file.
pub(super) fn read(path: &Path) -> Result<String, Vec<ConfigError>> {
    let unreadable =
        |reason: String| vec![ConfigError::Unreadable { file: path.to_owned(), reason }];
    let mut bytes = Vec::new();
    let file = open(path).map_err(|error| unreadable(error.to_string()))?;
    file.take(CONFIG_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(unreadable(format!("it has more than {CONFIG_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        vec![ConfigError::File {
            file: path.to_owned(),
            line: line(error.as_bytes(), &(at..at)),
            reason: format!(
                "the byte {:#04x} is no UTF-8: save the file as UTF-8",
                error.as_bytes()[at]
            ),
        }]
    })
}

/// Opens a file to read, and never waits: a pool that serves reads its files again, and a pipe in the place of one
/// may have no writer.
///
/// # Errors
/// The system's; a pipe is one too.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe; write a file"));
    }
    Ok(file)
}

/// The line of an offset in the text, from 1.
pub(super) fn line(text: &[u8], at: &Range<usize>) -> usize {
    1 + text.iter().take(at.start).filter(|&&byte| byte == b'\n').count()
}

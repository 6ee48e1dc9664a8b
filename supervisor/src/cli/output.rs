//! An output file of a command. `open` checks its path before the work begins; `write` writes it at the end.
//!
//! The file at the path is written to, as by `cp`, and never replaced by a file of another kind:
//!
//! - A regular or new file is written whole or not at all: a draft in the same folder takes its name once it
//!   is complete. The draft has the file's mode and owner.
//! - A regular file that a draft cannot replace is written in place, after its space was allocated. Such a
//!   file has hard links, an access list, or a folder that takes no draft.
//! - A FIFO, a device and standard output are written from beginning to end.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use gridpool_protocol::exit::cli as exit;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{AccessFlags, access, geteuid};
use tempfile::NamedTempFile;

use crate::shell::folder_of;

/// The beginning of a draft's name.
const DRAFT: &str = ".gridpool-draft-";
/// Names of standard output, which is not opened again: that would overwrite a redirected file.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// The label that SELinux gives every file, also a new one.
const SELINUX: &[u8] = b"security.selinux";

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// It is there, and would be replaced.
    #[error("{flag} {}: there is such a file: name one that is not there", path.display())]
    Exists { flag: &'static str, path: PathBuf },
    /// A dangling link.
    #[error("{flag} {}: the link points to {}, which does not exist: name that file", path.display(), target.display())]
    Dangling { flag: &'static str, path: PathBuf, target: PathBuf },
    /// `--json` uses standard output.
    #[error("{flag} {}: --json writes to standard output already: name a file", path.display())]
    Document { flag: &'static str, path: PathBuf },
    /// A file that is written bit by bit was not written whole.
    #[error("{flag} {}: writing failed: the file is incomplete", path.display())]
    Incomplete {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Its folder is missing.
    #[error("{flag} {}: there is no folder {}: make it first", path.display(), folder.display())]
    NoFolder { flag: &'static str, path: PathBuf, folder: PathBuf },
    /// It cannot be written to.
    #[error("{flag} {}: name a file that can be written", path.display())]
    Open {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A link that another user has put into a folder where everybody may.
    #[error(
        "{flag} {}: a link that user {owner} made in a folder where everybody may write: remove it, or name the file \
         that it leads to",
        path.display()
    )]
    OthersLink { flag: &'static str, path: PathBuf, owner: u32 },
    /// Only the beginning was written.
    #[error(
        "{flag} {}: only {written} of {bytes} bytes were written: the file is incomplete",
        path.display()
    )]
    Partly {
        flag: &'static str,
        path: PathBuf,
        written: u64,
        bytes: u64,
        #[source]
        source: io::Error,
    },
    /// Standard output did not take all bytes.
    #[error("standard output")]
    Stdout(#[source] io::Error),
    /// The bytes are not for a terminal.
    #[error("{flag} {}: standard output is a terminal: pipe it, or name a file", path.display())]
    Terminal { flag: &'static str, path: PathBuf },
    /// What was written of a new file was removed.
    #[error("{flag} {}: writing failed, and the file was removed: make room, or name another place", path.display())]
    Unwritten {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Nothing was written.
    #[error("{flag} {}: writing failed, and the file is unchanged", path.display())]
    Untouched {
        flag: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OutputError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Dangling { .. }
            | Self::Document { .. }
            | Self::Exists { .. }
            | Self::NoFolder { .. }
            | Self::Open { .. }
            | Self::OthersLink { .. }
            | Self::Terminal { .. } => exit::USAGE,
            Self::Incomplete { .. }
            | Self::Partly { .. }
            | Self::Stdout(_)
            | Self::Untouched { .. }
            | Self::Unwritten { .. } => exit::OUTPUT,
        }
    }
}

/// An output file before it is written.
#[derive(Debug)]
pub(super) struct Output {
    flag: &'static str,
    /// As typed.
    path: PathBuf,
    place: Target,
}

/// The kind of file at the path.
#[derive(Debug)]
enum Target {
    /// Nothing yet.
    New(PathBuf),
    /// A regular file, with links resolved.
    Regular(PathBuf, File),
    /// An open FIFO or device. Its reader would see the end of the file if it were opened again.
    Stream(File),
    Stdout,
}

/// How much was written.
#[derive(Debug)]
enum Failed {
    /// Nothing.
    Untouched(io::Error),
    /// The beginning.
    Partly(u64, u64, io::Error),
}

impl Output {
    /// Checks the path, which is the value of `flag`. Waits until a FIFO has a reader. Standard output must
    /// not be a terminal, nor have the document of `--json`.
    pub(super) fn open(
        flag: &'static str,
        path: &Path,
        has_document: bool,
    ) -> Result<Self, OutputError> {
        let typed = path.to_owned();
        let place = if STDOUT.iter().all(|name| path != Path::new(name)) {
            place(flag, path)?
        } else if has_document {
            return Err(OutputError::Document { flag, path: typed });
        } else if io::stdout().is_terminal() {
            return Err(OutputError::Terminal { flag, path: typed });
        } else {
            Target::Stdout
        };
        Ok(Self { flag, path: typed, place })
    }

    /// Writes the file.
    pub(super) fn write(
        self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        let Self { flag, path, place } = self;
        let done = match place {
            Target::New(target) => write_new(&target, write),
            Target::Regular(target, file) => replace(&target, file, write),
            Target::Stream(file) => in_memory(write).and_then(|whole| copy(whole, file)),
            Target::Stdout => {
                let done = in_memory(write).and_then(|whole| copy(whole, io::stdout().lock()));
                return done.map_err(|(Failed::Untouched(e) | Failed::Partly(_, _, e))| {
                    OutputError::Stdout(e)
                });
            }
        };
        done.map_err(|failed| match failed {
            Failed::Untouched(source) => OutputError::Untouched { flag, path, source },
            Failed::Partly(written, bytes, source) => {
                OutputError::Partly { flag, path, written, bytes, source }
            }
        })
    }
}

/// The stream for the report to people: standard error if the file goes to standard output.
pub(super) fn report_beside(output: Option<&Output>) -> Box<dyn Write> {
    match output {
        Some(Output { place: Target::Stdout, .. }) => Box::new(io::stderr()),
        Some(_) | None => Box::new(io::stdout()),
    }
}

/// Finds the kind of file at a path, which is not standard output.
fn place(flag: &'static str, path: &Path) -> Result<Target, OutputError> {
    let failed = |source| OutputError::Open { flag, path: path.to_owned(), source };
    if let Some(owner) = others_link(path).map_err(failed)? {
        return Err(OutputError::OthersLink { flag, path: path.to_owned(), owner });
    }
    // Neither creates nor truncates: there is nothing to write yet.
    let file = match OpenOptions::new().write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return can_be_made(flag, path).map(|()| Target::New(path.to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(Target::Stream(file));
    }
    // A redirected /dev/stderr continues at the shell's place.
    if ["/dev/fd", "/dev/stderr", "/proc"].iter().any(|folder| path.starts_with(folder)) {
        return OpenOptions::new().append(true).open(path).map(Target::Stream).map_err(failed);
    }
    Ok(Target::Regular(path.canonicalize().map_err(failed)?, file))
}

/// Who made the link at a path, if it is not to be followed: in a folder where everybody may make files, only our own
/// links and those of the folder's owner are. So do kernels with `fs.protected_symlinks`.
fn others_link(path: &Path) -> io::Result<Option<u32>> {
    let Ok(link) = path.symlink_metadata() else { return Ok(None) };
    if !link.is_symlink() || link.uid() == geteuid().as_raw() {
        return Ok(None);
    }
    let folder = folder_of(path).metadata()?;
    let is_open = folder.mode() & 0o1002 == 0o1002;
    Ok((is_open && link.uid() != folder.uid()).then(|| link.uid()))
}

/// Checks that a file can be created at a path.
fn can_be_made(flag: &'static str, path: &Path) -> Result<(), OutputError> {
    if let Ok(target) = path.read_link() {
        let target = folder_of(path).join(target);
        return Err(OutputError::Dangling { flag, path: path.to_owned(), target });
    }
    let folder = if path.as_os_str().as_bytes().ends_with(b"/") { path } else { folder_of(path) };
    if !folder.is_dir() {
        let folder = folder.to_owned();
        return Err(OutputError::NoFolder { flag, path: path.to_owned(), folder });
    }
    let may = access(folder, AccessFlags::W_OK | AccessFlags::X_OK);
    may.map_err(|errno| OutputError::Open { flag, path: path.to_owned(), source: errno.into() })
}

/// A new draft, in the folder of the file that it will replace.
fn draft(target: &Path) -> io::Result<NamedTempFile> {
    // The mode of new files, less the umask.
    let mode = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(DRAFT).permissions(mode).tempfile_in(folder_of(target))
}

fn write_new(target: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), Failed> {
    let mut draft = draft(target).map_err(Failed::Untouched)?;
    let written = write(draft.as_file_mut()).and_then(|()| draft.as_file().sync_data());
    written.map_err(Failed::Untouched)?;
    draft.persist(target).map_err(|error| Failed::Untouched(error.error))?;
    Ok(())
}

/// Writes an existing regular file: by a draft that replaces it, or else in place.
fn replace(
    target: &Path,
    file: File,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failed> {
    let meta = file.metadata().map_err(Failed::Untouched)?;
    let Some(mut draft) = twin(target, &file, &meta) else {
        return overwrite(in_memory(write)?, file);
    };
    let written = write(draft.as_file_mut()).and_then(|()| draft.as_file().sync_data());
    written.map_err(Failed::Untouched)?;
    match draft.persist(target) {
        Ok(_) => Ok(()),
        // A bind-mounted file, as in containers, cannot be replaced.
        Err(error) => overwrite(error.file.into_file(), file),
    }
}

/// A draft with the file's mode, owner and attributes, if that is possible.
fn twin(target: &Path, file: &File, meta: &Metadata) -> Option<NamedTempFile> {
    if meta.nlink() > 1 || has_attributes(file) {
        return None;
    }
    let draft = draft(target).ok()?;
    let own = draft.as_file().metadata().ok()?;
    if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
        fchown(draft.as_file(), Some(meta.uid()), Some(meta.gid())).ok()?;
    }
    draft.as_file().set_permissions(meta.permissions()).ok()?;
    Some(draft)
}

/// Whether a file has extended attributes of its own, such as an access list.
fn has_attributes(file: &File) -> bool {
    let mut names = Vec::with_capacity(1 << 10);
    match rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(&mut names)) {
        Ok(_) => names.split(|&byte| byte == 0).any(|name| !name.is_empty() && name != SELINUX),
        // Either more names than fit, or a file system without attributes.
        Err(errno) => errno == rustix::io::Errno::RANGE,
    }
}

/// The whole content, in memory.
fn in_memory(write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<File, Failed> {
    let memory = memfd_create("gridpool-output", MFdFlags::MFD_CLOEXEC);
    let mut whole = File::from(memory.map_err(|errno| Failed::Untouched(errno.into()))?);
    write(&mut whole).map_err(Failed::Untouched)?;
    Ok(whole)
}

/// Writes a regular file in place, if its space can be allocated.
fn overwrite(whole: File, mut file: File) -> Result<(), Failed> {
    let bytes = whole.metadata().map_err(Failed::Untouched)?.len();
    let length = i64::try_from(bytes).map_err(|e| Failed::Untouched(io::Error::other(e)))?;
    if length > 0 {
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            // Not every file system can allocate; writing then may fail.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
            Err(errno) => return Err(Failed::Untouched(errno.into())),
        }
    }
    copy(whole, &mut file)?;
    let cut = file.set_len(bytes).and_then(|()| file.sync_data());
    cut.map_err(|error| Failed::Partly(bytes, bytes, error))
}

/// Copies all bytes.
fn copy(mut whole: File, to: impl Write) -> Result<(), Failed> {
    let bytes = whole.metadata().and_then(|meta| whole.rewind().map(|()| meta.len()));
    let bytes = bytes.map_err(Failed::Untouched)?;
    let mut counted = Counted { to, written: 0 };
    let copied = io::copy(&mut whole, &mut counted).and_then(|_| counted.flush());
    copied.map_err(|error| match counted.written {
        0 => Failed::Untouched(error),
        written => Failed::Partly(written, bytes, error),
    })
}

/// Counts the bytes that the stream has taken.
struct Counted<W> {
    to: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.to.write(bytes)?;
        self.written += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;

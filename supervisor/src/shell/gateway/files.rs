//! The files that say whom HTTP admits: tokens, certificates, the key. The supervisor reads them for the
//! gateway, at the start and whenever one has changed.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::config::{self, HttpOptions};
use crate::gateway::{DoorError, DoorPlan};

/// Largest file of tokens, certificates or a key.
const FILE_BYTES_MAX: u64 = 128 << 10;

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// One cannot be read.
    #[error("{} cannot be read: name a file that you can read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Other users may read or change it.
    #[error("{0} has the mode {mode:o}: {why}; {1}", path.display(), mend_of(path, mend, *is_own))]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// What another user may do.
        why: &'static str,
        /// The permissions that it should have.
        mend: &'static str,
        /// Whether it belongs to the user of this process.
        is_own: bool,
    },
    /// It belongs to someone else.
    #[error("{0} belongs to the user {owner}, who can change it: it must be yours or root's", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It is no file, or too large.
    #[error("{}: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What to type, and nothing that would change a file of somebody else.
fn mend_of(path: &Path, mend: &str, is_own: bool) -> String {
    match is_own {
        true => format!("mend it with `chmod {mend} {}`", path.display()),
        false => format!("it is root's: name a file of your own that has the mode {mend}"),
    }
}

impl FileError {
    /// The file.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::Mode { path, .. }
            | Self::Owner { path, .. }
            | Self::Form { path, .. } => path,
        }
    }
}

/// What tells one state of a file from another.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// The state of each file.
pub(super) type Stamps = Vec<Option<Stamp>>;

/// The state of the files now, without opening them.
pub(super) fn stamps(options: &HttpOptions) -> Stamps {
    let files = [&options.tokens, &options.cert, &options.key];
    let stamp = |path: &PathBuf| {
        let meta = std::fs::metadata(path).ok()?;
        let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        let (mtime, mtime_ns, ctime, ctime_ns) = times;
        Some((meta.dev(), meta.ino(), meta.len(), mtime, mtime_ns, ctime, ctime_ns))
    };
    files.into_iter().flatten().map(stamp).collect()
}

/// Reads and checks the files.
pub(super) fn plan(options: &HttpOptions) -> Result<DoorPlan, FileError> {
    let mut modes = Vec::new();
    let mut read = |path: &Option<PathBuf>, is_secret| {
        let Some(path) = path.as_deref() else { return Ok(None) };
        let (text, wrong_mode) = read(path, is_secret)?;
        modes.extend(wrong_mode);
        Ok(Some(text))
    };
    let cert = read(&options.cert, false)?;
    let (key, tokens) = (read(&options.key, true)?, read(&options.tokens, true)?);
    let plan = DoorPlan {
        is_leaving: false,
        hosts: options.hosts.clone(),
        origins: options.origins.clone(),
        tokens,
        pem: cert.zip(key),
        any_user: options.group.is_some(),
        access_log: options.logs_access(),
    };
    let form = |path: &Option<PathBuf>, why| {
        let path = path.clone().unwrap_or_default();
        FileError::Form { path, why }
    };
    match plan.check() {
        // Only now: what to do with the mode of a file is no advice for one that is none of these.
        Ok(()) => modes.pop().map_or(Ok(plan), Err),
        Err(DoorError::Tokens(why)) => Err(form(&options.tokens, why)),
        Err(DoorError::Tls(why)) => Err(form(&options.cert, why)),
    }
}

/// What is said of a file that is no text.
const NO_TEXT: &str = "it is not a text file: tokens are lines of `gridpool token new`; certificates and keys are \
                       in the form PEM, which begins with `-----BEGIN`";

/// Reads a file, and says if another user can change it or, if it is a secret, can read it. A link is followed:
/// Kubernetes puts one in the place of every secret.
fn read(path: &Path, is_secret: bool) -> Result<(String, Option<FileError>), FileError> {
    const ROOT: u32 = 0;
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let file = config::open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    let form = |why: String| FileError::Form { path: path.to_owned(), why };
    if !meta.is_file() {
        return Err(form("it is not a file".to_owned()));
    }
    let (owner, mode) = (meta.uid(), meta.mode() & 0o777);
    if owner != geteuid().as_raw() && owner != ROOT {
        return Err(FileError::Owner { path: path.to_owned(), owner });
    }
    let is_own = owner == geteuid().as_raw();
    let bad = |why, mend| Some(FileError::Mode { path: path.to_owned(), mode, why, mend, is_own });
    let wrong_mode = match is_secret {
        true if mode & 0o027 != 0 => bad("other users may read or change it", "600"),
        false if mode & 0o022 != 0 => bad("other users may change it", "644"),
        true | false => None,
    };
    let mut text = String::new();
    let got = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    got.map_err(|error| match error.kind() == io::ErrorKind::InvalidData {
        true => form(NO_TEXT.to_owned()),
        false => unreadable(error),
    })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(form(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok((text, wrong_mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused_with_the_mode_to_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text").unwrap();
        let at = |mode, is_secret| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let (text, wrong_mode) = read(&path, is_secret).map_err(|error| error.to_string())?;
            wrong_mode.map_or(Ok(text), |error| Err(error.to_string()))
        };
        for mode in [0o400, 0o600, 0o640] {
            assert_eq!(at(mode, true), Ok("text".to_owned()));
        }
        for mode in [0o604, 0o602, 0o660, 0o620, 0o644] {
            let why = at(mode, true).unwrap_err();
            assert!(why.contains("chmod 600") && why.contains(&format!("mode {mode:o}")), "{why}");
        }
        assert_eq!(at(0o644, false), Ok("text".to_owned()));
        assert!(at(0o664, false).unwrap_err().contains("chmod 644"));
        let of_root = FileError::Mode {
            path: "/etc/passwd".into(),
            mode: 0o644,
            why: "other users may read or change it",
            mend: "600",
            is_own: false,
        };
        let why = of_root.to_string();
        assert!(
            why.contains("it is root's: name a file of your own") && !why.contains("chmod"),
            "{why}"
        );
        // What is no file of tokens is told so, and its mode is left alone.
        let options = HttpOptions { tokens: Some(path.clone()), ..HttpOptions::default() };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let why = plan(&options).unwrap_err().to_string();
        assert!(why.contains("line 1") && !why.contains("chmod"), "{why}");
        fs::write(&path, "# nobody").unwrap();
        let why = plan(&options).unwrap_err().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(plan(&options).unwrap().holders().let_nobody_in());
        // It may be one that is just being written.
        fs::write(&path, "\n").unwrap();
        let why = plan(&options).unwrap_err().to_string();
        assert!(why.contains("it is empty") && why.contains("# nobody"), "{why}");
        assert!(!plan(&HttpOptions::default()).unwrap().holders().let_nobody_in());
        assert!(read(folder.path(), false).unwrap_err().to_string().contains("not a file"));
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(
            matches!(read(&pipe, false), Err(FileError::Unreadable { .. })),
            "it does not wait"
        );
        fs::write(&path, [0xff, 0xfe, 0]).unwrap();
        assert!(at(0o644, false).unwrap_err().contains("PEM"));
    }
}

//! The folder in which a pool keeps what outlives it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::Serialize;

/// The word for no folder.
const NONE: &str = "none";
/// The folder of the service manager: `StateDirectory=` of systemd.
const SERVICE_VARIABLE: &str = "STATE_DIRECTORY";
/// The folder of a pool of root that no service manager has started.
const OF_ROOT: &str = "/var/lib/gridpool";

/// Where a pool keeps what outlives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDir {
    /// `serve` has the [default folder](default_folder), a pool of one command none.
    #[default]
    Default,
    /// Nowhere.
    Nowhere,
    /// In this folder.
    At(PathBuf),
}

impl StateDir {
    /// As a flag or the config file has it; a relative path is of `folder`.
    ///
    /// # Errors
    /// A sentence if it is empty.
    pub fn parse(text: &Path, folder: &Path) -> Result<Self, String> {
        if text.as_os_str().is_empty() {
            return Err("the state folder is empty: name a folder, or write none".to_owned());
        }
        Ok(if text == Path::new(NONE) { Self::Nowhere } else { Self::At(folder.join(text)) })
    }

    /// The folder of `serve`, and whether the user has named it.
    #[must_use]
    pub fn of_service(&self) -> Option<(PathBuf, bool)> {
        match self {
            Self::Default => default_folder().map(|folder| (folder, false)),
            Self::Nowhere => None,
            Self::At(folder) => Some((folder.clone(), true)),
        }
    }

    /// The folder of a pool of one command: only if it was asked for.
    #[must_use]
    pub fn of_command(&self) -> Option<&Path> {
        match self {
            Self::Default | Self::Nowhere => None,
            Self::At(folder) => Some(folder),
        }
    }
}

impl Serialize for StateDir {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.of_service() {
            None => serializer.serialize_none(),
            Some((folder, _)) => serializer.serialize_str(&folder.display().to_string()),
        }
    }
}

/// The folder without a setting: that of the service, of the user, or of root. `None` if there is none to be had.
#[must_use]
pub fn default_folder() -> Option<PathBuf> {
    folder_of(|name| env::var_os(name), geteuid().is_root())
}

fn folder_of(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    let service = named(SERVICE_VARIABLE).and_then(|list| env::split_paths(&list).next());
    let user = || Some(PathBuf::from(named("XDG_STATE_HOME")?).join("gridpool"));
    let home = || match is_root {
        true => Some(PathBuf::from(OF_ROOT)),
        false => Some(Path::new(&named("HOME")?).join(".local/state/gridpool")),
    };
    // A relative path is ignored, as the XDG specification says.
    let is_usable = |folder: &PathBuf| folder.is_absolute();
    service
        .filter(is_usable)
        .or_else(|| user().filter(is_usable))
        .or_else(|| home().filter(is_usable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_goes_before_the_user_and_root_has_a_folder_of_its_own() {
        let of = |given: &[(&str, &str)], is_root| {
            let variable = |name: &str| {
                given.iter().find(|(known, _)| *known == name).map(|(_, at)| at.into())
            };
            folder_of(variable, is_root)
        };
        let home = ("HOME", "/h");
        let user = ("XDG_STATE_HOME", "/x");
        let service = ("STATE_DIRECTORY", "/s:/t");
        assert_eq!(of(&[home], false), Some("/h/.local/state/gridpool".into()));
        assert_eq!(of(&[home], true), Some(OF_ROOT.into()));
        for is_root in [false, true] {
            assert_eq!(of(&[home, user], is_root), Some("/x/gridpool".into()));
            assert_eq!(of(&[home, user, service], is_root), Some("/s".into()));
        }
        assert_eq!(
            of(&[home, ("XDG_STATE_HOME", "x")], false),
            Some("/h/.local/state/gridpool".into())
        );
        assert_eq!(of(&[], false), None);
    }

    #[test]
    fn only_serve_has_a_folder_without_being_asked() {
        let named = StateDir::parse(Path::new("kept"), Path::new("/etc")).unwrap();
        assert_eq!(named.of_service(), Some(("/etc/kept".into(), true)));
        assert_eq!(named.of_command(), Some(Path::new("/etc/kept")));
        let none = StateDir::parse(Path::new("none"), Path::new("/etc")).unwrap();
        assert!(StateDir::parse(Path::new(""), Path::new("/etc")).is_err());
        assert_eq!((none.of_service(), none.of_command()), (None, None));
        assert_eq!(StateDir::Default.of_command(), None);
    }
}

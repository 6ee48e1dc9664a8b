//! How much a worker or helper process gives up before it serves, and what it is known to have given up.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// Whether the processes of a pool are confined.
    #[derive(Default)]
    pub enum SandboxMode {
        /// They are.
        #[default]
        On = "on",
        /// System calls that `on` would refuse are only logged by the kernel, and files are not restricted.
        Log = "log",
        /// They are not, and inherit the whole environment.
        Off = "off",
    }
}

/// A text that does not name a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a mode of the sandbox: write on, log or off")]
pub struct ParseModeError {
    text: String,
}

impl FromStr for SandboxMode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        Self::from_name(text).ok_or_else(|| ParseModeError { text: text.to_owned() })
    }
}

/// The protections of one process, as the kernel reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protections {
    /// Whether it can gain no privilege by starting a program.
    pub no_new_privs: bool,
    /// Whether a filter of system calls is installed.
    pub seccomp: bool,
    /// The version of Landlock's rules that restrict its files; 0 if none do.
    pub landlock: u32,
    /// Whether it has no capability, and can get none.
    pub no_capabilities: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_as_it_is_printed_and_others_are_refused_with_what_to_write() {
        for mode in [SandboxMode::On, SandboxMode::Log, SandboxMode::Off] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "yes".parse::<SandboxMode>().unwrap_err();
        assert_eq!(error.to_string(), "`yes` is not a mode of the sandbox: write on, log or off");
    }
}

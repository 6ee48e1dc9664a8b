//! Unknown variables with our prefix, which are probably typing errors.
//!
//! Owns the warning. An unknown variable is never an error: the environment is shared with other programs
//! and with other versions of this one.

use std::ffi::OsStr;

use gridpool_protocol::log::FILTER_VARIABLE;
use gridpool_protocol::near;

use super::bench::TASKS;
use crate::shell::groups::DELEGATED;

/// The prefix of our variables.
const PREFIX: &str = "GRIDPOOL_";
/// Variables that are no flag's.
const OTHERS: [&str; 3] = [FILTER_VARIABLE, TASKS, DELEGATED];

/// A variable with our prefix that nothing reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnreadVariable {
    pub(super) name: String,
    /// Known names close to it.
    close: Vec<String>,
}

impl UnreadVariable {
    /// Those of this process that `ours` does not read, by name.
    pub(super) fn here(ours: &clap::Command) -> Vec<Self> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        Self::among(names, ours)
    }

    fn among(names: impl Iterator<Item = String>, command: &clap::Command) -> Vec<Self> {
        let mut known = OTHERS.map(str::to_owned).to_vec();
        known_to(command, &mut known);
        let ours = names.filter(|name| name.starts_with(PREFIX) && !known.contains(name));
        let mut unread: Vec<_> = ours.map(|name| Self::new(name, &known)).collect();
        unread.sort_by(|one, other| one.name.cmp(&other.name));
        unread
    }

    fn new(name: String, known: &[String]) -> Self {
        let stems = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
        let close = near::names(name.trim_start_matches(PREFIX), stems);
        let close = close.into_iter().map(|stem| format!("{PREFIX}{stem}")).collect();
        Self { name, close }
    }

    /// The warning.
    pub(super) fn says(&self) -> String {
        match self.close.as_slice() {
            [] => "gridpool reads no such variable: unset it; `gridpool serve --help` lists the variables"
                .to_owned(),
            close => format!("gridpool reads no such variable; close to it: {}", close.join(", ")),
        }
    }
}

/// Adds the variables of a command and its subcommands.
fn known_to(command: &clap::Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    known.extend(variables.filter_map(OsStr::to_str).map(str::to_owned));
    known.sort_unstable();
    known.dedup();
    command.get_subcommands().for_each(|below| known_to(below, known));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::arguments::Arguments;

    #[test]
    fn the_warning_of_an_unknown_variable_names_the_closest_ones() {
        let names = ["GRIDPOOL_DEVICES", "GRIDPOOL_LOG", "GRIDPOOL_LOG_FORMAT", "GRID", "PATH"];
        assert_eq!(
            UnreadVariable::among(names.map(str::to_owned).into_iter(), &Arguments::command()),
            []
        );
        let names = ["GRIDPOOL_SOCKTE", "GRIDPOOL_DEVICE", "GRIDPOOL_WHATEVER"];
        let unread =
            UnreadVariable::among(names.map(str::to_owned).into_iter(), &Arguments::command());
        let said: Vec<_> = unread.iter().map(|one| (&*one.name, one.says())).collect();
        let close = |name: &str| format!("gridpool reads no such variable; close to it: {name}");
        assert_eq!(said[0], ("GRIDPOOL_DEVICE", close("GRIDPOOL_DEVICES")));
        assert_eq!(said[1], ("GRIDPOOL_SOCKTE", close("GRIDPOOL_SOCKET")));
        assert!(said[2].1.ends_with("`gridpool serve --help` lists the variables"), "{said:?}");
    }
}

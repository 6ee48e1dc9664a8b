//! Where a bad value comes from: a typed flag, or a variable of the environment. clap names the flag in both
//! cases; here the error names the variable.

use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use super::arguments::Arguments;

/// The error, with the variable's name in place of the flag's if the variable gave the value.
pub(super) fn as_given(
    mut error: clap::Error,
    typed: &[OsString],
    value_of: impl Fn(&OsStr) -> Option<OsString>,
) -> clap::Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    let (Some(argument), Some(value)) =
        (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue))
    else {
        return error;
    };
    // `--standby <N>`, `--allow-chaos[=<BOOL>]`.
    let flag = argument.split([' ', '[', '=']).next().unwrap_or_default();
    let is_it = |text: &OsString| text.to_string_lossy().split('=').next() == Some(flag);
    let given = variable_of(&Arguments::command(), flag)
        .filter(|name| !typed.iter().any(is_it) && value_of(name) == Some(value.into()));
    if let Some(name) = given {
        let name = ContextValue::String(name.to_string_lossy().into_owned());
        error.insert(ContextKind::InvalidArg, name);
    }
    error
}

/// The variable of a flag, in a command and its subcommands.
fn variable_of(command: &clap::Command, flag: &str) -> Option<OsString> {
    let name = flag.strip_prefix("--")?;
    let own = command.get_arguments().filter(|arg| arg.get_long() == Some(name));
    let own = own.filter_map(clap::Arg::get_env).map(OsStr::to_owned).next();
    own.or_else(|| command.get_subcommands().find_map(|below| variable_of(below, flag)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_error_names_the_variable_if_its_flag_was_not_typed() {
        let said = |flag: &str, value: &str, typed: &[&str]| {
            let call = ["gridpool", "serve"].map(str::to_owned).into_iter();
            let error = Arguments::try_parse_from(call.chain([format!("{flag}={value}")]));
            let typed: Vec<_> = typed.iter().map(OsString::from).collect();
            let told = as_given(error.unwrap_err(), &typed, |_| Some(value.into()));
            told.to_string().lines().next().unwrap_or_default().to_owned()
        };
        let flags = [
            ("--standby", "abc", "GRIDPOOL_STANDBY"),
            ("--allow-chaos", "perhaps", "GRIDPOOL_ALLOW_CHAOS"),
            ("--log-format", "xml", "GRIDPOOL_LOG_FORMAT"),
        ];
        for (flag, value, variable) in flags {
            let from_variable = said(flag, value, &["gridpool", "serve"]);
            let want = format!("error: invalid value '{value}' for '{variable}': ");
            assert!(from_variable.starts_with(&want), "{from_variable}");
            for typed in [[flag, value], ["serve", &format!("{flag}={value}")]] {
                let typed = said(flag, value, &typed);
                assert!(typed.contains(flag) && !typed.contains(variable), "{typed}");
            }
        }
    }
}

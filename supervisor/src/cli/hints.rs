//! What to type in place of a command or flag that does not exist, where its name is not like the right one.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words for the end of a pool.
const STOPS: [&str; 5] = ["end", "halt", "quit", "shutdown", "stop"];
const DRAIN: &str = "`gridpool drain` stops a pool when its accepted jobs are finished";
/// For a command that talks to a running pool.
const DEVICES: &str = "a running pool has the devices that `gridpool serve --devices` gave it; \
                       `gridpool run --devices` runs a program without one";

/// For a command whose file of programs has no flag.
const PROGRAM: &str =
    "write the file without a flag, `gridpool check FILE`, or `FILE:NAME` for one definition of it";

/// The error, with a tip in place of clap's if we know better.
pub(super) fn with_hint(mut error: clap::Error) -> clap::Error {
    let is = |of: ErrorKind, kind, wrong: &[&str]| match error.get(kind) {
        Some(ContextValue::String(text)) => error.kind() == of && wrong.contains(&text.as_str()),
        Some(_) | None => false,
    };
    let is_unknown = |wrong: &[&str], near: &[&str]| {
        is(ErrorKind::UnknownArgument, ContextKind::InvalidArg, wrong)
            && !is(ErrorKind::UnknownArgument, ContextKind::SuggestedArg, near)
    };
    let hint = if is(ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand, &STOPS) {
        DRAIN
    } else if is_unknown(&["--devices", "--device"], &["--devices"]) {
        DEVICES
    } else if is_unknown(&["--program"], &["--programs"]) {
        PROGRAM
    } else {
        // That of clap for a value with dashes: nobody means one.
        error.remove(ContextKind::Suggested);
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::arguments::Arguments;
    use super::*;

    #[test]
    fn a_command_or_flag_that_is_nowhere_is_answered_with_what_to_type() {
        let said = |call: &str| {
            let call = ["gridpool"].into_iter().chain(call.split(' '));
            with_hint(Arguments::try_parse_from(call).unwrap_err()).to_string()
        };
        let cases = [
            ("stop", "tip: `gridpool drain` stops"),
            ("shutdown", "tip: `gridpool drain` stops"),
            ("submit --devices=cpu:1 rot90 in.json", "tip: a running pool has the devices that"),
            ("status --devices 0", "tip: a running pool has the devices that"),
            ("submit --device cpu:1 rot90 in.json", "tip: a running pool has the devices that"),
            ("run --device cpu:1 rot90 in.json", "'--devices'"),
            ("search --program in.jsonl", "'--programs'"),
            ("check --program in.py", "tip: write the file without a flag, `gridpool check FILE`"),
            ("statu", "'status'"),
            ("serve --standbi 1", "'--standby'"),
        ];
        assert!(!said("check --xyz in.py").contains("as a value"), "{}", said("check --xyz in.py"));
        for (call, words) in cases {
            let said = said(call);
            assert!(said.contains(words) && said.matches("tip: ").count() == 1, "{call}: {said}");
        }
    }
}

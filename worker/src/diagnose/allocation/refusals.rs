//! Cases that must be refused, each with the error that is meant for it, and the check that they make.

use std::fmt::Display;

use gridpool_protocol::diagnose::{Check, Group};

/// What was tried, and what it was refused with; or what happened instead.
pub(super) type Case = (&'static str, Result<String, String>);

/// A result that must be an error of this kind.
pub(super) fn refused<T, E: Display>(
    what: &'static str,
    result: Result<T, E>,
    is_meant: impl Fn(&E) -> bool,
) -> Case {
    let came = match result {
        Ok(_) => Err("it was taken".to_owned()),
        Err(error) if is_meant(&error) => Ok(error.to_string()),
        Err(error) => Err(format!("it was refused with another error: {error}")),
    };
    (what, came)
}

/// The check that all of these cases make.
pub(super) fn check(name: &str, by: &str, cases: &[Case]) -> Check {
    for (what, came) in cases {
        if let Err(why) = came {
            let says = format!("{what}: {why}");
            let next = "report it with the versions of gridpool and gridpool-worker: sizes are computed \
                        wrongly";
            return Check::fail(Group::Allocation, name, says, next);
        }
    }
    let says = format!("{} sizes and shapes that there are not are refused by {by}", cases.len());
    let check = Check::pass(Group::Allocation, name, says);
    cases.iter().fold(check, |check, (what, came)| {
        let said = match came {
            Ok(said) | Err(said) => said,
        };
        check.fact(what, said)
    })
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_case_that_is_taken_or_refused_with_another_error_fails_the_check() {
        let number = |text: &str| text.parse::<u8>();
        let is_empty =
            |error: &std::num::ParseIntError| *error.kind() == std::num::IntErrorKind::Empty;
        let right = refused("nothing", number(""), is_empty);
        assert_eq!(check("x", "y", std::slice::from_ref(&right)).outcome, Outcome::Pass);
        let taken = refused("one", number("1"), is_empty);
        let other = refused("much", number("300"), is_empty);
        for wrong in [taken, other] {
            let check = check("x", "y", &[right.clone(), wrong]);
            assert_eq!(check.outcome, Outcome::Fail);
            assert!(check.says.contains(": it was"), "{}", check.says);
        }
    }
}

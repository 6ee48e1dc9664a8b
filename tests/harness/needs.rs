//! What some tests need of the machine. Where it has not got it they pass, and say so, unless a variable requires it.

use std::process::{Command, Stdio};

use nix::unistd::geteuid;

/// Whether this process is root, which alone can be several users; says so if it is not.
///
/// # Panics
/// If it is not and `GRIDPOOL_REQUIRE_ROOT` is set.
pub fn is_root() -> bool {
    is_met(geteuid().is_root(), "GRIDPOOL_REQUIRE_ROOT", "only root can be several users")
}

/// Whether a program of Debian's can be started; says so if it cannot.
///
/// # Panics
/// If it is missing and the variable `required` is set.
pub fn is_installed(program: &str, package: &str, required: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = command.status().is_ok_and(|status| status.success());
    is_met(is_there, required, &format!("there is no {program}: apt-get install {package}"))
}

/// Whether the machine has something; if not, says what is tested less.
///
/// # Panics
/// If it has not and the variable `required` is set.
#[expect(clippy::print_stdout, reason = "a test that does nothing says so")]
pub fn is_met(is_there: bool, required: &str, without: &str) -> bool {
    let is_required = std::env::var_os(required).is_some();
    assert!(is_there || !is_required, "{required} is set and {without}");
    if !is_there {
        println!("skipped: {without}");
    }
    is_there
}

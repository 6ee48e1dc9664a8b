//! PyPI's `tritonclient[http]`, unchanged, as a client: `tests/http/triton.py` talks to a pool and says
//! what it finds wrong.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{http, served};
use crate::binaries;
use crate::pool::cpu;
use crate::wait::within;

/// If this is set, a Python without the client is a failure.
const REQUIRED: &str = "GRIDPOOL_REQUIRE_TRITONCLIENT";
/// Another Python than `python3`.
const PYTHON: &str = "GRIDPOOL_PYTHON";

fn python() -> PathBuf {
    std::env::var_os(PYTHON).map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

fn has_client() -> bool {
    let mut command = Command::new(python());
    command.args(["-c", "import tritonclient.http"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn tritonclient_works_as_it_is() {
    if !has_client() {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set and `{}` cannot import tritonclient.http: pip install \
             'tritonclient[http]'",
            python().display()
        );
        eprintln!("skipped: python3 has no tritonclient[http]");
        return;
    }
    let pool = served(cpu(2));
    let script = binaries::root().join("tests/http/triton.py");
    let mut command = Command::new(python());
    command.arg(script).arg(http(&pool).address);
    let output = within("the script", move || command.output()).expect("python can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{why}");
    assert!(said.contains("all is as it should be"), "{said}");
}

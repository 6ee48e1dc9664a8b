//! PyPI's `tritonclient[http,grpc]`, unchanged, as a client. Scripts in tests/http query a pool and report what
//! is wrong. For a model, ONNX Runtime in a Python without the pool gives the expected outputs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use gridpool_protocol::status::HttpStatus;

use super::access::{token, tokens};
use super::doors::with_tls;
use super::{http, served};
use crate::binaries;
use crate::infer::has_runtime;
use crate::pool::cpu;
use crate::wait::within;

/// If this variable is set, a Python without the client is a failure.
const REQUIRED: &str = "GRIDPOOL_REQUIRE_TRITONCLIENT";
/// This variable names another Python than `python3`.
const PYTHON: &str = "GRIDPOOL_PYTHON";

pub(super) fn python() -> PathBuf {
    std::env::var_os(PYTHON).map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

fn has_client() -> bool {
    let mut command = Command::new(python());
    command.args(["-c", "import tritonclient.http, tritonclient.grpc"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a script of tests/http.
pub(super) fn script(python: PathBuf, name: &str, arguments: &[&OsStr]) -> String {
    let mut command = Command::new(python);
    command.arg(binaries::root().join("tests/http").join(name)).args(arguments);
    let output = within("the script", move || command.output()).expect("python can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}{why}");
    said
}

/// Whether the client is installed. Fails if it must be and is not.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
pub(super) fn can_be_tried() -> bool {
    let has_client = has_client();
    if !has_client {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set and `{}` cannot import tritonclient.http and tritonclient.grpc: pip \
             install 'tritonclient[http,grpc]'",
            python().display()
        );
        eprintln!("skipped: python3 has no tritonclient[http,grpc]");
    }
    has_client
}

/// A Python with onnx and onnxruntime: that of the virtual environment in which workers find ONNX Runtime.
pub(crate) fn python_of_models() -> PathBuf {
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    environment.map_or_else(python, |environment| environment.join("bin/python3"))
}

#[test]
fn tritonclient_works_unchanged() {
    if !can_be_tried() {
        return;
    }
    let pool = served(cpu(2));
    let address = http(&pool).address;
    let said = script(python(), "triton.py", &[address.as_ref()]);
    assert!(said.contains("all is as it should be"), "{said}");
}

#[test]
fn tritonclient_works_unchanged_over_grpc() {
    if !can_be_tried() {
        return;
    }
    let pool = served(cpu(2).env("GRIDPOOL_GRPC", "127.0.0.1:0"));
    let address = http(&pool).grpc;
    let said = script(python(), "triton_grpc.py", &[address.as_ref()]);
    assert!(said.contains("all is as it should be"), "{said}");
}

#[test]
fn tritonclient_speaks_tls_and_sends_tokens_over_grpc() {
    if !can_be_tried() {
        return;
    }
    let (user, line) = token(&["user"]);
    let (setup, _) = with_tls(cpu(1).env("GRIDPOOL_GRPC", "127.0.0.1:0"));
    let file = tokens(&setup, &[&line]);
    let cert = setup.folder().join("cert.pem");
    let pool = setup.args(&["--http-tokens", file.to_str().expect("a path")]).start();
    let (_, port) = {
        let address = http(&pool).grpc;
        let (host, port) = address.rsplit_once(':').expect("a port");
        (host.to_owned(), port.to_owned())
    };
    // The certificate is for this name.
    let address = format!("localhost:{port}");
    let arguments = [address.as_ref(), user.as_ref(), cert.as_os_str()];
    let said = script(python(), "triton_grpc.py", &arguments);
    assert!(said.contains("all is as it should be"), "{said}");
}

#[test]
fn tritonclient_gets_the_outputs_that_onnx_runtime_computes() {
    if !can_be_tried() || !has_runtime() {
        return;
    }
    let setup = cpu(2);
    let folder = setup.folder().to_owned();
    script(python_of_models(), "reference.py", &[folder.as_os_str()]);
    // A run takes fewer rows than a request has, so some requests are split.
    let config = format!(
        "[[model]]\nname = \"mixed\"\npath = \"{}\"\nmax_batch = 16\n",
        folder.join("mixed.onnx").display()
    );
    let pool = served(setup.limits(&config).env("GRIDPOOL_GRPC", "127.0.0.1:0"));
    let HttpStatus { address, grpc, .. } = http(&pool);
    for (name, address) in [("triton_models.py", address), ("triton_models_grpc.py", grpc)] {
        let said = script(python(), name, &[address.as_ref(), folder.as_os_str()]);
        assert!(said.contains("all is as it should be"), "{said}");
    }
}

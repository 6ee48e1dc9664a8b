//! The binaries under test: `gridpool` and `gridpool-worker` of the profile and target folder that
//! this test was built in, built here if they are not there or older than one of their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

const NAMES: [&str; 2] = ["gridpool", "gridpool-worker"];

/// The command line.
pub fn gridpool() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join(NAMES[0]))
}

/// The worker.
pub fn worker() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| folder().join(NAMES[1]))
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the repository")
}

/// Where the binaries lie, up to date.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("this test is a file");
        // target/debug/deps/process-0123456789abcdef
        let folder = test.ancestors().nth(2).expect("cargo's folders").to_owned();
        // nextest runs each test in a process of its own: asking cargo each time would take longer
        // than most tests.
        if !NAMES.iter().all(|name| is_fresh(&folder.join(name))) {
            build(&folder);
        }
        folder
    })
}

/// Whether a binary is there and no source that cargo lists for it is younger.
fn is_fresh(binary: &Path) -> bool {
    let root = format!("{}/", root().display());
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let Some(built) = modified(binary) else { return false };
    let Ok(list) = fs::read_to_string(binary.with_extension("d")) else { return false };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    let older = |time: SystemTime| time <= built;
    // Two checkouts may share one target folder.
    let is_of_this_checkout = sources.split_whitespace().any(|source| source.starts_with(&*root));
    is_of_this_checkout
        && sources.split_whitespace().all(|source| modified(Path::new(source)).is_some_and(older))
}

/// Builds both, as `cargo build` does, with the profile and into the target folder of this test.
fn build(folder: &Path) {
    let target = folder.parent().expect("cargo's folders");
    let profile = folder.file_name().and_then(|name| name.to_str()).expect("cargo's folders");
    let profile = if profile == "debug" { "dev" } else { profile };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--profile", profile]).current_dir(root());
    cargo.args(NAMES.iter().flat_map(|name| ["-p", name]));
    let built = cargo.arg("--target-dir").arg(target).output().expect("cargo can be started");
    let why = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the binaries under test cannot be built:\n{why}");
}

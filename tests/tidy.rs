//! The house rules that no lint knows: how files look, who may name what, which way dependencies
//! point. Each test lists every place that breaks its rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridpool_tests::harness::wait::eventually_so;

const LINES_MAX: usize = 450;
const COLUMNS_MAX: usize = 120;
const FOLDERS: [&str; 5] = ["kernels", "protocol", "supervisor", "tests", "worker"];

/// A crate's path, and the one file that may write it.
const NAMED_ONCE: [(&str, &str); 2] =
    [("bincode", "protocol/src/codec.rs"), ("ipc_channel", "protocol/ipc/src/channel.rs")];

/// A package's folder, and what its manifest must not name, be it for tests alone.
const FOREIGN: [(&str, &str); 13] = [
    ("kernels", "cudarc ort nix gridpool gridpool-device gridpool-worker gridpool-stub-cuda"),
    (
        "protocol",
        "cudarc ort gridpool gridpool-device gridpool-ipc gridpool-kernels gridpool-stub-cuda",
    ),
    ("protocol/client", "cudarc ort gridpool gridpool-device gridpool-kernels gridpool-stub-cuda"),
    (
        "protocol/ipc",
        "cudarc ort gridpool gridpool-client gridpool-device gridpool-kernels gridpool-stub-cuda",
    ),
    ("protocol/nats", "cudarc ort gridpool gridpool-client gridpool-core gridpool-device"),
    ("supervisor/bridge", "cudarc ort gridpool gridpool-core gridpool-device gridpool-kernels"),
    (
        "supervisor",
        "cudarc ort nvml-wrapper gridpool-device gridpool-kernels gridpool-worker gridpool-stub-cuda",
    ),
    (
        "supervisor/core",
        "async-nats crossbeam-channel gridpool gridpool-nats ipc-channel nix tempfile tokio tracing gridpool-stub-cuda",
    ),
    ("worker", "cudarc ort gridpool gridpool-client"),
    ("worker/bench", "cudarc ort gridpool gridpool-worker"),
    ("worker/device", "ort gridpool gridpool-client gridpool-worker"),
    ("worker/diagnose", "cudarc ort gridpool gridpool-worker"),
    ("worker/infer", "cudarc gridpool gridpool-client gridpool-kernels gridpool-worker"),
];

/// A package, and what nothing that it is built from may be, at however many removes.
const UNREACHED: [(&str, &str); 5] = [
    ("gridpool", "cudarc ort nvml-wrapper gridpool-device gridpool-kernels"),
    ("gridpool-client", "ipc-channel"),
    ("gridpool-core", "async-nats ipc-channel nix tracing"),
    ("gridpool-device", "ipc-channel"),
    ("gridpool-protocol", "ipc-channel nix"),
];

#[test]
fn every_file_says_what_it_owns() {
    let silent = sources().filter(|source| !source.text.starts_with("//! "));
    none(silent.map(|source| source.path));
}

#[test]
fn no_file_is_too_long_to_read() {
    let long = sources().map(|source| (source.text.lines().count(), source.path));
    let long = long.filter(|&(lines, _)| lines > LINES_MAX);
    none(long.map(|(lines, path)| format!("{path}: {lines} lines, at most {LINES_MAX}")));
}

#[test]
fn no_line_is_too_wide_to_read() {
    let wide = lines_where(sources(), |line| line.chars().count() > COLUMNS_MAX);
    none(wide);
}

#[test]
fn nothing_is_left_to_be_done() {
    // In halves, or this file would break its own rule.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat());
    none(lines_where(sources(), |line| marks.iter().any(|mark| line.contains(mark))));
}

#[test]
fn a_crate_that_may_be_replaced_is_named_by_one_file() {
    for (name, owner) in NAMED_ONCE {
        let others = sources().filter(|source| source.path != owner);
        none(lines_where(others, |line| names(line, name)));
        let owner = sources().find(|source| source.path == owner).expect(owner);
        assert!(owner.text.lines().any(|line| names(line, name)), "{name} is no longer used");
    }
}

#[test]
fn raw_cuda_is_named_in_one_folder() {
    let raw = |line: &str| names(line, "cudarc") && line.contains("sys");
    let outside = sources().filter(|source| !source.path.starts_with("worker/device/src/cuda/"));
    none(lines_where(outside, raw));
}

#[test]
fn onnx_runtime_is_named_in_one_folder_and_called_by_hand_in_one_place() {
    let outside = sources().filter(|source| !source.path.starts_with("worker/infer/src/"));
    none(lines_where(outside, |line| names(line, "ort")));
    let seam = |path: &str| path.starts_with("worker/infer/src/seam");
    let others = sources().filter(|source| source.path.starts_with("worker/infer/src/"));
    let others = others.filter(|source| !seam(&source.path));
    let raw = ["ort", "sys"].join("::");
    none(lines_where(others, |line| line.contains("unsafe") || line.contains(&raw)));
}

#[test]
fn the_async_runtime_and_http_are_the_gateways_and_the_clusters_alone() {
    let is_http =
        |line: &str| ["axum", "hyper", "hyper_util", "tokio"].iter().any(|n| names(line, n));
    // The client of gRPC that the tests have was not written here, and needs a runtime; so does that of NATS.
    let is_inside = |path: &str| {
        ["supervisor/src/gateway/", "supervisor/bridge/src/", "protocol/nats/src/"]
            .iter()
            .any(|folder| path.starts_with(folder))
            || [
                "tests/process/http/grpc/client.rs",
                "tests/process/cluster/pieces.rs",
                "tests/serving/load.rs",
            ]
            .contains(&path)
    };
    let (inside, outside): (Vec<_>, Vec<_>) = sources().partition(|source| is_inside(&source.path));
    assert!(!lines_where(inside.into_iter(), is_http).is_empty(), "they are no longer used");
    none(lines_where(outside.into_iter(), is_http));
}

#[test]
fn nats_is_named_by_the_bridge_and_its_messages_alone() {
    let is_inside = |path: &str| {
        path.starts_with("protocol/nats/src/") || path.starts_with("supervisor/bridge/src/")
    };
    let outside = sources().filter(|source| !is_inside(&source.path));
    none(lines_where(outside, |line| names(line, "async_nats")));
}

#[test]
fn dependencies_point_one_way() {
    for (folder, foreign) in FOREIGN {
        let dependencies = dependencies(folder);
        assert!(dependencies.contains("gridpool-protocol") || folder == "protocol", "{folder}");
        let found = foreign.split(' ').filter(|&name| dependencies.contains(name));
        none(found.map(|name| format!("{folder}/Cargo.toml depends on {name}")));
    }
}

#[test]
fn what_a_package_must_not_reach_is_nowhere_in_its_tree() {
    for (package, foreign) in UNREACHED {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none"]);
        let tree = cargo.args(["--package", package]).current_dir(root()).output().expect("cargo");
        let tree = String::from_utf8(tree.stdout).expect("names");
        let packages: BTreeSet<&str> = tree.lines().filter_map(|l| l.split(' ').next()).collect();
        assert!(packages.contains(package), "cargo tree gave {tree:?}");
        let found = foreign.split(' ').filter(|&name| packages.contains(name));
        none(found.map(|name| format!("{package} is built from {name}")));
    }
}

#[test]
fn there_are_five_folders_and_the_book() {
    let entries = fs::read_dir(root()).expect("the repository can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let folders = paths.filter(|path| path.is_dir()).map(|path| name_of(&path));
    let visible = folders.filter(|name| !name.starts_with('.') && name != "target");
    let ours = FOLDERS.into_iter().chain(["docs"]).map(String::from);
    assert_eq!(visible.collect::<BTreeSet<_>>(), ours.collect());
}

#[test]
fn a_gate_that_fails_shows_what_its_lanes_said_and_ends_what_they_started() {
    const GATE: &str = r#"
        set -euo pipefail
        . .ci/lanes
        early() { echo early says; return 3; }
        late() { echo late says; (sleep 1000 & echo $! >"$lanes/started"; wait); }
        mkfifo "$lanes/started"
        beside early
        beside late
        read -r started <"$lanes/started"
        joined early || echo "early ended with $?"
        echo "started=$started"
        false
    "#;
    let gate = Command::new("bash").args(["-c", GATE]).current_dir(root()).output();
    let gate = gate.expect("there is a shell");
    let said = String::from_utf8_lossy(&gate.stdout);
    assert_eq!(gate.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&gate.stderr));
    assert!(said.starts_with("early says\nearly ended with 3\n"), "{said}");
    assert!(said.ends_with("---- late, as far as it came:\nlate says\n"), "{said}");
    let started = said.lines().find_map(|line| line.strip_prefix("started="));
    let started = started.unwrap_or_else(|| panic!("it has started nothing: {said}"));
    // It is gone, or nobody has waited for it yet.
    eventually_so("the end of what it has started", || {
        let state = fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ") || state.contains(") X ")
    });
}

struct Source {
    /// From the repository's root, with `/`.
    path: String,
    text: String,
}

/// Every Rust file of the five folders.
fn sources() -> impl Iterator<Item = Source> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut paths);
    }
    assert!(paths.len() > 20, "the walk has lost its way");
    paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a source file is UTF-8");
        let path = path.strip_prefix(root()).expect("the walk starts at the root");
        Source { path: path.to_string_lossy().into_owned(), text }
    })
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder can be listed");
    for path in entries.map(|entry| entry.expect("an entry can be read").path()) {
        if path.is_dir() && name_of(&path) != "target" {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests is a folder of the repository").to_owned()
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("it has a name").to_string_lossy().into_owned()
}

/// `path:line` of every line that `is_bad`.
fn lines_where(
    sources: impl Iterator<Item = Source>,
    is_bad: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources {
        let bad = (1..).zip(source.text.lines()).filter(|(_, line)| is_bad(line));
        places.extend(bad.map(|(number, line)| format!("{}:{number}: {line}", source.path)));
    }
    places
}

/// Whether `line` uses a path into the crate `name`; words in comments do not count.
fn names(line: &str, name: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let is_path = |(at, _): (usize, &str)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    code.match_indices(&format!("{name}::")).any(is_path) || code.contains(&format!("use {name}"))
}

/// The names in every table of dependencies of a manifest.
fn dependencies(folder: &str) -> BTreeSet<String> {
    let path = root().join(folder).join("Cargo.toml");
    let manifest = fs::read_to_string(&path).expect("every package has a manifest");
    let mut inside = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            inside = table.contains("dependencies");
        } else if inside && !line.starts_with('#') {
            let end = line.find([' ', '.', '=']).unwrap_or(line.len());
            names.insert(line[..end].to_owned());
        }
    }
    names
}

fn none(places: impl IntoIterator<Item = String>) {
    let places: Vec<String> = places.into_iter().collect();
    assert!(places.is_empty(), "\n{}", places.join("\n"));
}

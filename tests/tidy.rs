//! The house rules that no lint knows: how files look, who may name what, which way dependencies
//! point. Each test lists every place that breaks its rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gridpool_protocol::program::{Program, Ties};

const LINES_MAX: usize = 450;
const COLUMNS_MAX: usize = 120;
const FOLDERS: [&str; 5] = ["kernels", "protocol", "supervisor", "tests", "worker"];

/// A crate's path, and the one file that may write it.
const NAMED_ONCE: [(&str, &str); 2] =
    [("bincode", "protocol/src/codec.rs"), ("ipc_channel", "protocol/src/channel.rs")];

/// A driver without a GPU, for tests alone.
const STUB: &str = "gridpool-stub-cuda";

/// A manifest, and what it must not depend on, be it for tests alone.
const FOREIGN: [(&str, &[&str]); 4] = [
    ("supervisor", &["cudarc", "ort", "nvml-wrapper", "gridpool-kernels", "gridpool-worker", STUB]),
    ("worker", &["gridpool"]),
    ("kernels", &["cudarc", "ort", "gridpool", "gridpool-worker", "nix", STUB]),
    ("protocol", &["cudarc", "ort", "gridpool", "gridpool-kernels", "gridpool-worker", STUB]),
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
    let outside = sources().filter(|source| !source.path.starts_with("worker/src/cuda/"));
    none(lines_where(outside, raw));
}

#[test]
fn onnx_runtime_is_named_in_one_folder_and_called_by_hand_in_one_place() {
    let outside = sources().filter(|source| !source.path.starts_with("worker/src/infer/"));
    none(lines_where(outside, |line| names(line, "ort")));
    let seam = |path: &str| path.starts_with("worker/src/infer/seam");
    let others = sources().filter(|source| source.path.starts_with("worker/src/infer/"));
    let others = others.filter(|source| !seam(&source.path));
    let raw = ["ort", "sys"].join("::");
    none(lines_where(others, |line| line.contains("unsafe") || line.contains(&raw)));
}

#[test]
fn the_async_runtime_and_http_are_the_gateways_alone() {
    let is_http =
        |line: &str| ["axum", "hyper", "hyper_util", "tokio"].iter().any(|n| names(line, n));
    let (inside, outside): (Vec<_>, Vec<_>) =
        sources().partition(|source| source.path.starts_with("supervisor/src/gateway/"));
    assert!(!lines_where(inside.into_iter(), is_http).is_empty(), "they are no longer used");
    none(lines_where(outside.into_iter(), is_http));
}

#[test]
fn dependencies_point_one_way() {
    for (folder, foreign) in FOREIGN {
        let dependencies = dependencies(folder);
        assert!(dependencies.contains("gridpool-protocol") || folder == "protocol", "{folder}");
        let found = foreign.iter().filter(|&&name| dependencies.contains(name));
        none(found.map(|name| format!("{folder}/Cargo.toml depends on {name}")));
    }
}

#[test]
fn there_are_five_folders() {
    let entries = fs::read_dir(root()).expect("the repository can be listed");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let folders = paths.filter(|path| path.is_dir()).map(|path| name_of(&path));
    let visible = folders.filter(|name| !name.starts_with('.') && name != "target");
    assert_eq!(visible.collect::<BTreeSet<_>>(), FOLDERS.map(String::from).into());
}

#[test]
fn what_the_readme_types_exists() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands: Vec<&str> = blocks.flat_map(str::lines).collect();
    // The first builds and runs, the second tests.
    assert!(commands[0].starts_with("cargo build --release --locked && target/release/gridpool"));
    assert_eq!(commands[1], "cargo test --workspace --locked");
    let words = commands.iter().flat_map(|command| command.split(' '));
    let is_ours = |word: &&str| FOLDERS.iter().any(|name| word.starts_with(&format!("{name}/")));
    let lost = words.filter(is_ours).filter(|path| !root().join(path).exists());
    none(lost.map(|path| format!("there is no {path}")));
    let subcommands = variants("supervisor/src/cli/arguments.rs", "enum Command {");
    let calls = commands.iter().filter_map(|command| command.split_once("gridpool "));
    for (_, call) in calls {
        let (name, rest) = call.split_once(' ').unwrap_or((call, ""));
        assert!(subcommands.contains(&name.to_lowercase()), "there is no gridpool {name}");
        if let Some(program) = rest.split('\'').nth(1) {
            Program::compile(program, Ties::Cpython).expect(call);
        }
    }
}

#[test]
fn the_programs_that_the_readme_shows_compile() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let (_, programs) = readme.split_once("## Programs").expect("a part on programs");
    let block = programs.split("```").nth(1).expect("a block of examples");
    // A program, three spaces or more, and what it does.
    let lines = block.lines().filter_map(|line| line.split_once("   "));
    let shown: Vec<&str> = lines.map(|(program, _)| program).collect();
    assert!(shown.len() >= 6, "{shown:?}");
    for program in shown {
        Program::compile(program, Ties::Cpython).expect(program);
    }
}

struct Source {
    /// From the repository's root, with `/`.
    path: String,
    text: String,
}

#[test]
fn every_test_that_the_readme_names_exists() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    // Between backquotes, long and in snake case: the name of a test, or of a metric.
    let is_metric = |name: &str| name.starts_with("gridpool_") || name.starts_with("nv_");
    let is_test = |name: &&str| {
        name.len() > 24
            && !is_metric(name)
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named: BTreeSet<&str> = readme.split('`').filter(is_test).collect();
    assert!(named.len() >= 8, "README names its tests: {named:?}");
    let all: String = sources().map(|source| source.text).collect();
    none(named.into_iter().filter(|name| !all.contains(&format!("fn {name}("))).map(str::to_owned));
}

#[test]
fn the_life_of_a_worker_is_drawn_once() {
    let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
    let slot = fs::read_to_string(root().join("supervisor/src/pool/slot.rs")).expect("slot.rs");
    let drawing = |text: &str| {
        let (_, after) = text.split_once("```text\n").expect("a drawing");
        after.split_once("```").expect("an end of the drawing").0.to_owned()
    };
    let in_readme = drawing(readme.split_once("## The life of a worker").expect("a heading").1);
    let in_code = drawing(&slot);
    let in_code: Vec<_> = in_code.lines().map(|line| line.trim_start_matches("//!")).collect();
    let in_code: String =
        in_code.iter().map(|l| format!("{}\n", l.strip_prefix(' ').unwrap_or(l))).collect();
    assert_eq!(in_readme, in_code.trim_end_matches([' ', '\n']).to_owned() + "\n");
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

/// The variants of the enum that starts with the line `head`, in lower case.
fn variants(path: &str, head: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(path)).expect(path);
    let (_, body) = text.split_once(head).expect(head);
    let body = body.lines().take_while(|line| *line != "}").filter(|line| {
        line.strip_prefix("    ").is_some_and(|rest| rest.starts_with(char::is_uppercase))
    });
    let name = |line: &str| line.trim().split([' ', '(', ',']).next().map(str::to_lowercase);
    body.filter_map(name).collect()
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

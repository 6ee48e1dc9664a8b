//! ARC task files: our own in `tests/data/tasks`, and the public training set in the folder `GRIDPOOL_ARC`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use gridpool_protocol::batch::Grid;
use serde_json::Value;

/// One task file.
#[derive(Clone, Debug)]
pub struct Task {
    /// The file's name without `.json`.
    pub name: String,
    /// Every pair: those for training, then those for the test, whose outputs may be missing.
    pub pairs: Vec<(Grid, Option<Grid>)>,
    /// Every grid: for each pair the input, then the output.
    pub grids: Vec<Grid>,
}

impl Task {
    /// Its pairs in the form that a batch and the oracle take.
    pub fn items(&self) -> impl Iterator<Item = (&Grid, Option<&Grid>)> {
        self.pairs.iter().map(|(input, output)| (input, output.as_ref()))
    }
}

/// Our own example tasks, which are always there.
#[must_use]
pub fn examples() -> Vec<Task> {
    in_folder(&data().join("tasks"))
}

/// The folder of ARC tasks that the variable `GRIDPOOL_ARC` names, or `None` without it.
///
/// # Panics
/// If the variable is not set and `GRIDPOOL_REQUIRE_ARC` is.
#[must_use]
pub fn arc_folder() -> Option<PathBuf> {
    let named = env::var_os("GRIDPOOL_ARC").map(PathBuf::from);
    let required = env::var_os("GRIDPOOL_REQUIRE_ARC").is_some();
    assert!(named.is_some() || !required, "set GRIDPOOL_ARC to a folder of ARC tasks");
    named
}

/// The tasks of [`arc_folder`].
#[must_use]
pub fn arc_tasks() -> Option<Vec<Task>> {
    arc_folder().map(|folder| in_folder(&folder))
}

/// The folder `tests/data`.
#[must_use]
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data")
}

/// The tasks of a folder, by name.
///
/// # Panics
/// If the folder cannot be read, holds no task, or holds a file that is not a task.
#[must_use]
pub fn in_folder(folder: &Path) -> Vec<Task> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| unreadable(folder, &error));
    let paths = entries.map(|entry| entry.expect("a folder's entries can be listed").path());
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut paths: Vec<PathBuf> = paths.filter(is_json).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no task", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Task {
    let text = fs::read_to_string(path).unwrap_or_else(|error| unreadable(path, &error));
    let task: Value = serde_json::from_str(&text).unwrap_or_else(|error| unreadable(path, &error));
    let pairs = ["train", "test"].iter().flat_map(|part| list(&task[part]));
    let side = |side: &Value| (!side.is_null()).then(|| grid(side));
    let pairs: Vec<(Grid, Option<Grid>)> =
        pairs.map(|pair| (grid(&pair["input"]), side(&pair["output"]))).collect();
    let sides = pairs.iter().flat_map(|(input, output)| [Some(input), output.as_ref()]);
    let grids = sides.flatten().cloned().collect();
    let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
    Task { name, pairs, grids }
}

/// A grid from a JSON array of rows, each an array of numbers or a string of digits.
///
/// # Panics
/// If `value` is not a grid.
#[must_use]
pub fn grid(value: &Value) -> Grid {
    let rows: Vec<Vec<u8>> = list(value).iter().map(row).collect();
    Grid::from_rows(&rows).expect("the rows make a grid")
}

fn row(value: &Value) -> Vec<u8> {
    match value.as_str() {
        Some(digits) => digits.bytes().map(|digit| digit - b'0').collect(),
        None => serde_json::from_value(value.clone()).expect("a row is a list of colours"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a JSON array stands here")
}

#[expect(clippy::panic, reason = "broken test data fails the test that reads it, with the path")]
fn unreadable<T>(path: &Path, error: &dyn std::error::Error) -> T {
    panic!("{}: {error}", path.display())
}

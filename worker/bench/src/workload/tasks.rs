//! The grids of real ARC tasks, read from a folder of task files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gridpool_protocol::batch::Grid;
use serde::Deserialize;

/// Why there are no real grids.
#[derive(Debug, thiserror::Error)]
pub enum TasksError {
    /// A file or the folder cannot be read.
    #[error("GRIDPOOL_ARC: {}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// A file is not an ARC task.
    #[error("GRIDPOOL_ARC: {} is no ARC task: {reason}", path.display())]
    NoTask {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder holds no task.
    #[error("GRIDPOOL_ARC: {} holds no task: name a folder of *.json task files", .0.display())]
    Empty(PathBuf),
}

#[derive(Deserialize)]
struct Task {
    train: Vec<Pair>,
    test: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    input: Vec<Vec<u8>>,
    output: Option<Vec<Vec<u8>>>,
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> TasksError {
    move |source| TasksError::Unreadable { path: path.to_owned(), source }
}

/// Every grid of every task in a folder, in order of file names.
pub(super) fn read(folder: &Path) -> Result<Vec<Grid>, TasksError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let mut grids = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
        let no_task = |reason: String| TasksError::NoTask { path: path.clone(), reason };
        let task: Task = serde_json::from_str(&text).map_err(|error| no_task(error.to_string()))?;
        for pair in task.train.into_iter().chain(task.test) {
            for rows in std::iter::once(pair.input).chain(pair.output) {
                let grid = Grid::from_rows(&rows).map_err(|error| no_task(error.to_string()))?;
                grids.push(grid);
            }
        }
    }
    if grids.is_empty() { Err(TasksError::Empty(folder.to_owned())) } else { Ok(grids) }
}

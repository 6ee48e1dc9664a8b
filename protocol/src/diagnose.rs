//! The messages between `gridpool diagnose` and its checking processes: each process gets a plan and writes a
//! line of JSON for each step and check. [`Check`] is also a row of `--json`, so its field names are part of
//! the interface.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::DeviceId;
use crate::named::named;
use crate::tensor::options::ModelPlan;

/// The default numbers of items: every count up to a warp's threads plus one, then counts just beyond a block,
/// a chunk and 65,536.
pub const SIZES: [u32; 36] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 28, 29, 30, 31, 32, 33, 64, 1_000, 65_537,
];
/// The numbers of items for a quick check.
pub const QUICK_SIZES: [u32; 8] = [1, 2, 3, 31, 32, 33, 64, 1_000];

/// The task of a checking process, as JSON after `--plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What to check.
    pub subject: Subject,
    /// Check only these ops; all if the list is empty.
    pub ops: Vec<String>,
    /// Numbers of items; [`SIZES`] or [`QUICK_SIZES`] if the list is empty.
    pub sizes: Vec<u32>,
    /// Fewer sizes, and less time for each model.
    pub quick: bool,
}

impl Plan {
    /// The sizes to check, ascending, without duplicates and without 0.
    #[must_use]
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes = match (self.sizes.is_empty(), self.quick) {
            (false, _) => self.sizes.clone(),
            (true, false) => SIZES.to_vec(),
            (true, true) => QUICK_SIZES.to_vec(),
        };
        sizes.retain(|&size| size > 0);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// What to check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// The drivers and libraries that this process finds.
    Environment {
        /// The GPU that `CUDA_VISIBLE_DEVICES` of this process names.
        uuid: Option<String>,
        /// ONNX Runtime's library, if it is named.
        onnxruntime: Option<PathBuf>,
    },
    /// Every op, through a pool.
    Batches {
        /// The pool's socket.
        socket: PathBuf,
        /// The pool's only device. A receipt that names another is a failure.
        device: DeviceId,
    },
    /// Every model of a pool, against ONNX Runtime's CPU provider in this process.
    Models {
        /// The pool's socket.
        socket: PathBuf,
        /// The pool's only device.
        device: DeviceId,
        /// ONNX Runtime's library, if it is named.
        onnxruntime: Option<PathBuf>,
        /// The models, as the pool's workers load them.
        models: Vec<ModelPlan>,
        /// Threads for the comparison.
        threads: usize,
    },
    /// Memory of a device, sizes and shapes.
    Allocation {
        /// The pool's socket.
        socket: PathBuf,
        /// The pool's only device.
        device: DeviceId,
        /// The GPU that `CUDA_VISIBLE_DEVICES` of this process names.
        uuid: Option<String>,
    },
}

/// One line from a checking process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// The step that begins, to show progress.
    Doing(String),
    /// A result.
    Check(Check),
}

named! {
    /// The group of a check, in the order in which they are checked.
    pub enum Group {
        /// Drivers, libraries, limits, other processes.
        Environment = "environment",
        /// Isolation: a process sees only its own devices and libraries.
        Isolation = "isolation",
        /// Every op at every size.
        Batches = "batches",
        /// Every model at every size.
        Models = "models",
        /// Memory, sizes and shapes.
        Allocation = "allocation",
        /// Injected faults and the recovery from them.
        Faults = "faults",
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::from_name(text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not a group of checks: write {names}")
        })
    }
}

named! {
    /// How a check ended.
    pub enum Outcome {
        /// It ran and was right.
        Pass = "pass",
        /// It ran and was wrong.
        Fail = "fail",
        /// It did not run, so nothing is known.
        Skip = "skip",
    }
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The group.
    pub group: Group,
    /// Its name within the group: `op rot90`, `libcuda`.
    pub name: String,
    /// The device, if the check is about one: `gpu0`.
    pub device: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// One sentence: the finding, the cause of a failure, or the reason of a skip.
    pub says: String,
    /// The smallest size that failed, if the check has sizes.
    pub first_failing: Option<u64>,
    /// What to do or type next; empty if there is nothing to do.
    pub next: String,
    /// Numbers and names that support it.
    pub facts: BTreeMap<String, String>,
    /// How long it took, microseconds.
    pub us: u64,
}

impl Check {
    /// A check that passed.
    #[must_use]
    pub fn pass(group: Group, name: impl Into<String>, says: impl Into<String>) -> Self {
        Self { outcome: Outcome::Pass, ..Self::fail(group, name, says, "") }
    }

    /// A check that failed, with the cause and what to do.
    #[must_use]
    pub fn fail(
        group: Group,
        name: impl Into<String>,
        says: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            device: None,
            outcome: Outcome::Fail,
            says: says.into(),
            first_failing: None,
            next: next.into(),
            facts: BTreeMap::new(),
            us: 0,
        }
    }

    /// A check that did not run, with the reason and what to do about it.
    #[must_use]
    pub fn skip(
        group: Group,
        name: impl Into<String>,
        says: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self { outcome: Outcome::Skip, ..Self::fail(group, name, says, next) }
    }

    /// Adds the device.
    #[must_use]
    pub fn on(self, device: DeviceId) -> Self {
        Self { device: Some(device.to_string()), ..self }
    }

    /// Adds the smallest size that failed.
    #[must_use]
    pub fn at(self, size: u64) -> Self {
        Self { first_failing: Some(size), ..self }
    }

    /// Adds a number or a name that supports it.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl ToString) -> Self {
        self.facts.insert(name.to_owned(), value.to_string());
        self
    }

    /// Adds the time that it took.
    #[must_use]
    pub fn took(self, us: u64) -> Self {
        Self { us, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sizes: &[u32], quick: bool) -> Plan {
        let subject = Subject::Environment { uuid: None, onnxruntime: None };
        Plan { subject, ops: Vec::new(), sizes: sizes.to_vec(), quick }
    }

    #[test]
    fn sizes_are_tried_from_the_least_up_and_nothing_is_no_size() {
        assert_eq!(plan(&[33, 0, 1, 33], true).sizes(), [1, 33]);
        assert_eq!(plan(&[], false).sizes(), SIZES);
        assert_eq!(plan(&[], true).sizes(), QUICK_SIZES);
    }

    #[test]
    fn a_check_is_read_as_it_was_written() {
        let check = Check::fail(Group::Batches, "op rot90", "item 3 differs", "restart it")
            .at(33)
            .fact("worker", "gpu0#1")
            .took(5);
        let text = serde_json::to_string(&Line::Check(check.clone())).unwrap();
        assert!(text.contains(r#""group":"batches""#), "{text}");
        assert!(text.contains(r#""outcome":"fail""#), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), Line::Check(check));
    }
}

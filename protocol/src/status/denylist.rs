//! The denylist as the status shows it: what the pool refuses, because it killed its workers.

use serde::{Deserialize, Serialize};

/// Contents of the denylist that a status shows, so that it fits a message.
pub const DENYLIST_SHOWN_MAX: usize = 20;

/// The denylist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenylistStatus {
    /// Contents on it.
    pub contents: u64,
    /// The latest, the newest first: at most 20.
    pub latest: Vec<DeniedContent>,
}

impl DenylistStatus {
    /// The same without what the jobs ran, which is for operators.
    #[must_use]
    pub fn without_work(mut self) -> Self {
        self.latest.iter_mut().for_each(|row| row.what = String::new());
        self
    }
}

/// A content that the pool refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedContent {
    /// Its hash: `gridpool release HASH` allows it again.
    pub content: String,
    /// What the job ran, as a receipt names it: the hash of a program, `model:NAME` or `search:SCORE`. Empty if you are
    /// no operator.
    pub what: String,
    /// Items of the job.
    pub items: u32,
    /// Microseconds since it came on the list.
    pub for_us: u64,
}

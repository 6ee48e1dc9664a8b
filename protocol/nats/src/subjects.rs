//! The names of streams, buckets, subjects and consumers.
//!
//! | subject | stream | holds |
//! |---|---|---|
//! | `P.job.vN.CLASS.grid`, `P.job.vN.CLASS.model.NAME` | `P-jobs` | a job of version N, until it has its result |
//! | `P.result.HIGH.LOW` | `P-results` | the result of the job of that key; a mark once it was read |
//! | `P.data.NAME.N`, `P.data.NAME.end` | `P-data` | a piece of a large batch or result; its size |
//! | `P.note.HIGH.LOW` | | each result as it is stored, for the clients that wait |
//! | `P.cancel` | | keys of jobs whose result is no longer wanted |

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{Priority, Work};
use gridpool_protocol::program::hex;

use crate::Store;

/// The longest name of a model in that of a consumer, which is a file's name at the server. A longer one is hashed.
const NAME_MAX: usize = 200;

/// The names of one cluster.
#[derive(Clone, Debug)]
pub struct Subjects {
    prefix: String,
    version: u32,
}

/// Jobs that the same hosts can run, of one priority, and of one version. A host has a consumer for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    /// The order among lanes: high first.
    rank: u8,
    /// The model as requests name it; `None` for programs.
    model: Option<String>,
}

impl Lane {
    /// The lanes of a model, or of programs, in the order in which a host takes jobs.
    #[must_use]
    pub fn all(model: Option<&str>) -> [Self; 3] {
        [0, 1, 2].map(|rank| Self { rank, model: model.map(str::to_owned) })
    }

    /// The lane of a job.
    #[must_use]
    pub fn of(work: &Work, priority: Priority) -> Self {
        let rank = match priority {
            Priority::High => 0,
            Priority::Normal => 1,
            Priority::Low => 2,
        };
        let model = match work {
            Work::Model { name } => Some(name.clone()),
            Work::Program { .. } | Work::Search { .. } => None,
        };
        Self { rank, model }
    }

    /// 0 for jobs of high priority, then 1 and 2.
    #[must_use]
    pub fn rank(&self) -> u8 {
        self.rank
    }

    fn class(&self) -> &'static str {
        ["high", "normal", "low"][usize::from(self.rank)]
    }

    /// Its name, as a part of that of its consumer.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.model {
            None => format!("grid-{}", self.class()),
            Some(model) => {
                let mut name = token(model);
                if name.len() > NAME_MAX {
                    let digest = Store::digest(model.as_bytes());
                    name = hex(&digest[..16]);
                    name.insert(0, '=');
                }
                format!("model-{name}-{}", self.class())
            }
        }
    }
}

/// A name as one token of a subject, from which it can be read again.
fn token(name: &str) -> String {
    let mut token = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => token.push(char::from(byte)),
            byte => token.push_str(&format!("={byte:02x}")),
        }
    }
    token
}

impl Subjects {
    /// The names that begin with `prefix`, for a program whose messages are of this version.
    #[must_use]
    pub fn new(prefix: &str, version: u32) -> Self {
        Self { prefix: prefix.to_owned(), version }
    }

    /// The version of messages.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The stream or bucket of that purpose.
    #[must_use]
    pub fn stream(&self, purpose: &str) -> String {
        format!("{}-{purpose}", self.prefix)
    }

    /// The jobs of a lane.
    #[must_use]
    pub fn job(&self, lane: &Lane) -> String {
        let (prefix, version, class) = (&self.prefix, self.version, lane.class());
        match &lane.model {
            None => format!("{prefix}.job.v{version}.{class}.grid"),
            Some(model) => format!("{prefix}.job.v{version}.{class}.model.{}", token(model)),
        }
    }

    /// How the name of a lane's consumer begins.
    #[must_use]
    pub fn consumer(&self, lane: &Lane) -> String {
        format!("{}-v{}", lane.name(), self.version)
    }

    /// The version of jobs with this subject, and the name of their lane; 0 and the subject if they are of no lane.
    #[must_use]
    pub fn lane_of(&self, subject: &str) -> (u32, String) {
        let parts: Vec<_> = subject.split('.').collect();
        let (version, name) = match parts[..] {
            [_, "job", version, class, "grid"] => (version, format!("grid-{class}")),
            [_, "job", version, class, "model", model] => {
                (version, format!("model-{model}-{class}"))
            }
            _ => ("", String::new()),
        };
        let version = version.strip_prefix('v').and_then(|version| version.parse().ok());
        version.map_or_else(|| (0, subject.to_owned()), |version| (version, name))
    }

    /// All jobs.
    #[must_use]
    pub fn jobs(&self) -> String {
        format!("{}.job.>", self.prefix)
    }

    /// The result of a job.
    #[must_use]
    pub fn result(&self, key: JobKey) -> String {
        format!("{}.result.{}", self.prefix, halves(key))
    }

    /// All results.
    #[must_use]
    pub fn results(&self) -> String {
        format!("{}.result.>", self.prefix)
    }

    /// Where results are told of as they are stored.
    #[must_use]
    pub fn notes(&self) -> String {
        format!("{}.note.>", self.prefix)
    }

    /// The notes of the jobs whose keys begin as this one: those of one client, whose keys follow each other.
    #[must_use]
    pub fn notes_beside(&self, key: JobKey) -> String {
        format!("{}.note.{:016x}.*", self.prefix, key.0 >> 64)
    }

    /// The job that a note or a result is about.
    #[must_use]
    pub fn key_of(&self, subject: &str) -> Option<JobKey> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        let rest = rest.strip_prefix("note.").or_else(|| rest.strip_prefix("result."))?;
        let (high, low) = rest.split_once('.')?;
        let half = |text: &str| u64::from_str_radix(text, 16).ok();
        Some(JobKey(u128::from(half(high)?) << 64 | u128::from(half(low)?)))
    }

    /// Keys of jobs that are no longer wanted.
    #[must_use]
    pub fn cancel(&self) -> String {
        format!("{}.cancel", self.prefix)
    }

    /// A piece of what has this digest, or its `end`.
    #[must_use]
    pub fn data(&self, digest: &str, piece: &str) -> String {
        format!("{}.data.{digest}.{piece}", self.prefix)
    }

    /// All pieces.
    #[must_use]
    pub fn all_data(&self) -> String {
        format!("{}.data.>", self.prefix)
    }
}

fn halves(key: JobKey) -> String {
    format!("{:016x}.{:016x}", key.0 >> 64, key.0 & u128::from(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_its_subject() {
        let subjects = Subjects::new("gp", 7);
        let key = JobKey(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);
        let subject = subjects.result(key);
        assert_eq!(subject, "gp.result.0123456789abcdef.00000000000000ff");
        assert_eq!(subjects.key_of(&subject), Some(key));
        assert_eq!(subjects.key_of(&subject.replace("result", "note")), Some(key));
        for wrong in ["gp.result.1", "other.result.1.2", "gp.job.high.grid", "gp.note.x.y"] {
            assert_eq!(subjects.key_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_models_stay_apart_in_subjects_and_consumers() {
        let subjects = Subjects::new("gp", 7);
        let names = ["mlp", "mlp:2", "a.b", "a/b", "a=2eb", "*"];
        let lanes = names.map(|name| Lane::all(Some(name)));
        let mut seen = std::collections::BTreeSet::new();
        for lane in lanes.iter().flatten().chain(&Lane::all(None)) {
            let (subject, consumer) = (subjects.job(lane), subjects.consumer(lane));
            assert!(!subject.contains(['*', '>', ' ']) && !consumer.contains(['.', '*', '/']));
            assert!(seen.insert(subject) && seen.insert(consumer));
        }
    }

    #[test]
    fn versions_have_lanes_of_their_own_whose_subjects_name_them() {
        let (old, new) = (Subjects::new("gp", 7), Subjects::new("gp", 8));
        for lane in Lane::all(None).iter().chain(&Lane::all(Some("a.b"))) {
            assert_ne!(old.job(lane), new.job(lane));
            assert_ne!(old.consumer(lane), new.consumer(lane));
            assert_eq!(new.lane_of(&old.job(lane)), (7, lane.name()));
        }
        for other in ["gp.job.high.grid", "gp.job.v7.x", "gp.job.7.high.grid", "gp.job.v.high.grid"]
        {
            assert_eq!(new.lane_of(other), (0, other.to_owned()));
        }
    }

    #[test]
    fn long_names_of_models_are_hashed_for_the_server() {
        let long = |end: &str| Lane::all(Some(&format!("{}{end}", "m".repeat(300))))[0].name();
        assert!(long("a").len() < 64);
        assert_ne!(long("a"), long("b"));
    }
}

//! What a pool and the one that takes its place say to each other, over a socket pair that the first has made.
//!
//! 1. The successor sends `Hello`, and learns by `Welcome` what it is to take over. It starts its workers, and sends
//!    `Ready` when they serve.
//! 2. The predecessor sends its listening sockets, its timeline, what it remembers and what it still runs, and goes on
//!    sending what changes. `Take` ends the first part.
//! 3. The successor sends `Serving` when it could accept connections. From then on the predecessor accepts nothing. It
//!    gives back what has not begun, finishes what runs, sends its clients over, and ends. `Released` follows every job
//!    that it has accepted: it has the successor accept connections, which wait meanwhile, and serve HTTP
//!    and gRPC. `HttpServing` ends both of the predecessor; before it, `Failed` says why that takes long.
//!
//! If the devices are given one by one, the successor starts workers only on a device for which it has heard `Freed`.
//! The first one comes before `Ready`, the others whenever the predecessor needs them no more, at the latest with its
//! end.
//!
//! Before `Serving`, the end of the link leaves the predecessor as it was, and the successor ends. After it, the
//! successor takes every job that the predecessor has not reported for ended.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::{DeviceId, JobId, JobKey};
use crate::message::Inline;
use crate::principal::Principal;
use crate::tensor::options::ModelPlan;
use crate::tensor::version::split;
use crate::timeline::Part;

/// A job's name in every pool: its principal's key.
pub type JobName = (Principal, JobKey);

/// What a successor learns of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobNews {
    /// It is accepted and has no verdict.
    Live(JobName),
    /// It has ended, and nothing of it is to be remembered: it was given back, or nobody waited for it.
    Ended(JobName),
    /// It has its verdict.
    Verdict {
        /// The job.
        name: JobName,
        /// Its number.
        job: JobId,
        /// Equal for two submissions of the name if they are the same job.
        fingerprint: u64,
        /// The encoded receipt.
        receipt: Inline,
    },
}

/// The models of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolModels {
    /// As its settings name them.
    pub settings: Vec<ModelPlan>,
    /// As operators have changed them.
    pub now: Vec<ModelPlan>,
    /// The names of those that some worker can run.
    pub ready: Vec<String>,
}

impl PoolModels {
    /// The models of a successor with these settings: as they are now, but where the settings say something new. A
    /// model of the same path keeps the file that was loaded, and a pipeline of the same steps their files.
    #[must_use]
    pub fn under(self, settings: &[ModelPlan]) -> Vec<ModelPlan> {
        let of =
            |plans: &[ModelPlan], name: &str| plans.iter().find(|plan| plan.name == name).cloned();
        let is_new = |name: &str| of(settings, name) != of(&self.settings, name);
        let changed = settings.iter().filter(|plan| is_new(&plan.name)).cloned();
        let mut models: Vec<_> = changed.collect();
        for plan in &mut models {
            let same = of(&self.now, &plan.name).filter(|now| is_same(now, plan));
            let Some(ModelPlan { options, .. }) = same else { continue };
            plan.options.sha256 = plan.options.sha256.take().or(options.sha256);
            plan.options.pipeline = options.pipeline;
        }
        // A version that was loaded since gives way to what the settings now say of its name.
        let gives_way = |plan: &ModelPlan| {
            let is_its = |new: &ModelPlan| split(&new.name).0 == split(&plan.name).0;
            of(settings, &plan.name).is_none() && models.iter().any(is_its)
        };
        let kept = self.now.iter().filter(|plan| !is_new(&plan.name) && !gives_way(plan));
        let kept: Vec<_> = kept.cloned().collect();
        models.extend(kept);
        models
    }
}

/// Whether two models are made of the same files, as far as paths tell.
fn is_same(one: &ModelPlan, other: &ModelPlan) -> bool {
    one.path == other.path
        && match (&one.options.pipeline, &other.options.pipeline) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is_same(other),
            (Some(_), None) | (None, Some(_)) => false,
        }
}

/// What a pool is that is to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The path of the pool's socket.
    pub socket: PathBuf,
    /// Where HTTP and gRPC are served, as the settings name it.
    pub served: Vec<(Protocol, String)>,
    /// Bytes that all arenas together may take.
    pub arena_bytes_max: u64,
    /// Bytes of memory that a worker may have; 0 without a limit.
    pub worker_bytes_max: u64,
    /// The models.
    pub models: PoolModels,
    /// It gets the devices one by one: it has none before it hears `Freed`.
    pub one_by_one: bool,
}

/// What the gateway speaks at a socket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
        }
    }
}

/// A listening socket whose descriptor comes with the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Passed {
    /// The pool's socket: device and inode of its name, and whether it is left when the pool ends.
    Socket {
        /// Device and inode.
        id: (u64, u64),
        /// The service manager has made it.
        is_kept: bool,
    },
    /// The pool's lock.
    Lock,
    /// The socket of a protocol.
    Served {
        /// The protocol.
        protocol: Protocol,
        /// Its address, with the port that the system chose.
        address: String,
        /// Device and inode of a Unix socket's name.
        id: Option<(u64, u64)>,
    },
    /// The lock of a protocol's Unix socket.
    ServedLock(Protocol),
}

/// Successor to predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSuccessor {
    /// First message. From protocol 21 on, this variant keeps its position and fields in all versions.
    Hello {
        /// Its [`PROTOCOL_VERSION`](crate::limits::PROTOCOL_VERSION).
        version: u32,
        /// Its build.
        build: String,
        /// The number of its process, which is not a child of the predecessor.
        pid: u32,
    },
    /// It cannot serve, for this reason; after `Serving`, it cannot serve HTTP yet. This variant must keep its position
    /// in all versions.
    Failed {
        /// One sentence.
        why: String,
    },
    /// Its workers serve.
    Ready,
    /// It accepts connections once it hears `Released`, or the link ends.
    Serving,
    /// It serves HTTP, if it has to.
    HttpServing,
}

/// Predecessor to successor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromPredecessor {
    /// First message, to a successor of the same protocol.
    Welcome(Welcome),
    /// A job.
    Job(JobNews),
    /// A listening socket.
    Passed(Passed),
    /// The next part of the timeline.
    Past(Box<Part>),
    /// Everything so far is sent: serve.
    Take {
        /// The successor's numbers of jobs, clients and arenas begin beyond this.
        ids: u64,
    },
    /// The predecessor accepts nothing more. The service manager knows of the successor.
    Released {
        /// The process of its gateway, which may ask the successor as long as it lives. There will be no other.
        gateway: Option<u32>,
    },
    /// Nothing of the predecessor is left on a device. Only if the devices are given one by one.
    Freed {
        /// The device.
        device: DeviceId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::tensor::options::ModelOptions;

    #[test]
    fn models_stay_as_operators_have_made_them_but_where_the_settings_are_new() {
        let plan = |name: &str, path: &str| ModelPlan {
            name: name.to_owned(),
            path: path.into(),
            options: ModelOptions::default(),
        };
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| plan(name, "/1"));
        let mut more = b.clone();
        more.options.contexts = 4.into();
        more.options.sha256 = Some("of /1".to_owned());
        // `a` was unloaded, `b` was given contexts, `d` was loaded.
        let settings = vec![a.clone(), b.clone(), c.clone()];
        let models =
            PoolModels { settings, now: vec![more.clone(), c.clone(), d.clone()], ready: vec![] };
        let under = |settings: &[&ModelPlan]| {
            let settings: Vec<_> = settings.iter().map(|&plan| plan.clone()).collect();
            models.clone().under(&settings)
        };
        assert_eq!(under(&[&a, &b, &c]), [more.clone(), c.clone(), d.clone()]);
        let (a2, b2, d2) = (plan("a", "/2"), plan("b", "/2"), plan("d", "/2"));
        assert_eq!(under(&[&a2, &b2]), [a2, b2, d.clone()], "`c` is in the settings no longer");
        assert_eq!(under(&[&a, &b, &d2]), [d2, more.clone()]);
        let mut tf32 = b.clone();
        tf32.options.tf32 = true;
        let [now, ..] = &under(&[&tf32])[..] else { panic!("`b` is there") };
        assert!(now.options.tf32 && now.options.sha256 == more.options.sha256, "{now:?}");
    }

    #[test]
    fn pools_of_every_version_read_what_a_successor_is_and_why_it_failed() {
        let hello = FromSuccessor::Hello { version: 3, build: "b".to_owned(), pid: 7 };
        assert_eq!(codec::encode(&hello).unwrap(), [0, 3, 1, b'b', 7]);
        let failed = FromSuccessor::Failed { why: "no".to_owned() };
        assert_eq!(codec::encode(&failed).unwrap(), [1, 2, b'n', b'o']);
    }
}

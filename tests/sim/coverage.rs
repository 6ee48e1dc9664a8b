//! What the seeds have reached. A rule that nothing ever puts to the test holds nothing.

use std::collections::BTreeMap;
use std::fmt;

/// How often each thing happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, u64>);

/// What a run of some hundred seeds must reach.
pub(crate) const WANTED: &[&str] = &[
    "accept",
    "accept: same key again",
    "answer: after its job's verdict",
    "answer: at the deadline",
    "answer: device error",
    "answer: not the attempt it runs",
    "answer: of the batch that waits",
    "answer: refused",
    "answer: while being killed",
    "cancel: crossed the verdict",
    "cancel: job of another client",
    "cancel: parts running",
    "cancel: queued",
    "cancel: running",
    "client gone: parts running",
    "client gone: queued job",
    "client gone: running job",
    "deadline: at submission",
    "deadline: beside others in its launch",
    "deadline: queued",
    "deadline: running",
    "deadline: sent and not begun",
    "deadline: while its worker is being killed",
    "death: after work",
    "death: exit that a new process would share",
    "death: from outside",
    "death: several suspects",
    "death: the last of a launch is suspect alone",
    "death: the pool freed the device",
    "death: with evidence",
    "device: back after being unkillable",
    "device: quarantined by deaths without work",
    "device: quarantined by its exit code",
    "device: quarantined by starts that failed",
    "dispatch",
    "dispatch: a part",
    "dispatch: again on another device",
    "dispatch: again on the same device",
    "dispatch: alone after a shared death or a long wait",
    "dispatch: joined",
    "dispatch: joined as second batch",
    "dispatch: second batch",
    "dispatch: worker that was suspect before",
    "drain: cut off by an order to stop",
    "drain: cut off by its timeout",
    "drain: finished",
    "fairness: somebody else waited",
    "kill: grace over",
    "kill: hang",
    "kill: late job",
    "kill: leaving",
    "kill: not READY in time",
    "kill: somebody waits behind it",
    "kill: stop ignored",
    "leave",
    "leave: an unkillable worker is left behind",
    "leaving: told to stop now",
    "left: told to stop now",
    "pause: excused",
    "pause: late verdict",
    "pause: short",
    "phase 2: a job after the faults ended OK",
    "phase 2: no device was left",
    "preempted: beside a job that was cut off",
    "preempted: it had not begun",
    "preempted: others waited behind it",
    "refuse: BUSY bytes",
    "refuse: BUSY client",
    "refuse: BUSY queue",
    "refuse: draining",
    "refuse: key in use",
    "refuse: key of another job",
    "replay",
    "replay: forgotten",
    "retry: job of a client that is gone",
    "retry: last attempt",
    "retry: may not run twice",
    "retry: queue above its limit",
    "serving: told to stop now",
    "spawn",
    "spawn: after a backoff",
    "spawn: can never be started",
    "spawn: could not be started",
    "split: a part ended the job while others ran",
    "split: a part was answered before the others",
    "split: accepted",
    "split: all parts were answered",
    "stale: answer while the successor is busy",
    "stale: exit",
    "stale: of an old generation",
    "stale: of no process",
    "stop",
    "suspect: a job waits although a worker is READY",
    "verdict CANCELLED",
    "verdict DEADLINE",
    "verdict DEVICE_LOST",
    "verdict FAILED",
    "verdict OK",
    "verdict POISON",
    "worker: unkillable",
];

impl Coverage {
    pub(crate) fn hit(&mut self, what: &'static str) {
        debug_assert!(WANTED.contains(&what), "add `{what}` to WANTED");
        *self.0.entry(what).or_default() += 1;
    }

    /// What was never reached.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        WANTED.iter().copied().filter(|what| !self.0.contains_key(what)).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.0 {
            writeln!(f, "{times:>9} {what}")?;
        }
        Ok(())
    }
}

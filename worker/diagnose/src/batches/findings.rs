//! Collects what was found of one op at all sizes, and makes its check.

use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::ids::{DeviceId, DeviceKind};

use super::programs::OpTest;
use crate::pooled::Proof;

/// What was found of an op so far.
#[derive(Default)]
pub(super) struct OpFindings {
    pub(super) proof: Proof,
    /// Sizes that were split into several jobs.
    split: Vec<u32>,
    /// Sizes that were not tested, and why.
    pub(super) untried: Vec<(u32, String)>,
    /// Programs that prove nothing about the op.
    pub(super) broken_prefixes: Vec<BrokenPrefix>,
}

/// A program that is wrong even before the op under test.
pub(super) struct BrokenPrefix {
    pub(super) program: String,
    /// What is wrong by itself.
    pub(super) culprit: String,
    pub(super) size: u32,
}

impl OpFindings {
    /// A size was submitted as several jobs.
    pub(super) fn is_split(&mut self, size: u32) {
        if self.split.last() != Some(&size) {
            self.split.push(size);
        }
    }

    /// The check of an op that was not found wrong at these sizes.
    pub(super) fn ended(&self, op_test: &OpTest, sizes: &[u32]) -> Check {
        let sizes = sizes.iter().filter(|size| !self.untried.iter().any(|u| u.0 == **size));
        let tried: Vec<u32> = sizes.copied().collect();
        let name = format!("op {}", op_test.op);
        let Proof { jobs, items, item_errors, .. } = self.proof;
        let programs = op_test.programs.len();
        let mut says =
            format!("agrees with the reference at {} sizes{}", tried.len(), up_to(&tried));
        if !self.split.is_empty() {
            let split = listed(&self.split);
            says.push_str(&format!("; {split} items are too much for one job and went as several"));
        }
        let check = match (self.broken_prefixes.first(), self.untried.first()) {
            (None, None) => Check::pass(Group::Batches, name, says),
            (Some(BrokenPrefix { culprit, size, program }), _) => {
                let count = self.broken_prefixes.len();
                let says = format!(
                    "{count} of its {programs} programs prove nothing: `{culprit}` is wrong by itself at \
                     {size} items, on which `{program}` builds; {says}"
                );
                Check::skip(Group::Batches, name, says, format!("see the op of `{culprit}` first"))
                    .fact("wrong by itself", culprit)
            }
            (None, Some((_, why))) => {
                let sizes: Vec<u32> = self.untried.iter().map(|untried| untried.0).collect();
                let says = format!("{} items were not tried: {why}; {says}", listed(&sizes));
                let next = "free memory, or leave those sizes out";
                Check::skip(Group::Batches, name, says, next)
                    .fact("sizes not tried", listed(&sizes))
            }
        };
        self.with_facts(check, op_test)
            .fact("sizes", listed(&tried))
            .fact("jobs", jobs)
            .fact("items", items)
            .fact("item errors", item_errors)
            .fact("launches", self.proof.launches)
    }

    /// The check of an op that is wrong at a size.
    pub(super) fn failed(
        &self,
        op_test: &OpTest,
        device: DeviceId,
        size: u32,
        says: String,
    ) -> Check {
        let op = op_test.op;
        let again = format!("repeat it with `gridpool diagnose --ops {op} --sizes {size}`");
        let next = match device.kind {
            DeviceKind::Gpu => format!(
                "{again}; if only {device} fails, leave it out of the pool's devices and look at \
                 `nvidia-smi -q -d ECC`; if every GPU fails, report the op, the size, the module and \
                 the driver's version"
            ),
            DeviceKind::Cpu => format!(
                "{again}; if it fails again, this build of gridpool-worker computes wrong results \
                 here: build it again, and report the op and the size"
            ),
        };
        let check = Check::fail(Group::Batches, format!("op {op}"), says, next).at(size.into());
        self.with_facts(check, op_test)
    }

    fn with_facts(&self, check: Check, op_test: &OpTest) -> Check {
        let programs = op_test.programs.iter().map(|tried| tried.program.text());
        let Proof { worker, module, .. } = &self.proof;
        let check = check.fact("programs", programs.collect::<Vec<_>>().join("; "));
        check.fact("worker", worker).fact("module", module)
    }
}

/// `1, 2, 33`; runs of neighbours as first and last: `1-32, 64`.
fn listed(sizes: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &size in sizes {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(size) => *last = size,
            Some(_) | None => runs.push((size, size)),
        }
    }
    let text = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn up_to(sizes: &[u32]) -> String {
    match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if first != last => format!(" from {first} to {last}"),
        (Some(only), _) => format!(" ({only})"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn sizes_are_listed_in_runs() {
        assert_eq!(listed(&[1, 2, 3, 31, 33, 34]), "1-3, 31, 33-34");
        assert_eq!(listed(&[]), "");
        assert_eq!(up_to(&[1, 2, 65_537]), " from 1 to 65537");
        assert_eq!(up_to(&[7]), " (7)");
    }

    #[test]
    fn an_op_passes_only_if_every_program_and_every_size_does() {
        let op_test = OpTest { op: "palette", programs: Vec::new() };
        let mut findings = OpFindings::default();
        let check = findings.ended(&op_test, &[1, 2]);
        assert_eq!(check.outcome, Outcome::Pass);
        findings.untried.push((2, "no memory".to_owned()));
        let check = findings.ended(&op_test, &[1, 2]);
        assert_eq!((check.outcome, check.facts["sizes"].as_str()), (Outcome::Skip, "1"));
        let (program, culprit) = ("rot90 | palette".to_owned(), "rot90".to_owned());
        findings.broken_prefixes.push(BrokenPrefix { program, culprit, size: 2 });
        let check = findings.ended(&op_test, &[1, 2]);
        assert_eq!(check.outcome, Outcome::Skip);
        assert!(check.says.contains("`rot90` is wrong by itself at 2 items"), "{}", check.says);
        let device = DeviceId { kind: DeviceKind::Gpu, index: 0 };
        let check = findings.failed(&op_test, device, 33, "it is wrong".to_owned());
        assert_eq!((check.outcome, check.first_failing), (Outcome::Fail, Some(33)));
        assert!(check.next.contains("--ops palette --sizes 33"), "{}", check.next);
    }
}

//! Every model of a pool at every size, against ONNX Runtime's CPU provider in this process.
//!
//! - `inputs` makes what is asked, `reference` says what must come of it, `compare` whether it has.
//!
//! A model whose first dimension is free is asked for so many rows in one request. Any other is asked so
//! often, with other inputs each time. A size that is beyond a limit, that the model itself refuses, or that
//! would take longer than a model may, is not tried: then the check is a skip, and says so.

mod compare;
mod inputs;
mod reference;

use std::path::Path;
use std::time::{Duration, Instant};

use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, InferAnswer, InferHandle, InferJob};
use gridpool_protocol::clock;
use gridpool_protocol::diagnose::{Check, Group, Plan, Subject};
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::{ModelPlan, Provider};

use super::pooled::{Proof, trouble};
use super::{DiagnoseError, Report, us_since};
use crate::bench::load::Trouble;
use crate::bench::memory::room_for;
use compare::{Likeness, difference};
use inputs::{Whole, has_rows, inputs};
use reference::Reference;

const GROUP: Group = Group::Models;
/// How long the sizes of one model may take together, and in a quick look.
const BUDGET: Duration = Duration::from_secs(60);
const BUDGET_QUICK: Duration = Duration::from_secs(10);
/// A model without rows is asked so often at most.
const REQUESTS_MAX: u32 = 1_000;
/// Such requests under way at a time.
const UNDER_WAY: usize = 16;
/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(600);

/// Tries every model of the plan.
pub(super) fn look(plan: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let Subject::Models { socket, device, onnxruntime, models, threads } = &plan.subject else {
        unreachable!("whoever calls has looked")
    };
    let device = *device;
    if models.is_empty() {
        let says = "not tried: no model was named";
        let check = Check::skip(GROUP, "models", says, "name one: --model NAME=PATH");
        return report.check(check.on(device));
    }
    report.doing("ONNX Runtime's CPU provider, to compare with")?;
    let reference = Reference::open(onnxruntime.as_deref(), *threads);
    for model in models {
        let name = &model.name;
        report.doing(format!("model {name}"))?;
        let started = clock::now();
        let check = match &reference {
            Ok(reference) => {
                let look = Look { plan, socket, device, reference, model };
                let check = look.check();
                reference.unload(name);
                check
            }
            Err(error) => {
                let says = format!("there is nothing to compare with: {}", Chain(error));
                Check::skip(GROUP, format!("model {name}"), says, "see onnxruntime first")
            }
        };
        report.check(check.on(device).took(us_since(started)))?;
    }
    Ok(())
}

/// One model that is looked at.
struct Look<'a> {
    plan: &'a Plan,
    socket: &'a Path,
    device: DeviceId,
    reference: &'a Reference,
    model: &'a ModelPlan,
}

/// What was found of it so far.
#[derive(Default)]
struct Course {
    proof: Proof,
    tried: Vec<u32>,
    /// Sizes that were not tried, and why.
    untried: Vec<(u32, String)>,
    /// Rows, or requests, of the last size, and how long it took.
    last: Option<(u32, Duration)>,
}

impl Look<'_> {
    fn check(&self) -> Check {
        let name = format!("model {}", self.model.name);
        let served = match self.served() {
            Ok(served) => served,
            Err((says, next)) => return Check::fail(GROUP, name, says, next),
        };
        let info = match self.reference.load(self.model) {
            Ok(info) => info,
            Err(why) => {
                let says =
                    format!("the CPU provider does not load it, so nothing is compared: {why}");
                let next = "ask it with inputs whose outputs you know";
                return Check::skip(GROUP, name, says, next);
            }
        };
        if served.sha256 != info.sha256 {
            let says = format!(
                "the pool has loaded another file than {} holds now: sha256 {}, not {}",
                self.model.path.display(),
                served.sha256,
                info.sha256
            );
            return Check::fail(GROUP, name, says, "load the model again");
        }
        let whole = self.whole(&info);
        let client = match Client::connect(self.socket) {
            Ok(client) => client,
            Err(error) => return self.lost(&name, &error),
        };
        let mut course = Course::default();
        let end = clock::now() + if self.plan.quick { BUDGET_QUICK } else { BUDGET };
        for size in self.plan.sizes() {
            match self.size(&client, &info, size, whole, end, &mut course) {
                Ok(()) => course.tried.push(size),
                Err(Trouble::Skipped(why)) => course.untried.push((size, why)),
                Err(Trouble::Wrong(what)) => {
                    let says = format!("at {size} {}: {what}{}", unit(&info), course.proof.by());
                    return self.failed(&name, &says).at(size.into());
                }
                Err(Trouble::Lost(error)) => return self.lost(&name, &error).at(size.into()),
            }
        }
        ended(&name, &info, &course)
    }

    /// The model as the pool has it. The error is what is wrong, and what to do.
    fn served(&self) -> Result<ModelInfo, (String, String)> {
        let rows = Client::connect(self.socket).and_then(|client| client.models());
        let rows = rows.map_err(|error| {
            (format!("the pool cannot be asked: {}", Chain(&error)), "look at its log".to_owned())
        })?;
        let row = rows.into_iter().find(|row| row.model.name == self.model.name);
        let row = row.ok_or_else(|| {
            let says = "the pool's worker has told of no such model".to_owned();
            (says, "look at the pool's log".to_owned())
        })?;
        match row.model.state {
            ModelState::Ready => Ok(row.model),
            ModelState::Unavailable => {
                let says = format!("{} could not load it: {}", row.worker, row.model.reason);
                let path = self.model.path.display();
                let next = format!(
                    "mend what it names: that {path} can be read and is an ONNX model, and that \
                     `gridpool diagnose --only environment` finds its provider"
                );
                Err((says, next))
            }
        }
    }

    /// Whole numbers that the model takes: nearly all take 0 and 1, all that were loaded 0.
    fn whole(&self, info: &ModelInfo) -> Whole {
        let asked = inputs(info, 1, 0, Whole::ZerosAndOnes);
        let taken = asked.map_err(|error| error.to_string());
        let taken = taken.and_then(|inputs| self.reference.ask(&info.name, &inputs));
        if taken.is_ok() { Whole::ZerosAndOnes } else { Whole::Zeros }
    }

    /// One size, as one request or as several.
    fn size(
        &self,
        client: &Client,
        info: &ModelInfo,
        size: u32,
        whole: Whole,
        end: Instant,
        course: &mut Course,
    ) -> Result<(), Trouble> {
        let (requests, rows) = if has_rows(info) { (1, size) } else { (size, 1) };
        if requests > REQUESTS_MAX {
            let why =
                format!("it takes one row at a time, and is asked at most {REQUESTS_MAX} times");
            return Err(Trouble::Skipped(why));
        }
        within_budget(size, course.last, clock::until(end)).map_err(Trouble::Skipped)?;
        let started = clock::now();
        let mut under_way: Vec<UnderWay> = Vec::new();
        for request in 0..requests {
            if under_way.len() == UNDER_WAY {
                self.take(under_way.remove(0), course)?;
            }
            let seed = u64::from(size) << 16 | u64::from(request);
            let asked = inputs(info, rows, seed, whole);
            // Beyond a limit of tensors, which says which.
            let asked = asked.map_err(|error| Trouble::Skipped(error.to_string()))?;
            let bytes: usize = asked.iter().map(|(tensor, _)| tensor.bytes()).sum();
            // Here, packed, on its way, and the outputs.
            room_for(6 * bytes as u64).map_err(Trouble::Skipped)?;
            let job = InferJob::new(info.name.clone(), asked.clone());
            let job = job.map_err(|error| Trouble::Skipped(error.to_string()))?;
            let handle = client.infer(job.with_deadline(DEADLINE)).map_err(trouble)?;
            // While the pool works. What the model itself refuses is no fault of the pool's.
            let want = self.reference.ask(&info.name, &asked);
            let want = want.map_err(|why| {
                handle.cancel();
                Trouble::Skipped(format!("the model itself refuses it: {why}"))
            })?;
            under_way.push(UnderWay { handle, want });
        }
        under_way.into_iter().try_for_each(|one| self.take(one, course))?;
        course.last = Some((size, started.elapsed()));
        Ok(())
    }

    /// Waits for an answer and compares it.
    fn take(&self, one: UnderWay, course: &mut Course) -> Result<(), Trouble> {
        let InferAnswer { receipt, outputs } = one.handle.wait()?;
        course.proof.add(&receipt, self.device).map_err(Trouble::Wrong)?;
        self.ran_where_it_should(&receipt).map_err(Trouble::Wrong)?;
        let outputs =
            outputs.ok_or_else(|| Trouble::Wrong("it ended OK without outputs".to_owned()))?;
        let likeness = match self.device.kind {
            DeviceKind::Cpu => Likeness::Same,
            DeviceKind::Gpu => Likeness::Close { tf32: self.model.options.tf32 },
        };
        match difference(&outputs, &one.want, likeness) {
            None => Ok(()),
            Some(what) => Err(Trouble::Wrong(what)),
        }
    }

    /// Whether the receipt shows the nodes on the device: none on the CPU of a GPU, but for ops that are
    /// allowed there.
    fn ran_where_it_should(&self, receipt: &Receipt) -> Result<(), String> {
        let mut reports = receipt.attempts.iter().filter_map(|attempt| attempt.infer.as_ref());
        let Some(report) = reports.next_back() else {
            return Err("its receipt does not say how the model was run".to_owned());
        };
        let cpu = Provider::Cpu.runtime_name();
        let on_cpu = report.nodes.iter().filter(|row| row.provider == cpu);
        let on_cpu: u32 = on_cpu.map(|row| row.nodes).sum();
        let all: u32 = report.nodes.iter().map(|row| row.nodes).sum();
        let is_right = match self.device.kind {
            DeviceKind::Cpu => on_cpu == all,
            DeviceKind::Gpu => {
                on_cpu == 0 || (on_cpu < all && !self.model.options.cpu_ops.is_empty())
            }
        };
        if is_right {
            return Ok(());
        }
        Err(format!("{on_cpu} of its {all} nodes ran on the CPU of a {}", self.device.kind))
    }

    fn failed(&self, name: &str, says: &str) -> Check {
        let next = match self.device.kind {
            DeviceKind::Cpu => "report it with the model: the same library gave other bytes",
            DeviceKind::Gpu => {
                "if the difference is small, the model is sensitive: set tf32 = false, or judge by its own \
                 measure; else leave the GPU out and repeat it on another"
            }
        };
        Check::fail(GROUP, name, says, next)
    }

    fn lost(&self, name: &str, error: &ClientError) -> Check {
        let says = format!("the pool was lost: {}", Chain(error));
        Check::fail(GROUP, name, says, "look at the pool's log for what ended it")
    }
}

/// A request that waits for its answer, and what it must be.
struct UnderWay {
    handle: InferHandle,
    want: Vec<(Tensor, Vec<u8>)>,
}

/// Whether a size may be expected to end in the time that is left, from how long the last one took.
fn within_budget(size: u32, last: Option<(u32, Duration)>, left: Duration) -> Result<(), String> {
    let Some((last, took)) = last else { return Ok(()) };
    let expected = took.as_secs_f64() * f64::from(size) / f64::from(last.max(1));
    if expected <= left.as_secs_f64() {
        return Ok(());
    }
    Err(format!(
        "it would take about {expected:.0} s, and {:.0} s are left for this model",
        left.as_secs_f64()
    ))
}

/// What its sizes count.
fn unit(info: &ModelInfo) -> &'static str {
    if has_rows(info) { "rows" } else { "requests of one row" }
}

fn ended(name: &str, info: &ModelInfo, course: &Course) -> Check {
    let listed = |sizes: &mut dyn Iterator<Item = u32>| {
        sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(", ")
    };
    let tried = listed(&mut course.tried.iter().copied());
    let untried = listed(&mut course.untried.iter().map(|untried| untried.0));
    let unit = unit(info);
    let right = match (course.tried.first(), course.tried.last()) {
        (Some(first), Some(last)) => format!(
            "as ONNX Runtime's CPU provider at {} sizes from {first} to {last} {unit}",
            course.tried.len()
        ),
        _ => "no size was tried".to_owned(),
    };
    let check = match course.untried.first() {
        None => Check::pass(GROUP, name, right),
        Some((_, why)) => {
            let says = format!("{untried} {unit} were not tried: {why}; {right}");
            Check::skip(
                GROUP,
                name,
                says,
                "leave those sizes out with --sizes if they do not matter",
            )
        }
    };
    let nodes = info.nodes.iter().map(|row| format!("{} {}", row.provider, row.nodes));
    check
        .fact("sizes tried", tried)
        .fact("sizes not tried", untried)
        .fact("requests", course.proof.jobs)
        .fact("worker", &course.proof.worker)
        .fact("sha256", &info.sha256)
        .fact("compared with", nodes.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_size_that_would_take_too_long_is_not_tried() {
        let second = Duration::from_secs(1);
        assert_eq!(within_budget(65_537, None, second), Ok(()));
        assert_eq!(within_budget(2, Some((1, second)), 3 * second), Ok(()));
        let why = within_budget(100, Some((10, second)), 9 * second).unwrap_err();
        assert_eq!(why, "it would take about 10 s, and 9 s are left for this model");
    }

    #[test]
    fn a_check_with_a_size_that_was_not_tried_is_no_pass() {
        let info = ModelInfo::unavailable("m", String::new());
        let mut course = Course { tried: vec![1, 2, 33], ..Course::default() };
        let check = ended("model m", &info, &course);
        assert_eq!(check.outcome, Outcome::Pass);
        assert!(check.says.contains("at 3 sizes from 1 to 33"), "{}", check.says);
        course.untried.push((64, "it is beyond a limit".to_owned()));
        let check = ended("model m", &info, &course);
        assert_eq!((check.outcome, check.facts["sizes not tried"].as_str()), (Outcome::Skip, "64"));
        assert!(
            check.says.starts_with("64 requests of one row were not tried: it is"),
            "{}",
            check.says
        );
    }
}

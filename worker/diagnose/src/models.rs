//! Every model of a pool at every size, against ONNX Runtime's CPU provider in this process.
//!
//! - `inputs` makes the inputs, `reference` computes the right outputs, `compare` compares them.
//!
//! A model with a free first dimension gets n rows in one request. Any other model gets n requests with
//! different inputs. A size is not tested if it exceeds a limit, if the model itself refuses it, or if it
//! would take too long. Then the check is a skip, and says so.

mod compare;
mod inputs;
mod reference;

use std::path::Path;
use std::time::{Duration, Instant};

use gridpool_bench::failure::Failure;
use gridpool_bench::memory::check_available;
use gridpool_client::{Client, ClientError, Handle, Job, ModelInput, TensorOutputs};
use gridpool_ipc::clock;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::diagnose::{Check, Group, Plan, Subject};
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState, ProviderNodes};
use gridpool_protocol::tensor::options::{ModelPlan, Provider};

use super::pooled::{Proof, failure};
use super::{DiagnoseError, Report, us_since};
use compare::{Comparison, difference};
use inputs::{IntegerValues, has_rows, inputs};
use reference::Reference;

const GROUP: Group = Group::Models;
/// How long all sizes of one model may take together, in a full and in a quick run.
const BUDGET: Duration = Duration::from_secs(60);
const BUDGET_QUICK: Duration = Duration::from_secs(10);
/// Most requests for a model without rows.
const REQUESTS_MAX: u32 = 1_000;
/// Most such requests in flight.
const IN_FLIGHT: usize = 16;
/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(600);

/// Tests every model of the plan.
pub(super) fn run(plan: &Plan, report: &mut Report<'_>) -> Result<(), DiagnoseError> {
    let Subject::Models { socket, device, onnxruntime, models, threads } = &plan.subject else {
        unreachable!("the caller has checked")
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
                let run = ModelCheck { plan, socket, device, reference, model };
                let check = run.check();
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

/// The check of one model.
struct ModelCheck<'a> {
    plan: &'a Plan,
    socket: &'a Path,
    device: DeviceId,
    reference: &'a Reference,
    model: &'a ModelPlan,
}

/// What was found of it so far.
#[derive(Default)]
struct ModelFindings {
    proof: Proof,
    tried: Vec<u32>,
    /// Sizes that were not tested, and why.
    untried: Vec<(u32, String)>,
    /// Rows or requests of the last size, and how long it took.
    last: Option<(u32, Duration)>,
}

impl ModelCheck<'_> {
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
        let mut findings = ModelFindings::default();
        let end = clock::now() + if self.plan.quick { BUDGET_QUICK } else { BUDGET };
        for size in self.plan.sizes() {
            match self.size(&client, &info, size, whole, end, &mut findings) {
                Ok(()) => findings.tried.push(size),
                Err(Failure::Skipped(why)) => findings.untried.push((size, why)),
                Err(Failure::Wrong(what)) => {
                    let says = format!("at {size} {}: {what}{}", unit(&info), findings.proof.by());
                    return self.failed(&name, &says).at(size.into());
                }
                Err(Failure::Lost(error)) => return self.lost(&name, &error).at(size.into()),
            }
        }
        ended(&name, &info, &findings)
    }

    /// The pool's model. The error is what is wrong, and what to do.
    fn served(&self) -> Result<ModelInfo, (String, String)> {
        let rows = Client::connect(self.socket).and_then(|client| client.models());
        let rows = rows.map_err(|error| {
            (format!("the pool cannot be asked: {}", Chain(&error)), "look at its log".to_owned())
        })?;
        let row = rows.into_iter().find(|row| row.model.name == self.model.name);
        let row = row.ok_or_else(|| {
            let says = "the pool's worker has no such model".to_owned();
            (says, "look at the pool's log".to_owned())
        })?;
        match row.model.state {
            ModelState::Ready => Ok(row.model),
            ModelState::Unavailable => {
                let says = format!("{} could not load it: {}", row.worker, row.model.reason);
                let path = self.model.path.display();
                let next = format!(
                    "check that {path} can be read and is an ONNX model, and that \
                     `gridpool diagnose --only environment` finds its provider"
                );
                Err((says, next))
            }
        }
    }

    /// Integers that the model accepts: nearly all accept 0 and 1, all loaded ones accept 0.
    fn whole(&self, info: &ModelInfo) -> IntegerValues {
        let asked = inputs(info, 1, 0, IntegerValues::ZerosAndOnes);
        let taken = asked.map_err(|error| error.to_string());
        let taken = taken.and_then(|inputs| self.reference.ask(&info.name, &inputs));
        if taken.is_ok() { IntegerValues::ZerosAndOnes } else { IntegerValues::Zeros }
    }

    /// Tests one size, as one request or as several.
    fn size(
        &self,
        client: &Client,
        info: &ModelInfo,
        size: u32,
        whole: IntegerValues,
        end: Instant,
        findings: &mut ModelFindings,
    ) -> Result<(), Failure> {
        let (requests, rows) = if has_rows(info) { (1, size) } else { (size, 1) };
        if requests > REQUESTS_MAX {
            let why =
                format!("it takes one row at a time, and is asked at most {REQUESTS_MAX} times");
            return Err(Failure::Skipped(why));
        }
        within_budget(size, findings.last, clock::until(end)).map_err(Failure::Skipped)?;
        let started = clock::now();
        let mut under_way: Vec<PendingRequest> = Vec::new();
        for request in 0..requests {
            if under_way.len() == IN_FLIGHT {
                self.take(under_way.remove(0), findings)?;
            }
            let seed = u64::from(size) << 16 | u64::from(request);
            let asked = inputs(info, rows, seed, whole);
            // The error names the limit of tensors that the size exceeds.
            let asked = asked.map_err(|error| Failure::Skipped(error.to_string()))?;
            let bytes: usize = asked.iter().map(|(tensor, _)| tensor.bytes()).sum();
            // Copies: here, packed, in transit, and the outputs.
            check_available(6 * bytes as u64).map_err(Failure::Skipped)?;
            let inputs = ModelInput::from_tensors(asked.clone());
            let job = inputs.and_then(|inputs| Job::model(&*info.name, inputs));
            let job = job.map_err(|error| Failure::Skipped(error.to_string()))?;
            let handle = client.submit(job.with_deadline(DEADLINE)).map_err(failure)?;
            // Computed while the pool works. If the model itself refuses the inputs, the pool is not at fault.
            let want = self.reference.ask(&info.name, &asked);
            let want = want.map_err(|why| {
                handle.cancel();
                Failure::Skipped(format!("the model itself refuses it: {why}"))
            })?;
            under_way.push(PendingRequest { handle, want });
        }
        under_way.into_iter().try_for_each(|one| self.take(one, findings))?;
        findings.last = Some((size, started.elapsed()));
        Ok(())
    }

    /// Waits for an answer and compares it.
    fn take(&self, one: PendingRequest, findings: &mut ModelFindings) -> Result<(), Failure> {
        let (receipt, outputs) = one.handle.wait()?.into_parts();
        findings.proof.add(&receipt, self.device).map_err(Failure::Wrong)?;
        self.ran_where_it_should(&receipt).map_err(Failure::Wrong)?;
        let outputs =
            outputs.ok_or_else(|| Failure::Wrong("it ended OK without outputs".to_owned()))?;
        let likeness = match self.device.kind {
            DeviceKind::Cpu => Comparison::Same,
            DeviceKind::Gpu => Comparison::Close { tf32: self.model.options.tf32 },
        };
        match difference(&outputs, &one.want, likeness) {
            None => Ok(()),
            Some(what) => Err(Failure::Wrong(what)),
        }
    }

    /// Checks that the receipt shows the nodes on the device: none on the CPU of a GPU, except ops that are
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

/// A request in flight, and its inputs.
struct PendingRequest {
    handle: Handle<TensorOutputs>,
    want: Vec<(Tensor, Vec<u8>)>,
}

/// Whether a size should finish in the time that is left, judged by the last one.
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

/// The unit of its sizes.
fn unit(info: &ModelInfo) -> &'static str {
    if has_rows(info) { "rows" } else { "requests of one row" }
}

fn ended(name: &str, info: &ModelInfo, findings: &ModelFindings) -> Check {
    let listed = |sizes: &mut dyn Iterator<Item = u32>| {
        sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(", ")
    };
    let tried = listed(&mut findings.tried.iter().copied());
    let untried = listed(&mut findings.untried.iter().map(|untried| untried.0));
    let unit = unit(info);
    let right = match (findings.tried.first(), findings.tried.last()) {
        (Some(first), Some(last)) => format!(
            "agrees with ONNX Runtime's CPU provider at {} sizes from {first} to {last} {unit}",
            findings.tried.len()
        ),
        _ => "no size was tried".to_owned(),
    };
    let check = match findings.untried.first() {
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
    check
        .fact("sizes tried", tried)
        .fact("sizes not tried", untried)
        .fact("requests", findings.proof.jobs)
        .fact("worker", &findings.proof.worker)
        .fact("sha256", &info.sha256)
        .fact("compared with", ProviderNodes::list(&info.nodes))
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
    fn a_check_with_an_untested_size_does_not_pass() {
        let info = ModelInfo::unavailable("m", String::new());
        let mut findings = ModelFindings { tried: vec![1, 2, 33], ..ModelFindings::default() };
        let check = ended("model m", &info, &findings);
        assert_eq!(check.outcome, Outcome::Pass);
        assert!(check.says.contains("at 3 sizes from 1 to 33"), "{}", check.says);
        findings.untried.push((64, "it is beyond a limit".to_owned()));
        let check = ended("model m", &info, &findings);
        assert_eq!((check.outcome, check.facts["sizes not tried"].as_str()), (Outcome::Skip, "64"));
        assert!(
            check.says.starts_with("64 requests of one row were not tried: it is"),
            "{}",
            check.says
        );
    }
}

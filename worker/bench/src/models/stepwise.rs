//! The steps of a pipeline, called one by one as models of their own: what users do without pipelines. Each output
//! comes back to the caller, who sends it to the next step.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_client::TensorOutputs;
use gridpool_ipc::clock;
use gridpool_protocol::bench::{Hops, step_model};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::{Tensor, TensorLayout};

use super::load_generator::{Caller, Timed};
use super::test_input::TestInput;
use crate::evidence::Evidence;
use crate::failure::Failure;

/// A tensor with its data.
pub(super) type Full = (Tensor, Vec<u8>);

/// Runs one model.
pub(super) trait OneRun: Send {
    /// Runs it over these tensors, and notes where it ran.
    fn run(
        &mut self,
        model: &str,
        inputs: Vec<Full>,
        evidence: &mut Evidence,
    ) -> Result<TensorOutputs, Failure>;
}

/// Calls the steps of a pipeline one by one.
pub(super) struct StepCaller<R> {
    plan: Arc<ModelPlan>,
    order: Vec<usize>,
    runs: R,
    test_input: Arc<TestInput>,
    evidence: Evidence,
}

impl<R: OneRun> StepCaller<R> {
    /// A caller of the steps of `plan`; none if it is no pipeline, or if a step is no model.
    pub(super) fn new(plan: &Arc<ModelPlan>, runs: R, test_input: &Arc<TestInput>) -> Option<Self> {
        let pipeline = plan.options.pipeline.as_ref()?;
        let has_models = pipeline.steps.iter().all(|step| step.model().is_some());
        let order = pipeline.order().ok().filter(|_| has_models)?;
        let (plan, test_input) = (Arc::clone(plan), Arc::clone(test_input));
        let evidence = Evidence::of_requests(test_input.rows);
        Some(Self { plan, order, runs, test_input, evidence })
    }

    fn outputs(&mut self) -> Result<Vec<Full>, Failure> {
        let pipeline = self.plan.options.pipeline.as_ref().expect("it has steps");
        // By the wire that leads to it.
        let given = self.test_input.tensors.iter();
        let mut known: BTreeMap<String, Full> =
            given.map(|full| (full.0.name().to_owned(), full.clone())).collect();
        for &at in &self.order {
            let step = &pipeline.steps[at];
            let inputs = step.inputs.iter().map(|(input, wire)| renamed(&known, input, wire));
            let inputs = inputs.collect::<Result<_, _>>()?;
            let model = step_model(&self.plan.name, &step.name);
            let outputs = self.runs.run(&model, inputs, &mut self.evidence)?;
            for (at, tensor) in outputs.tensors().iter().enumerate() {
                let wire = format!("{}.{}", step.name, tensor.name());
                known.insert(wire, (tensor.clone(), outputs.data(at)));
            }
        }
        let outputs = pipeline.outputs.iter();
        outputs.map(|(output, wire)| renamed(&known, output, wire)).collect()
    }
}

/// The tensor of a wire, under another name.
fn renamed(known: &BTreeMap<String, Full>, name: &str, wire: &str) -> Result<Full, Failure> {
    let missing = || Failure::Wrong(format!("no step gave `{wire}`"));
    let (tensor, data) = known.get(wire).ok_or_else(missing)?;
    let tensor = Tensor::new(name, tensor.datatype(), tensor.shape().to_vec());
    let tensor = tensor.map_err(|error| Failure::Wrong(error.to_string()))?;
    Ok((tensor, data.clone()))
}

/// Packs tensors.
pub(super) fn packed(all: &[Full]) -> Result<Vec<u8>, Failure> {
    let wrong = |error: gridpool_protocol::tensor::TensorError| Failure::Wrong(error.to_string());
    let layout = TensorLayout::new(all.iter().map(|(tensor, _)| tensor.clone()).collect());
    let data: Vec<_> = all.iter().map(|(_, data)| &data[..]).collect();
    layout.and_then(|layout| layout.pack(&data)).map_err(wrong)
}

impl<R: OneRun> Caller for StepCaller<R> {
    fn call(&mut self) -> Result<Timed, Failure> {
        let started = clock::now();
        let outputs = self.outputs()?;
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        let outputs = TensorOutputs::new(packed(&outputs)?);
        let outputs = outputs.map_err(|error| Failure::Wrong(error.to_string()))?;
        self.test_input.check(&outputs, "the steps one by one")?;
        Ok((took_us, Hops { client_us: took_us, ..Hops::default() }))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.test_input.rows))
    }
}

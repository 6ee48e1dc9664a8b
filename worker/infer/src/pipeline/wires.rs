//! The wires of a pipeline, by which its steps find their tensors.

use gridpool_protocol::tensor::pipeline::{Pipeline, StepTensors, Wire, WireError};
use gridpool_protocol::tensor::{ANY_SIZE, DataType, TensorSpec};

use crate::signature::Signature;

/// Where a step takes an input from. Steps are counted in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An input of the pipeline.
    Input(usize),
    /// One of the outputs that an earlier step gives.
    Step {
        /// The step.
        step: usize,
        /// The index among what it gives.
        given: usize,
    },
}

/// A step and its wires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WiredStep {
    /// For each of its inputs, in its own order.
    pub(super) takes: Vec<Origin>,
    /// Its outputs that are used, by index.
    pub(super) gives: Vec<usize>,
}

/// The wires of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wiring {
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) steps: Vec<WiredStep>,
    /// For each output of the pipeline, the step and the index among what it gives.
    pub(super) outputs: Vec<(usize, usize)>,
}

impl Wiring {
    /// Finds the wires, and the signature of the whole. `order` has the steps by their index in the pipeline,
    /// `signatures` theirs.
    pub(super) fn of(
        pipeline: &Pipeline,
        order: &[usize],
        signatures: &[&Signature],
    ) -> Result<(Self, Signature), WireError> {
        let known: Vec<_> = signatures.iter().map(|one| Some(tensors(one))).collect();
        let inputs = pipeline.check_tensors(order, &known)?;
        let mut gives = vec![Vec::new(); order.len()];
        // The step, the index among what it gives, and its type and shape.
        let mut output = |step: &str, tensor: &str| {
            let place = order.iter().position(|&at| pipeline.steps[at].name == step);
            let place = place.expect("wires to unknown steps were refused");
            let outputs = &signatures[place].outputs;
            let at = outputs.iter().position(|spec| spec.name == tensor);
            let at = at.expect("wires to unknown outputs were refused");
            let gives: &mut Vec<usize> = &mut gives[place];
            let given = gives.iter().position(|&output| output == at).unwrap_or_else(|| {
                gives.push(at);
                gives.len() - 1
            });
            (place, given, &outputs[at])
        };
        let mut takes = Vec::with_capacity(order.len());
        for (&at, signature) in order.iter().zip(signatures) {
            let wires = signature.inputs.iter().map(|spec| &pipeline.steps[at].inputs[&spec.name]);
            let origins = wires.map(|wire| match Wire::parse(wire) {
                Wire::Input(name) => {
                    let input = pipeline.inputs.iter().position(|input| input == name);
                    Origin::Input(input.expect("wires to unknown inputs were refused"))
                }
                Wire::Output { step, tensor } => {
                    let (step, given, _) = output(step, tensor);
                    Origin::Step { step, given }
                }
            });
            takes.push(origins.collect());
        }
        let (mut outputs, mut specs) = (Vec::new(), Vec::new());
        for (name, wire) in &pipeline.outputs {
            let Wire::Output { step, tensor } = Wire::parse(wire) else {
                unreachable!("an output that is an input was refused")
            };
            let (step, given, spec) = output(step, tensor);
            outputs.push((step, given));
            specs.push(TensorSpec { name: name.clone(), ..spec.clone() });
        }
        let steps = takes.into_iter().zip(gives);
        let steps = steps.map(|(takes, gives)| WiredStep { takes, gives }).collect();
        let all = |holds: fn(&Signature) -> bool| signatures.iter().all(|one| holds(one));
        let signature = Signature {
            inputs: inputs.clone(),
            outputs: specs,
            may_have_rows: all(|signature| signature.may_have_rows),
            rows_share_a_name: all(|signature| signature.rows_share_a_name),
        };
        Ok((Self { inputs, steps, outputs }, signature))
    }
}

/// The tensors of a step.
pub(super) fn tensors(signature: &Signature) -> StepTensors {
    StepTensors { inputs: signature.inputs.clone(), outputs: signature.outputs.clone() }
}

/// Whether a tensor of this type and shape is what a model takes.
pub(super) fn takes(spec: &TensorSpec, datatype: Option<DataType>, shape: &[i64]) -> bool {
    let fits = |(&want, &got): (&i64, &i64)| want == ANY_SIZE || want == got;
    datatype == Some(spec.datatype)
        && shape.len() == spec.shape.len()
        && spec.shape.iter().zip(shape).all(fits)
}

#[cfg(test)]
mod tests;

//! Types and shapes along the wires of a pipeline: what can be known before a run.

use std::sync::Arc;

use gridpool_protocol::near;
use gridpool_protocol::tensor::pipeline::{
    GRIDS, GridStep, GridsError, Pipeline, SIZES, StepBody, Wire,
};
use gridpool_protocol::tensor::{ANY_SIZE, DataType, TensorSpec};

use crate::signature::Signature;

/// Why the steps of a pipeline do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A program cannot run over a tensor of this shape.
    #[error("the step `{step}` takes `{wire}` as its input `{GRIDS}`: that is {got}; {why}")]
    Grids {
        /// The step that takes it.
        step: String,
        /// The wire.
        wire: String,
        /// What the wire has.
        got: String,
        /// Why not.
        why: GridsError,
    },
    /// An input of a step has no wire.
    #[error("the step `{step}` has no wire for its input `{input}`, {spec}")]
    Missing {
        /// The step.
        step: String,
        /// The input.
        input: String,
        /// Its type and shape.
        spec: String,
    },
    /// A tensor of text.
    #[error(
        "the step `{step}` has the tensor `{tensor}`, which is text: the steps of a pipeline take and give numbers"
    )]
    Text {
        /// The step.
        step: String,
        /// Its input or output.
        tensor: String,
    },
    /// Two steps take an input of the pipeline in ways that exclude each other.
    #[error(
        "the input `{input}` is {first} for the step `{first_step}` and {second} for the step `{second_step}`"
    )]
    Torn {
        /// The input.
        input: String,
        /// The first step.
        first_step: String,
        /// What it takes.
        first: String,
        /// The other step.
        second_step: String,
        /// What that takes.
        second: String,
    },
    /// A step gives something else than another takes.
    #[error(
        "the step `{step}` takes `{wire}` as its input `{input}`: that is {got}, and it takes {want}"
    )]
    Unfit {
        /// The step that takes it.
        step: String,
        /// The wire.
        wire: String,
        /// Its input.
        input: String,
        /// What the wire has.
        got: String,
        /// What the step takes.
        want: String,
    },
    /// A step has no such input.
    #[error("the step `{step}` has a wire for `{input}`, and has no such input; {suggestion}")]
    NoInput {
        /// The step.
        step: String,
        /// The input.
        input: String,
        /// Those with a similar name, or all.
        suggestion: String,
    },
    /// A step has no such output.
    #[error("{of} takes `{wire}`, and the step `{step}` has no output `{tensor}`; {suggestion}")]
    NoOutput {
        /// What takes it.
        of: String,
        /// The wire.
        wire: String,
        /// The step that should give it.
        step: String,
        /// The output.
        tensor: String,
        /// Those with a similar name, or all.
        suggestion: String,
    },
}

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
        let mut maker =
            Maker { pipeline, order, signatures, inputs: Vec::new(), steps: Vec::new() };
        maker.inputs.resize(pipeline.inputs.len(), None);
        for place in 0..order.len() {
            maker.step(place)?;
        }
        let (mut outputs, mut specs) = (Vec::new(), Vec::new());
        for (name, wire) in &pipeline.outputs {
            let Wire::Output { step, tensor } = Wire::parse(wire) else {
                unreachable!("an output that is an input was refused")
            };
            let (from, spec) =
                maker.output(step, tensor, wire, || format!("the output `{name}`"))?;
            outputs.push(from);
            specs.push(TensorSpec { name: name.clone(), ..spec.clone() });
        }
        let Maker { inputs, steps, .. } = maker;
        let inputs: Vec<_> = inputs.into_iter().flatten().map(|(_, spec)| spec).collect();
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

/// The signature of a program, with the sizes that the wire of its input fixes. `before` has the signatures of the
/// steps before it.
pub(super) fn of_program(
    program: &GridStep,
    pipeline: &Pipeline,
    order: &[usize],
    before: &[Arc<Signature>],
) -> Result<Signature, WireError> {
    let step = &pipeline.steps[order[before.len()]];
    let inputs = program.inputs();
    let input = &inputs[0];
    let wire = step.inputs.get(GRIDS).map_or("", String::as_str);
    let given = match Wire::parse(wire) {
        Wire::Input(_) => None,
        Wire::Output { step: from, tensor } => {
            let mut steps = order.iter().zip(before);
            let from = steps.find(|(at, _)| pipeline.steps[**at].name == from);
            from.and_then(|(_, from)| from.outputs.iter().find(|spec| spec.name == tensor))
        }
    };
    let given = given.and_then(|given| merged(given, input));
    let grids = given.as_ref().unwrap_or(input);
    let outputs = program.outputs(&grids.shape).map_err(|why| WireError::Grids {
        step: step.name.clone(),
        wire: wire.to_owned(),
        got: written(grids),
        why,
    })?;
    // Each grid is on its own.
    Ok(Signature { inputs, outputs, may_have_rows: true, rows_share_a_name: true })
}

struct Maker<'a> {
    pipeline: &'a Pipeline,
    order: &'a [usize],
    signatures: &'a [&'a Signature],
    /// For each input of the pipeline, the first step that takes it, and what all of them take.
    inputs: Vec<Option<(String, TensorSpec)>>,
    steps: Vec<WiredStep>,
}

impl<'a> Maker<'a> {
    fn step(&mut self, place: usize) -> Result<(), WireError> {
        let step = &self.pipeline.steps[self.order[place]];
        let signature = self.signatures[place];
        let is_known = |name: &&String| signature.inputs.iter().any(|spec| spec.name == **name);
        if let Some(input) = step.inputs.keys().find(|name| !is_known(name)) {
            let mut inputs = signature.inputs.clone();
            // One that it does not take may be what was meant.
            let has_sizes = match &step.body {
                StepBody::Program(own) => own.result.is_some(),
                StepBody::Model(_) => false,
            };
            inputs
                .extend(has_sizes.then(|| TensorSpec::new(SIZES, DataType::Int64, [ANY_SIZE, 2])));
            let suggestion = suggestion(input, &inputs);
            let (step, input) = (step.name.clone(), input.clone());
            return Err(WireError::NoInput { step, input, suggestion });
        }
        let mut takes = Vec::new();
        for spec in &signature.inputs {
            are_numbers(spec, &step.name)?;
            let wire = step.inputs.get(&spec.name).ok_or_else(|| WireError::Missing {
                step: step.name.clone(),
                input: spec.name.clone(),
                spec: written(spec),
            })?;
            takes.push(match Wire::parse(wire) {
                Wire::Input(name) => self.take_input(name, &step.name, spec)?,
                Wire::Output { step: from, tensor } => {
                    let of = || format!("the input `{}` of the step `{}`", spec.name, step.name);
                    let ((from, given), got) = self.output(from, tensor, wire, of)?;
                    if merged(got, spec).is_none() {
                        return Err(WireError::Unfit {
                            step: step.name.clone(),
                            wire: wire.clone(),
                            input: spec.name.clone(),
                            got: written(got),
                            want: written(spec),
                        });
                    }
                    Origin::Step { step: from, given }
                }
            });
        }
        self.steps.push(WiredStep { takes, gives: Vec::new() });
        Ok(())
    }

    /// A step takes an input of the pipeline, whose type and shape is what all such steps take.
    fn take_input(
        &mut self,
        name: &str,
        step: &str,
        spec: &TensorSpec,
    ) -> Result<Origin, WireError> {
        let at = self.pipeline.inputs.iter().position(|input| input == name);
        let at = at.expect("wires to unknown inputs were refused");
        let fits = match &self.inputs[at] {
            None => spec.clone(),
            Some((first_step, first)) => merged(first, spec).ok_or_else(|| WireError::Torn {
                input: name.to_owned(),
                first_step: first_step.clone(),
                first: written(first),
                second_step: step.to_owned(),
                second: written(spec),
            })?,
        };
        let first_step = self.inputs[at].take().map_or_else(|| step.to_owned(), |(first, _)| first);
        self.inputs[at] = Some((first_step, TensorSpec { name: name.to_owned(), ..fits }));
        Ok(Origin::Input(at))
    }

    /// The output of a step that a wire names: the step, the index among what it gives, and its type and shape.
    fn output(
        &mut self,
        step: &str,
        tensor: &str,
        wire: &str,
        of: impl FnOnce() -> String,
    ) -> Result<((usize, usize), &'a TensorSpec), WireError> {
        let is_it = |&at: &usize| self.pipeline.steps[at].name == step;
        let place = self.order.iter().position(is_it);
        let place = place.expect("wires to unknown steps were refused");
        let outputs = &self.signatures[place].outputs;
        let at = outputs.iter().position(|spec| spec.name == tensor).ok_or_else(|| {
            let suggestion = suggestion(tensor, outputs);
            let (wire, step, tensor) = (wire.to_owned(), step.to_owned(), tensor.to_owned());
            WireError::NoOutput { of: of(), wire, step, tensor, suggestion }
        })?;
        are_numbers(&outputs[at], step)?;
        let gives = &mut self.steps[place].gives;
        let given = gives.iter().position(|&output| output == at).unwrap_or_else(|| {
            gives.push(at);
            gives.len() - 1
        });
        Ok(((place, given), &outputs[at]))
    }
}

fn are_numbers(spec: &TensorSpec, step: &str) -> Result<(), WireError> {
    match spec.is_text() {
        true => Err(WireError::Text { step: step.to_owned(), tensor: spec.name.clone() }),
        false => Ok(()),
    }
}

/// What to write in place of a name.
fn suggestion(wrong: &str, specs: &[TensorSpec]) -> String {
    let known: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    near::suggestion(wrong, &known)
}

/// What is of both types and shapes, under the first name; `None` if nothing can be.
fn merged(one: &TensorSpec, other: &TensorSpec) -> Option<TensorSpec> {
    if one.datatype != other.datatype {
        return None;
    }
    if one.any_rank {
        return Some(other.clone());
    }
    if one.shape.len() != other.shape.len() {
        return None;
    }
    let side = |(&a, &b): (&i64, &i64)| match (a, b) {
        (ANY_SIZE, side) | (side, ANY_SIZE) => Some(side),
        (a, b) => (a == b).then_some(a),
    };
    let shape = one.shape.iter().zip(&other.shape).map(side).collect::<Option<Vec<_>>>()?;
    Some(TensorSpec::new(&*one.name, one.datatype, shape))
}

/// `FP32 [?, 4]`.
pub(super) fn written(spec: &TensorSpec) -> String {
    match spec.any_rank {
        true => format!("{} [...]", spec.datatype),
        false => described(spec.datatype, &spec.shape),
    }
}

/// `FP32 [3, 4]`.
pub(super) fn described(datatype: DataType, shape: &[i64]) -> String {
    let side = |&side: &i64| if side < 0 { "?".to_owned() } else { side.to_string() };
    format!("{datatype} [{}]", shape.iter().map(side).collect::<Vec<_>>().join(", "))
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

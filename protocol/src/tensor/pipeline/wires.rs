//! Types and shapes along the wires of a pipeline, as far as they are known: those of programs from the text, those of
//! models once they are loaded.

use super::{GRIDS, GridStep, GridsError, Pipeline, SIZES, Step, StepBody, Taker, Wire};
use crate::near;
use crate::tensor::{ANY_SIZE, DataType, TensorSpec};

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
        "the input `{input}` is {first} for the step `{}` and {second} for the step `{}`", steps[0], steps[1]
    )]
    Torn {
        /// The input.
        input: String,
        /// The two steps.
        steps: Box<[String; 2]>,
        /// What the first takes.
        first: String,
        /// What the other takes.
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
        of: Box<Taker>,
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

impl WireError {
    /// The step whose wires it is in; none if it is an output of the pipeline.
    #[must_use]
    pub fn step(&self) -> Option<&str> {
        match self {
            Self::Grids { step, .. }
            | Self::Missing { step, .. }
            | Self::NoInput { step, .. }
            | Self::Text { step, .. }
            | Self::Unfit { step, .. } => Some(step),
            Self::Torn { steps, .. } => Some(&steps[1]),
            Self::NoOutput { of, .. } => match &**of {
                Taker::Input { step, .. } => Some(step),
                Taker::Output(_) => None,
            },
        }
    }
}

/// The tensors of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTensors {
    /// What it takes.
    pub inputs: Vec<TensorSpec>,
    /// What it gives.
    pub outputs: Vec<TensorSpec>,
}

/// The tensors of each step in the order in which the steps run; none of a model that is not loaded.
type Known<'a> = &'a [Option<StepTensors>];

impl Pipeline {
    /// The tensors of a program, with the sizes that the wire of its input fixes. `before` has those of the steps
    /// before it, in the order in which they run.
    ///
    /// # Errors
    /// [`WireError::Grids`] if it cannot run over what the wire has.
    pub fn tensors_of(
        &self,
        program: &GridStep,
        order: &[usize],
        before: Known<'_>,
    ) -> Result<StepTensors, WireError> {
        let step = &self.steps[order[before.len()]];
        let inputs = program.inputs();
        let input = &inputs[0];
        let wire = step.inputs.get(GRIDS).map_or("", String::as_str);
        let given = match Wire::parse(wire) {
            Wire::Input(_) => None,
            Wire::Output { step: from, tensor } => {
                let mut steps = order.iter().zip(before);
                let from = steps.find(|(at, _)| self.steps[**at].name == from);
                let from = from.and_then(|(_, from)| from.as_ref());
                from.and_then(|from| from.outputs.iter().find(|spec| spec.name == tensor))
            }
        };
        let given = given.and_then(|given| merged(given, input));
        let grids = given.as_ref().unwrap_or(input);
        let outputs = program.outputs(&grids.shape).map_err(|why| WireError::Grids {
            step: step.name.clone(),
            wire: wire.to_owned(),
            got: grids.form(),
            why,
        })?;
        Ok(StepTensors { inputs, outputs })
    }

    /// Checks that the steps fit together, as far as their tensors are known. Gives what is known of the inputs of the
    /// pipeline: if all tensors are, their types and shapes.
    ///
    /// # Errors
    /// The first [`WireError`].
    ///
    /// # Panics
    /// Panics unless [`Pipeline::check`] has found that each wire begins at an input or a step.
    pub fn check_tensors(
        &self,
        order: &[usize],
        known: Known<'_>,
    ) -> Result<Vec<TensorSpec>, WireError> {
        let mut check = Check { pipeline: self, order, known, inputs: Vec::new() };
        check.inputs.resize(self.inputs.len(), None);
        for (&at, tensors) in order.iter().zip(known) {
            check.step(&self.steps[at], tensors.as_ref())?;
        }
        for (name, wire) in &self.outputs {
            if let Wire::Output { step, tensor } = Wire::parse(wire) {
                check.output(step, tensor, wire, || Taker::Output(name.clone()))?;
            }
        }
        Ok(check.inputs.into_iter().flatten().map(|(_, spec)| spec).collect())
    }
}

struct Check<'a> {
    pipeline: &'a Pipeline,
    order: &'a [usize],
    known: Known<'a>,
    /// For each input of the pipeline, the first step that takes it, and what all of them take.
    inputs: Vec<Option<(String, TensorSpec)>>,
}

impl<'a> Check<'a> {
    fn step(&mut self, step: &Step, tensors: Option<&StepTensors>) -> Result<(), WireError> {
        for (input, wire) in &step.inputs {
            let spec = match tensors {
                None => None,
                Some(own) => Some(input_of(step, own, input)?),
            };
            match (Wire::parse(wire), spec) {
                (Wire::Input(_), None) => {}
                (Wire::Input(name), Some(spec)) => self.take_input(name, &step.name, spec)?,
                (Wire::Output { step: from, tensor }, spec) => {
                    let taker = || {
                        let (input, step) = (input.clone(), step.name.clone());
                        Taker::Input { input, step }
                    };
                    let got = self.output(from, tensor, wire, taker)?;
                    if let (Some(got), Some(spec)) = (got, spec)
                        && merged(got, spec).is_none()
                    {
                        return Err(WireError::Unfit {
                            step: step.name.clone(),
                            wire: wire.clone(),
                            input: input.clone(),
                            got: got.form(),
                            want: spec.form(),
                        });
                    }
                }
            }
        }
        let inputs = tensors.map(|own| own.inputs.iter()).into_iter().flatten();
        let missing = inputs.clone().find(|spec| !step.inputs.contains_key(&spec.name));
        missing.map_or(Ok(()), |spec| {
            let (step, input) = (step.name.clone(), spec.name.clone());
            Err(WireError::Missing { step, input, spec: spec.form() })
        })
    }

    /// A step takes an input of the pipeline, whose type and shape is what all such steps take.
    fn take_input(&mut self, name: &str, step: &str, spec: &TensorSpec) -> Result<(), WireError> {
        let at = self.pipeline.inputs.iter().position(|input| input == name);
        let at = at.expect("wires to unknown inputs were refused");
        let (first_step, fits) = match self.inputs[at].take() {
            None => (step.to_owned(), spec.clone()),
            Some((first_step, first)) => {
                let fits = merged(&first, spec).ok_or_else(|| WireError::Torn {
                    input: name.to_owned(),
                    steps: Box::new([first_step.clone(), step.to_owned()]),
                    first: first.form(),
                    second: spec.form(),
                })?;
                (first_step, fits)
            }
        };
        self.inputs[at] = Some((first_step, TensorSpec { name: name.to_owned(), ..fits }));
        Ok(())
    }

    /// The output of a step that a wire names; none if the step's are not known.
    fn output(
        &self,
        step: &str,
        tensor: &str,
        wire: &str,
        of: impl FnOnce() -> Taker,
    ) -> Result<Option<&'a TensorSpec>, WireError> {
        let mut steps = self.order.iter().zip(self.known);
        let own = steps.find(|(at, _)| self.pipeline.steps[**at].name == step);
        let (_, own) = own.expect("wires to unknown steps were refused");
        let Some(own) = own else { return Ok(None) };
        let spec = own.outputs.iter().find(|spec| spec.name == tensor).ok_or_else(|| {
            let suggestion = suggestion(tensor, &own.outputs);
            let (wire, step, tensor) = (wire.to_owned(), step.to_owned(), tensor.to_owned());
            WireError::NoOutput { of: Box::new(of()), wire, step, tensor, suggestion }
        })?;
        are_numbers(spec, step)?;
        Ok(Some(spec))
    }
}

/// The input of a step that has this name.
fn input_of<'t>(
    step: &Step,
    tensors: &'t StepTensors,
    input: &str,
) -> Result<&'t TensorSpec, WireError> {
    let Some(spec) = tensors.inputs.iter().find(|spec| spec.name == input) else {
        let mut inputs = tensors.inputs.clone();
        // One that it does not take may be what was meant.
        let has_sizes = match &step.body {
            StepBody::Program(own) => own.result.is_some(),
            StepBody::Model(_) => false,
        };
        inputs.extend(has_sizes.then(|| TensorSpec::new(SIZES, DataType::Int64, [ANY_SIZE, 2])));
        let suggestion = suggestion(input, &inputs);
        let (step, input) = (step.name.clone(), input.to_owned());
        return Err(WireError::NoInput { step, input, suggestion });
    };
    are_numbers(spec, &step.name)?;
    Ok(spec)
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

#[cfg(test)]
mod tests;

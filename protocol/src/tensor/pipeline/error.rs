//! Why a description of a pipeline is wrong.

use std::fmt;

use super::{GridStepError, WireError};
use crate::limits::{MODEL_NAME_BYTES_MAX, PIPELINE_STEPS_MAX, PIPELINE_WIRES_MAX};

/// Why a description of a pipeline is wrong. The caller says of which pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// Steps wait for each other.
    #[error("its steps wait for each other: {}", steps.join(" takes an output of "))]
    Circle {
        /// The steps, the first one again at the end.
        steps: Vec<String>,
    },
    /// A step's model does not exist.
    #[error(
        "its step `{step}` runs the model `{model}`, and there is no such model; {suggestion}. A file's name ends with \
         .onnx or has a `/`"
    )]
    Model {
        /// The step.
        step: String,
        /// Its model.
        model: String,
        /// Models with a similar name, or all.
        suggestion: String,
    },
    /// A step's model is a pipeline.
    #[error("its step `{step}` runs `{model}`, which is a pipeline: a step cannot be a pipeline")]
    Nested {
        /// The step.
        step: String,
        /// What it runs.
        model: String,
    },
    /// A name that a step or an input cannot have.
    #[error(
        "`{name}` cannot be the name of its {what}: write 1 to {MODEL_NAME_BYTES_MAX} letters, digits, `-` or `_`"
    )]
    Name {
        /// `step` or `input`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// It has programs only.
    #[error(
        "all its steps are programs, and a pipeline has a model: without one, submit one program, with `|` between \
         chains of ops, or a solver that calls the others"
    )]
    NoModel,
    /// A wire names a step and none of its outputs.
    #[error("{of} takes `{step}`, which is a step: write `{step}.TENSOR` with one of its outputs")]
    NoTensor {
        /// What takes it.
        of: Box<Taker>,
        /// The step.
        step: String,
    },
    /// It has no inputs or no outputs.
    #[error("it has no {what}: name at least one")]
    Nothing {
        /// `input` or `output`.
        what: &'static str,
    },
    /// An output is an input.
    #[error(
        "its output `{output}` is its input `{input}`: an output is an output of a step, STEP.TENSOR"
    )]
    PassedOn {
        /// The output.
        output: String,
        /// The input.
        input: String,
    },
    /// A program cannot be a step.
    #[error("its step `{step}`{}: {why}", if why.is_of_program() { " cannot run its program" } else { "" })]
    Program {
        /// The step.
        step: String,
        /// Why not.
        why: Box<GridStepError>,
    },
    /// Two outputs are the same tensor.
    #[error("its outputs `{first}` and `{second}` are both `{wire}`: keep one")]
    Same {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// What they are.
        wire: String,
    },
    /// What a step has in place of a hash.
    #[error(
        "a sha256 of `{text}` of its step `{step}`: write the 64 lower-case hexadecimal digits that `sha256sum FILE` \
         prints"
    )]
    Sha256 {
        /// The step.
        step: String,
        /// The text.
        text: String,
    },
    /// Too few or too many steps.
    #[error("it has {steps} steps: write 1 to {PIPELINE_STEPS_MAX}")]
    Steps {
        /// Their number.
        steps: usize,
    },
    /// A name is there twice.
    #[error("its {what} `{name}` is there twice: keep one, or rename one")]
    Twice {
        /// `step` or `input`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A wire begins at nothing.
    #[error("{of} takes `{wire}`, and there is no {what} `{name}`; {suggestion}")]
    Unknown {
        /// What takes it.
        of: Box<Taker>,
        /// The wire.
        wire: String,
        /// `step` or `input`.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// Those with a similar name, or all.
        suggestion: String,
    },
    /// Nothing takes an input, or an output of a step.
    #[error("nothing takes its {what} `{name}`: wire it, or leave it out")]
    Unused {
        /// `step` or `input`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Its steps do not fit together.
    #[error(transparent)]
    Wire(Box<WireError>),
    /// Too many wires.
    #[error("it has {wires} wires, those of its outputs included: at most {PIPELINE_WIRES_MAX}")]
    Wires {
        /// Their number.
        wires: usize,
    },
}

impl From<WireError> for PipelineError {
    fn from(error: WireError) -> Self {
        Self::Wire(Box::new(error))
    }
}

/// What takes a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taker {
    /// An input of a step.
    Input {
        /// The input.
        input: String,
        /// The step.
        step: String,
    },
    /// An output of the pipeline.
    Output(String),
}

impl fmt::Display for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input { input, step } => write!(f, "the input `{input}` of the step `{step}`"),
            Self::Output(output) => write!(f, "the output `{output}`"),
        }
    }
}

/// The part of a description that an error is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The names of its inputs.
    Inputs,
    /// Its outputs.
    Outputs,
    /// Its steps together.
    Steps,
    /// The last step of this name.
    Step(&'a str),
}

impl PipelineError {
    /// The part of the description that it is in.
    #[must_use]
    pub fn part(&self) -> Part<'_> {
        match self {
            Self::Circle { steps } => steps.first().map_or(Part::Steps, |step| Part::Step(step)),
            Self::Model { step, .. }
            | Self::Nested { step, .. }
            | Self::Program { step, .. }
            | Self::Sha256 { step, .. } => Part::Step(step),
            Self::Name { what: "step", name }
            | Self::Twice { what: "step", name }
            | Self::Unused { what: "step", name } => Part::Step(name),
            Self::Name { .. } | Self::Twice { .. } | Self::Unused { .. } => Part::Inputs,
            Self::NoTensor { of, .. } | Self::Unknown { of, .. } => match &**of {
                Taker::Input { step, .. } => Part::Step(step),
                Taker::Output(_) => Part::Outputs,
            },
            Self::Nothing { what: "input" } => Part::Inputs,
            Self::Nothing { .. } | Self::PassedOn { .. } | Self::Same { .. } => Part::Outputs,
            Self::Wire(error) => error.step().map_or(Part::Outputs, Part::Step),
            Self::NoModel | Self::Steps { .. } | Self::Wires { .. } => Part::Steps,
        }
    }
}

//! The description of a pipeline: models and programs over grids as steps, and the wires between them. It knows names,
//! files and programs; types and shapes of models are known only where they are loaded.
//!
//! A wire is a text: the name of an input of the pipeline, or `STEP.TENSOR`, an output of a step. Names of steps and
//! of inputs have no dot, so the first dot of a wire ends the name of a step.

mod error;
mod grids;
mod order;
#[cfg(test)]
mod tests;
mod wires;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use error::{Part, PipelineError, Taker};
pub use grids::{GRIDS, GridStep, GridStepError, GridsError, GridsRun, SIZES, STATUS};
pub use wires::{StepTensors, WireError};

use crate::limits::{MODEL_NAME_BYTES_MAX, PIPELINE_STEPS_MAX, PIPELINE_WIRES_MAX};
use crate::near;
use crate::tensor::options::is_sha256;

/// The steps of a pipeline and how tensors go from one to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Its inputs by name, in the order in which they are listed.
    pub inputs: Vec<String>,
    /// Its steps, in any order.
    pub steps: Vec<Step>,
    /// Its outputs by name, each with the step's output that it is.
    pub outputs: BTreeMap<String, String>,
}

/// A step of a pipeline: one run of a model, or of a program over grids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name in wires.
    pub name: String,
    /// What it runs.
    pub body: StepBody,
    /// For each of its own inputs, the wire that it takes.
    pub inputs: BTreeMap<String, String>,
}

/// What a step runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepBody {
    /// A model.
    Model(StepModel),
    /// A program over grids: see [`GridStep`].
    Program(StepProgram),
}

/// The program of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepProgram {
    /// Its text.
    pub text: String,
    /// Rows and columns of the tensor of its results, each of which lies in the upper left corner. Without it all
    /// results have one size, which follows from that of the grids.
    #[serde(default)]
    pub result: Option<[u8; 2]>,
}

impl From<&str> for StepProgram {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), result: None }
    }
}

/// The model of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepModel {
    /// The name of one, or the path of an ONNX file.
    pub model: String,
    /// The ONNX file, once the model has been found.
    #[serde(default)]
    pub path: PathBuf,
    /// SHA-256 that the file must have. Without one, that of the file that a worker loads first.
    #[serde(default)]
    pub sha256: Option<String>,
}

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire<'a> {
    /// An input of the pipeline.
    Input(&'a str),
    /// An output of a step.
    Output {
        /// The step.
        step: &'a str,
        /// The model's name of the output.
        tensor: &'a str,
    },
}

impl<'a> Wire<'a> {
    /// Reads a wire. Any text is one.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        match text.split_once('.') {
            Some((step, tensor)) => Self::Output { step, tensor },
            None => Self::Input(text),
        }
    }
}

impl Default for StepBody {
    fn default() -> Self {
        Self::Model(StepModel::default())
    }
}

impl Step {
    /// Its model, if it runs one.
    #[must_use]
    pub fn model(&self) -> Option<&StepModel> {
        match &self.body {
            StepBody::Model(model) => Some(model),
            StepBody::Program(_) => None,
        }
    }

    /// Its model, to be changed.
    pub fn model_mut(&mut self) -> Option<&mut StepModel> {
        match &mut self.body {
            StepBody::Model(model) => Some(model),
            StepBody::Program(_) => None,
        }
    }
}

impl StepModel {
    /// Whether it is written as a path: `crop.onnx`, `models/crop`.
    #[must_use]
    pub fn names_file(&self) -> bool {
        self.model.contains('/') || self.model.ends_with(".onnx")
    }
}

impl Pipeline {
    /// Checks names, wires and limits, without the models. Of the tensors on the wires it knows those of programs.
    ///
    /// # Errors
    /// The first [`PipelineError`].
    pub fn check(&self) -> Result<(), PipelineError> {
        self.check_counts()?;
        self.check_names()?;
        self.check_hashes()?;
        let programs = self.programs()?;
        for step in &self.steps {
            for (input, wire) in &step.inputs {
                self.check_wire(wire, || Taker::Input {
                    input: input.clone(),
                    step: step.name.clone(),
                })?;
            }
        }
        for (output, wire) in &self.outputs {
            if let Wire::Input(name) = Wire::parse(wire)
                && self.inputs.iter().any(|input| input == name)
            {
                let (output, input) = (output.clone(), name.to_owned());
                return Err(PipelineError::PassedOn { output, input });
            }
            self.check_wire(wire, || Taker::Output(output.clone()))?;
        }
        self.check_outputs()?;
        self.check_used()?;
        let order = self.order()?;
        let mut known = Vec::with_capacity(order.len());
        for &at in &order {
            let tensors = programs[at].as_ref().map(|own| self.tensors_of(own, &order, &known));
            known.push(tensors.transpose()?);
        }
        self.check_tensors(&order, &known)?;
        Ok(())
    }

    fn check_counts(&self) -> Result<(), PipelineError> {
        let steps = self.steps.len();
        if steps == 0 || steps > PIPELINE_STEPS_MAX {
            return Err(PipelineError::Steps { steps });
        }
        let wires = self.steps.iter().map(|step| step.inputs.len()).sum::<usize>();
        let wires = wires + self.outputs.len();
        if wires > PIPELINE_WIRES_MAX {
            return Err(PipelineError::Wires { wires });
        }
        match (self.inputs.is_empty(), self.outputs.is_empty()) {
            (true, _) => Err(PipelineError::Nothing { what: "input" }),
            (_, true) => Err(PipelineError::Nothing { what: "output" }),
            (false, false) => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), PipelineError> {
        let inputs = self.inputs.iter().map(|name| ("input", name));
        let steps = self.steps.iter().map(|step| ("step", &step.name));
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (what, name) in inputs.chain(steps) {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if name.is_empty() || name.len() > MODEL_NAME_BYTES_MAX || !name.bytes().all(is_plain) {
                return Err(PipelineError::Name { what, name: name.clone() });
            }
            if seen.contains(&(what, name)) {
                return Err(PipelineError::Twice { what, name: name.clone() });
            }
            seen.push((what, name));
        }
        Ok(())
    }

    fn check_hashes(&self) -> Result<(), PipelineError> {
        for step in &self.steps {
            let text = step.model().and_then(|model| model.sha256.as_ref());
            if let Some(text) = text.filter(|text| !is_sha256(text)) {
                let step = step.name.clone();
                return Err(PipelineError::Sha256 { step, text: text.clone() });
            }
        }
        Ok(())
    }

    /// The program of each step that has one, if all can be steps and there is a model besides.
    fn programs(&self) -> Result<Vec<Option<GridStep>>, PipelineError> {
        let programs = self.steps.iter().map(|step| match &step.body {
            StepBody::Model(_) => Ok(None),
            StepBody::Program(program) => {
                let own = GridStep::new(program, step.inputs.contains_key(SIZES));
                own.map(Some).map_err(|why| {
                    let step = step.name.clone();
                    PipelineError::Program { step, why: Box::new(why) }
                })
            }
        });
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        match programs.iter().any(Option::is_none) {
            true => Ok(programs),
            false => Err(PipelineError::NoModel),
        }
    }

    /// Checks that a wire begins at an input or a step.
    fn check_wire(&self, wire: &str, of: impl Fn() -> Taker) -> Result<(), PipelineError> {
        let steps = self.steps.iter().map(|step| step.name.as_str());
        let unknown = |what, name: &str, known: Vec<&str>| {
            let suggestion = near::suggestion(name, &known);
            let (wire, name) = (wire.to_owned(), name.to_owned());
            PipelineError::Unknown { of: Box::new(of()), wire, what, name, suggestion }
        };
        match Wire::parse(wire) {
            Wire::Input(name) if self.inputs.iter().any(|input| input == name) => Ok(()),
            Wire::Input(name) if steps.clone().any(|step| step == name) => {
                Err(PipelineError::NoTensor { of: Box::new(of()), step: name.to_owned() })
            }
            Wire::Input(name) => {
                Err(unknown("input", name, self.inputs.iter().map(String::as_str).collect()))
            }
            Wire::Output { step: name, .. } if steps.clone().any(|step| step == name) => Ok(()),
            Wire::Output { step: name, .. } => Err(unknown("step", name, steps.collect())),
        }
    }

    /// Checks that no two outputs are one tensor.
    fn check_outputs(&self) -> Result<(), PipelineError> {
        let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
        for (output, wire) in &self.outputs {
            if let Some(first) = seen.insert(wire, output) {
                let (first, second) = (first.to_owned(), output.clone());
                return Err(PipelineError::Same { first, second, wire: wire.clone() });
            }
        }
        Ok(())
    }

    /// Checks that each input and each step is used.
    fn check_used(&self) -> Result<(), PipelineError> {
        let wires = || {
            let of_steps = self.steps.iter().flat_map(|step| step.inputs.values());
            of_steps.chain(self.outputs.values()).map(|wire| Wire::parse(wire))
        };
        let unused = |what, name: &String| PipelineError::Unused { what, name: name.clone() };
        let is_input = |name: &str| wires().any(|wire| wire == Wire::Input(name));
        if let Some(name) = self.inputs.iter().find(|name| !is_input(name)) {
            return Err(unused("input", name));
        }
        let is_step = |name: &str| {
            wires().any(|wire| matches!(wire, Wire::Output { step, .. } if step == name))
        };
        match self.steps.iter().find(|step| !is_step(&step.name)) {
            Some(step) => Err(unused("step", &step.name)),
            None => Ok(()),
        }
    }

    /// Finds the file of each step that names a model. `find` gives a model's file, and the hash that it must have; one
    /// of `known` that has none is a pipeline.
    ///
    /// # Errors
    /// [`PipelineError::Model`] for a step whose model is none of `known`, [`PipelineError::Nested`] if it is a
    /// pipeline.
    pub fn find_models<'a>(
        &mut self,
        known: &[&str],
        find: impl Fn(&str) -> Option<(&'a PathBuf, &'a Option<String>)>,
    ) -> Result<(), PipelineError> {
        for Step { name, body, .. } in &mut self.steps {
            let StepBody::Model(model) = body else { continue };
            if !model.path.as_os_str().is_empty() {
                continue;
            }
            let Some((path, sha256)) = find(&model.model) else {
                let is_model = |known: &&str| find(known).is_some();
                let models: Vec<_> = known.iter().copied().filter(is_model).collect();
                let suggestion = near::suggestion(&model.model, &models);
                let (step, model) = (name.clone(), model.model.clone());
                return Err(match known.contains(&&*model) {
                    true => PipelineError::Nested { step, model },
                    false => PipelineError::Model { step, model, suggestion },
                });
            };
            model.path.clone_from(path);
            model.sha256 = model.sha256.take().or_else(|| sha256.clone());
        }
        Ok(())
    }

    /// Whether it has the same steps, files and wires, whatever hashes the files must have.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let bare = |pipeline: &Self| {
            let mut bare = pipeline.clone();
            bare.steps.iter_mut().filter_map(Step::model_mut).for_each(|own| own.sha256 = None);
            bare
        };
        bare(self) == bare(other)
    }

    /// What the hash of the pipeline covers: names, wires, and the hash of each step's file or program.
    #[must_use]
    pub fn hashed(&self, sha256: &[String]) -> String {
        use std::fmt::Write as _;
        let mut text = format!("inputs {}\n", self.inputs.join(" "));
        let mut line = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("a String takes every text");
        };
        for (step, sha256) in self.steps.iter().zip(sha256) {
            line(format_args!("step {} {sha256}\n", step.name));
            for (input, wire) in &step.inputs {
                line(format_args!("  {input} = {wire}\n"));
            }
        }
        for (output, wire) in &self.outputs {
            line(format_args!("output {output} = {wire}\n"));
        }
        text
    }
}

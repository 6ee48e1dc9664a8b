//! What is served under which name, and how it is described: the models that are built in ([`GridModel`])
//! and those of the pool ([`OnnxModel`]). The one place where the two kinds are told apart.
//!
//! A name that is built in stays so: a model of the pool that has it too is listed as UNAVAILABLE.

mod grid;
mod onnx;

use std::borrow::Cow;
use std::sync::Arc;

use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::{ANY_SIZE, Tensor, TensorSpec};
use serde_json::{Value, json};

use super::failure::Failure;
use super::grids;
use super::request::{Input, Request};
use super::work::Work;

pub(super) use grid::GridModel;
pub(super) use onnx::{OnnxModel, Record, State, nodes};

/// The one version of every model.
pub(super) const VERSION: &str = "1";
/// `/v2/models/stats` is no model.
const NAMES_OF_PATHS: [&str; 1] = ["stats"];

/// One model.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// Built in: it runs on the workers of grids.
    Grid(GridModel),
    /// Of the pool: it runs on the workers of models.
    Onnx(Arc<OnnxModel>),
}

/// Whether no model of the pool can be served under that name.
pub(super) fn is_taken(name: &str) -> bool {
    GridModel::find(name).is_some() || NAMES_OF_PATHS.contains(&name)
}

impl Model {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Grid(model) => model.name(),
            Self::Onnx(model) => &model.info.name,
        }
    }

    /// What it takes.
    pub(super) fn inputs(&self) -> Cow<'_, [TensorSpec]> {
        match self {
            Self::Grid(model) => model.inputs().into(),
            Self::Onnx(model) => (&*model.info.inputs).into(),
        }
    }

    /// What it gives.
    pub(super) fn outputs(&self) -> Cow<'_, [TensorSpec]> {
        match self {
            Self::Grid(model) => model.outputs().into(),
            Self::Onnx(model) => (&*model.info.outputs).into(),
        }
    }

    /// What runs it.
    fn platform(&self) -> &'static str {
        match self {
            Self::Grid(_) => grid::PLATFORM,
            Self::Onnx(_) => onnx::PLATFORM,
        }
    }

    /// As `/v2/models/NAME` says it.
    pub(super) fn metadata(&self) -> Value {
        json!({
            "name": self.name(),
            "versions": [VERSION],
            "platform": self.platform(),
            "inputs": self.inputs(),
            "outputs": self.outputs(),
        })
    }

    /// As `/v2/models/NAME/config` says it, in Triton's terms.
    pub(super) fn config(&self) -> Value {
        match self {
            Self::Grid(model) => model.config(),
            Self::Onnx(model) => model.config(),
        }
    }

    /// How many inferences a request is: items or rows, or 1.
    pub(super) fn items(&self, request: &Request<'_>) -> u64 {
        let first = request.inputs.first().and_then(|input| input.tensor.shape().first().copied());
        let has_rows = match self {
            Self::Grid(_) => true,
            Self::Onnx(model) => model.has_rows(),
        };
        first.filter(|_| has_rows).unwrap_or(1)
    }

    /// A request of it has got its result.
    pub(super) fn has_answered(&self, receipt: &Receipt) {
        match self {
            Self::Grid(_) => {}
            Self::Onnx(model) => model.record.proof.succeeded(receipt),
        }
    }

    /// What a request asks of it, checked against all that is known of it.
    pub(super) fn work(&self, request: &mut Request<'_>) -> Result<Work, Failure> {
        if let Self::Onnx(model) = self {
            model.can_be_asked()?;
        }
        check_inputs(self, &request.inputs)?;
        request.wanted.check(self)?;
        match self {
            Self::Grid(model) => grids::job(*model, request).map(Work::Grids),
            Self::Onnx(model) => model.job(request).map(Work::Onnx),
        }
    }
}

/// Whether these are the inputs that a model takes, each of its type and shape.
fn check_inputs(model: &Model, inputs: &[Input<'_>]) -> Result<(), Failure> {
    let specs = model.inputs();
    let is_taken = |input: &&Input<'_>| specs.iter().any(|s| s.name == input.tensor.name());
    if let Some(other) = inputs.iter().find(|input| !is_taken(input)) {
        let takes: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let (name, takes, model) = (other.tensor.name(), takes.join(" and "), model.name());
        return Err(Failure::bad(format!("the model `{model}` takes {takes}, not `{name}`")));
    }
    for spec in specs.iter() {
        let tensor = &find(inputs, &spec.name)?.tensor;
        if let Err(error) = spec.accepts(tensor) {
            return Err(Failure::bad(format!("{error}{}", where_it_differs(spec, tensor))));
        }
    }
    Ok(())
}

/// The input of that name.
pub(super) fn find<'a, 'b>(inputs: &'a [Input<'b>], name: &str) -> Result<&'a Input<'b>, Failure> {
    let input = inputs.iter().find(|input| input.tensor.name() == name);
    input.ok_or_else(|| Failure::bad(format!("the request has no input `{name}`")))
}

/// In which dimension a tensor is not what a model takes.
fn where_it_differs(spec: &TensorSpec, tensor: &Tensor) -> String {
    let (got, want) = (tensor.signed_shape(), &spec.shape);
    if got.len() != want.len() {
        return format!(": it has {} dimensions, not {}", got.len(), want.len());
    }
    let mut sides = got.iter().zip(want).enumerate();
    let differs = sides.find(|(_, (got, want))| **want != ANY_SIZE && got != want);
    differs.map_or_else(String::new, |(axis, (got, want))| {
        format!(": dimension {axis} is {got}, not {want}")
    })
}

/// An input or output as Triton writes it: where all have a dimension for the batch, without that. A
/// shape without any other has one of 1 in its place.
fn config_of(spec: &TensorSpec, has_rows: bool) -> Value {
    let data_type = format!("TYPE_{}", spec.datatype);
    match &spec.shape[usize::from(has_rows && !spec.shape.is_empty())..] {
        [] => {
            let reshape = json!({ "shape": [] });
            json!({ "name": spec.name, "data_type": data_type, "dims": [1], "reshape": reshape })
        }
        dims => json!({ "name": spec.name, "data_type": data_type, "dims": dims }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    pub(in crate::gateway) use super::onnx::tests::{info, model};

    use super::*;

    #[test]
    fn names_that_are_built_in_or_paths_are_taken() {
        for name in ["rot90", "program", "stats"] {
            assert!(is_taken(name), "{name}");
        }
        assert!(!is_taken("resnet50"));
        assert!(!is_taken("replace"), "an op that is no model");
    }
}

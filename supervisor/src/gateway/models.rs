//! The served models, by name: built-in ones ([`GridModel`]) and those of the pool ([`OnnxModel`]).
//!
//! A built-in name has precedence: a model of the pool under the same name is listed as UNAVAILABLE.

mod config;
mod grid;
mod onnx;

use std::borrow::Cow;
use std::sync::Arc;

use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::{ANY_SIZE, Tensor, TensorSpec};
use serde_json::{Value, json};

use super::failure::Failure;
use super::grids;
use super::job::PoolJob;
use super::request::{Delivery, InputTensor, Request, WantedOutputs};
use super::tensors;

pub(super) use grid::GridModel;
pub(super) use onnx::{Availability, OnnxModel, Record};

/// The only version of every built-in model.
pub(super) const VERSION: &str = "1";
/// Names that paths have: `/v2/models/stats`.
const NAMES_OF_PATHS: [&str; 1] = ["stats"];

/// One model.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// Built in. Grid workers run it.
    Grid(GridModel),
    /// A model of the pool. Inference workers run it.
    Onnx(Arc<OnnxModel>, Asked),
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A model, whichever version serves it.
    Name,
    /// A version.
    Version,
}

/// Why a model of the pool cannot be served under that name, if it cannot: an op or a path has it.
pub(super) fn why_taken(name: &str) -> Option<String> {
    let is_taken = GridModel::find(name).is_some() || NAMES_OF_PATHS.contains(&name);
    is_taken.then(|| {
        format!(
            "`{name}` is built into the gateway: clients over HTTP and gRPC cannot reach a model of this name; name \
             it {name}_model, for instance"
        )
    })
}

impl Model {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Grid(model) => model.name(),
            Self::Onnx(model, _) => model.name(),
        }
    }

    /// The number of its version.
    pub(super) fn version(&self) -> Cow<'static, str> {
        match self {
            Self::Grid(_) => VERSION.into(),
            Self::Onnx(model, _) => model.version().to_string().into(),
        }
    }

    /// The inputs that it takes.
    pub(super) fn inputs(&self) -> Cow<'_, [TensorSpec]> {
        match self {
            Self::Grid(model) => model.inputs().into(),
            Self::Onnx(model, _) => (&*model.info.inputs).into(),
        }
    }

    /// The outputs that it gives.
    pub(super) fn outputs(&self) -> Cow<'_, [TensorSpec]> {
        match self {
            Self::Grid(model) => model.outputs().into(),
            Self::Onnx(model, _) => (&*model.info.outputs).into(),
        }
    }

    /// The name of what runs it.
    fn platform(&self) -> &'static str {
        match self {
            Self::Grid(_) => grid::PLATFORM,
            Self::Onnx(..) => onnx::PLATFORM,
        }
    }

    /// The document of `/v2/models/NAME`. `versions` are those that there are.
    pub(super) fn metadata(&self, versions: &[String]) -> Value {
        json!({
            "name": self.name(),
            "versions": versions,
            "platform": self.platform(),
            "inputs": self.inputs().iter().map(described).collect::<Vec<_>>(),
            "outputs": self.outputs().iter().map(described).collect::<Vec<_>>(),
        })
    }

    /// The document of `/v2/models/NAME/config`, in Triton's terms.
    pub(super) fn config(&self) -> Value {
        match self {
            Self::Grid(model) => model.config(),
            Self::Onnx(model, _) => model.config(),
        }
    }

    /// The number of inferences in a request: its items or rows, or 1.
    pub(super) fn items(&self, request: &Request<'_>) -> u64 {
        let first = request.inputs.first().and_then(|input| input.tensor.shape().first().copied());
        let has_rows = match self {
            Self::Grid(_) => true,
            Self::Onnx(model, _) => model.has_rows(),
        };
        first.filter(|_| has_rows).unwrap_or(1)
    }

    /// Notes that a request got its result.
    pub(super) fn has_answered(&self, receipt: &Receipt) {
        match self {
            Self::Grid(_) => {}
            Self::Onnx(model, _) => model.record.probe.succeeded(receipt),
        }
    }

    /// Checks a request and makes its job.
    pub(super) fn work(&self, request: &mut Request<'_>) -> Result<PoolJob, Failure> {
        if let Self::Onnx(model, _) = self {
            model.can_be_asked()?;
        }
        check_inputs(self, request)?;
        check_wanted(self, &request.wanted)?;
        match self {
            Self::Grid(model) => {
                grids::job(&model.program(request)?, request).map(PoolJob::Program)
            }
            Self::Onnx(model, asked) => model.job(*asked, request).map(PoolJob::Model),
        }
    }
}

/// An input or output in metadata, which cannot say that any number of dimensions is possible.
fn described(TensorSpec { name, datatype, shape, any_rank: _ }: &TensorSpec) -> Value {
    json!({ "name": name, "datatype": datatype, "shape": shape })
}

/// Checks that a request has the inputs that the model takes, each of the right type and shape.
fn check_inputs(model: &Model, request: &Request<'_>) -> Result<(), Failure> {
    let specs = model.inputs();
    let is_taken = |input: &&InputTensor<'_>| specs.iter().any(|s| s.name == input.tensor.name());
    if let Some(other) = request.inputs.iter().find(|input| !is_taken(input)) {
        let takes: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let (name, takes, model) = (other.tensor.name(), takes.join(" and "), model.name());
        return Err(Failure::bad(format!("the model `{model}` takes {takes}, not `{name}`")));
    }
    for spec in specs.iter() {
        let tensor = &request.input(&spec.name)?.tensor;
        if let Err(error) = spec.accepts(tensor) {
            return Err(Failure::bad(format!("{error}{}", where_it_differs(spec, tensor))));
        }
    }
    Ok(())
}

/// Checks that the model has every wanted output, and that each can be sent in the wanted form.
fn check_wanted(model: &Model, wanted: &WantedOutputs) -> Result<(), Failure> {
    let gives = model.outputs();
    let as_json: Vec<&TensorSpec> = match wanted {
        WantedOutputs::All { binary } => gives.iter().filter(|_| !binary).collect(),
        WantedOutputs::Some(names) => {
            let mut as_json = Vec::new();
            for (name, delivery) in names {
                let Some(spec) = gives.iter().find(|spec| spec.name == *name) else {
                    let gives: Vec<_> = gives.iter().map(|spec| spec.name.as_str()).collect();
                    let (model, gives) = (model.name(), gives.join(", "));
                    return Err(Failure::bad(format!(
                        "the model `{model}` gives {gives}; it has no output `{name}`"
                    )));
                };
                as_json.extend((*delivery == Delivery::Json).then_some(spec));
            }
            as_json
        }
    };
    match as_json.into_iter().find(|spec| !tensors::goes_as_json(spec.datatype)) {
        Some(TensorSpec { name, datatype, .. }) => Err(Failure::bad(format!(
            "output `{name}` is {datatype}, which is sent as binary data only: ask for it with \
                 binary_data"
        ))),
        None => Ok(()),
    }
}

/// Names the dimension in which a tensor differs from what the model takes.
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

#[cfg(test)]
pub(super) mod tests {
    pub(in crate::gateway) use super::onnx::tests::{info, model};

    use super::*;

    #[test]
    fn names_that_are_built_in_or_paths_are_taken() {
        for name in ["rot90", "program", "stats"] {
            assert!(why_taken(name).is_some_and(|why| why.contains("_model, for")), "{name}");
        }
        assert_eq!(why_taken("resnet50"), None);
        assert_eq!(why_taken("replace"), None, "an op that is not served");
    }
}

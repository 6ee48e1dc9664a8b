//! What is served under which name, and how it is described. Now these are the ops that make a grid of
//! a grid and take no arguments, and `program`, for whatever else makes a grid of a grid.

use gridpool_protocol::program::{Kind, OPS, OpSpec, Type};
use gridpool_protocol::tensor::{ANY_SIZE, DataType, TensorSpec};
use serde_json::{Value, json};

use super::failure::Failure;
use super::grids::{GRID, SIZE, STATUS};
use super::limits::{ITEMS_MAX, SIDE_MAX};
use super::request::Request;

/// The one version of every model.
pub(super) const VERSION: &str = "1";
/// The model whose program comes with the request.
const PROGRAM: &str = "program";
/// What runs the models.
const PLATFORM: &str = "gridpool";

/// One model.
#[derive(Clone, Copy, Debug)]
pub(super) enum Model {
    /// An op on grids.
    Op(&'static OpSpec),
    /// Whatever program the request names.
    Program,
}

impl Model {
    /// Every model, in the order of the ops.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let of_grids = (Type::one(Kind::Grid), Type::one(Kind::Grid));
        let ops = OPS.iter().filter(move |op| {
            op.parameters.is_empty() && op.name != PROGRAM && op.kinds().contains(&of_grids)
        });
        ops.map(Self::Op).chain([Self::Program])
    }

    /// The model of that name, in the version that the path names, if it names one.
    pub(super) fn find(name: &str, version: Option<&str>) -> Result<Self, Failure> {
        let model = Self::all().find(|model| model.name() == name).ok_or_else(|| {
            Failure::unknown(format!(
                "there is no model `{name}`; POST /v2/repository/index lists those that are served"
            ))
        })?;
        match version {
            Some(other) if other != VERSION => Err(Failure::unknown(format!(
                "the model `{name}` has no version `{other}`; its only one is `{VERSION}`"
            ))),
            Some(_) | None => Ok(model),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Op(op) => op.name,
            Self::Program => PROGRAM,
        }
    }

    /// The text of the program that a request asks for.
    pub(super) fn program(self, request: &Request<'_>) -> Result<String, Failure> {
        match (self, &request.program) {
            (Self::Op(op), None) => Ok(op.name.to_owned()),
            (Self::Op(op), Some(_)) => Err(Failure::bad(format!(
                "the model `{}` takes no program; the model `{PROGRAM}` does",
                op.name
            ))),
            (Self::Program, Some(program)) => Ok(program.clone()),
            (Self::Program, None) => Err(Failure::bad(
                "the model `program` needs a parameter `program` of the request, for instance \
                 \"rot90 | replace(0, 5)\"",
            )),
        }
    }

    /// What it takes.
    #[expect(clippy::unused_self, reason = "other models take other tensors")]
    pub(super) fn inputs(self) -> Vec<TensorSpec> {
        vec![grids(), sizes()]
    }

    /// What it gives.
    #[expect(clippy::unused_self, reason = "other models give other tensors")]
    pub(super) fn outputs(self) -> Vec<TensorSpec> {
        vec![grids(), sizes(), spec(STATUS, DataType::Int32, &[])]
    }

    /// As `/v2/models/NAME` says it.
    pub(super) fn metadata(self) -> Value {
        json!({
            "name": self.name(),
            "versions": [VERSION],
            "platform": PLATFORM,
            "inputs": self.inputs(),
            "outputs": self.outputs(),
        })
    }

    /// As `/v2/models/NAME/config` says it, in Triton's terms.
    pub(super) fn config(self) -> Value {
        let configs = |specs: Vec<TensorSpec>| specs.iter().map(config_of).collect::<Value>();
        let says = match self {
            Self::Op(op) => op.meaning,
            Self::Program => "the program of the request's parameter `program`",
        };
        json!({
            "name": self.name(),
            "platform": PLATFORM,
            "backend": PLATFORM,
            "version_policy": { "latest": { "num_versions": 1 } },
            "max_batch_size": ITEMS_MAX,
            "input": configs(self.inputs()),
            "output": configs(self.outputs()),
            "parameters": { "meaning": { "string_value": says } },
        })
    }
}

/// Without the batch's dimension, as Triton writes it. A shape that is that dimension alone has one of
/// 1 in its place.
fn config_of(spec: &TensorSpec) -> Value {
    let data_type = format!("TYPE_{}", spec.datatype);
    match &spec.shape[1..] {
        [] => {
            let reshape = json!({ "shape": [] });
            json!({ "name": spec.name, "data_type": data_type, "dims": [1], "reshape": reshape })
        }
        dims => json!({ "name": spec.name, "data_type": data_type, "dims": dims }),
    }
}

fn grids() -> TensorSpec {
    let side = i64::try_from(SIDE_MAX).expect("a side is small");
    spec(GRID, DataType::Uint8, &[side, side])
}

fn sizes() -> TensorSpec {
    spec(SIZE, DataType::Int32, &[2])
}

/// For any number of items.
fn spec(name: &str, datatype: DataType, item: &[i64]) -> TensorSpec {
    let shape = [&[ANY_SIZE], item].concat();
    TensorSpec { name: name.to_owned(), datatype, shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_are_the_ops_of_grids_without_arguments_and_program() {
        let names: Vec<_> = Model::all().map(Model::name).collect();
        for name in ["identity", "rot90", "dmirror", "compress", "tophalf", "program"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for name in ["replace", "objects", "palette", "first", "hconcat", "merge", "cover"] {
            assert!(!names.contains(&name), "{name} does not make a grid of a grid by itself");
        }
    }

    #[test]
    fn a_name_or_version_that_is_not_there_is_404() {
        assert!(Model::find("rot90", Some("1")).is_ok());
        for (name, version) in [("rot9", None), ("rot90", Some("2")), ("rot90", Some("01"))] {
            let failure = Model::find(name, version).unwrap_err();
            assert!(failure.message().contains(name), "{failure:?}");
        }
    }

    #[test]
    fn a_config_has_no_dimension_for_the_batch() {
        let config = Model::Program.config();
        assert_eq!(config["input"][0]["dims"], json!([30, 30]));
        assert_eq!(config["input"][1]["data_type"], "TYPE_INT32");
        assert_eq!(config["output"][2]["reshape"]["shape"], json!([]));
    }
}

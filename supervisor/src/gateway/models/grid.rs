//! The built-in models: each op that turns a grid into a grid and takes no arguments, and `program`, which
//! runs any program from grid to grid.

use gridpool_protocol::program::{Kind, OPS, OpSpec, Type};
use gridpool_protocol::tensor::{ANY_SIZE, DataType, TensorSpec};
use serde_json::{Value, json};

use super::config::config_of;
use crate::gateway::failure::Failure;
use crate::gateway::grids::{GRID, SIZE, STATUS};
use crate::gateway::limits::{ITEMS_MAX, SIDE_MAX};
use crate::gateway::request::Request;

/// The model that runs the program in the request.
const PROGRAM: &str = "program";
/// The name of what runs these models.
pub(super) const PLATFORM: &str = "gridpool";

/// One built-in model.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) enum GridModel {
    /// An op.
    Op(&'static OpSpec),
    /// The program that the request names.
    Program,
}

impl GridModel {
    /// Every model, in the order of the ops.
    pub(in crate::gateway) fn all() -> impl Iterator<Item = Self> {
        OPS.iter().filter(|op| is_model(op)).map(Self::Op).chain([Self::Program])
    }

    /// The built-in model of that name.
    pub(in crate::gateway) fn find(name: &str) -> Option<Self> {
        // Each request asks, and what an op is takes longer to say than its name.
        let op = OPS.iter().find(|op| op.name == name && is_model(op)).map(Self::Op);
        op.or_else(|| (name == PROGRAM).then_some(Self::Program))
    }

    pub(in crate::gateway) fn name(self) -> &'static str {
        match self {
            Self::Op(op) => op.name,
            Self::Program => PROGRAM,
        }
    }

    /// The text of the program that a request runs.
    pub(in crate::gateway) fn program(self, request: &Request<'_>) -> Result<String, Failure> {
        match (self, &request.program) {
            (Self::Op(op), None) => Ok(op.name.to_owned()),
            (Self::Op(op), Some(_)) => Err(Failure::bad(format!(
                "the model `{}` takes no program; the model `{PROGRAM}` does",
                op.name
            ))),
            (Self::Program, Some(program)) => Ok(program.clone()),
            (Self::Program, None) => Err(Failure::bad(
                "the model `program` needs the request parameter `program`, for instance \
                 \"rot90 | replace(0, 5)\"",
            )),
        }
    }

    /// The inputs that it takes.
    #[expect(clippy::unused_self, reason = "other models take other tensors")]
    pub(in crate::gateway) fn inputs(self) -> Vec<TensorSpec> {
        vec![grids(), sizes()]
    }

    /// The outputs that it gives.
    #[expect(clippy::unused_self, reason = "other models give other tensors")]
    pub(in crate::gateway) fn outputs(self) -> Vec<TensorSpec> {
        vec![grids(), sizes(), spec(STATUS, DataType::Int32, &[])]
    }

    /// The document of `/v2/models/NAME/config`, in Triton's terms.
    pub(in crate::gateway) fn config(self) -> Value {
        let configs = |specs: Vec<TensorSpec>| -> Value {
            specs.iter().map(|spec| config_of(spec, true)).collect()
        };
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

/// Whether an op turns a grid into a grid and takes no arguments.
fn is_model(op: &OpSpec) -> bool {
    let of_grids = (Type::one(Kind::Grid), Type::one(Kind::Grid));
    op.parameters.is_empty() && op.name != PROGRAM && op.kinds().contains(&of_grids)
}

fn grids() -> TensorSpec {
    let side = i64::try_from(SIDE_MAX).expect("a side is small");
    spec(GRID, DataType::Uint8, &[side, side])
}

fn sizes() -> TensorSpec {
    spec(SIZE, DataType::Int32, &[2])
}

/// A tensor of any number of items.
fn spec(name: &str, datatype: DataType, item: &[i64]) -> TensorSpec {
    let shape = [&[ANY_SIZE], item].concat();
    TensorSpec::new(name, datatype, shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_are_the_ops_of_grids_without_arguments_and_program() {
        let names: Vec<_> = GridModel::all().map(GridModel::name).collect();
        for name in ["identity", "rot90", "dmirror", "compress", "tophalf", "program"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        for name in ["replace", "objects", "palette", "first", "hconcat", "merge", "cover"] {
            assert!(!names.contains(&name), "{name} needs arguments or other types");
        }
    }

    #[test]
    fn a_config_has_no_dimension_for_the_batch() {
        let config = GridModel::Program.config();
        assert_eq!(config["input"][0]["dims"], json!([30, 30]));
        assert_eq!(config["input"][1]["data_type"], "TYPE_INT32");
        assert_eq!(config["output"][2]["reshape"]["shape"], json!([]));
    }
}

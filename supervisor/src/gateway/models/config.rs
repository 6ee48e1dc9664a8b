//! Inputs and outputs of a model in Triton's configuration format.

use gridpool_protocol::tensor::TensorSpec;
use serde_json::{Value, json};

/// An input or output as Triton writes it. If the model has rows, Triton leaves out the first dimension.
/// An empty shape becomes `[1]`.
pub(super) fn config_of(spec: &TensorSpec, has_rows: bool) -> Value {
    let data_type = match spec.is_text() {
        true => "TYPE_STRING".to_owned(),
        false => format!("TYPE_{}", spec.datatype),
    };
    match &spec.shape[usize::from(has_rows && !spec.shape.is_empty())..] {
        [] => {
            let reshape = json!({ "shape": [] });
            json!({ "name": spec.name, "data_type": data_type, "dims": [1], "reshape": reshape })
        }
        dims => json!({ "name": spec.name, "data_type": data_type, "dims": dims }),
    }
}

//! Inputs and outputs of a model in Triton's configuration format.

use gridpool_protocol::tensor::TensorSpec;
use serde_json::{Value, json};

/// An input or output as Triton writes it. If the model has rows, Triton leaves out the first dimension.
/// An empty shape becomes `[1]`; a shape that the model leaves open is not listed.
pub(super) fn config_of(spec: &TensorSpec, has_rows: bool) -> Value {
    let data_type = match spec.is_text() {
        true => "TYPE_STRING".to_owned(),
        false => format!("TYPE_{}", spec.datatype),
    };
    match &spec.shape[usize::from(has_rows && !spec.shape.is_empty())..] {
        [] if !spec.any_rank => {
            let reshape = json!({ "shape": [] });
            json!({ "name": spec.name, "data_type": data_type, "dims": [1], "reshape": reshape })
        }
        dims => json!({ "name": spec.name, "data_type": data_type, "dims": dims }),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::DataType;

    use super::*;

    #[test]
    fn a_single_number_is_one_element_and_an_open_number_of_dimensions_lists_none() {
        let number = TensorSpec::new("y", DataType::Fp32, []);
        let single = config_of(&number, false);
        assert_eq!((&single["dims"], &single["reshape"]["shape"]), (&json!([1]), &json!([])));
        let open = config_of(&TensorSpec { any_rank: true, ..number }, false);
        assert_eq!(open, json!({ "name": "y", "data_type": "TYPE_FP32", "dims": [] }));
    }
}

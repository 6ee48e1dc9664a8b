//! What the nodes of a model say about its CUDA graphs.

use super::GraphsError;
use crate::seam::AssignedNode;

/// Ops that draw random numbers: a replay would draw the same again.
const RANDOM_OPS: [&str; 7] = [
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Sampling",
];
/// Ops whose outputs have as many elements as their data says: a replay would have as many as the captured run.
const COUNTING_OPS: [&str; 4] = ["Compress", "NonMaxSuppression", "NonZero", "Unique"];
/// Ops whose nodes keep a plan for the shape of their last input, beside all convolutions.
const PLANNED_OPS: [&str; 3] = ["GRU", "LSTM", "RNN"];

/// Whether any of these nodes rebuilds something when a shape changes; an error if one cannot be replayed.
pub(super) fn have_plans(nodes: &[AssignedNode]) -> Result<bool, GraphsError> {
    let of = |ops: &[&str]| {
        let node = nodes.iter().find(|node| ops.contains(&node.op.as_str()))?;
        Some(format!("{} ({})", node.op, node.name))
    };
    if let Some(node) = of(&RANDOM_OPS) {
        return Err(GraphsError::Random { node });
    }
    if let Some(node) = of(&COUNTING_OPS) {
        return Err(GraphsError::Counting { node });
    }
    let keeps =
        |node: &AssignedNode| node.op.contains("Conv") || PLANNED_OPS.contains(&node.op.as_str());
    Ok(nodes.iter().any(keeps))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::options::Provider;

    use super::*;

    fn nodes(ops: &[&str]) -> Vec<AssignedNode> {
        let provider = Provider::Cuda.runtime_name();
        let node = |&op: &&str| AssignedNode {
            provider: provider.to_owned(),
            op: op.to_owned(),
            name: "n".to_owned(),
        };
        ops.iter().map(node).collect()
    }

    #[test]
    fn nodes_that_keep_plans_are_known_and_random_ones_refused() {
        assert_eq!(have_plans(&nodes(&["Gemm", "Tanh", "Softmax", "MaxPool"])), Ok(false));
        for op in ["Conv", "FusedConv", "ConvTranspose", "NhwcConv", "LSTM", "GRU", "RNN"] {
            assert_eq!(have_plans(&nodes(&["Gemm", op])), Ok(true), "{op}");
        }
        let error = have_plans(&nodes(&["Conv", "RandomNormal"])).unwrap_err().to_string();
        assert!(error.starts_with("its node RandomNormal (n) draws random numbers"), "{error}");
        let error = have_plans(&nodes(&["NonZero"])).unwrap_err().to_string();
        assert!(error.starts_with("the shape of what its node NonZero (n) gives"), "{error}");
    }
}

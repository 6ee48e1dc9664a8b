//! Checks where the nodes of a model run.

use std::collections::{BTreeMap, BTreeSet};

use gridpool_protocol::tensor::model::ProviderNodes;
use gridpool_protocol::tensor::options::Provider;

use super::seam::AssignedNode;

/// Most nodes that an error lists.
const LISTED_MAX: usize = 20;

/// Nodes that run where they may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} of {all} nodes would run on {provider}: {listed}; allow these ops there (cpu_ops) or change \
     the model"
)]
pub struct PlacementError {
    count: usize,
    all: usize,
    provider: String,
    /// `Op (name)` of each.
    listed: String,
}

/// Checks that every node runs on one of `providers`, or on the CPU if its op is one of `cpu_ops`. Returns
/// how many nodes each provider runs, in descending order.
///
/// # Errors
/// [`PlacementError`] with every node that runs elsewhere.
pub(super) fn audit(
    nodes: &[AssignedNode],
    providers: &[Provider],
    cpu_ops: &BTreeSet<String>,
) -> Result<Vec<ProviderNodes>, PlacementError> {
    let cpu = Provider::Cpu.runtime_name();
    let may = |node: &&AssignedNode| {
        let wanted = providers.iter().any(|provider| provider.runtime_name() == node.provider);
        wanted || (node.provider == cpu && cpu_ops.contains(&node.op))
    };
    let wrong: Vec<_> = nodes.iter().filter(|node| !may(node)).collect();
    if let Some(first) = wrong.first() {
        let listed = wrong.iter().filter(|node| node.provider == first.provider).take(LISTED_MAX);
        let listed = listed.map(|node| match node.name.as_str() {
            "" => node.op.clone(),
            name => format!("{} ({name})", node.op),
        });
        let mut listed = listed.collect::<Vec<_>>().join(", ");
        if wrong.len() > LISTED_MAX {
            listed.push_str(", …");
        }
        let provider = first.provider.clone();
        return Err(PlacementError { count: wrong.len(), all: nodes.len(), provider, listed });
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for node in nodes {
        *counts.entry(&node.provider).or_default() += 1;
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(provider, nodes)| ProviderNodes { provider: provider.to_owned(), nodes })
        .collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.nodes));
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(provider: Provider, op: &str, name: &str) -> AssignedNode {
        let provider = provider.runtime_name().to_owned();
        AssignedNode { provider, op: op.to_owned(), name: name.to_owned() }
    }

    fn ops(ops: &[&str]) -> BTreeSet<String> {
        ops.iter().map(|&op| op.to_owned()).collect()
    }

    #[test]
    fn a_node_on_the_cpu_of_a_gpu_refuses_the_model_unless_its_op_is_allowed() {
        let nodes = [
            node(Provider::Cuda, "Conv", "c1"),
            node(Provider::Cpu, "Shape", "s"),
            node(Provider::Cpu, "Det", "d"),
            node(Provider::Cuda, "Relu", ""),
        ];
        let error = audit(&nodes, &[Provider::Cuda], &ops(&["Shape"])).unwrap_err().to_string();
        let want = "1 of 4 nodes would run on CPUExecutionProvider: Det (d); allow these ops";
        assert!(error.starts_with(want), "{error}");
        let error = audit(&nodes, &[Provider::Cuda], &ops(&[])).unwrap_err().to_string();
        assert!(error.contains("Shape (s), Det (d);"), "{error}");
        let counts = audit(&nodes, &[Provider::Cuda], &ops(&["Shape", "Det"])).unwrap();
        let counts: Vec<_> = counts.iter().map(|c| (c.provider.as_str(), c.nodes)).collect();
        assert_eq!(counts, [("CPUExecutionProvider", 2), ("CUDAExecutionProvider", 2)]);
    }

    #[test]
    fn a_provider_that_was_not_requested_refuses_the_model_too() {
        let nodes = [node(Provider::TensorRt, "TRTKernel", "t"), node(Provider::Cuda, "Relu", "r")];
        let error = audit(&nodes, &[Provider::Cuda], &ops(&["TRTKernel"])).unwrap_err();
        assert!(
            error.to_string().contains("on TensorrtExecutionProvider: TRTKernel (t)"),
            "{error}"
        );
        assert!(audit(&nodes, &[Provider::TensorRt, Provider::Cuda], &ops(&[])).is_ok());
        assert!(audit(&nodes, &[Provider::Cpu], &ops(&[])).is_err(), "a GPU of a cpu device");
    }

    #[test]
    fn a_long_list_of_nodes_is_cut() {
        let nodes: Vec<_> = (0..50).map(|_| node(Provider::Cpu, "Op", "")).collect();
        let error = audit(&nodes, &[Provider::Cuda], &ops(&[])).unwrap_err().to_string();
        assert!(error.starts_with("50 of 50"), "{error}");
        assert_eq!(error.matches("Op").count(), LISTED_MAX);
        assert!(error.contains(", …;"), "{error}");
    }
}

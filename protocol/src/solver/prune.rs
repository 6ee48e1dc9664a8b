//! Leaves out what nothing needs: nodes whose value is not used and that cannot end an item.
//!
//! Python runs every statement, so a node that may fail stays even if its value is not used.

use std::collections::BTreeSet;

use super::ir::{Block, Node, NodeId};

/// Prunes a block and the blocks in it.
pub(super) fn prune(nodes: &mut [Node], block: &mut Block) {
    let mut used = BTreeSet::from([block.result]);
    walk(nodes, block, &mut used);
}

/// Goes through a block from its end. `used` has what comes behind.
fn walk(nodes: &mut [Node], block: &mut Block, used: &mut BTreeSet<NodeId>) {
    used.insert(block.result);
    let mut kept = Vec::new();
    for at in block.nodes.iter().rev() {
        if !nodes[*at].fails && !used.contains(at) {
            continue;
        }
        let mut blocks = std::mem::take(&mut nodes[*at].blocks);
        for inner in &mut blocks {
            walk(nodes, inner, used);
        }
        nodes[*at].blocks = blocks;
        used.extend(&nodes[*at].arguments);
        kept.push(*at);
    }
    kept.reverse();
    block.nodes = kept;
}

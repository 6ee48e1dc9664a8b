//! Leaves out what nothing needs: nodes whose value is not used and that cannot end an item.
//!
//! Python runs every statement, so a node that may fail stays even if its value is not used.

use super::ir::{Block, Nodes};

/// Prunes a block and the blocks in it.
pub(super) fn prune(nodes: &mut Nodes, block: &mut Block) {
    let mut used = vec![false; nodes.len()];
    walk(nodes, block, &mut used);
}

/// Goes through a block from its end. `used` says of each node whether what comes behind needs it.
fn walk(nodes: &mut Nodes, block: &mut Block, used: &mut [bool]) {
    used[block.result] = true;
    for at in block.nodes.iter().rev() {
        if !nodes[*at].fails && !used[*at] {
            continue;
        }
        let mut blocks = std::mem::take(&mut nodes[*at].blocks);
        for inner in &mut blocks {
            walk(nodes, inner, used);
        }
        nodes[*at].blocks = blocks;
        nodes.arguments(*at).iter().for_each(|argument| used[*argument] = true);
    }
    block.nodes.retain(|at| nodes[*at].fails || used[*at]);
}

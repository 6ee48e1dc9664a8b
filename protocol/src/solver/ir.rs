//! The intermediate form: typed first-order nodes in blocks, in the order in which Python would compute them.
//!
//! A node is made once in a block and what it lies in: equal ones are shared. What a loop's body or a branch's arm
//! computes is its own. Constants, the input and the parameters of loops lie in no block.

use std::collections::BTreeMap;
use std::ops::Range;

use super::code::Constant;
use super::kind::Kind;
use super::opcode::{Opcode, Primitive};
use crate::limits::SOLVER_NODES_MAX;

/// The number of a node.
pub(super) type NodeId = usize;

/// What a node computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The item's grid.
    Input,
    Constant(Constant),
    /// A constant that each program of a template chooses: the hole's number, and the first program's.
    Hole(usize, Constant),
    /// The element of a loop.
    Parameter,
    /// One instruction, or a tuple of any length. A loop or a branch has blocks.
    Machine(Opcode),
    /// A primitive that each program of a template chooses: the hole's number, and the first program's.
    Chosen(usize, Opcode),
}

/// Nodes in order, and the one whose value is the block's.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The elements, of a loop's body.
    pub(super) parameters: Vec<NodeId>,
    pub(super) nodes: Vec<NodeId>,
    pub(super) result: NodeId,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) arguments: Vec<NodeId>,
    pub(super) kind: Kind,
    /// The body of a loop; both arms of a branch.
    pub(super) blocks: Vec<Block>,
    /// The call in the text that first made it.
    pub(super) span: Range<usize>,
    /// Whether it can end an item with an error.
    pub(super) fails: bool,
}

/// A block that is being filled, with what has been made in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) nodes: Vec<NodeId>,
    known: BTreeMap<Vec<usize>, NodeId>,
}

/// Makes nodes. The innermost scope gets them.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) nodes: Vec<Node>,
    kinds: Vec<Kind>,
    constants: BTreeMap<Constant, NodeId>,
    holes: BTreeMap<usize, NodeId>,
    scopes: Vec<Scope>,
}

/// The error of a program with too many nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooLarge;

/// Numbers in a key before those of the arguments.
const KEY_HEAD: usize = 4;
/// Marks a hole in the place of an opcode in a key.
const HOLE: usize = 1 << 8;
/// Marks a node of the same block in a key.
const LOCAL: usize = 1 << 32;

impl Builder {
    /// A builder with one open scope, and the node of the input, which is node 0.
    pub(super) fn new() -> Self {
        let mut builder = Self::default();
        builder.scopes.push(Scope::default());
        builder.loose(Op::Input, Kind::Grid);
        builder
    }

    /// All nodes, and those of the outermost block in order.
    pub(super) fn finish(mut self) -> (Vec<Node>, Vec<NodeId>) {
        let outermost = self.scopes.drain(..).next().unwrap_or_default();
        (self.nodes, outermost.nodes)
    }

    pub(super) fn kind(&self, node: NodeId) -> &Kind {
        &self.nodes[node].kind
    }

    pub(super) fn open(&mut self, scope: Scope) {
        self.scopes.push(scope);
    }

    /// Closes the innermost scope.
    pub(super) fn close(&mut self) -> Scope {
        self.scopes.pop().unwrap_or_default()
    }

    /// Puts what a closed scope has made into the innermost one.
    pub(super) fn adopt(&mut self, scope: Scope) {
        if let Some(innermost) = self.scopes.last_mut() {
            innermost.nodes.extend(scope.nodes);
            innermost.known.extend(scope.known);
        }
    }

    /// The node of a constant.
    pub(super) fn constant(&mut self, constant: Constant) -> NodeId {
        if let Some(known) = self.constants.get(&constant) {
            return *known;
        }
        let node = self.loose(Op::Constant(constant), constant.kind());
        self.constants.insert(constant, node);
        node
    }

    /// The node of a hole that stands for constants, of which this is the first.
    pub(super) fn hole(&mut self, hole: usize, first: Constant) -> NodeId {
        if let Some(known) = self.holes.get(&hole) {
            return *known;
        }
        let node = self.loose(Op::Hole(hole, first), first.kind());
        self.holes.insert(hole, node);
        node
    }

    /// A new element of a loop.
    pub(super) fn parameter(&mut self, kind: Kind) -> NodeId {
        self.loose(Op::Parameter, kind)
    }

    fn loose(&mut self, op: Op, kind: Kind) -> NodeId {
        let node = Node { op, arguments: vec![], kind, blocks: vec![], span: 0..0, fails: false };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The node of an instruction: one that has been made before, or a new one.
    pub(super) fn node(
        &mut self,
        opcode: Opcode,
        arguments: Vec<NodeId>,
        kind: Kind,
        blocks: Vec<Block>,
        span: Range<usize>,
    ) -> Result<NodeId, TooLarge> {
        let inner = blocks.iter().flat_map(|block| &block.nodes);
        let fails = fails(opcode) || inner.clone().any(|node| self.nodes[*node].fails);
        let op = Op::Machine(opcode);
        self.shared(Node { op, arguments, kind, blocks, span, fails })
    }

    /// The node of a hole that stands for primitives of one result.
    pub(super) fn chosen(
        &mut self,
        hole: usize,
        primitives: &[&'static Primitive],
        arguments: Vec<NodeId>,
        kind: Kind,
        span: Range<usize>,
    ) -> Result<NodeId, TooLarge> {
        let op = Op::Chosen(hole, primitives[0].opcode);
        let fails = primitives.iter().any(|primitive| primitive.fails);
        self.shared(Node { op, arguments, kind, blocks: vec![], span, fails })
    }

    fn shared(&mut self, node: Node) -> Result<NodeId, TooLarge> {
        let mut key = Vec::with_capacity(KEY_HEAD + node.arguments.len());
        self.describe(&node, &mut BTreeMap::new(), &mut key);
        let known = self.scopes.iter().rev().find_map(|scope| scope.known.get(&key));
        if let Some(known) = known {
            return Ok(*known);
        }
        if self.nodes.len() >= SOLVER_NODES_MAX {
            return Err(TooLarge);
        }
        self.nodes.push(node);
        let made = self.nodes.len() - 1;
        if let Some(innermost) = self.scopes.last_mut() {
            innermost.nodes.push(made);
            innermost.known.insert(key, made);
        }
        Ok(made)
    }

    /// Appends what tells a node from others to `key`. Names of its own parameters and nodes do not matter.
    fn describe(&mut self, node: &Node, local: &mut BTreeMap<NodeId, usize>, key: &mut Vec<usize>) {
        let op = match node.op {
            Op::Machine(opcode) => opcode as usize,
            Op::Chosen(hole, _) => HOLE + hole,
            Op::Input | Op::Constant(_) | Op::Hole(..) | Op::Parameter => return,
        };
        let kind = self.interned(&node.kind);
        let head: [usize; KEY_HEAD] = [op, kind, node.arguments.len(), node.blocks.len()];
        key.extend(head);
        let name = |node: &NodeId, local: &BTreeMap<NodeId, usize>| {
            local.get(node).map_or(*node, |at| LOCAL + at)
        };
        key.extend(node.arguments.iter().map(|argument| name(argument, local)));
        for block in &node.blocks {
            key.push(block.nodes.len());
            for parameter in &block.parameters {
                local.insert(*parameter, local.len());
                let kind = self.nodes[*parameter].kind.clone();
                key.push(self.interned(&kind));
            }
            for inner in &block.nodes {
                let node = self.nodes[*inner].clone();
                self.describe(&node, local, key);
                local.insert(*inner, local.len());
            }
            key.push(name(&block.result, local));
        }
    }

    fn interned(&mut self, kind: &Kind) -> usize {
        let known = self.kinds.iter().position(|known| known == kind);
        known.unwrap_or_else(|| {
            self.kinds.push(kind.clone());
            self.kinds.len() - 1
        })
    }
}

/// Whether an instruction can end an item, its blocks left aside.
fn fails(opcode: Opcode) -> bool {
    match Primitive::of(opcode) {
        Some(primitive) => primitive.fails,
        None => {
            let never = [
                Opcode::ToSet,
                Opcode::Select,
                Opcode::If,
                Opcode::Else,
                Opcode::EndIf,
                Opcode::Filter,
            ];
            !never.contains(&opcode)
        }
    }
}

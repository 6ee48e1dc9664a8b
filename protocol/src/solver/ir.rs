//! The intermediate form: typed first-order nodes in blocks, in the order in which Python would compute them.
//!
//! A node is made once in a block and what it lies in: equal ones are shared. What a loop's body or a branch's arm
//! computes is its own. Constants, the input and the parameters of loops lie in no block.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut, Range};

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
    /// Where its arguments are among those of all nodes.
    arguments: Range<usize>,
    pub(super) kind: Kind,
    /// The body of a loop; both arms of a branch.
    pub(super) blocks: Vec<Block>,
    /// The call in the text that first made it.
    pub(super) span: Range<usize>,
    /// Whether it can end an item with an error.
    pub(super) fails: bool,
}

/// All nodes of a program.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// The arguments of one node behind those of another.
    arguments: Vec<NodeId>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn arguments(&self, node: NodeId) -> &[NodeId] {
        &self.arguments[self.nodes[node].arguments.clone()]
    }

    fn push(&mut self, node: Node, arguments: &[NodeId]) -> NodeId {
        let start = self.arguments.len();
        self.arguments.extend_from_slice(arguments);
        self.nodes.push(Node { arguments: start..self.arguments.len(), ..node });
        self.nodes.len() - 1
    }
}

impl Index<NodeId> for Nodes {
    type Output = Node;

    fn index(&self, node: NodeId) -> &Node {
        &self.nodes[node]
    }
}

impl IndexMut<NodeId> for Nodes {
    fn index_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node]
    }
}

/// A block that is being filled, with what has been made in it by its hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) nodes: Vec<NodeId>,
    known: BTreeMap<u64, NodeId>,
}

/// Makes nodes. The innermost scope gets them.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) nodes: Nodes,
    constants: BTreeMap<Constant, NodeId>,
    holes: BTreeMap<usize, NodeId>,
    scopes: Vec<Scope>,
}

/// The error of a program with too many nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooLarge;

/// What tells a node from others.
#[derive(Clone, Copy)]
struct Form<'n> {
    op: Op,
    kind: &'n Kind,
    arguments: &'n [NodeId],
    blocks: &'n [Block],
}

/// Marks a hole in the place of an opcode.
const HOLE: usize = 1 << 8;
/// Marks a node of the same block.
const LOCAL: usize = 1 << 32;
/// Nodes of a usual program, or fewer.
const NODES_USUAL: usize = 32;

impl Builder {
    /// A builder with one open scope, and the node of the input, which is node 0.
    pub(super) fn new() -> Self {
        let mut builder = Self::default();
        builder.nodes.nodes.reserve(NODES_USUAL);
        builder.nodes.arguments.reserve(NODES_USUAL);
        let nodes = Vec::with_capacity(NODES_USUAL);
        builder.scopes.push(Scope { nodes, known: BTreeMap::new() });
        builder.loose(Op::Input, Kind::Grid);
        builder
    }

    /// All nodes, and those of the outermost block in order.
    pub(super) fn finish(mut self) -> (Nodes, Vec<NodeId>) {
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
        let (blocks, span, fails) = (Vec::new(), 0..0, false);
        self.nodes.push(Node { op, arguments: 0..0, kind, blocks, span, fails }, &[])
    }

    /// The node of an instruction: one that has been made before, or a new one.
    pub(super) fn node(
        &mut self,
        opcode: Opcode,
        arguments: &[NodeId],
        kind: Kind,
        blocks: Vec<Block>,
        span: Range<usize>,
    ) -> Result<NodeId, TooLarge> {
        let mut inner = blocks.iter().flat_map(|block| &block.nodes);
        let fails = fails(opcode) || inner.any(|node| self.nodes[*node].fails);
        let op = Op::Machine(opcode);
        self.shared(Node { op, arguments: 0..0, kind, blocks, span, fails }, arguments)
    }

    /// The node of a hole that stands for primitives of one result.
    pub(super) fn chosen(
        &mut self,
        hole: usize,
        primitives: &[&'static Primitive],
        arguments: &[NodeId],
        kind: Kind,
        span: Range<usize>,
    ) -> Result<NodeId, TooLarge> {
        let op = Op::Chosen(hole, primitives[0].opcode);
        let fails = primitives.iter().any(|primitive| primitive.fails);
        self.shared(Node { op, arguments: 0..0, kind, blocks: vec![], span, fails }, arguments)
    }

    fn shared(&mut self, node: Node, arguments: &[NodeId]) -> Result<NodeId, TooLarge> {
        let form = Form { op: node.op, kind: &node.kind, arguments, blocks: &node.blocks };
        let mut hash = 0_u64;
        self.describe(form, &mut BTreeMap::new(), &mut |number| {
            hash = (hash.rotate_left(5) ^ number as u64).wrapping_mul(HASH_FACTOR);
        });
        let known = self.scopes.iter().rev().find_map(|scope| {
            let known = *scope.known.get(&hash)?;
            (self.described(self.form(known)) == self.described(form)).then_some(known)
        });
        if let Some(known) = known {
            return Ok(known);
        }
        if self.nodes.len() >= SOLVER_NODES_MAX {
            return Err(TooLarge);
        }
        let made = self.nodes.push(node, arguments);
        if let Some(innermost) = self.scopes.last_mut() {
            innermost.nodes.push(made);
            innermost.known.insert(hash, made);
        }
        Ok(made)
    }

    fn form(&self, node: NodeId) -> Form<'_> {
        let Node { op, kind, blocks, .. } = &self.nodes[node];
        Form { op: *op, kind, arguments: self.nodes.arguments(node), blocks }
    }

    fn described(&self, form: Form<'_>) -> Vec<usize> {
        let mut numbers = Vec::new();
        self.describe(form, &mut BTreeMap::new(), &mut |number| numbers.push(number));
        numbers
    }

    /// Says in numbers what tells a node from others. Names of its own parameters and nodes do not matter.
    fn describe(
        &self,
        form: Form<'_>,
        local: &mut BTreeMap<NodeId, usize>,
        say: &mut impl FnMut(usize),
    ) {
        say(match form.op {
            Op::Machine(opcode) => opcode as usize,
            Op::Chosen(hole, _) => HOLE + hole,
            Op::Input | Op::Constant(_) | Op::Hole(..) | Op::Parameter => return,
        });
        describe_kind(form.kind, say);
        say(form.arguments.len());
        say(form.blocks.len());
        let name = |node: &NodeId, local: &BTreeMap<NodeId, usize>| {
            local.get(node).map_or(*node, |at| LOCAL + at)
        };
        form.arguments.iter().for_each(|argument| say(name(argument, local)));
        for block in form.blocks {
            say(block.nodes.len());
            for parameter in &block.parameters {
                local.insert(*parameter, local.len());
                describe_kind(self.kind(*parameter), say);
            }
            for inner in &block.nodes {
                self.describe(self.form(*inner), local, say);
                local.insert(*inner, local.len());
            }
            say(name(&block.result, local));
        }
    }
}

/// Spreads the bits of a hash (the factor of rustc's hasher).
const HASH_FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// Says a kind in numbers. Those of one kind are not the start of another's.
fn describe_kind(kind: &Kind, say: &mut impl FnMut(usize)) {
    match kind {
        Kind::Never => say(0),
        Kind::Flag => say(1),
        Kind::Number => say(2),
        Kind::Vector => say(3),
        Kind::Cell => say(4),
        Kind::Place => say(5),
        Kind::Grid => say(6),
        Kind::Pair(halves) => {
            say(7);
            describe_kind(&halves.0, say);
            describe_kind(&halves.1, say);
        }
        Kind::Set(of) => {
            say(8);
            describe_kind(of, say);
        }
        Kind::Tuple(of) => {
            say(9);
            describe_kind(of, say);
        }
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

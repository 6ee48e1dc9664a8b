//! Turns nodes into instructions and gives their values registers.

use std::ops::Range;

use super::code::{Code, Constant, Instruction};
use super::hole::HolePlace;
use super::ir::{Block, Node, NodeId, Op};
use super::kind::Kind;
use super::opcode::Opcode;
use crate::limits::{
    SOLVER_INSTRUCTIONS_MAX, SOLVER_KINDS_MAX, SOLVER_REGISTERS_MAX, STEPS_DEFAULT,
};
use crate::program::Ties;

/// Registers that one instruction reads.
const OPERANDS: usize = 4;

/// A value's place before it has a register.
type Slot = usize;

/// An instruction on slots.
#[derive(Debug)]
struct Draft {
    op: Opcode,
    to: Option<Slot>,
    from: [Slot; OPERANDS],
    immediate: usize,
    span: Range<usize>,
}

/// Up to so many slots. The others are 0, the input's: unused operands are 0.
fn operands(slots: &[Slot]) -> [Slot; OPERANDS] {
    let mut operands = [0; OPERANDS];
    operands.iter_mut().zip(slots).for_each(|(operand, slot)| *operand = *slot);
    operands
}

/// What a block becomes.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) code: Code,
    /// The place in the text of each instruction.
    pub(super) spans: Vec<Range<usize>>,
    /// The holes of a template and where each is in the code.
    pub(super) holes: Vec<(usize, HolePlace)>,
}

/// The instructions of a block. The error is a sentence.
pub(super) fn lower(nodes: &[Node], block: &Block, ties: Ties) -> Result<Lowered, String> {
    let mut lowering = Lowering {
        nodes,
        drafts: Vec::with_capacity(nodes.len()),
        kinds: Vec::with_capacity(nodes.len()),
        slots: vec![None; nodes.len()],
        holes: Vec::new(),
    };
    // Register 0 is the input's.
    let input = lowering.slot(Kind::Grid);
    lowering.slots[0] = Some(input);
    let mut constants = Vec::new();
    lowering.constants(block, &mut constants);
    lowering.block(block);
    let result = lowering.of(block.result);
    lowering.draft(Opcode::Return, None, &[result], 0, &(0..0));
    let count = lowering.drafts.len();
    if count > SOLVER_INSTRUCTIONS_MAX {
        return Err(format!(
            "the program takes {count} instructions; at most {SOLVER_INSTRUCTIONS_MAX} are allowed"
        ));
    }
    lowering.assigned(constants, ties)
}

struct Lowering<'n> {
    nodes: &'n [Node],
    drafts: Vec<Draft>,
    /// The kind of each slot.
    kinds: Vec<Kind>,
    /// Where the values of nodes are; of a node in two blocks, that of the last.
    slots: Vec<Option<Slot>>,
    holes: Vec<(usize, HolePlace)>,
}

impl Lowering<'_> {
    fn slot(&mut self, kind: Kind) -> Slot {
        self.kinds.push(kind);
        self.kinds.len() - 1
    }

    /// Gives slots to all constants that a block needs.
    fn constants(&mut self, block: &Block, found: &mut Vec<Constant>) {
        let mut needed = Vec::new();
        for at in &block.nodes {
            let node = &self.nodes[*at];
            if node.op != Op::Machine(Opcode::Fail) {
                needed.extend(&node.arguments);
            }
        }
        needed.push(block.result);
        for at in needed {
            let (Op::Constant(constant) | Op::Hole(_, constant)) = self.nodes[at].op else {
                continue;
            };
            if self.slots[at].is_none() {
                let slot = self.slot(constant.kind());
                self.slots[at] = Some(slot);
                if let Op::Hole(hole, _) = self.nodes[at].op {
                    self.holes.push((hole, HolePlace::Constant(found.len())));
                }
                found.push(constant);
            }
        }
        for at in &block.nodes {
            for inner in &self.nodes[*at].blocks {
                self.constants(inner, found);
            }
        }
    }

    /// The slot of a node that has been computed.
    fn of(&self, node: NodeId) -> Slot {
        self.slots[node].unwrap_or(0)
    }

    fn draft(
        &mut self,
        op: Opcode,
        to: Option<Slot>,
        from: &[Slot],
        immediate: usize,
        span: &Range<usize>,
    ) -> usize {
        let from = operands(from);
        self.drafts.push(Draft { op, to, from, immediate, span: span.clone() });
        self.drafts.len() - 1
    }

    fn block(&mut self, block: &Block) {
        for at in &block.nodes {
            self.node(*at);
        }
    }

    fn node(&mut self, at: NodeId) {
        let node = &self.nodes[at];
        let op = match node.op {
            Op::Machine(op) => op,
            Op::Chosen(hole, first) => {
                self.holes.push((hole, HolePlace::Instruction(self.drafts.len())));
                first
            }
            Op::Input | Op::Constant(_) | Op::Hole(..) | Op::Parameter => return,
        };
        let from: Vec<Slot> = node.arguments.iter().map(|argument| self.of(*argument)).collect();
        let to = self.slot(node.kind.clone());
        match (op, node.blocks.as_slice()) {
            (Opcode::If, [then, otherwise]) => {
                let begin = self.draft(op, None, &from, 0, &node.span);
                self.block(then);
                let value = self.of(then.result);
                let middle = self.draft(Opcode::Else, Some(to), &[value], 0, &node.span);
                self.block(otherwise);
                let value = self.of(otherwise.result);
                let end = self.draft(Opcode::EndIf, Some(to), &[value], 0, &node.span);
                self.drafts[begin].immediate = middle;
                self.drafts[middle].immediate = end;
            }
            (_, [body]) => {
                let mut operands = from;
                operands.resize(2, 0);
                for parameter in &body.parameters {
                    let slot = self.slot(self.nodes[*parameter].kind.clone());
                    self.slots[*parameter] = Some(slot);
                    operands.push(slot);
                }
                let begin = self.draft(op, Some(to), &operands, 0, &node.span);
                self.block(body);
                let value = self.of(body.result);
                let next = self.draft(Opcode::Next, None, &[value], begin, &node.span);
                self.drafts[begin].immediate = next;
            }
            (Opcode::Tuple, _) => {
                let mut parts = from.chunks(OPERANDS);
                let first = parts.next().unwrap_or(&[]);
                self.draft(op, Some(to), first, first.len(), &node.span);
                for part in parts {
                    self.draft(Opcode::Push, Some(to), part, part.len(), &node.span);
                }
            }
            (Opcode::Fail, _) => {
                let code = node.arguments.first().map(|argument| self.nodes[*argument].op);
                let code = match code {
                    Some(Op::Constant(Constant::Number(code))) => {
                        usize::try_from(code).unwrap_or(0)
                    }
                    _ => 0,
                };
                self.draft(op, Some(to), &[], code, &node.span);
            }
            (_, _) => {
                self.draft(op, Some(to), &from, 0, &node.span);
            }
        }
        self.slots[at] = Some(to);
    }

    /// Where each slot is first written and last needed.
    fn lives(&self, fixed: usize) -> Vec<Option<Range<usize>>> {
        let mut lives: Vec<Option<Range<usize>>> = vec![None; self.kinds.len()];
        for life in lives.iter_mut().take(fixed) {
            *life = Some(0..self.drafts.len());
        }
        let mut note = |slot: Slot, at: usize| {
            let life = lives[slot].get_or_insert(at..at);
            life.end = life.end.max(at);
        };
        for (at, draft) in self.drafts.iter().enumerate() {
            let is_loop = draft.op.begins_loop();
            // A loop needs its containers, its elements and its result until its end.
            let until = if is_loop { draft.immediate } else { at };
            for slot in draft.from.iter().chain(&draft.to) {
                note(*slot, at);
                note(*slot, until);
            }
        }
        // What lives when a loop begins and is read in it is needed in each turn.
        for (begin, draft) in self.drafts.iter().enumerate().rev() {
            if !draft.op.begins_loop() {
                continue;
            }
            let end = draft.immediate;
            for life in lives.iter_mut().flatten() {
                if life.start < begin && life.end > begin && life.end < end {
                    life.end = end;
                }
            }
        }
        lives
    }

    fn assigned(self, constants: Vec<Constant>, ties: Ties) -> Result<Lowered, String> {
        let fixed = 1 + constants.len();
        let lives = self.lives(fixed);
        let mut order: Vec<(usize, usize, Slot)> = Vec::with_capacity(lives.len());
        for (slot, life) in lives.iter().enumerate().skip(fixed) {
            if let Some(life) = life {
                order.push((life.start, life.end, slot));
            }
        }
        order.sort_unstable();
        let mut register_kinds: Vec<Kind> = self.kinds[..fixed].to_vec();
        let mut busy_until: Vec<usize> = vec![usize::MAX; fixed];
        let mut registers: Vec<usize> = (0..self.kinds.len()).collect();
        for (start, end, slot) in order {
            let kind = &self.kinds[slot];
            let free = (fixed..register_kinds.len())
                .find(|at| busy_until[*at] < start && register_kinds[*at] == *kind);
            let register = free.unwrap_or_else(|| {
                register_kinds.push(kind.clone());
                busy_until.push(0);
                register_kinds.len() - 1
            });
            busy_until[register] = end;
            registers[slot] = register;
        }
        let count = register_kinds.len();
        if count > SOLVER_REGISTERS_MAX {
            return Err(format!(
                "the program takes {count} registers; at most {SOLVER_REGISTERS_MAX} are allowed"
            ));
        }
        let mut kinds = Vec::new();
        register_kinds.iter().for_each(|kind| collect(kind, &mut kinds));
        if kinds.len() > SOLVER_KINDS_MAX {
            let count = kinds.len();
            return Err(format!(
                "the program has {count} kinds of values; at most {SOLVER_KINDS_MAX} are allowed"
            ));
        }
        let number = |of: &Kind| kinds.iter().position(|kind| kind == of).unwrap_or(0);
        let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let registers_kinds = register_kinds.iter().map(|kind| byte(number(kind))).collect();
        let instructions = self.drafts.iter().map(|draft| Instruction {
            op: draft.op,
            to: draft.to.map_or(0, |slot| byte(registers[slot])),
            from: draft.from.map(|slot| byte(registers[slot])),
            immediate: u16::try_from(draft.immediate).unwrap_or(u16::MAX),
        });
        let instructions = instructions.collect();
        let spans = self.drafts.iter().map(|draft| draft.span.clone()).collect();
        let (step_limit, registers) = (STEPS_DEFAULT, registers_kinds);
        let code = Code { ties, step_limit, instructions, constants, kinds, registers };
        Ok(Lowered { code, spans, holes: self.holes })
    }
}

/// Adds a kind behind those that it is made of.
fn collect(kind: &Kind, kinds: &mut Vec<Kind>) {
    if kinds.contains(kind) {
        return;
    }
    match kind {
        Kind::Set(of) | Kind::Tuple(of) => collect(of, kinds),
        Kind::Pair(halves) => {
            collect(&halves.0, kinds);
            collect(&halves.1, kinds);
        }
        Kind::Never
        | Kind::Flag
        | Kind::Number
        | Kind::Vector
        | Kind::Cell
        | Kind::Place
        | Kind::Grid => {}
    }
    kinds.push(kind.clone());
}

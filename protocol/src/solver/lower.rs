//! Turns nodes into instructions and gives their values registers.

use std::ops::Range;

use super::code::{Code, Constant, Instruction};
use super::hole::HolePlace;
use super::ir::{Block, NodeId, Nodes, Op};
use super::kind::Kind;
use super::opcode::{OPERANDS, Opcode};
use crate::limits::{
    SOLVER_INSTRUCTIONS_MAX, SOLVER_KINDS_MAX, SOLVER_REGISTERS_MAX, STEPS_DEFAULT,
};
use crate::program::Ties;

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
fn operands(slots: impl IntoIterator<Item = Slot>) -> [Slot; OPERANDS] {
    let mut operands = [0; OPERANDS];
    operands.iter_mut().zip(slots).for_each(|(operand, slot)| *operand = slot);
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
pub(super) fn lower(nodes: &Nodes, block: &Block, ties: Ties) -> Result<Lowered, String> {
    let mut lowering = Lowering {
        nodes,
        drafts: Vec::with_capacity(nodes.len()),
        kinds: Vec::with_capacity(nodes.len()),
        slot_kinds: Vec::with_capacity(nodes.len()),
        slots: vec![None; nodes.len()],
        holes: Vec::new(),
    };
    // Register 0 is the input's.
    lowering.slot(0);
    let mut constants = Vec::with_capacity(nodes.len());
    lowering.constants(block, &mut constants);
    lowering.block(block);
    let result = lowering.of(block.result);
    lowering.draft(Opcode::Return, None, [result], 0, &(0..0));
    let count = lowering.drafts.len();
    if count > SOLVER_INSTRUCTIONS_MAX {
        return Err(format!(
            "the program takes {count} instructions; at most {SOLVER_INSTRUCTIONS_MAX} are allowed"
        ));
    }
    lowering.assigned(constants, ties)
}

struct Lowering<'n> {
    nodes: &'n Nodes,
    drafts: Vec<Draft>,
    /// The kinds of slots, each once.
    kinds: Vec<&'n Kind>,
    /// The kind of each slot, as a place in `kinds`.
    slot_kinds: Vec<usize>,
    /// Where the values of nodes are; of a node in two blocks, that of the last.
    slots: Vec<Option<Slot>>,
    holes: Vec<(usize, HolePlace)>,
}

impl<'n> Lowering<'n> {
    /// A new slot for the value of a node.
    fn new_slot(&mut self, node: NodeId) -> Slot {
        let kind = &self.nodes[node].kind;
        let known = self.kinds.iter().position(|known| *known == kind);
        self.slot_kinds.push(known.unwrap_or(self.kinds.len()));
        if known.is_none() {
            self.kinds.push(kind);
        }
        self.slot_kinds.len() - 1
    }

    /// The same, which the value has from here on.
    fn slot(&mut self, node: NodeId) -> Slot {
        let slot = self.new_slot(node);
        self.slots[node] = Some(slot);
        slot
    }

    /// Gives slots to all constants that a block needs.
    fn constants(&mut self, block: &Block, found: &mut Vec<Constant>) {
        let nodes = self.nodes;
        for at in &block.nodes {
            if nodes[*at].op != Op::Machine(Opcode::Fail) {
                nodes.arguments(*at).iter().for_each(|needed| self.needs(*needed, found));
            }
        }
        self.needs(block.result, found);
        for at in &block.nodes {
            for inner in &nodes[*at].blocks {
                self.constants(inner, found);
            }
        }
    }

    /// Gives a slot to a node if it is a constant.
    fn needs(&mut self, node: NodeId, found: &mut Vec<Constant>) {
        let (Op::Constant(constant) | Op::Hole(_, constant)) = self.nodes[node].op else { return };
        if self.slots[node].is_some() {
            return;
        }
        self.slot(node);
        if let Op::Hole(hole, _) = self.nodes[node].op {
            self.holes.push((hole, HolePlace::Constant(found.len())));
        }
        found.push(constant);
    }

    /// The slot of a node that has been computed.
    fn of(&self, node: NodeId) -> Slot {
        self.slots[node].unwrap_or(0)
    }

    fn draft(
        &mut self,
        op: Opcode,
        to: Option<Slot>,
        from: impl IntoIterator<Item = Slot>,
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
        let arguments = self.nodes.arguments(at);
        let from = operands(arguments.iter().map(|argument| self.of(*argument)));
        let to = self.new_slot(at);
        match (op, node.blocks.as_slice()) {
            (Opcode::If, [then, otherwise]) => {
                let begin = self.draft(op, None, from, 0, &node.span);
                self.block(then);
                let value = self.of(then.result);
                let middle = self.draft(Opcode::Else, Some(to), [value], 0, &node.span);
                self.block(otherwise);
                let value = self.of(otherwise.result);
                let end = self.draft(Opcode::EndIf, Some(to), [value], 0, &node.span);
                self.drafts[begin].immediate = middle;
                self.drafts[middle].immediate = end;
            }
            (_, [body]) => {
                // The elements are in c and d.
                let mut from = from;
                for (parameter, operand) in body.parameters.iter().zip(&mut from[2..]) {
                    *operand = self.slot(*parameter);
                }
                let begin = self.draft(op, Some(to), from, 0, &node.span);
                self.block(body);
                let value = self.of(body.result);
                let next = self.draft(Opcode::Next, None, [value], begin, &node.span);
                self.drafts[begin].immediate = next;
            }
            (Opcode::Tuple, _) => {
                for at in (0..arguments.len().max(1)).step_by(OPERANDS) {
                    let part = &arguments[at..arguments.len().min(at + OPERANDS)];
                    let from = operands(part.iter().map(|argument| self.of(*argument)));
                    let op = if at == 0 { op } else { Opcode::Push };
                    self.draft(op, Some(to), from, part.len(), &node.span);
                }
            }
            (Opcode::Fail, _) => {
                let code = arguments.first().map(|argument| self.nodes[*argument].op);
                let code = match code {
                    Some(Op::Constant(Constant::Number(code))) => {
                        usize::try_from(code).unwrap_or(0)
                    }
                    _ => 0,
                };
                self.draft(op, Some(to), [], code, &node.span);
            }
            (_, _) => {
                self.draft(op, Some(to), from, 0, &node.span);
            }
        }
        self.slots[at] = Some(to);
    }

    /// Where each slot is first written and last needed.
    fn lives(&self, fixed: usize) -> Vec<Option<Range<usize>>> {
        let mut lives: Vec<Option<Range<usize>>> = vec![None; self.slot_kinds.len()];
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
        let mut register_kinds = Vec::with_capacity(lives.len());
        register_kinds.extend_from_slice(&self.slot_kinds[..fixed]);
        // Until when each register is needed.
        let mut busy_until = Vec::with_capacity(lives.len());
        busy_until.resize(fixed, usize::MAX);
        let mut registers: Vec<usize> = (0..self.slot_kinds.len()).collect();
        for (start, end, slot) in order {
            let kind = self.slot_kinds[slot];
            let free = (fixed..register_kinds.len())
                .find(|at| busy_until[*at] < start && register_kinds[*at] == kind);
            let register = free.unwrap_or_else(|| {
                register_kinds.push(kind);
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
        let mut kinds = Vec::with_capacity(self.kinds.len());
        // The number in the code of each of `self.kinds`.
        let mut numbers = vec![None; self.kinds.len()];
        for kind in &register_kinds {
            numbers[*kind].get_or_insert_with(|| collect(self.kinds[*kind], &mut kinds));
        }
        if kinds.len() > SOLVER_KINDS_MAX {
            let count = kinds.len();
            return Err(format!(
                "the program has {count} kinds of values; at most {SOLVER_KINDS_MAX} are allowed"
            ));
        }
        let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let number = |kind: &usize| byte(numbers[*kind].unwrap_or(0));
        let registers_kinds = register_kinds.iter().map(number).collect();
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

/// Adds a kind behind those that it is made of, unless it is there. Returns its place.
fn collect(kind: &Kind, kinds: &mut Vec<Kind>) -> usize {
    if let Some(known) = kinds.iter().position(|known| known == kind) {
        return known;
    }
    match kind {
        Kind::Set(of) | Kind::Tuple(of) => {
            collect(of, kinds);
        }
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
    kinds.len() - 1
}

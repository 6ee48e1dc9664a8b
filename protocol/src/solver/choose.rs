//! Choices: between values, between functions, and of one function among several when the solver runs.

use std::rc::Rc;
use std::slice;

use super::closure::{Choice, Closure, Value};
use super::code::Constant;
use super::elaborate::{Elaborator, Halt, Made};
use super::ir::{Block, NodeId, Scope};
use super::kind::Kind;
use super::opcode::Opcode;
use super::want::Want;

impl<'t> Elaborator<'t> {
    /// `branch(condition, a, b)`. Both values have been computed; of functions only the chosen one is applied.
    pub(super) fn branch(
        &mut self,
        condition: &Value<'t>,
        a: Value<'t>,
        b: Value<'t>,
    ) -> Made<Value<'t>> {
        let condition = self.node(condition)?;
        if a.is_data() && b.is_data() {
            let (a, b) = (self.flat(a)?, self.flat(b)?);
            let slots = self.slots(&a, &b);
            let halves = [self.filled(&a, &slots)?, self.filled(&b, &slots)?];
            return self.selected(condition, &slots, &halves);
        }
        if a.is_data() || b.is_data() {
            let (one, two) = (self.words(&a), self.words(&b));
            return self.mistake(format!(
                "branch wants two values or two functions; it gets {one} and {two}"
            ));
        }
        match (&a, &b) {
            (Value::Function(yes), Value::Function(no)) => {
                let (arity, other) = (yes.arity(), no.arity());
                if arity != other {
                    let message = "branch wants functions of as many arguments each";
                    return self.mistake(format!("{message}; it gets {arity} and {other}"));
                }
                Ok(Closure::Branch { condition, yes: a, no: b, arity }.into())
            }
            _ => self.one_of(condition, a, b),
        }
    }

    /// One of two values, known when the solver runs.
    fn one_of(&mut self, condition: NodeId, a: Value<'t>, b: Value<'t>) -> Made<Value<'t>> {
        let (first, second) = (Constant::Number(0), Constant::Number(1));
        let (first, second) = (self.builder.constant(first), self.builder.constant(second));
        let index = self.emit(Opcode::Select, &[condition, first, second], Kind::Number)?;
        Ok(Value::Choice(Rc::new(Choice { index, values: vec![a, b] })))
    }

    /// One of several values as one node: a set and a tuple are a tuple.
    pub(super) fn joined(&mut self, choice: &Choice<'t>) -> Made<NodeId> {
        let mut nodes = Vec::new();
        for value in &choice.values {
            nodes.push(self.node(value)?);
        }
        let kind = self.one_kind(&nodes, "branch wants values of one kind; it gets")?;
        let mut made = None;
        for (at, node) in nodes.into_iter().enumerate().rev() {
            let node = self.convert(node, &kind)?;
            made = Some(match made {
                None => node,
                Some(rest) => {
                    let is_it = self.is_at(choice, at)?;
                    self.emit(Opcode::Select, &[is_it, node, rest], kind.clone())?
                }
            });
        }
        made.ok_or(Halt::Noted)
    }

    /// Whether the value at this place is the chosen one.
    fn is_at(&mut self, choice: &Choice<'t>, at: usize) -> Made<NodeId> {
        let number = i32::try_from(at).unwrap_or(i32::MAX);
        let number = self.builder.constant(Constant::Number(number));
        self.emit(Opcode::Equality, &[choice.index, number], Kind::Flag)
    }

    /// Computes one of two values, each in its own arm.
    pub(super) fn either(
        &mut self,
        condition: NodeId,
        yes: impl FnOnce(&mut Self) -> Made<Value<'t>>,
        no: impl FnOnce(&mut Self) -> Made<Value<'t>>,
    ) -> Made<Value<'t>> {
        let (then, a) = self.arm(yes)?;
        let (otherwise, b) = self.arm(no)?;
        if !(a.is_data() && b.is_data()) {
            self.builder.adopt(then);
            self.builder.adopt(otherwise);
            let condition = Value::Node(condition);
            return self.branch(&condition, a, b);
        }
        let (then, a) = self.resumed(then, |this| this.flat(a))?;
        let (otherwise, b) = self.resumed(otherwise, |this| this.flat(b))?;
        let slots = self.slots(&a, &b);
        let (then, a) = self.resumed(then, |this| this.filled(&a, &slots))?;
        let (otherwise, b) = self.resumed(otherwise, |this| this.filled(&b, &slots))?;
        if then.nodes.is_empty() && otherwise.nodes.is_empty() {
            return self.selected(condition, &slots, &[a, b]);
        }
        let (then, a) = self.resumed(then, |this| this.packed(&a, &slots))?;
        let (otherwise, b) = self.resumed(otherwise, |this| this.packed(&b, &slots))?;
        let blocks = [(then, a), (otherwise, b)].map(|(scope, result)| Block {
            parameters: vec![],
            nodes: scope.nodes,
            result,
        });
        let kind = packed_kinds(&slots).pop().ok_or(Halt::Noted)?;
        let made = self.emit_with(Opcode::If, &[condition], kind, blocks.into())?;
        self.unpacked(made, &slots)
    }

    /// The value as a node, or as one of several.
    fn flat(&mut self, value: Value<'t>) -> Made<Value<'t>> {
        match value {
            Value::Choice(_) => Ok(value),
            Value::Node(_) | Value::Function(_) | Value::Static(_) | Value::Each(_) => {
                self.node(&value).map(Value::Node)
            }
        }
    }

    /// The kinds of two values: those that join are one.
    fn slots(&self, a: &Value<'t>, b: &Value<'t>) -> Vec<Kind> {
        let mut slots: Vec<Kind> = Vec::new();
        let mut add = |node: NodeId| {
            let kind = self.builder.kind(node);
            for slot in &mut slots {
                if let Some(joined) = slot.join(kind) {
                    *slot = joined;
                    return;
                }
            }
            slots.push(kind.clone());
        };
        a.nodes(&mut add);
        b.nodes(&mut add);
        slots
    }

    /// The number of the value's slot, and what is in each slot: nothing in those that it never fills.
    fn filled(&mut self, value: &Value<'t>, slots: &[Kind]) -> Made<Vec<Option<NodeId>>> {
        let (mut nodes, mut filled) = (Vec::new(), vec![None; slots.len() + 1]);
        value.nodes(&mut |node| nodes.push(node));
        for (at, node) in nodes.into_iter().enumerate().rev() {
            let kind = self.builder.kind(node);
            let slot = slots.iter().position(|slot| slot.join(kind).is_some());
            let slot = slot.ok_or(Halt::Noted)?;
            let number = Constant::Number(i32::try_from(slot).unwrap_or(i32::MAX));
            let number = self.builder.constant(number);
            let node = self.convert(node, &slots[slot])?;
            for (place, node, kind) in [(0, number, &Kind::Number), (slot + 1, node, &slots[slot])]
            {
                filled[place] = Some(match (filled[place], value) {
                    (Some(rest), Value::Choice(choice)) if rest != node => {
                        let is_it = self.is_at(choice, at)?;
                        self.emit(Opcode::Select, &[is_it, node, rest], kind.clone())?
                    }
                    _ => node,
                });
            }
        }
        Ok(filled)
    }

    /// One of two values whose slots have been filled.
    fn selected(
        &mut self,
        condition: NodeId,
        slots: &[Kind],
        [a, b]: &[Vec<Option<NodeId>>; 2],
    ) -> Made<Value<'t>> {
        let mut nodes = Vec::new();
        for (at, (one, two)) in a.iter().zip(b).enumerate() {
            let kind = at.checked_sub(1).map_or(&Kind::Number, |slot| &slots[slot]);
            nodes.push(match (*one, *two) {
                (Some(one), Some(two)) if at > 0 || slots.len() > 1 => {
                    self.emit(Opcode::Select, &[condition, one, two], kind.clone())?
                }
                (one, two) => one.or(two).ok_or(Halt::Noted)?,
            });
        }
        Ok(chosen(&nodes))
    }

    /// The slots as one value: the numbers in a tuple, behind it the others in pairs. What is not filled is blank.
    fn packed(&mut self, filled: &[Option<NodeId>], slots: &[Kind]) -> Made<NodeId> {
        let (number, filled) = filled.split_first().ok_or(Halt::Noted)?;
        if let ([_], [Some(node)]) = (slots, filled) {
            return Ok(*node);
        }
        let (mut numbers, mut others) = (Vec::from_iter(*number), Vec::new());
        for (node, slot) in filled.iter().zip(slots) {
            let node = match node {
                Some(node) => *node,
                None => self.blank(slot)?,
            };
            let side = if slot.is_number() { &mut numbers } else { &mut others };
            side.push(node);
        }
        let mut kinds = packed_kinds(slots).into_iter();
        let kind = kinds.next().ok_or(Halt::Noted)?;
        let mut packed = self.emit(Opcode::Tuple, &numbers, kind)?;
        for (other, kind) in others.into_iter().zip(kinds) {
            packed = self.emit(Opcode::Pair, &[packed, other], kind)?;
        }
        Ok(packed)
    }

    /// The slots of what has been packed.
    fn unpacked(&mut self, mut packed: NodeId, slots: &[Kind]) -> Made<Value<'t>> {
        if let [_] = slots {
            return Ok(Value::Node(packed));
        }
        let mut kinds = packed_kinds(slots);
        let mut nodes = vec![packed; slots.len() + 1];
        for (at, slot) in slots.iter().enumerate().rev().filter(|(_, slot)| !slot.is_number()) {
            kinds.pop();
            let before = kinds.last().cloned().ok_or(Halt::Noted)?;
            nodes[at + 1] = self.emit(Opcode::Last, &[packed], slot.clone())?;
            packed = self.emit(Opcode::First, &[packed], before)?;
        }
        nodes[0] = self.emit(Opcode::First, &[packed], Kind::Number)?;
        if let Some(at) = slots.iter().position(Kind::is_number) {
            nodes[at + 1] = self.emit(Opcode::Last, &[packed], Kind::Number)?;
        }
        Ok(chosen(&nodes))
    }

    /// Some value of a kind.
    pub(super) fn blank(&mut self, kind: &Kind) -> Made<NodeId> {
        let vector = Constant::Vector([0, 0]);
        match kind {
            Kind::Flag => Ok(self.builder.constant(Constant::Flag(false))),
            Kind::Number => Ok(self.builder.constant(Constant::Number(0))),
            Kind::Vector => Ok(self.builder.constant(vector)),
            Kind::Place => {
                let vector = self.builder.constant(vector);
                self.convert(vector, kind)
            }
            Kind::Cell | Kind::Pair(_) => {
                let (first, last) = kind.halves().ok_or(Halt::Noted)?;
                let halves = [self.blank(&first)?, self.blank(&last)?];
                self.emit(Opcode::Pair, &halves, kind.clone())
            }
            Kind::Grid => {
                let nothing = [Constant::Number(0), vector];
                let nothing = nothing.map(|constant| self.builder.constant(constant));
                self.emit(Opcode::Canvas, &nothing, Kind::Grid)
            }
            Kind::Set(_) | Kind::Tuple(_) => {
                let tuple = self.emit(Opcode::Tuple, &[], Kind::tuple(Kind::Never))?;
                if let Kind::Tuple(_) = kind {
                    return self.convert(tuple, kind);
                }
                let set = self.emit(Opcode::ToSet, &[tuple], Kind::set(Kind::Never))?;
                self.convert(set, kind)
            }
            Kind::Never => self.mistake("a value that never is cannot be chosen"),
        }
    }

    /// What a computation makes in a scope of its own.
    pub(super) fn arm<T>(
        &mut self,
        compute: impl FnOnce(&mut Self) -> Made<T>,
    ) -> Made<(Scope, T)> {
        self.resumed(Scope::default(), compute)
    }

    /// The same in a scope that has been closed before.
    pub(super) fn resumed<T>(
        &mut self,
        scope: Scope,
        compute: impl FnOnce(&mut Self) -> Made<T>,
    ) -> Made<(Scope, T)> {
        self.builder.open(scope);
        let made = compute(self);
        let scope = self.builder.close();
        Ok((scope, made?))
    }

    /// Computes with whichever value was chosen.
    pub(super) fn pick(
        &mut self,
        choice: &Rc<Choice<'t>>,
        mut compute: impl FnMut(&mut Self, &Value<'t>) -> Made<Value<'t>>,
    ) -> Made<Value<'t>> {
        self.pick_from(choice, 0, &mut compute)
    }

    fn pick_from(
        &mut self,
        choice: &Rc<Choice<'t>>,
        at: usize,
        compute: &mut dyn FnMut(&mut Self, &Value<'t>) -> Made<Value<'t>>,
    ) -> Made<Value<'t>> {
        let value = choice.values.get(at).ok_or(Halt::Noted)?;
        if at + 1 == choice.values.len() {
            return compute(self, value);
        }
        let is_it = self.is_at(choice, at)?;
        let (then, first) = self.arm(|this| compute(this, value))?;
        let (otherwise, rest) = self.arm(|this| this.pick_from(choice, at + 1, compute))?;
        // What has been computed for the arms is made anew where they are settled: only nodes of scopes remain.
        self.either(
            is_it,
            move |this| {
                this.builder.adopt(then);
                Ok(first)
            },
            move |this| {
                this.builder.adopt(otherwise);
                Ok(rest)
            },
        )
    }

    /// Chooses an element of a container with functions by a function of it: the first for which it is true, or
    /// with the greatest or least value.
    pub(super) fn choose(
        &mut self,
        opcode: Opcode,
        items: &[Value<'t>],
        function: &Value<'t>,
    ) -> Made<Value<'t>> {
        let index = if opcode == Opcode::Extract {
            self.first_true(items, function, 0)?
        } else {
            let mut keys = Vec::new();
            for item in items {
                keys.push(self.call(function, slice::from_ref(item), &[])?);
            }
            self.best_of(opcode, keys)?
        };
        Ok(Value::Choice(Rc::new(Choice { index, values: items.to_vec() })))
    }

    /// The place of the first item for which the function is true.
    fn first_true(&mut self, items: &[Value<'t>], function: &Value<'t>, at: usize) -> Made<NodeId> {
        let Some(item) = items.get(at) else {
            let code = crate::output::ItemErrorCode::EmptyArg as i32;
            let code = self.builder.constant(Constant::Number(code));
            return self.emit(Opcode::Fail, &[code], Kind::Number);
        };
        let found = self.call(function, slice::from_ref(item), &[])?;
        let found = self.node(&found)?;
        let number = i32::try_from(at).unwrap_or(i32::MAX);
        let number = self.constant(Constant::Number(number));
        let made = self.either(
            found,
            |_| Ok(number),
            |this| this.first_true(items, function, at + 1).map(Value::Node),
        )?;
        self.node(&made)
    }

    /// The place of the best of these keys, the first of equals.
    fn best_of(&mut self, opcode: Opcode, keys: Vec<Value<'t>>) -> Made<NodeId> {
        let mut nodes = Vec::new();
        for key in &keys {
            nodes.push(self.node(key)?);
        }
        let tuple = self.settled(false, keys)?;
        let tuple = self.node(&tuple)?;
        let kind = self.kind_of(tuple);
        let Some(container) = Want::Container.accept(&kind) else {
            return self.mistake(format!("the function gives values that do not compare: {kind}"));
        };
        let tuple = self.convert(tuple, &container)?;
        let element = container.element().cloned().ok_or(Halt::Noted)?;
        let parameter = self.builder.parameter(element.clone());
        let body = Block { parameters: vec![parameter], nodes: vec![], result: parameter };
        let best = self.emit_with(opcode, &[tuple], element.clone(), vec![body])?;
        let last = i32::try_from(nodes.len().saturating_sub(1)).unwrap_or(i32::MAX);
        let mut index = self.builder.constant(Constant::Number(last));
        for (at, key) in nodes.iter().enumerate().rev().skip(1) {
            let key = self.convert(*key, &element)?;
            let is_it = self.equality(Value::Node(key), Value::Node(best))?;
            let is_it = self.node(&is_it)?;
            let number = i32::try_from(at).unwrap_or(i32::MAX);
            let number = self.builder.constant(Constant::Number(number));
            index = self.emit(Opcode::Select, &[is_it, number, index], Kind::Number)?;
        }
        Ok(index)
    }
}

/// The value of these slots, behind the number of the one that is filled.
fn chosen<'t>(nodes: &[NodeId]) -> Value<'t> {
    match nodes {
        [_, node] => Value::Node(*node),
        nodes => {
            let values = nodes.iter().skip(1).copied().map(Value::Node).collect();
            Value::Choice(Rc::new(Choice { index: nodes.first().copied().unwrap_or(0), values }))
        }
    }
}

/// The kinds of slots that are packed, one more in each. No pair begins with a number: those would be cells.
fn packed_kinds(slots: &[Kind]) -> Vec<Kind> {
    if let [slot] = slots {
        return vec![slot.clone()];
    }
    let mut kinds = vec![Kind::tuple(Kind::Number)];
    for slot in slots.iter().filter(|slot| !slot.is_number()) {
        let last = kinds.last().cloned().unwrap_or(Kind::Never);
        kinds.push(Kind::pair(last, slot.clone()));
    }
    kinds
}

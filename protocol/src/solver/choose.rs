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
        let (one, two) = (a.has_function(), b.has_function());
        if !one && !two {
            let (a, b) = (self.node(&a)?, self.node(&b)?);
            return self.select(condition, a, b).map(Value::Node);
        }
        if one != two {
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
            _ => {
                let (first, second) = (Constant::Number(0), Constant::Number(1));
                let (first, second) = (self.builder.constant(first), self.builder.constant(second));
                let index = self.select(condition, first, second)?;
                Ok(Value::Choice(Rc::new(Choice { index, values: vec![a, b] })))
            }
        }
    }

    /// One of two values that have been computed.
    fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Made<NodeId> {
        let kind = self.joined(a, b)?;
        let (a, b) = (self.convert(a, &kind)?, self.convert(b, &kind)?);
        self.emit(Opcode::Select, &[condition, a, b], kind)
    }

    fn joined(&self, a: NodeId, b: NodeId) -> Made<Kind> {
        let (a, b) = (self.builder.kind(a), self.builder.kind(b));
        match a.join_containers(b) {
            Some(kind) => Ok(kind),
            None => self.mistake(format!("branch wants values of one kind; it gets {a} and {b}")),
        }
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
        if a.has_function() || b.has_function() {
            self.builder.adopt(then);
            self.builder.adopt(otherwise);
            let condition = Value::Node(condition);
            return self.branch(&condition, a, b);
        }
        let (then, a) = self.resumed(then, |this| this.node(&a))?;
        let (otherwise, b) = self.resumed(otherwise, |this| this.node(&b))?;
        let kind = self.joined(a, b)?;
        let (then, a) = self.resumed(then, |this| this.convert(a, &kind))?;
        let (otherwise, b) = self.resumed(otherwise, |this| this.convert(b, &kind))?;
        if then.nodes.is_empty() && otherwise.nodes.is_empty() {
            return self.emit(Opcode::Select, &[condition, a, b], kind).map(Value::Node);
        }
        let arm = |scope: Scope, result| Block { parameters: vec![], nodes: scope.nodes, result };
        let blocks = vec![arm(then, a), arm(otherwise, b)];
        self.emit_with(Opcode::If, &[condition], kind, blocks).map(Value::Node)
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
        let number = i32::try_from(at).unwrap_or(i32::MAX);
        let number = self.constant(Constant::Number(number));
        let is_it = self.equality(Value::Node(choice.index), number)?;
        let is_it = self.node(&is_it)?;
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

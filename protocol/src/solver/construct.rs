//! Primitives on containers that hold functions: they are worked off here.

use std::rc::Rc;

use super::closure::{Each, Static, Value};
use super::code::Constant;
use super::elaborate::{Elaborator, Made};
use super::ir::Op;
use super::opcode::{Opcode, Primitive};

impl<'t> Elaborator<'t> {
    /// The result of a primitive of which an argument is or has a function; `None` if it cannot take functions.
    pub(super) fn with_functions(
        &mut self,
        opcode: Opcode,
        arguments: &[Value<'t>],
    ) -> Made<Option<Value<'t>>> {
        for (at, argument) in arguments.iter().enumerate() {
            let Value::Choice(choice) = argument else { continue };
            let (choice, primitive) = (Rc::clone(choice), Primitive::of(opcode));
            let made = self.pick(&choice, |this, one| {
                let mut arguments = arguments.to_vec();
                arguments[at] = one.clone();
                match primitive {
                    Some(primitive) => this.primitive(primitive, &arguments, &[]),
                    None => this.mistake("a function stands where a value is needed"),
                }
            })?;
            return Ok(Some(made));
        }
        Ok(match (opcode, arguments) {
            (Opcode::InitSet, [value]) => Some(Value::set(vec![value.clone()])),
            (Opcode::Insert, [value, Value::Static(set)]) if set.is_set => {
                let items = set.items.iter().chain([value]).cloned().collect();
                Some(Value::set(items))
            }
            (Opcode::Combine, [Value::Static(a), Value::Static(b)]) => {
                let items = a.items.iter().chain(&b.items).cloned().collect();
                Some(Value::Static(Rc::new(Static { is_set: a.is_set, items })))
            }
            (Opcode::Product, [a, b]) => self.product(a, b)?,
            (Opcode::PairUp, [a, b]) => {
                let (Some(a), Some(b)) = (self.items(a)?, self.items(b)?) else { return Ok(None) };
                let pairs = a.into_iter().zip(b).map(|(a, b)| Value::tuple(vec![a, b]));
                Some(Value::tuple(pairs.collect()))
            }
            (Opcode::First, [Value::Static(of)]) if !of.is_set || of.items.len() == 1 => {
                of.items.first().cloned()
            }
            (Opcode::Last, [Value::Static(of)]) if !of.is_set || of.items.len() == 1 => {
                of.items.last().cloned()
            }
            (Opcode::Repeat, [value, Value::Node(times)]) => match self.builder.nodes[*times].op {
                Op::Constant(Constant::Number(times @ 0..=64)) => {
                    let times = usize::try_from(times).unwrap_or(0);
                    Some(Value::tuple(vec![value.clone(); times]))
                }
                Op::Constant(_)
                | Op::Hole(..)
                | Op::Input
                | Op::Parameter
                | Op::Machine(_)
                | Op::Chosen(..) => None,
            },
            (Opcode::ToTuple, [Value::Static(of)]) => Some(Value::tuple(of.items.clone())),
            (Opcode::ToTuple, [Value::Each(of)]) => {
                let Each { base, parameter, .. } = **of;
                let (scope, value) = (of.scope.clone(), of.value.clone());
                let each = Each { is_set: false, base, parameter, scope, value };
                Some(Value::Each(Rc::new(each)))
            }
            (Opcode::Size, [Value::Static(of)]) if !of.is_set => {
                let size = i32::try_from(of.items.len()).unwrap_or(i32::MAX);
                Some(self.constant(Constant::Number(size)))
            }
            _ => None,
        })
    }

    /// All pairs of elements of which some are functions.
    fn product(&mut self, a: &Value<'t>, b: &Value<'t>) -> Made<Option<Value<'t>>> {
        let mut sides = Vec::new();
        for side in [a, b] {
            let items = match side {
                Value::Node(node) => {
                    let from = self.builder.nodes.arguments(*node).first().copied();
                    let tuple = match (self.builder.nodes[*node].op, from) {
                        (Op::Machine(Opcode::ToSet), Some(tuple)) => tuple,
                        _ => *node,
                    };
                    match self.interval(tuple)? {
                        Some(items) => Some(items),
                        None => self.items(&Value::Node(tuple))?,
                    }
                }
                Value::Static(_) | Value::Function(_) | Value::Each(_) | Value::Choice(_) => {
                    self.items(side)?
                }
            };
            let Some(items) = items else { return Ok(None) };
            sides.push(items);
        }
        let [a, b] = [&sides[0], &sides[1]];
        let pairs =
            b.iter().flat_map(|b| a.iter().map(|a| Value::tuple(vec![a.clone(), b.clone()])));
        Ok(Some(Value::set(pairs.collect())))
    }
}

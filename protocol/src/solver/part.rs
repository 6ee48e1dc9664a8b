//! The parts of a value that one statement gives several names: `a, b = shape(I)`.

use super::closure::Value;
use super::code::Constant;
use super::elaborate::{Elaborator, Made};
use super::ir::{NodeId, Op};
use super::opcode::Opcode;

impl<'t> Elaborator<'t> {
    /// The part with this number of a value that has so many parts.
    pub(super) fn part(
        &mut self,
        value: &Value<'t>,
        number: usize,
        count: usize,
    ) -> Made<Value<'t>> {
        if let Value::Node(node) = value
            && count == 2
            && self.is_split_into_two(*node)
        {
            let kind = self.kind_of(*node).element().cloned();
            let op = if number == 0 { Opcode::First } else { Opcode::Last };
            if let Some(kind) = kind {
                return self.emit(op, &[*node], kind).map(Value::Node);
            }
        }
        let is_set = matches!(value, Value::Static(of) if of.is_set);
        let words = self.words(value);
        match self.items(value)? {
            Some(items) if items.len() == count && !is_set => Ok(items[number].clone()),
            Some(items) if !is_set => {
                let has = items.len();
                self.mistake(format!("{count} names stand on the left of `=`; {words} has {has} values"))
            }
            Some(_) | None => self.mistake(format!(
                "{count} names stand on the left of `=`; how many values {words} has is known only when the solver \
                 runs: give it one name, and write first(name) and last(name)"
            )),
        }
    }

    /// Whether it is `hsplit` or `vsplit` with the number 2 in the text.
    fn is_split_into_two(&self, node: NodeId) -> bool {
        if !matches!(self.builder.nodes[node].op, Op::Machine(Opcode::HSplit | Opcode::VSplit)) {
            return false;
        }
        let parts = self.builder.nodes.arguments(node).get(1);
        parts
            .is_some_and(|parts| self.builder.nodes[*parts].op == Op::Constant(Constant::Number(2)))
    }
}

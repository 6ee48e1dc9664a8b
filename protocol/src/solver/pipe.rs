//! Chains in expressions: `value | op(arguments)` puts the value into the op's missing place.

use super::closure::{Function, Names, Value};
use super::elaborate::{Elaborator, Halt, Made};
use super::ir::NodeId;
use super::kind::Kind;
use super::syntax::{Expression, Form};
use super::want::Want;

impl<'t> Elaborator<'t> {
    pub(super) fn pipe(
        &mut self,
        names: &Names<'t>,
        expression: &'t Expression<'t>,
    ) -> Made<Value<'t>> {
        let Form::Pipe(left, right) = &expression.form else { return Err(Halt::Noted) };
        let (value, ground) = self.left(names, left)?;
        self.called(&right.span, |this| this.piped(names, value, ground, right))
    }

    /// The value of a chain, and the last grid in it: the ground of its patches.
    fn left(
        &mut self,
        names: &Names<'t>,
        expression: &'t Expression<'t>,
    ) -> Made<(Value<'t>, Option<NodeId>)> {
        let (value, ground) = match &expression.form {
            Form::Pipe(left, right) => {
                let (value, ground) = self.left(names, left)?;
                let made =
                    self.called(&right.span, |this| this.piped(names, value, ground, right))?;
                (made, ground)
            }
            Form::Name(_)
            | Form::Number(_)
            | Form::Flag(_)
            | Form::Tuple(_)
            | Form::Part { .. }
            | Form::Call { .. }
            | Form::Lambda { .. } => (self.expression(names, expression)?, None),
        };
        let ground = match &value {
            Value::Node(node) if *self.builder.kind(*node) == Kind::Grid => Some(*node),
            Value::Node(_)
            | Value::Function(_)
            | Value::Static(_)
            | Value::Each(_)
            | Value::Choice(_) => ground,
        };
        Ok((value, ground))
    }

    /// The value of one op of a chain.
    fn piped(
        &mut self,
        names: &Names<'t>,
        value: Value<'t>,
        ground: Option<NodeId>,
        op: &'t Expression<'t>,
    ) -> Made<Value<'t>> {
        let (called, arguments) = match &op.form {
            Form::Call { function, arguments } => {
                (self.expression(names, function)?, arguments.as_slice())
            }
            Form::Name(_)
            | Form::Number(_)
            | Form::Flag(_)
            | Form::Tuple(_)
            | Form::Part { .. }
            | Form::Pipe(..)
            | Form::Lambda { .. } => (self.expression(names, op)?, [].as_slice()),
        };
        let Some(arity) = called.arity() else {
            let words = self.words(&called);
            return self.mistake(format!("a chain goes on with a function; this is {words}"));
        };
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.argument(names, ground, &argument.value)?);
        }
        let missing = arity.checked_sub(values.len());
        if missing == Some(0) && !arguments.is_empty() {
            let function = self.call(&called, &values, &[])?;
            if function.is_data() {
                let words = self.words(&function);
                return self.mistake(format!(
                    "a chain goes on with a function; this is {words}: write combine(a, b) for the elements of both"
                ));
            }
            return self.call(&function, &[value], &[]);
        }
        let (subject, on_ground) = places(&called);
        let is_grid =
            matches!(&value, Value::Node(node) if *self.builder.kind(*node) == Kind::Grid);
        match (missing, on_ground, ground) {
            (Some(1), Some(grid), _) if is_grid => values.insert(grid.min(values.len()), value),
            (Some(2), Some(grid), Some(ground)) if grid != subject => {
                let (first, second) =
                    if grid < subject { (grid, subject) } else { (subject, grid) };
                let (one, two) = if grid < subject {
                    (Value::Node(ground), value)
                } else {
                    (value, Value::Node(ground))
                };
                values.insert(first.min(values.len()), one);
                values.insert(second.min(values.len()), two);
            }
            _ => values.insert(subject.min(values.len()), value),
        }
        self.call(&called, &values, &[])
    }

    /// An argument of an op in a chain: a call that lacks one value gets the ground.
    fn argument(
        &mut self,
        names: &Names<'t>,
        ground: Option<NodeId>,
        expression: &'t Expression<'t>,
    ) -> Made<Value<'t>> {
        if let (Form::Call { function, arguments }, Some(ground)) = (&expression.form, ground)
            && let Form::Name(_) = function.form
        {
            let called = self.expression(names, function)?;
            if called.arity() == Some(arguments.len() + 1) {
                let value = Value::Node(ground);
                return self.called(&expression.span, |this| {
                    this.piped(names, value, Some(ground), expression)
                });
            }
        }
        self.expression(names, expression)
    }
}

/// The argument that a chain puts in, and the one for the ground.
fn places(called: &Value<'_>) -> (usize, Option<usize>) {
    let Value::Function(function) = called else { return (0, None) };
    match function {
        Function::Primitive(primitive) => {
            let grid = primitive.parameters.iter().position(|(_, want)| *want == Want::Grid);
            (usize::from(primitive.subject), grid)
        }
        Function::Builtin(builtin) => (usize::from(builtin.subject), None),
        Function::Defined(_) | Function::Hole(..) | Function::Made(_) => (0, None),
    }
}

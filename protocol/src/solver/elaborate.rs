//! Evaluates a text with the input as a grid whose cells are not known. Functions are worked off here; what is left
//! are nodes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use super::arguments::{count, function_words, unknown};
use super::builtin::Meaning;
use super::closure::{Closure, Function, Names, Value};
use super::code::Constant;
use super::hole::{Choices, Hole};
use super::ir::{Builder, NodeId, TooLarge};
use super::kind::Kind;
use super::mistake::Mistake;
use super::syntax::{Argument, Definition, Expression, Form, Module, Statement};
use super::value::NOTHING;
use crate::limits::{SOLVER_CALL_DEPTH_MAX, SOLVER_CALLS_MAX, SOLVER_NODES_MAX};

/// Why a value was not made.
#[derive(Debug)]
pub(super) enum Halt {
    Mistake(Box<Mistake>),
    /// It depends on a name whose own statement has a mistake, which has been noted.
    Noted,
}

pub(super) type Made<T> = Result<T, Halt>;

/// The value of a statement.
#[derive(Clone, Debug)]
pub(super) struct Line<'t> {
    /// The name that it gives the value; `None` for `return`.
    pub(super) name: Option<&'t str>,
    pub(super) span: Range<usize>,
    /// Its node, or those of which it is one; none for a function or a container of functions.
    pub(super) nodes: Vec<NodeId>,
}

/// A text whose names and kinds are settled.
#[derive(Debug)]
pub(super) struct Elaborated<'t> {
    pub(super) builder: Builder,
    pub(super) lines: Vec<Line<'t>>,
    pub(super) result: NodeId,
}

#[derive(Debug)]
pub(super) struct Elaborator<'t> {
    pub(super) text: &'t str,
    pub(super) builder: Builder,
    module: &'t Module<'t>,
    /// The values outside of functions.
    globals: Names<'t>,
    /// The holes of a template.
    holes: &'t [Hole],
    /// Names whose statements have mistakes.
    failed: BTreeSet<&'t str>,
    /// Lists of arguments that no call needs.
    spare: Vec<Vec<Value<'t>>>,
    calls: usize,
    depth: usize,
    /// The call of the text that is being worked off, or the statement before its first.
    pub(super) at: Range<usize>,
}

/// Elaborates the statements of a program over its parameter. Functions see the values of the statements outside.
pub(super) fn elaborate<'t>(
    text: &'t str,
    module: &'t Module<'t>,
    parameter: &'t str,
    body: &'t [Statement<'t>],
    holes: &'t [Hole],
) -> Result<Elaborated<'t>, Vec<Mistake>> {
    let builder = Builder::new();
    let (failed, at) = (BTreeSet::new(), 0..0);
    let (globals, spare, calls, depth) = (Names::default(), Vec::new(), 0, 0);
    let mut elaborator =
        Elaborator { text, builder, module, globals, holes, failed, spare, calls, depth, at };
    let is_outside = std::ptr::eq(body, module.statements.as_slice());
    let mut names = if is_outside { Names::default() } else { Names::of(body) };
    names.insert(parameter, Value::Node(0));
    let mut mistakes = if is_outside { Vec::new() } else { elaborator.outside() };
    let (mut lines, mut result) = (Vec::with_capacity(body.len()), None);
    for statement in body {
        match elaborator.statement(&mut names, statement) {
            Ok(value) => {
                mistakes.extend(statement.lost(body));
                let is_result = statement.name.is_none_or(|name| name == "O");
                let mut nodes = Vec::new();
                value.nodes(&mut |node| nodes.push(node));
                let (name, span) = (statement.name, statement.span.clone());
                if let (true, Some(name)) = (is_outside && !module.definitions.is_empty(), name) {
                    elaborator.globals.insert(name, value.clone());
                }
                if !statement.is_hidden() {
                    lines.push(Line { name, span: span.clone(), nodes });
                }
                if is_result || result.as_ref().is_none_or(|(_, _, is_result)| !is_result) {
                    result = Some((value, span, is_result));
                }
            }
            Err(halt) => {
                if let Halt::Mistake(mistake) = halt {
                    mistakes.push(*mistake);
                }
                elaborator.failed.extend(statement.name);
            }
        }
        if statement.name.is_none() && body.len() > 1 {
            break;
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let Some((value, span, _)) = result else {
        let help = "write O = …, for instance O = rot90(I)";
        return Err(vec![Mistake::new(0..0, "the program has no statement").with_help(help)]);
    };
    elaborator.at = span;
    match elaborator.node(&value) {
        Ok(result) => Ok(Elaborated { builder: elaborator.builder, lines, result }),
        Err(Halt::Mistake(mistake)) => Err(vec![*mistake]),
        Err(Halt::Noted) => Err(Vec::new()),
    }
}

impl<'t> Elaborator<'t> {
    pub(super) fn mistake<T>(&self, message: impl Into<String>) -> Made<T> {
        Err(Halt::Mistake(Box::new(Mistake::new(self.at.clone(), message))))
    }

    /// The result of a builder's call, or the mistake of a program that is too large.
    pub(super) fn fitting(&self, made: Result<NodeId, TooLarge>) -> Made<NodeId> {
        made.or_else(|TooLarge| {
            self.mistake(format!("the program computes over {SOLVER_NODES_MAX} values"))
        })
    }

    /// Works off the statements outside of functions, for a program that is a function.
    fn outside(&mut self) -> Vec<Mistake> {
        let (module, mut mistakes) = (self.module, Vec::new());
        for statement in &module.statements {
            let Some(name) = statement.name else { continue };
            let mut uses_grid = false;
            statement.value.names(&mut |name| uses_grid |= name == "I");
            let made = if uses_grid {
                let what = statement.words();
                let message = format!("{what} stands outside of functions: it may not use I");
                let help = "move it into the function that needs it, or below the last function";
                let mistake = Mistake::new(statement.span.clone(), message).with_help(help);
                Err(Halt::Mistake(Box::new(mistake)))
            } else {
                self.at = statement.value.span.clone();
                self.expression(&Names::default(), &statement.value)
            };
            match made {
                Ok(value) => {
                    self.failed.remove(name);
                    self.globals.insert(name, value);
                }
                Err(halt) => {
                    if let Halt::Mistake(mistake) = halt {
                        mistakes.push(*mistake);
                    }
                    self.failed.insert(name);
                }
            }
        }
        mistakes
    }

    fn statement(
        &mut self,
        names: &mut Names<'t>,
        statement: &'t Statement<'t>,
    ) -> Made<Value<'t>> {
        self.at = statement.value.span.clone();
        let value = self.expression(names, &statement.value)?;
        if let Some(name) = statement.name {
            self.failed.remove(name);
            names.insert(name, value.clone());
        }
        Ok(value)
    }

    pub(super) fn expression(
        &mut self,
        names: &Names<'t>,
        expression: &'t Expression<'t>,
    ) -> Made<Value<'t>> {
        match &expression.form {
            Form::Name(name) => self.name(names, name, &expression.span),
            Form::Number(number) => match i32::try_from(*number) {
                Ok(number) if number != NOTHING => Ok(self.constant(Constant::Number(number))),
                _ => {
                    let message = format!("{number} is not a number of 32 bits");
                    Err(Halt::Mistake(Box::new(Mistake::new(expression.span.clone(), message))))
                }
            },
            Form::Flag(flag) => Ok(self.constant(Constant::Flag(*flag))),
            Form::Tuple(values) => {
                let values = values.iter().map(|value| self.expression(names, value));
                let values = values.collect::<Made<Vec<_>>>()?;
                self.settled(false, values)
            }
            Form::Part { of, number, count } => {
                let value = self.name(names, of, &expression.span)?;
                self.part(&value, *number, *count)
            }
            Form::Lambda { parameters, body } => {
                Ok(Closure::Lambda { parameters, body, names: Rc::new(names.clone()) }.into())
            }
            Form::Call { function, arguments } => {
                let called = self.expression(names, function)?;
                let mut values = self.spare.pop().unwrap_or_default();
                for argument in arguments {
                    values.push(self.expression(names, &argument.value)?);
                }
                let span = &expression.span;
                let made = if arguments.iter().any(|argument| argument.name.is_some()) {
                    let order = self.order(&called, arguments, span)?;
                    let values: Vec<_> = order.iter().map(|at| values[*at].clone()).collect();
                    let written: Vec<_> = order.iter().map(|at| arguments[*at].clone()).collect();
                    self.called(span, |this| this.call(&called, &values, &written))
                } else {
                    self.called(span, |this| this.call(&called, &values, arguments))
                };
                values.clear();
                self.spare.push(values);
                made
            }
            Form::Pipe(..) => self.pipe(names, expression),
        }
    }

    /// Works off a call at a place in the text.
    pub(super) fn called<T>(
        &mut self,
        span: &Range<usize>,
        call: impl FnOnce(&mut Self) -> Made<T>,
    ) -> Made<T> {
        // Inside of a function of the text, the outermost call is the place that the user looks for.
        let outer = std::mem::replace(&mut self.at, span.clone());
        let made = call(self);
        self.at = outer;
        made
    }

    fn name(&mut self, names: &Names<'t>, name: &'t str, span: &Range<usize>) -> Made<Value<'t>> {
        if let Some(value) = names.get(name) {
            return Ok(value.clone());
        }
        if let Some(number) = self.holes.iter().position(|hole| hole.name == name) {
            return self.hole(number, names);
        }
        if self.failed.contains(name) {
            return Err(Halt::Noted);
        }
        if names.is_own(name) {
            let message = format!("`{name}` gets its value only below");
            let mistake = Mistake::new(span.clone(), message);
            let help = "move that line up, or give one of the two another name";
            return Err(Halt::Mistake(Box::new(mistake.with_help(help))));
        }
        if let Some(value) = self.globals.get(name) {
            return Ok(value.clone());
        }
        let defined =
            self.module.definitions.iter().rev().find(|definition| definition.name == name);
        if let Some(definition) = defined {
            return Ok(Value::Function(Function::Defined(definition)));
        }
        match Meaning::of(name) {
            Some(Meaning::Constant(constant)) => return Ok(self.constant(constant)),
            Some(Meaning::Builtin(builtin)) => {
                return Ok(Value::Function(Function::Builtin(builtin)));
            }
            Some(Meaning::Primitive(primitive)) => {
                return Ok(Value::Function(Function::Primitive(primitive)));
            }
            None => {}
        }
        let mistake = Mistake::new(span.clone(), format!("there is no name `{name}`"));
        Err(Halt::Mistake(Box::new(mistake.with_help(unknown(name, names.all())))))
    }

    /// The value of a hole, unless the text gives one of its words another meaning.
    fn hole(&mut self, number: usize, names: &Names<'t>) -> Made<Value<'t>> {
        let hole = &self.holes[number];
        let is_own = |word: &String| {
            let defined = self.module.definitions.iter().any(|definition| definition.name == word);
            let named = names.get(word).is_some() || names.is_own(word);
            defined || named || self.globals.get(word).is_some()
        };
        if let Some(word) = hole.words.iter().find(|word| is_own(word)) {
            return self.mistake(format!("`{word}` has a meaning of its own in the text"));
        }
        Ok(match &hole.choices {
            Choices::Constants(constants) => Value::Node(self.builder.hole(number, constants[0])),
            Choices::Primitives(primitives) => Value::Function(Function::Hole(number, primitives)),
        })
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Value<'t> {
        Value::Node(self.builder.constant(constant))
    }

    /// Counts a call, or a statement of one: both take time.
    fn count(&mut self) -> Made<()> {
        self.calls += 1;
        if self.calls > SOLVER_CALLS_MAX {
            return self.mistake(format!(
                "the program makes over {SOLVER_CALLS_MAX} calls, statements of functions counted"
            ));
        }
        Ok(())
    }

    /// Applies a function. `written` are its arguments in the text, if it is called there.
    pub(super) fn call(
        &mut self,
        function: &Value<'t>,
        arguments: &[Value<'t>],
        written: &[Argument<'t>],
    ) -> Made<Value<'t>> {
        self.count()?;
        if self.depth == SOLVER_CALL_DEPTH_MAX {
            return self.mistake(format!(
                "calls nest deeper than {SOLVER_CALL_DEPTH_MAX}: does a function call itself?"
            ));
        }
        self.depth += 1;
        let made = self.apply(function, arguments, written);
        self.depth -= 1;
        made
    }

    fn apply(
        &mut self,
        function: &Value<'t>,
        arguments: &[Value<'t>],
        written: &[Argument<'t>],
    ) -> Made<Value<'t>> {
        let function = match function {
            Value::Function(function) => function,
            Value::Choice(choice) => {
                return self.pick(choice, |this, one| this.call(one, arguments, &[]));
            }
            Value::Node(_) | Value::Static(_) | Value::Each(_) => {
                let words = self.words(function);
                return self.mistake(format!("{words} is called as a function"));
            }
        };
        match function {
            Function::Primitive(primitive) => self.primitive(primitive, arguments, written),
            Function::Builtin(builtin) => self.apply_builtin(builtin, arguments, written),
            Function::Hole(hole, primitives) => self.chosen(*hole, primitives, arguments),
            Function::Defined(_) | Function::Made(_) if function.arity() != arguments.len() => {
                let (words, want) = (function_words(function), count(function.arity()));
                self.mistake(format!("{words} takes {want}, got {}", arguments.len()))
            }
            Function::Defined(definition) => self.defined(definition, arguments),
            Function::Made(closure) => self.closure(closure, arguments),
        }
    }

    fn closure(&mut self, closure: &Closure<'t>, arguments: &[Value<'t>]) -> Made<Value<'t>> {
        match closure {
            Closure::Lambda { parameters, body, names } => {
                let mut names = names.as_ref().clone();
                names.extend(parameters.iter().copied().zip(arguments.iter().cloned()));
                let at = self.at.clone();
                let made = self.expression(&names, body);
                self.at = at;
                made
            }
            Closure::Compose(functions) => {
                let (innermost, others) = functions.split_last().ok_or(Halt::Noted)?;
                let mut value = self.call(innermost, arguments, &[])?;
                for function in others.iter().rev() {
                    value = self.call(function, &[value], &[])?;
                }
                Ok(value)
            }
            Closure::Fork { outer, a, b } => {
                let first = self.call(a, arguments, &[])?;
                let second = self.call(b, arguments, &[])?;
                self.call(outer, &[first, second], &[])
            }
            Closure::Matcher { function, target } => {
                let value = self.call(function, arguments, &[])?;
                self.equality(value, target.clone())
            }
            Closure::Bound { function, fixed, first, .. } => {
                let mut arguments = arguments.to_vec();
                arguments.insert(if *first { 0 } else { arguments.len() }, fixed.clone());
                self.call(function, &arguments, &[])
            }
            Closure::Power { function, times } => {
                let mut value = arguments.first().cloned().ok_or(Halt::Noted)?;
                for _ in 0..*times {
                    value = self.call(function, &[value], &[])?;
                }
                Ok(value)
            }
            Closure::Repeated { function, times } => {
                let start = arguments.first().ok_or(Halt::Noted)?;
                self.iterate(function, *times, start)
            }
            Closure::Branch { condition, yes, no, .. } => self.either(
                *condition,
                |this| this.call(yes, arguments, &[]),
                |this| this.call(no, arguments, &[]),
            ),
        }
    }

    fn defined(
        &mut self,
        definition: &'t Definition<'t>,
        arguments: &[Value<'t>],
    ) -> Made<Value<'t>> {
        let mut names = Names::of(&definition.body);
        names.extend(definition.parameters.iter().copied().zip(arguments.iter().cloned()));
        let (at, mut last) = (self.at.clone(), None);
        for statement in &definition.body {
            self.count()?;
            let value = self.statement(&mut names, statement)?;
            last = Some(value);
            if let Some(mistake) = statement.lost(&definition.body) {
                return Err(Halt::Mistake(Box::new(mistake)));
            }
            if statement.name.is_none() {
                break;
            }
        }
        self.at = at;
        match last {
            Some(value) => Ok(value),
            None => self.mistake(format!("`{}` has no statements", definition.name)),
        }
    }

    pub(super) fn kind_of(&self, node: NodeId) -> Kind {
        self.builder.kind(node).clone()
    }
}

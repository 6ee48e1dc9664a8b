//! What a text says, before its names and kinds are known.

use std::ops::Range;
use std::rc::Rc;

/// An expression and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    pub(super) form: Form,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Name(String),
    Number(i64),
    Flag(bool),
    Tuple(Vec<Expression>),
    Call {
        function: Box<Expression>,
        arguments: Vec<Argument>,
    },
    /// `left | right`.
    Pipe(Box<Expression>, Box<Expression>),
    Lambda {
        parameters: Rc<[String]>,
        body: Rc<Expression>,
    },
}

/// An argument, perhaps with the name of its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: Option<String>,
    pub(super) value: Expression,
}

/// `name = value`, or `return value` without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) name: Option<String>,
    pub(super) value: Expression,
    pub(super) span: Range<usize>,
}

/// A function of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) parameters: Rc<[String]>,
    pub(super) body: Rc<[Statement]>,
    /// From `def` to the end of the body.
    pub(super) span: Range<usize>,
}

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) definitions: Vec<Rc<Definition>>,
    /// The statements outside of definitions.
    pub(super) statements: Rc<[Statement]>,
}

impl Expression {
    /// Calls `each` for every name in it that it does not give itself.
    pub(super) fn names(&self, each: &mut dyn FnMut(&str)) {
        match &self.form {
            Form::Name(name) => each(name),
            Form::Number(_) | Form::Flag(_) => {}
            Form::Tuple(values) => values.iter().for_each(|value| value.names(each)),
            Form::Call { function, arguments } => {
                function.names(each);
                arguments.iter().for_each(|argument| argument.value.names(each));
            }
            Form::Pipe(left, right) => {
                left.names(each);
                right.names(each);
            }
            Form::Lambda { parameters, body } => body.names(&mut |name| {
                if !parameters.iter().any(|parameter| parameter == name) {
                    each(name);
                }
            }),
        }
    }
}

impl Definition {
    /// The names of the text around it that it uses.
    pub(super) fn free_names(&self) -> Vec<String> {
        let mut own: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        let mut free = Vec::new();
        for statement in self.body.iter() {
            statement.value.names(&mut |name| {
                if !own.contains(&name) {
                    free.push(name.to_owned());
                }
            });
            own.extend(statement.name.as_deref());
        }
        free
    }
}

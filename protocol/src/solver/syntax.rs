//! What a text says, before its names and kinds are known.

use std::ops::Range;

use super::mistake::Mistake;

/// An expression and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression<'t> {
    pub(super) form: Form<'t>,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form<'t> {
    Name(&'t str),
    Number(i64),
    Flag(bool),
    Tuple(Vec<Expression<'t>>),
    /// One of the parts of the value of a name: its number, of so many.
    Part {
        of: &'t str,
        number: usize,
        count: usize,
    },
    Call {
        function: Box<Expression<'t>>,
        arguments: Vec<Argument<'t>>,
    },
    /// `left | right`.
    Pipe(Box<Expression<'t>>, Box<Expression<'t>>),
    Lambda {
        parameters: Vec<&'t str>,
        body: Box<Expression<'t>>,
    },
}

/// An argument, perhaps with the name of its parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument<'t> {
    pub(super) name: Option<&'t str>,
    pub(super) value: Expression<'t>,
}

/// `name = value`, or a value without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement<'t> {
    pub(super) name: Option<&'t str>,
    /// `return` stands before the value.
    pub(super) is_returned: bool,
    pub(super) value: Expression<'t>,
    pub(super) span: Range<usize>,
}

/// Whether a name is the text of several, as the value of `a, b = …` has: nobody can write that.
pub(super) fn is_hidden(name: &str) -> bool {
    name.contains(',')
}

impl Statement<'_> {
    /// How a mistake calls it.
    pub(super) fn words(&self) -> String {
        match self.name {
            Some(name) if !is_hidden(name) => format!("`{name}`"),
            Some(_) | None => "this line".to_owned(),
        }
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.name.is_some_and(is_hidden)
    }

    /// The mistake of a value in a body that goes on behind it: it would be the result, and in Python it is nothing.
    pub(super) fn lost(&self, body: &[Self]) -> Option<Mistake> {
        let is_last = body.last().is_none_or(|last| std::ptr::eq(last, self));
        let is_lost = self.name.is_none() && !self.is_returned && !is_last;
        let help = "write `NAME = …` to use it below, or `return …` to end with it";
        is_lost.then(|| Mistake::new(self.span.clone(), "nothing takes this value").with_help(help))
    }
}

/// A function of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition<'t> {
    pub(super) name: &'t str,
    pub(super) parameters: Vec<&'t str>,
    pub(super) body: Vec<Statement<'t>>,
    /// From `def` to the end of the body.
    pub(super) span: Range<usize>,
}

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Module<'t> {
    pub(super) definitions: Vec<Definition<'t>>,
    /// The statements outside of definitions.
    pub(super) statements: Vec<Statement<'t>>,
}

impl<'t> Expression<'t> {
    /// Calls `each` for every name in it that it does not give itself.
    pub(super) fn names(&self, each: &mut dyn FnMut(&'t str)) {
        match &self.form {
            Form::Name(name) | Form::Part { of: name, .. } => each(name),
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
                if !parameters.contains(&name) {
                    each(name);
                }
            }),
        }
    }
}

impl<'t> Definition<'t> {
    /// The names of the text around it that it uses.
    pub(super) fn free_names(&self) -> Vec<&'t str> {
        let mut own = self.parameters.clone();
        let mut free = Vec::new();
        for statement in &self.body {
            statement.value.names(&mut |name| {
                if !own.contains(&name) {
                    free.push(name);
                }
            });
            own.extend(statement.name);
        }
        free
    }
}

//! The values of the compiler: nodes, and functions and containers of functions, which exist only here.

use std::rc::Rc;

use super::builtin::Builtin;
use super::ir::{NodeId, Scope};
use super::opcode::Primitive;
use super::syntax::{Definition, Expression, Statement, is_hidden};

/// What a name stands for while a solver is compiled.
#[derive(Clone, Debug)]
pub(super) enum Value<'t> {
    /// A value of the machine.
    Node(NodeId),
    Function(Function<'t>),
    /// A container whose elements are known one by one.
    Static(Rc<Static<'t>>),
    /// A container of one function for each element of another container.
    Each(Rc<Each<'t>>),
    /// One of several values, known only when the solver runs.
    Choice(Rc<Choice<'t>>),
}

/// The names that an expression may use, each once. They are few: a text is short.
#[derive(Clone, Debug, Default)]
pub(super) struct Names<'t> {
    known: Vec<(&'t str, Value<'t>)>,
    /// The body of the function that gives them values.
    body: &'t [Statement<'t>],
    /// The marks of the names in it: most names that are asked for are not there.
    marks: u64,
}

/// One bit of 64, the same for the same name.
fn mark(name: &str) -> u64 {
    let first = name.bytes().next().unwrap_or(0);
    1 << ((usize::from(first) + 31 * name.len()) % 64)
}

impl<'t> Names<'t> {
    pub(super) fn of(body: &'t [Statement<'t>]) -> Self {
        let names = body.iter().filter_map(|statement| statement.name);
        Self { known: Vec::new(), body, marks: names.fold(0, |marks, name| marks | mark(name)) }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value<'t>> {
        self.known.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether the function gives this name a value somewhere: then it means nothing else in it, as in Python.
    pub(super) fn is_own(&self, name: &str) -> bool {
        self.marks & mark(name) != 0
            && self.body.iter().any(|statement| statement.name == Some(name))
    }

    /// Gives a name a value, in the place of the one that it had.
    pub(super) fn insert(&mut self, name: &'t str, value: Value<'t>) {
        match self.known.iter_mut().rev().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.known.push((name, value)),
        }
    }

    /// Those that can be written.
    pub(super) fn all(&self) -> impl Iterator<Item = &'t str> {
        self.known.iter().map(|(name, _)| *name).filter(|name| !is_hidden(name))
    }
}

impl<'t> Extend<(&'t str, Value<'t>)> for Names<'t> {
    fn extend<I: IntoIterator<Item = (&'t str, Value<'t>)>>(&mut self, named: I) {
        named.into_iter().for_each(|(name, value)| self.insert(name, value));
    }
}

#[derive(Clone, Debug)]
pub(super) enum Function<'t> {
    Primitive(&'static Primitive),
    Builtin(&'static Builtin),
    /// One of these, which each program of a template chooses: the number of the hole.
    Hole(usize, &'t Vec<&'static Primitive>),
    Defined(&'t Definition<'t>),
    Made(Rc<Closure<'t>>),
}

/// A function that the text makes.
#[derive(Debug)]
pub(super) enum Closure<'t> {
    Lambda {
        parameters: &'t [&'t str],
        body: &'t Expression<'t>,
        names: Rc<Names<'t>>,
    },
    /// Each is applied to the result of the one behind it.
    Compose(Vec<Value<'t>>),
    Fork {
        outer: Value<'t>,
        a: Value<'t>,
        b: Value<'t>,
    },
    Matcher {
        function: Value<'t>,
        target: Value<'t>,
    },
    /// One argument is fixed: the first, or the last of `arity + 1`.
    Bound {
        function: Value<'t>,
        fixed: Value<'t>,
        first: bool,
        arity: usize,
    },
    /// Applied a number of times that is known.
    Power {
        function: Value<'t>,
        times: u32,
    },
    /// Applied a number of times that is known when the solver runs.
    Repeated {
        function: Value<'t>,
        times: NodeId,
    },
    Branch {
        condition: NodeId,
        yes: Value<'t>,
        no: Value<'t>,
        arity: usize,
    },
}

#[derive(Debug)]
pub(super) struct Static<'t> {
    pub(super) is_set: bool,
    pub(super) items: Vec<Value<'t>>,
}

#[derive(Debug)]
pub(super) struct Each<'t> {
    pub(super) is_set: bool,
    /// The container over whose elements it goes.
    pub(super) base: NodeId,
    pub(super) parameter: NodeId,
    /// What has been computed from the element.
    pub(super) scope: Scope,
    pub(super) value: Value<'t>,
}

#[derive(Debug)]
pub(super) struct Choice<'t> {
    /// A number: which of them.
    pub(super) index: NodeId,
    pub(super) values: Vec<Value<'t>>,
}

impl<'t> From<Closure<'t>> for Value<'t> {
    fn from(closure: Closure<'t>) -> Self {
        Self::Function(Function::Made(Rc::new(closure)))
    }
}

impl Value<'_> {
    pub(super) fn tuple(items: Vec<Self>) -> Self {
        Self::Static(Rc::new(Static { is_set: false, items }))
    }

    pub(super) fn set(items: Vec<Self>) -> Self {
        Self::Static(Rc::new(Static { is_set: true, items }))
    }

    /// Whether it is no function and has none inside: a value of the machine, or one of several.
    pub(super) fn is_data(&self) -> bool {
        match self {
            Self::Node(_) => true,
            Self::Function(_) | Self::Each(_) => false,
            Self::Static(of) => of.items.iter().all(Self::is_data),
            Self::Choice(of) => of.values.iter().all(Self::is_data),
        }
    }

    /// Its node, or those of which it is one. A function has none.
    pub(super) fn nodes(&self, each: &mut impl FnMut(NodeId)) {
        match self {
            Self::Node(node) => each(*node),
            Self::Choice(of) if self.is_data() => of.values.iter().for_each(|one| one.nodes(each)),
            Self::Function(_) | Self::Static(_) | Self::Each(_) | Self::Choice(_) => {}
        }
    }

    /// Whether it is a function or a choice, or has one inside.
    pub(super) fn has_function(&self) -> bool {
        match self {
            Self::Node(_) => false,
            Self::Function(_) | Self::Each(_) | Self::Choice(_) => true,
            Self::Static(of) => of.items.iter().any(Self::has_function),
        }
    }

    /// How many arguments it takes; `None` if it is no function.
    pub(super) fn arity(&self) -> Option<usize> {
        match self {
            Self::Function(function) => Some(function.arity()),
            Self::Choice(choice) => choice.values.first().and_then(Self::arity),
            Self::Node(_) | Self::Static(_) | Self::Each(_) => None,
        }
    }
}

impl<'t> Function<'t> {
    pub(super) fn arity(&self) -> usize {
        match self {
            Self::Primitive(primitive) => primitive.parameters.len(),
            Self::Builtin(builtin) => builtin.parameters.len(),
            Self::Hole(_, primitives) => primitives[0].parameters.len(),
            Self::Defined(definition) => definition.parameters.len(),
            Self::Made(closure) => closure.arity(),
        }
    }

    /// The names of its parameters; none if it was made from other functions.
    pub(super) fn parameter_names(&self) -> Vec<&'t str> {
        match self {
            Self::Primitive(of) => of.parameters.iter().map(|(name, _)| *name).collect(),
            Self::Builtin(of) => of.parameters.iter().map(|(name, _)| *name).collect(),
            Self::Defined(of) => of.parameters.clone(),
            Self::Made(closure) => match closure.as_ref() {
                Closure::Lambda { parameters, .. } => parameters.to_vec(),
                Closure::Compose(_)
                | Closure::Fork { .. }
                | Closure::Matcher { .. }
                | Closure::Bound { .. }
                | Closure::Power { .. }
                | Closure::Repeated { .. }
                | Closure::Branch { .. } => Vec::new(),
            },
            Self::Hole(..) => Vec::new(),
        }
    }
}

impl Closure<'_> {
    fn arity(&self) -> usize {
        match self {
            Self::Lambda { parameters, .. } => parameters.len(),
            Self::Compose(_)
            | Self::Fork { .. }
            | Self::Matcher { .. }
            | Self::Power { .. }
            | Self::Repeated { .. } => 1,
            Self::Bound { arity, .. } | Self::Branch { arity, .. } => *arity,
        }
    }
}

//! The arguments of calls: their order, which fit, and what is said of those that do not.

use std::ops::Range;

use super::builtin::{self, Builtin, Takes};
use super::closure::{Closure, Function, Value};
use super::elaborate::{Elaborator, Halt, Made};
use super::mistake::Mistake;
use super::python::instead_of_name;
use super::syntax::Argument;
use super::want::Want;
use crate::near;

/// Longest text of an argument that a mistake repeats, in bytes.
const TEXT_SHOWN_MAX: usize = 40;

impl<'t> Elaborator<'t> {
    /// The places of arguments, some of which are named, in the order of the parameters.
    pub(super) fn order(
        &self,
        called: &Value<'t>,
        arguments: &[Argument<'t>],
        span: &Range<usize>,
    ) -> Made<Vec<usize>> {
        let parameters = match called {
            Value::Function(function) => function.parameter_names(),
            Value::Node(_) | Value::Static(_) | Value::Each(_) | Value::Choice(_) => Vec::new(),
        };
        let wrong = |message: String| {
            let help = if parameters.is_empty() {
                "write the values alone, without names".to_owned()
            } else {
                format!("write the values alone, in this order: {}", parameters.join(", "))
            };
            let mistake = Mistake::new(span.clone(), message).with_help(help);
            Err(Halt::Mistake(Box::new(mistake)))
        };
        let mut places = vec![None; parameters.len().max(arguments.len())];
        for (at, argument) in arguments.iter().enumerate() {
            let place = match &argument.name {
                None => Some(at),
                Some(name) => parameters.iter().position(|parameter| parameter == name),
            };
            let free =
                place.and_then(|place| places.get_mut(place)).filter(|place| place.is_none());
            let Some(free) = free else {
                let name = argument.name.unwrap_or("");
                return wrong(format!("there is no argument `{name}` here, or it is given twice"));
            };
            *free = Some(at);
        }
        let mut missing = parameters.iter().zip(&places).filter(|(_, place)| place.is_none());
        if let Some((name, _)) = missing.next() {
            return wrong(format!("the argument `{name}` is missing"));
        }
        Ok(places.into_iter().flatten().collect())
    }

    /// Applies a builtin. Of an argument that is one of several values it is applied to the one that was chosen.
    pub(super) fn apply_builtin(
        &mut self,
        builtin: &Builtin,
        arguments: &[Value<'t>],
        written: &[Argument<'t>],
    ) -> Made<Value<'t>> {
        for (at, ((_, takes), argument)) in builtin.parameters.iter().zip(arguments).enumerate() {
            let is_looked_into = !matches!(takes, Takes::Function | Takes::Value(Want::Any));
            if let (true, Value::Choice(choice)) = (is_looked_into, argument) {
                return self.pick(choice, |this, one| {
                    let mut arguments = arguments.to_vec();
                    arguments[at] = one.clone();
                    this.apply_builtin(builtin, &arguments, &[])
                });
            }
        }
        self.check_builtin(builtin, arguments, written)?;
        self.builtin(builtin.does, arguments)
    }

    fn check_builtin(
        &mut self,
        builtin: &Builtin,
        arguments: &[Value<'t>],
        written: &[Argument<'t>],
    ) -> Made<()> {
        let (want, got) = (builtin.parameters.len(), arguments.len());
        if want != got {
            let signature = builtin.signature();
            return self.mistake(format!("{signature} takes {}, got {got}", count(want)));
        }
        for (at, ((_, takes), argument)) in builtin.parameters.iter().zip(arguments).enumerate() {
            let fits = match takes {
                Takes::Function => argument.arity().is_some(),
                Takes::Functions => argument.has_function() && argument.arity().is_none(),
                Takes::Value(Want::Any) => true,
                Takes::Value(Want::Container) => match argument {
                    Value::Node(node) => Want::Container.accept(self.builder.kind(*node)).is_some(),
                    Value::Function(_) => false,
                    Value::Static(_) | Value::Each(_) | Value::Choice(_) => true,
                },
                Takes::Value(want) => match argument {
                    Value::Node(node) => want.accept(self.builder.kind(*node)).is_some(),
                    Value::Static(_) | Value::Function(_) | Value::Each(_) | Value::Choice(_) => {
                        *want == Want::Grid && !argument.has_function()
                    }
                },
            };
            if !fits {
                let (name, wants) = (builtin.name, takes.words());
                return self.refused(name, wants, argument, written.get(at));
            }
        }
        Ok(())
    }

    /// The mistake of an argument that does not fit.
    pub(super) fn refused<T>(
        &mut self,
        name: &str,
        wants: &str,
        argument: &Value<'t>,
        written: Option<&Argument<'t>>,
    ) -> Made<T> {
        let words = self.words(argument);
        let text = written.map(|argument| &self.text[argument.value.span.clone()]);
        let is = match text {
            Some(text) if text.len() <= TEXT_SHOWN_MAX && !text.contains('\n') => {
                format!("{text} is {words}")
            }
            Some(_) | None => format!("it gets {words}"),
        };
        let mut mistake = Mistake::new(self.at.clone(), format!("{name} wants {wants}; {is}"));
        let called = text.is_none() || self.text[self.at.clone()].starts_with(name);
        if !called {
            let call = self.text[self.at.clone()].lines().next().unwrap_or("");
            mistake = mistake.with_help(format!("{name} is applied by this call: {call}"));
        }
        Err(Halt::Mistake(Box::new(mistake)))
    }

    /// A value in words.
    pub(super) fn words(&self, value: &Value<'t>) -> String {
        match value {
            Value::Node(node) => self.builder.kind(*node).to_string(),
            Value::Function(function) => function_words(function),
            Value::Static(of) if of.is_set => "a set with functions".to_owned(),
            Value::Static(_) => "a tuple with functions".to_owned(),
            Value::Each(_) => "a container of functions".to_owned(),
            Value::Choice(choice) if value.is_data() => {
                let words: Vec<_> = choice.values.iter().map(|one| self.words(one)).collect();
                words.join(" or ")
            }
            Value::Choice(_) => "one of several functions".to_owned(),
        }
    }
}

/// A function in words.
pub(super) fn function_words(function: &Function<'_>) -> String {
    match function {
        Function::Primitive(primitive) => format!("the function {}", primitive.name),
        Function::Builtin(builtin) => format!("the function {}", builtin.name),
        Function::Defined(definition) => format!("the function {}", definition.name),
        Function::Made(closure) if matches!(closure.as_ref(), Closure::Lambda { .. }) => {
            "the lambda".to_owned()
        }
        Function::Made(_) | Function::Hole(..) => "a function".to_owned(),
    }
}

/// `3 arguments`.
pub(super) fn count(arguments: usize) -> String {
    match arguments {
        1 => "1 argument".to_owned(),
        _ => format!("{arguments} arguments"),
    }
}

/// What to write instead of a name that nothing has.
pub(super) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    if let Some(help) = instead_of_name(name) {
        return help.to_owned();
    }
    // Words in capitals are meant as constants.
    let is_constant = |word: &str| word.len() > 1 && !word.contains(|c: char| c.is_lowercase());
    let is_meant = is_constant(name);
    let mut all: Vec<&str> = known.collect();
    all.extend(builtin::names().map(|name| -> &str { name }));
    all.retain(|known| !is_meant || is_constant(known));
    let close = near::names(name, all);
    let number = "write the number as it is: 11, -3";
    match (close.as_slice(), is_meant) {
        ([], true) => number.to_owned(),
        ([], false) => {
            "the functions are in the book, under primitives; names are given by NAME = …"
                .to_owned()
        }
        (close, true) => format!("close to it: {}; or {number}", close.join(", ")),
        (close, false) => format!("close to it: {}", close.join(", ")),
    }
}

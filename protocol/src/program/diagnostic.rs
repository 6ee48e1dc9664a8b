//! The errors of a call: what is wrong in its context, and what to write instead.

use std::ops::Range;

use super::error::{ProgramError, short};
use super::kind::{Kind, Type};
use super::names::is_op;
use super::ops::Op;
use super::parameter::{Accepts, Parameter};
use super::parse::{Argument, Call, Value};
use super::table::{Makes, OpSpec, Takes, call_text};

const OBJECTS: &str = "objects(true, false, true)";
const CHOOSE: &str = "choose one with argmax(size) or first, or put them together with merge";
const COLORED: &str =
    "take its cells with toobject, or give its places a colour with recolor(color)";

/// Whether steps work on the elements of a tuple one by one.
#[derive(Clone, Copy)]
pub(super) enum Applied<'t> {
    No,
    To {
        /// The op that applies them.
        by: &'static str,
        /// How many elements.
        values: u8,
        elements: Kind,
        /// The steps as they are written.
        text: &'t str,
    },
}

/// The context of a chain of calls, and the previous call in it.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    pub(super) applied: Applied<'t>,
    /// The op for which the chain finds a patch.
    pub(super) patch_of: Option<&'static OpSpec>,
    /// The previous call, and the type that it took.
    pub(super) previous: Option<(&'t Call, Type)>,
}

impl Place<'_> {
    /// Says that there is a value of this type here, and why.
    fn has(self, takes: Type) -> String {
        match (self.previous, self.patch_of, self.applied) {
            (Some(_), ..) => format!("what comes before it gives {takes}"),
            (None, Some(spec), _) => {
                format!("the {} of `{}` is found in {takes}", patch_word(spec), spec.name)
            }
            (None, None, Applied::To { by, .. }) => {
                format!("inside `{by}` each element is {takes}")
            }
            (None, None, Applied::No) => format!("a program starts with {takes}"),
        }
    }
}

/// A call with its context.
#[derive(Clone, Copy)]
pub(super) struct At<'t> {
    pub(super) text: &'t str,
    pub(super) call: &'t Call,
    pub(super) spec: &'static OpSpec,
    pub(super) place: Place<'t>,
}

impl<'t> At<'t> {
    /// The argument in the position of a program for a patch, and those before it.
    pub(super) fn patch_argument(self) -> Option<(&'t Argument, &'t [Argument])> {
        let one_more = self.call.arguments.len() == self.spec.parameters.len() + 1;
        let may = one_more && self.spec.takes_patch_program();
        self.call.arguments.split_last().filter(|_| may)
    }

    pub(super) fn error(self, span: Range<usize>, message: String) -> ProgramError {
        ProgramError::new(self.text, span, message)
    }

    /// Checks the number of arguments.
    pub(super) fn check_count(self, takes: Type) -> Result<(), ProgramError> {
        let (name, got) = (self.spec.name, self.call.arguments.len());
        let want = self.spec.parameters.len();
        if got == want {
            return Ok(());
        }
        let finds = self.spec.takes_patch_program() && takes == Type::one(Kind::Grid);
        let patch = patch_word(self.spec);
        let message = match (finds && got > want, want) {
            (true, 0) => format!("`{name}` takes at most 1 argument, the {patch}, got {got}"),
            (true, _) => {
                let most = want + 1;
                format!(
                    "`{name}` takes at most {most} arguments, the last for the {patch}, got {got}"
                )
            }
            (false, 1) => format!("`{name}` takes 1 argument, got {got}"),
            (false, _) => format!("`{name}` takes {want} arguments, got {got}"),
        };
        let help = self.as_chain().unwrap_or_else(|| {
            let mut names: Vec<&str> =
                self.spec.parameters.iter().map(|parameter| parameter.name).collect();
            if finds {
                names.push(patch);
            }
            format!("write {}", call_text(name, &names))
        });
        Err(self.error(self.call.whole.clone(), message).with_help(help))
    }

    /// The help for `rot90(hmirror)` and `rot90(I)`, which the DSL allows.
    fn as_chain(self) -> Option<String> {
        let [Argument { value: Value::Calls(calls), span }, rest @ ..] =
            self.call.arguments.as_slice()
        else {
            return None;
        };
        let mut pairs = rest.iter().zip(self.spec.parameters);
        let fits = pairs.all(|(argument, parameter)| parameter.accept(argument).is_some());
        let more = match rest.get(self.spec.parameters.len()..)? {
            [] => true,
            [patch] => self.spec.takes_patch_program() && matches!(patch.value, Value::Calls(_)),
            [_, _, ..] => false,
        };
        if !fits || !more {
            return None;
        }
        let call = self.with_arguments(rest);
        if calls.iter().all(|call| is_op(&call.name)) {
            return Some(format!("ops are joined by `|`: {} | {call}", self.shown(span)));
        }
        let bare = matches!(calls.as_slice(), [one] if one.arguments.is_empty());
        bare.then(|| format!("an op works on what comes before it: write {call}"))
    }

    pub(super) fn wrong_argument(self, parameter: Parameter, argument: &Argument) -> ProgramError {
        let (name, wants) = (parameter.name, parameter.wants());
        let got = self.shown(&argument.span);
        let message = format!("`{name}` of `{}` is {wants}, got `{got}`", self.spec.name);
        let error = self.error(argument.span.clone(), message);
        let number = constant(argument).filter(|_| parameter.is_number());
        error.with_any_help(number.map(|number| match parameter.accepts {
            Accepts::Color => format!("colours are numbers: {got} is {number}"),
            Accepts::Flag | Accepts::Number { .. } | Accepts::Key | Accepts::Program => {
                format!("numbers are written in digits: {got} is {number}")
            }
        }))
    }

    pub(super) fn no_patch_program(self, argument: &Argument) -> ProgramError {
        let wants =
            if self.spec.works_on(Type::one(Kind::Patch)) { "a patch" } else { "an object" };
        let (name, got) = (self.spec.name, self.shown(&argument.span));
        let message = format!("the last argument of `{name}` is {wants}, got `{got}`");
        self.error(argument.span.clone(), message)
    }

    pub(super) fn changes_its_grid(self, argument: &Argument, op: Op) -> ProgramError {
        let name = self.spec.name;
        let message =
            format!("`{op}` would change the grid that `{name}` works on: put it before `{name}`");
        self.error(argument.span.clone(), message)
    }

    pub(super) fn wrong_patch(self, argument: &Argument, gives: Type) -> ProgramError {
        let (name, wants) = (self.spec.name, wants(self.spec));
        let message = format!("`{name}` needs {wants} here, got {gives}");
        let help = match gives.kind {
            Kind::Objects => Some(CHOOSE.to_owned()),
            Kind::Patch => Some(COLORED.to_owned()),
            Kind::Colors
            | Kind::Flag
            | Kind::Grid
            | Kind::Number
            | Kind::Object
            | Kind::Value
            | Kind::Vector => None,
        };
        self.error(argument.span.clone(), message).with_any_help(help)
    }

    /// The error of a program for a patch in brackets that does not follow a grid.
    pub(super) fn wants_a_grid(self, takes: Type, rest: &[Argument]) -> ProgramError {
        let message =
            format!("`{}` works on a grid here, but {}", self.spec.name, self.place.has(takes));
        let alone = self.with_arguments(rest);
        let help = match takes {
            _ if self.place.patch_of.is_some() => None,
            Type { kind: Kind::Grid, .. } => {
                Some(format!("for each of them write apply({})", self.written()))
            }
            Type { tuple: Some(_), .. } => None,
            Type { kind: Kind::Objects, .. } => Some(format!("{CHOOSE}, then {alone}")),
            one if self.spec.works_on(one) => {
                Some(format!("to work on what comes before it write {alone}"))
            }
            _ => None,
        };
        self.error(self.call.span.clone(), message).with_any_help(help)
    }

    /// The error of a split inside `apply`.
    pub(super) fn not_one_value(self, gives: Type) -> ProgramError {
        let name = self.spec.name;
        let Applied::To { by, values, elements, text } = self.place.applied else {
            return self.error(self.call.whole.clone(), format!("`{name}` gives {gives}"));
        };
        let message =
            format!("`{name}` gives {gives}; inside `{by}` each element must stay one value");
        let takes_one = elements == Kind::Grid && self.place.patch_of.is_none();
        let part = if values == 2 { "side" } else { "part" };
        let help = format!("take one {part} first: first | {}", short(text));
        self.error(self.call.whole.clone(), message).with_any_help(takes_one.then_some(help))
    }

    pub(super) fn wrong_kind(self, takes: Type) -> ProgramError {
        let (name, wants, has) = (self.spec.name, wants(self.spec), self.place.has(takes));
        let message = format!("`{name}` works on {wants}, but {has}");
        let help = match takes.tuple {
            None => self.help_for_one(takes.kind),
            Some(_) if self.place.patch_of.is_some() => None,
            Some(_) => self.help_for_tuple(takes.kind),
        };
        self.error(self.call.span.clone(), message).with_any_help(help)
    }

    fn help_for_one(self, kind: Kind) -> Option<String> {
        let works_on = |kind| self.spec.works_on(Type::one(kind));
        let applies = matches!(self.spec.makes, Makes::Apply);
        let cuts = works_on(Kind::Grid) && self.place.patch_of.is_none();
        let written = self.written();
        match kind {
            Kind::Grid if applies => {
                let program = self.call.arguments.first()?;
                Some(format!("on one value write {}", self.shown(&program.span)))
            }
            Kind::Grid => self.help_for_grid(),
            Kind::Objects if applies || works_on(Kind::Object) => Some(CHOOSE.to_owned()),
            Kind::Objects if cuts => Some(format!(
                "choose one with argmax(size) or first, and cut it out: first | subgrid | {written}"
            )),
            Kind::Patch if works_on(Kind::Object) => Some(COLORED.to_owned()),
            Kind::Object | Kind::Patch if cuts => {
                Some(format!("cut it out of its grid first: subgrid | {written}"))
            }
            Kind::Objects | Kind::Object | Kind::Patch => None,
            Kind::Number | Kind::Vector | Kind::Flag | Kind::Colors | Kind::Value => None,
        }
    }

    fn help_for_grid(self) -> Option<String> {
        let found = self.found_in_a_grid()?;
        if !self.spec.takes_patch_program() {
            return Some(format!("find {} first: {found}", wants(self.spec)));
        }
        let wants = wants(self.spec);
        let outside = self.place.patch_of.is_none();
        outside.then(|| format!("write {found}, or find {wants} before it"))
    }

    fn help_for_tuple(self, kind: Kind) -> Option<String> {
        let written = self.written();
        let each = |call: &str| format!("for each of them write apply({call})");
        let (one, is_nth) = (Type::one(kind), matches!(self.spec.makes, Makes::Nth(_)));
        let gives = self.spec.kinds().into_iter().find(|&(takes, _)| takes == one);
        match gives {
            Some((_, Type { tuple: Some(_), .. })) => {
                Some(format!("take one of them first: first | {written}"))
            }
            Some(_) if is_nth => Some(match self.before_apply() {
                Some(chain) => format!("{}; for one of them write {chain}", each(&written)),
                None => each(&written),
            }),
            Some(_) => Some(each(&written)),
            None if is_nth => {
                let chain = self.before_apply();
                let write = chain.unwrap_or_else(|| format!("{written} before `apply`"));
                Some(format!("elements can be taken of grids only: write {write}"))
            }
            None if kind == Kind::Grid => Some(each(&self.found_in_a_grid()?)),
            None => None,
        }
    }

    /// `second | height` for `apply(height) | second`.
    fn before_apply(self) -> Option<String> {
        let (call, takes) = self.place.previous?;
        let [Argument { value: Value::Calls(_), span }] = call.arguments.as_slice() else {
            return None;
        };
        let written = self.written();
        (takes.kind == Kind::Grid).then(|| format!("{written} | {}", self.shown(span)))
    }

    /// The call after an op that finds its input in a grid.
    fn found_in_a_grid(self) -> Option<String> {
        let works_on = |kind| self.spec.works_on(Type::one(kind));
        let finder = match self.spec.makes {
            Makes::Apply | Makes::Nth(_) => return None,
            Makes::Op(_) if works_on(Kind::Objects) => OBJECTS.to_owned(),
            Makes::Op(_) if works_on(Kind::Patch) => "ofcolor(0)".to_owned(),
            Makes::Op(_) if works_on(Kind::Object) => format!("{OBJECTS} | first"),
            Makes::Op(_) => return None,
        };
        if !self.spec.takes_patch_program() {
            return Some(format!("{finder} | {}", self.written()));
        }
        let texts = self.call.arguments.iter().map(|argument| self.shown(&argument.span));
        let texts: Vec<String> = texts.chain([finder]).collect();
        Some(call_text(self.spec.name, &texts))
    }

    /// The call as the user wrote it.
    fn written(self) -> String {
        self.shown(&self.call.whole)
    }

    /// The call with only these arguments.
    fn with_arguments(self, arguments: &[Argument]) -> String {
        let texts = arguments.iter().map(|argument| self.shown(&argument.span));
        call_text(self.spec.name, &texts.collect::<Vec<_>>())
    }

    fn shown(self, span: &Range<usize>) -> String {
        short(&self.text[span.clone()])
    }
}

/// The word for what the program in brackets finds.
fn patch_word(spec: &OpSpec) -> &'static str {
    if spec.works_on(Type::one(Kind::Patch)) { "patch" } else { "object" }
}

/// The number that this name has in the DSL.
fn constant(argument: &Argument) -> Option<usize> {
    let names =
        ["ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE", "TEN"];
    let Value::Calls(calls) = &argument.value else { return None };
    match calls.as_slice() {
        [call] if call.arguments.is_empty() => names.iter().position(|name| *name == call.name),
        _ => None,
    }
}

/// The types that an op works on, in words.
fn wants(spec: &OpSpec) -> String {
    let mut names = Vec::new();
    for signature in spec.signatures {
        match signature.takes {
            Takes::Kinds(kinds) => names.extend(kinds.iter().map(Kind::to_string)),
            Takes::Tuple => names.push("a pair or tuple of grids".to_owned()),
            Takes::Pair => names.push("a pair of grids".to_owned()),
            Takes::Each => names.push("a pair or tuple".to_owned()),
        }
    }
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

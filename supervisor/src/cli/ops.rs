//! The op table for people, programs and the documentation: syntax, types and meaning of each op.
//!
//! Owns the forms of the table. All facts come from [`OPS`].

#[cfg(test)]
mod tests;

use gridpool_protocol::program::{Accepts, Family, Kind, OPS, OpSpec, Parameter, Type, find_op};
use serde_json::{Value, json};

use super::text::{fitted, table, wrap};
use super::{CommandError, columns, say, say_json};
use crate::programs::SourceError;

/// Columns of `--help`, which does not know the screen.
const HELP_COLUMNS: usize = 80;
/// Columns of a signature; longer ones are wrapped.
const SIGNATURE_COLUMNS: usize = 22;
/// Columns of an op's types on a wide screen, and on a narrow one, where they wrap.
const KINDS_COLUMNS: [usize; 2] = [32, 22];
/// Columns of a wide screen.
const WIDE: usize = 100;
/// Before the lines of a section.
const INDENT: &str = "  ";
/// The source of most ops.
const SOURCE: &str = "arc-dsl";

/// Prints the whole table, or only the named ops.
pub(super) fn print(names: &[String], json: bool, markdown: bool) -> Result<u8, CommandError> {
    let named: Result<Vec<_>, _> = names.iter().map(|name| find_op(name)).collect();
    let named = named.map_err(SourceError::Typed)?;
    let text = match (json, markdown) {
        (true, _) if named.is_empty() => return say_json(&document(OPS)),
        (true, _) => return say_json(&document(named)),
        (false, true) => self::markdown(),
        (false, false) if named.is_empty() => screen(columns()),
        (false, false) => {
            named.iter().map(|op| entry(op, columns())).collect::<Vec<_>>().join("\n\n")
        }
    };
    say(text.trim_end())
}

/// The ops and their meanings by family: the last lines of `--help`.
pub(super) fn help() -> String {
    let mut text = String::from("Ops, joined by `|`:\n");
    for &family in Family::ALL {
        text.push_str(&format!("\n{family}\n"));
        let row = |op: &OpSpec| [String::new(), op.signature(), op.meaning.to_owned()];
        let rows: Vec<_> = of(family).map(row).collect();
        text.push_str(&table(&rows, &[0, SIGNATURE_COLUMNS], HELP_COLUMNS));
    }
    text.push('\n');
    for note in notes() {
        text.push_str(&(wrap(&note, HELP_COLUMNS).join("\n") + "\n"));
    }
    text.push_str("`gridpool ops` lists their types, `gridpool ops OP` describes one op in full.");
    text
}

/// The whole table for a screen of some width.
pub(super) fn screen(columns: usize) -> String {
    let kinds_columns = KINDS_COLUMNS[usize::from(columns < WIDE)];
    let mut text = String::new();
    for &family in Family::ALL {
        text.push_str(&format!("{}\n", family.to_string().to_uppercase()));
        let row = |op: &OpSpec| {
            let source =
                if op.source == SOURCE { String::new() } else { format!(" [{}]", op.source) };
            [op.signature(), kinds(op), format!("{}{source}", meaning(op))]
        };
        let rows: Vec<_> = of(family).map(row).collect();
        text.push_str(&table(&rows, &[SIGNATURE_COLUMNS, kinds_columns], columns));
        text.push('\n');
    }
    let source = format!("The ops come from {SOURCE}; other sources are in [ ].");
    for note in notes().into_iter().chain([source]) {
        text.push_str(&(wrap(&note, columns).join("\n") + "\n"));
    }
    text
}

/// The description of one op: syntax, arguments, types, examples.
pub(super) fn entry(op: &OpSpec, columns: usize) -> String {
    let indented = |head: &str, rows: &[[String; 2]]| {
        let mut text = format!("\n{head}\n");
        for line in fitted(rows, columns.saturating_sub(INDENT.len())).lines() {
            text.push_str(&format!("{INDENT}{line}\n"));
        }
        text
    };
    let mut arguments: Vec<_> =
        op.parameters.iter().map(|one| [one.name.to_owned(), one.wants()]).collect();
    let (mut forms, mut examples) = (vec![op.signature()], vec![op.example()]);
    if op.takes_patch_program() {
        let takes_places = op.kinds().iter().any(|(takes, _)| *takes == Type::one(Kind::Patch));
        let (name, finder) =
            if takes_places { ("places", "ofcolor(0)") } else { ("object", "o_g(1) | first") };
        let found = format!("after a grid, a program that finds the {name}, such as {finder}");
        arguments.push([name.to_owned(), found]);
        forms.push(with_argument(&op.signature(), name));
        let last = examples[0].rsplit(" | ").next().unwrap_or(op.name);
        examples.push(with_argument(last, finder));
    }
    let example = |program: String| [format!("gridpool run '{program}' INPUT"), String::new()];
    let kinds = works_on(op).into_iter().map(|(takes, gives)| [takes, format!("gives {gives}")]);
    let mut text = format!("{}\n", forms.join("\n"));
    for line in wrap(op.meaning, columns.saturating_sub(INDENT.len())) {
        text.push_str(&format!("{INDENT}{line}\n"));
    }
    if !arguments.is_empty() {
        text.push_str(&indented("Arguments", &arguments));
    }
    text.push_str(&indented("Works on", &kinds.collect::<Vec<_>>()));
    text.push_str(&indented("Examples", &examples.into_iter().map(example).collect::<Vec<_>>()));
    text.push_str(&format!("\nFamily: {}. Source: {}.\n", op.family, op.source));
    text
}

/// A call with one more argument.
fn with_argument(call: &str, argument: &str) -> String {
    match call.strip_suffix(')') {
        Some(rest) => format!("{rest}, {argument})"),
        None => format!("{call}({argument})"),
    }
}

/// The table of the documentation.
pub(super) fn markdown() -> String {
    let mut text =
        String::from("| op | works on | gives | meaning | source |\n|---|---|---|---|---|\n");
    for &family in Family::ALL {
        text.push_str(&format!("| **{family}** | | | | |\n"));
        for op in of(family) {
            let (takes, gives): (Vec<_>, Vec<_>) = works_on(op).into_iter().unzip();
            let (takes, gives) = (takes.join("; "), gives.join("; "));
            let (signature, meaning, source) = (op.signature(), meaning(op), op.source);
            let row = format!("| `{signature}` | {takes} | {gives} | {meaning} | {source} |\n");
            text.push_str(&row);
        }
    }
    text
}

/// These ops as JSON: `{"ops": [{"name", "signature", "family", "parameters", "kinds", …}]}`.
pub(super) fn document<'a>(ops: impl IntoIterator<Item = &'a OpSpec>) -> Value {
    let parameter = |one: &Parameter| json!({ "name": one.name, "wants": one.wants() });
    let entry = |op: &OpSpec| {
        let kind = |(from, to)| json!({ "from": name(op, from), "to": name(op, to) });
        json!({
            "name": op.name,
            "signature": op.signature(),
            "family": op.family.to_string(),
            "parameters": op.parameters.iter().map(parameter).collect::<Value>(),
            "kinds": op.kinds().into_iter().map(kind).collect::<Value>(),
            "meaning": op.meaning,
            "source": op.source,
        })
    };
    json!({ "ops": ops.into_iter().map(entry).collect::<Value>() })
}

fn of(family: Family) -> impl Iterator<Item = &'static OpSpec> {
    OPS.iter().filter(move |op| op.family == family)
}

/// `grid, object -> number`.
fn kinds(op: &OpSpec) -> String {
    let pairs = works_on(op).into_iter();
    pairs.map(|(takes, gives)| format!("{takes} -> {gives}")).collect::<Vec<_>>().join("; ")
}

/// What the op takes and gives; types with the same result share a row.
fn works_on(op: &OpSpec) -> Vec<(String, String)> {
    let kinds = op.kinds();
    let list = |kinds: &[(Type, Type)]| {
        kinds.iter().map(|&(takes, _)| name(op, takes)).collect::<Vec<_>>().join(", ")
    };
    let each_its_own = kinds.len() > 1 && kinds.iter().all(|(takes, gives)| takes == gives);
    if each_its_own {
        return vec![(list(&kinds), "the same".to_owned())];
    }
    let of_one_result = kinds.chunk_by(|(_, one), (_, next)| one == next);
    of_one_result.map(|kinds| (list(kinds), name(op, kinds[0].1))).collect()
}

/// The name of a type. The op names its tuples; a split gives a tuple of grids.
fn name(op: &OpSpec, of: Type) -> String {
    let of_tuples = || op.tuple_words().unwrap_or("tuple of grids");
    if of.tuple.is_none() { of.kind.name() } else { of_tuples() }.to_owned()
}

/// The meaning, and the bounds of numbers and keys.
fn meaning(op: &OpSpec) -> String {
    let bounds = |parameter: &Parameter| match parameter.accepts {
        Accepts::Number { min, max } => Some(format!(" {min} to {max}")),
        Accepts::Key => Some(format!(": {}", parameter.wants())),
        Accepts::Color | Accepts::Flag | Accepts::Program => None,
    };
    let of_one_bound = op.parameters.chunk_by(|one, next| bounds(one) == bounds(next));
    let bounded = of_one_bound.filter_map(|parameters| {
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
        Some(format!("{}{}", names.join(", "), bounds(&parameters[0])?))
    });
    let bounded: Vec<String> = bounded.collect();
    if bounded.is_empty() {
        return op.meaning.to_owned();
    }
    format!("{} ({})", op.meaning, bounded.join("; "))
}

/// Rules for several ops.
fn notes() -> [String; 2] {
    let names = |ops: Vec<&OpSpec>| {
        let names: Vec<&str> = ops.into_iter().map(|op| op.name).collect();
        names.join(", ")
    };
    let of_pairs = OPS.iter().filter(|op| {
        let kinds = op.kinds();
        let takes = |wanted: Type| kinds.iter().any(|(takes, _)| *takes == wanted);
        takes(Type::PAIR) && !takes(Type::one(Kind::Grid))
    });
    let on_patches = OPS.iter().filter(|op| op.takes_patch_program());
    [
        format!(
            "A program takes pairs (input, output) if it begins with one of {}.",
            names(of_pairs.collect())
        ),
        format!(
            "After a grid, {} take one more argument: a program that finds the places, as in \
             fill(5, ofcolor(0)).",
            names(on_patches.collect())
        ),
    ]
}

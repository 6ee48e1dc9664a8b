//! The op table for people, programs and README: what may be written, on what it works and what
//! comes of it.
//!
//! Owns the forms of the table. May not add anything that [`OPS`] does not say.

#[cfg(test)]
mod tests;

use gridpool_protocol::program::{Family, Kind, OPS, OpSpec, Parameter, Type};

use super::text::{table, wrap};

/// Columns of `--help`, which does not know the screen.
const HELP_COLUMNS: usize = 80;
/// Columns of a signature; longer ones are wrapped.
const SIGNATURE_COLUMNS: usize = 22;
/// Columns of what an op works on and gives: all of it on a wide screen, in two lines on another.
const KINDS_COLUMNS: [usize; 2] = [32, 22];
/// Columns of a wide screen.
const WIDE: usize = 100;
/// What the table's ops come from unless they say otherwise.
const SOURCE: &str = "arc-dsl";

/// The ops and their meanings, family by family, as `--help` ends.
pub(super) fn help() -> String {
    let mut text = String::from("Ops, joined by `|`:\n");
    for family in Family::ALL {
        text.push_str(&format!("\n{family}\n"));
        let row = |op: &OpSpec| [String::new(), op.signature(), op.meaning.to_owned()];
        let rows: Vec<_> = of(family).map(row).collect();
        text.push_str(&table(&rows, &[0, SIGNATURE_COLUMNS], HELP_COLUMNS));
    }
    text.push('\n');
    for note in notes() {
        text.push_str(&(wrap(&note, HELP_COLUMNS).join("\n") + "\n"));
    }
    text.push_str("`gridpool ops` says what each works on and what comes of it.");
    text
}

/// The whole table for a screen of some width.
pub(super) fn screen(columns: usize) -> String {
    let kinds_columns = KINDS_COLUMNS[usize::from(columns < WIDE)];
    let mut text = String::new();
    for family in Family::ALL {
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
    let source = format!("The ops come from {SOURCE}, but for those with another name in [ ].");
    for note in notes().into_iter().chain([source]) {
        text.push_str(&(wrap(&note, columns).join("\n") + "\n"));
    }
    text
}

/// The table as README has it between its two marks.
pub(super) fn markdown() -> String {
    let mut text =
        String::from("| op | works on | gives | meaning | source |\n|---|---|---|---|---|\n");
    for family in Family::ALL {
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

/// The table as JSON: `{"ops": [{"name", "signature", "family", "parameters", "kinds", …}]}`.
#[derive(Debug, serde::Serialize)]
pub(super) struct Document {
    ops: Vec<Entry>,
}

#[derive(Debug, serde::Serialize)]
struct Entry {
    name: &'static str,
    signature: String,
    family: String,
    parameters: Vec<ParameterEntry>,
    kinds: Vec<KindsEntry>,
    meaning: &'static str,
    source: &'static str,
}

#[derive(Debug, serde::Serialize)]
struct ParameterEntry {
    name: &'static str,
    wants: String,
}

#[derive(Debug, serde::Serialize)]
struct KindsEntry {
    from: String,
    to: String,
}

/// The table for other programs.
pub(super) fn document() -> Document {
    let parameter =
        |parameter: &Parameter| ParameterEntry { name: parameter.name(), wants: parameter.wants() };
    let kinds = |op: &OpSpec| {
        let kinds = op.kinds().into_iter();
        kinds.map(|(from, to)| KindsEntry { from: name(op, from), to: name(op, to) }).collect()
    };
    let entry = |op: &OpSpec| Entry {
        name: op.name,
        signature: op.signature(),
        family: op.family.to_string(),
        parameters: op.parameters.iter().map(parameter).collect(),
        kinds: kinds(op),
        meaning: op.meaning,
        source: op.source,
    };
    Document { ops: OPS.iter().map(entry).collect() }
}

fn of(family: Family) -> impl Iterator<Item = &'static OpSpec> {
    OPS.iter().filter(move |op| op.family == family)
}

/// `grid, object -> number`.
fn kinds(op: &OpSpec) -> String {
    let pairs = works_on(op).into_iter();
    pairs.map(|(takes, gives)| format!("{takes} -> {gives}")).collect::<Vec<_>>().join("; ")
}

/// What it works on and what it gives, those that give one thing together.
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

/// The bare name of a type. All tuples have one name, since what takes a pair takes any of them, but
/// for `cellwise`.
fn name(op: &OpSpec, of: Type) -> String {
    match (of.tuple, op.name) {
        (None, _) => of.kind.name().to_owned(),
        (Some(_), "apply" | "mapply") => "tuple".to_owned(),
        (Some(_), "cellwise") => "pair of grids".to_owned(),
        (Some(_), _) => "tuple of grids".to_owned(),
    }
}

/// The meaning, and the bounds of numbers and keys.
fn meaning(op: &OpSpec) -> String {
    let bounds = |parameter: &Parameter| match parameter {
        Parameter::Number { min, max, .. } => Some(format!(" {min} to {max}")),
        Parameter::Key(_) => Some(format!(": {}", parameter.wants())),
        Parameter::Color(_) | Parameter::Flag(_) | Parameter::Program(_) => None,
    };
    let of_one_bound = op.parameters.chunk_by(|one, next| bounds(one) == bounds(next));
    let bounded = of_one_bound.filter_map(|parameters| {
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name()).collect();
        Some(format!("{}{}", names.join(", "), bounds(&parameters[0])?))
    });
    let bounded: Vec<String> = bounded.collect();
    if bounded.is_empty() {
        return op.meaning.to_owned();
    }
    format!("{} ({})", op.meaning, bounded.join("; "))
}

/// What holds for several ops at once.
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
            "After a grid, {} take a program that finds the places as one more argument: \
             fill(5, ofcolor(0)).",
            names(on_patches.collect())
        ),
    ]
}

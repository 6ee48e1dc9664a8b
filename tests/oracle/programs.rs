//! Programs that together use every op, on every kind of value, from every kind of origin.

use std::collections::BTreeMap;

use gridpool_protocol::program::{Accepts, Kind, OPS, OpSpec, Parameter, Program, Ties, Type};

use super::chains::{call, every_value};
use super::samples::SplitMix64;

/// Both tie modes.
pub const TIES: [Ties; 2] = [Ties::Cpython, Ties::Lowest];

/// The 13 forms of the benchmark in the reports on arc-dsl, each as a program over pairs, with the ops whose
/// launches must be in the receipt. The `flip` of those reports is a mirror, which the DSL calls `vmirror`.
pub const FORMS: [(&str, &[&str]); 13] = [
    ("mapply(rot90)", &["rot90"]),
    ("mapply(vmirror)", &["vmirror"]),
    ("mapply(rot180)", &["rot180"]),
    ("mapply(identity)", &["identity"]),
    ("mapply(rot90) | mapply(rot90)", &["rot90"]),
    ("mapply(objects(true, false, true))", &["objects"]),
    ("first", &["nth"]),
    ("second", &["nth"]),
    ("first | o_g(0)", &["nth", "objects"]),
    ("apply(o_g(1))", &["objects"]),
    ("apply(o_g(2))", &["objects"]),
    ("second | o_g(3)", &["nth", "objects"]),
    ("apply(rot90 | objects(true, false, true))", &["rot90", "objects"]),
];

/// Programs that give a list of objects: few and many, of one colour and of several, none.
pub const LISTS: &[&str] =
    &["o_g(5)", "o_g(4)", "o_g(3)", "fgpartition", "partition", "o_g(7) | sizefilter(1)"];
/// Programs that give an object: with holes and without, in the middle of its ground and beside it.
pub const OBJECTS: &[&str] = &[
    "o_g(5) | argmax(size)",
    "asobject",
    "o_g(3) | last",
    "fgpartition | first | shift(-2, 3)",
    "o_g(7) | sizefilter(2) | merge",
    "ofcolor(1) | toobject",
];
/// Programs that give a patch.
pub const PATCHES: &[&str] = &[
    "ofcolor(1)",
    "asindices",
    "o_g(5) | argmin(size) | toindices",
    "ofcolor(0) | shift(2, -3)",
    "ofcolor(8) | outbox",
    "o_g(7) | first | inbox | normalize",
];
/// Programs for `apply`, one for each kind of result and some that fail.
pub const INNER: &[&str] = &[
    "identity",
    "rot90 | rot90",
    "tophalf",
    "compress | rot90",
    "fill(5, ofcolor(0))",
    "o_g(5)",
    "o_g(7) | argmax(size)",
    "ofcolor(1) | delta",
    "palette",
    "mostcolor",
    "shape",
    "square",
    "upscale(2)",
    "o_g(3) | nth(1) | subgrid",
];
/// Chains of calls: shapes turn, colours merge, grids grow, shrink and become empty.
pub const CHAINS: &[&str] = &[
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "rot270 | rot270 | rot270 | vmirror | cmirror",
    "switch(0, 8) | palette",
    "replace(9, 1) | mostcolor",
    "hmirror | switch(1, 9) | o_g(7)",
    "replace(1, 0) | replace(2, 0) | replace(3, 0) | o_g(1)",
    "fill(5, ofcolor(0))",
    "underfill(5, ofcolor(1) | outbox)",
    "underpaint(o_g(5) | argmax(size) | shift(1, 1))",
    "objects(true, false, true) | argmax(size) | subgrid",
    "o_g(5) | argmax(height) | subgrid | compress | o_g(4) | size",
    "o_g(3) | argmin(size) | upscale(2) | paint | fgpartition",
    "asobject | hmirror | paint | trim | trim",
    "asindices | outbox | outbox | subgrid",
    "ofcolor(0) | delta | toobject | move(1, 2)",
    "crop(1, 1, 5, 7) | upscale(3) | downscale(2) | vupscale(2) | hupscale(2)",
    "hsplit(3) | apply(rot90) | vconcat",
    "vsplit(2) | cellwise(0) | o_g(5) | merge | cover",
    "hsplit(4) | apply(o_g(5) | size)",
    "hsplit(2) | apply(compress) | apply(palette)",
    "vsplit(5) | last | canvas(1, 2, 3)",
    "hsplit(2) | hconcat | vsplit(2) | vconcat",
    "upscale(9) | o_g(5) | last | outbox | fill(3)",
    "tophalf | lefthalf | bottomhalf | righthalf",
    "partition | last | dmirror | normalize | paint",
];
/// Chains of calls on pairs.
pub const PAIR_CHAINS: &[&str] = &[
    "first",
    "second | o_g(5)",
    "last | compress | rot90",
    "hconcat | hsplit(2) | cellwise(3)",
    "vconcat | o_g(7) | argmax(size) | subgrid",
    "cellwise(0) | fgpartition | merge | outbox | underfill(2)",
    "apply(rot90) | apply(palette)",
    "apply(tophalf) | vconcat | mostcolor",
    "apply(canvas(4, 30, 64)) | vconcat",
    "apply(canvas(4, 33, 64)) | vconcat",
    "apply(crop(0, 0, 2, 2)) | cellwise(7)",
    "mapply(dmirror) | mapply(trim) | second",
    "apply(o_g(5) | first | shift(1, 1)) | apply(paint) | hconcat",
    "apply(upscale(3)) | nth(-2) | downscale(3)",
];

/// Every op on every kind of value that it takes, under some arguments; and the chains. Programs whose result
/// may depend on the tie mode come under both.
#[must_use]
pub fn every_op(seed: u64, calls_max: usize) -> Vec<Program> {
    let mut rng = SplitMix64::new(seed);
    let mut texts: Vec<String> =
        CHAINS.iter().chain(PAIR_CHAINS).map(|&text| text.to_owned()).collect();
    for spec in OPS {
        for (takes, _) in spec.kinds() {
            for call in some_calls(&mut rng, spec, takes, calls_max) {
                texts.push(format!("{}{call}", origin(&mut rng, takes)));
            }
        }
    }
    under_both_ties(texts)
}

/// Every op on every kind of value, from every origin, once.
#[must_use]
pub fn from_every_origin(seed: u64) -> Vec<Program> {
    let mut rng = SplitMix64::new(seed);
    let mut texts = Vec::new();
    for spec in OPS {
        for (takes, _) in spec.kinds() {
            for origin in origins(takes) {
                let call = some_calls(&mut rng, spec, takes, 1).remove(0);
                texts.push(format!("{origin}{call}"));
            }
        }
    }
    under_both_ties(texts)
}

/// Each program once under each tie mode; synonyms are one program.
#[must_use]
pub fn under_both_ties(texts: impl IntoIterator<Item = String>) -> Vec<Program> {
    let compiled = |text: &str, ties| Program::compile(text, ties).expect(text);
    let programs = texts.into_iter().flat_map(|text| TIES.map(|ties| compiled(&text, ties)));
    let unique: BTreeMap<String, Program> =
        programs.map(|program| (program.hash().to_owned(), program)).collect();
    unique.into_values().collect()
}

/// Prefixes of an op that takes this type, with their bars.
fn origins(takes: Type) -> Vec<String> {
    let barred = |texts: &[&str]| texts.iter().map(|text| format!("{text} | ")).collect();
    match takes.kind {
        Kind::Objects => barred(LISTS),
        Kind::Object => barred(OBJECTS),
        Kind::Patch => barred(PATCHES),
        Kind::Colors | Kind::Flag | Kind::Grid | Kind::Number | Kind::Value | Kind::Vector => {
            vec![String::new()]
        }
    }
}

fn origin(rng: &mut SplitMix64, takes: Type) -> String {
    let mut origins = origins(takes);
    origins.swap_remove(rng.below(origins.len()))
}

/// The op under every argument if they are few, else under the smallest, the largest and random ones.
#[must_use]
pub fn some_calls(
    rng: &mut SplitMix64,
    spec: &OpSpec,
    takes: Type,
    calls_max: usize,
) -> Vec<String> {
    let values: Vec<Vec<String>> = spec.parameters.iter().map(|&p| values_of(p, takes)).collect();
    let all: usize = values.iter().map(Vec::len).product();
    let mut lists: Vec<Vec<String>> = if all <= 2_000 {
        let mut lists = vec![Vec::new()];
        for values in &values {
            let longer = |list: Vec<String>| {
                values.iter().map(move |value| [&list[..], std::slice::from_ref(value)].concat())
            };
            lists = lists.into_iter().flat_map(longer).collect();
        }
        rng.shuffle(&mut lists);
        lists
    } else {
        let ends = [0, usize::MAX].map(|end| {
            values.iter().map(|values| values[end.min(values.len() - 1)].clone()).collect()
        });
        let one = |rng: &mut SplitMix64, values: &Vec<String>| {
            let longest = rng.pick(&[8, values.len()]);
            let from_zero = values.iter().position(|value| value == "0").unwrap_or(0);
            // Around 0, or anywhere.
            let at = if longest == 8 { from_zero.saturating_sub(3) } else { 0 };
            values[(at + rng.below(longest)).min(values.len() - 1)].clone()
        };
        let draws = (0..4 * calls_max).map(|_| values.iter().map(|v| one(rng, v)).collect());
        let mut lists: Vec<Vec<String>> = draws.collect();
        lists.extend(ends);
        lists.rotate_right(2);
        lists
    };
    // The compiler refuses a canvas with too many cells.
    lists.retain(|arguments| spec.name != "canvas" || area(arguments) <= 4_096);
    lists.truncate(calls_max);
    lists.iter().map(|arguments| call(spec, arguments)).collect()
}

fn values_of(parameter: Parameter, takes: Type) -> Vec<String> {
    match parameter.accepts {
        // The compiler knows that a pair has two elements.
        Accepts::Number { .. } if parameter.name == "k" && takes == Type::PAIR => {
            (-2..=1).map(|k: i32| k.to_string()).collect()
        }
        Accepts::Program => INNER.iter().map(|&text| text.to_owned()).collect(),
        Accepts::Flag | Accepts::Color | Accepts::Key | Accepts::Number { .. } => {
            every_value(parameter)
        }
    }
}

fn area(canvas: &[String]) -> usize {
    let sides = canvas[1..].iter().map(|side| side.parse::<usize>().expect("a side is a number"));
    sides.product()
}

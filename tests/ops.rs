//! The reference implementation against the oracle: every op, alone and in chains, on every grid
//! there is. What the reference gives is then what every device must give.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Kind, OPS, OpSpec, Parameter, Program, Ties};
use gridpool_tests::oracle::samples::{self, SplitMix64};
use gridpool_tests::oracle::{self, tasks};

const TIES: [Ties; 2] = [Ties::Cpython, Ties::Lowest];

/// Ops after ops: shapes turn, colours merge, and the background changes before it is looked for.
const CHAINS: &[&str] = &[
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "rot270 | rot270 | rot270 | vmirror | cmirror",
    "switch(0, 8) | palette",
    "replace(9, 1) | mostcolor",
    "dmirror | replace(3, 0) | leastcolor",
    "hmirror | switch(1, 9) | o_g(7)",
    "replace(1, 0) | replace(2, 0) | replace(3, 0) | o_g(1)",
    "cmirror | switch(2, 2) | o_g(4)",
    "rot180 | replace(8, 0) | numcolors",
    "vmirror | switch(0, 1) | colorcount(0)",
];

#[test]
fn every_op_agrees_on_the_grids_that_break_implementations() {
    let grids: Vec<Grid> = samples::adversarial().into_iter().map(|(_, grid)| grid).collect();
    check(&programs_of_every_op(), &grids);
}

#[test]
fn every_op_agrees_under_every_argument() {
    let grids = samples::random_grids(1, 60);
    check(&under_both_ties(OPS.iter().flat_map(calls)), &grids);
}

#[test]
fn every_op_agrees_on_random_grids() {
    check(&programs_of_every_op(), &samples::random_grids(2, 1_000));
}

#[test]
fn random_chains_agree_on_random_grids() {
    let mut rng = SplitMix64::new(3);
    for _ in 0..1_000 {
        let program = random_chain(&mut rng);
        let grids: Vec<Grid> = (0..8).map(|_| samples::random_grid(&mut rng)).collect();
        check(&[program], &grids);
    }
}

#[test]
fn every_op_agrees_on_the_example_tasks() {
    let grids: Vec<Grid> = tasks::examples().into_iter().flat_map(|task| task.grids).collect();
    check(&programs_of_every_op(), &grids);
}

#[test]
fn every_op_agrees_on_every_arc_grid() {
    let Some(tasks) = tasks::arc_training() else {
        return say("the ARC training tasks are absent: the ops ran on made grids alone");
    };
    let mut programs = programs_of_every_op();
    programs.retain(|program| program.ties() == Ties::Cpython);
    let grids: Vec<Grid> = tasks.iter().flat_map(|task| task.grids.iter().cloned()).collect();
    check(&programs, &grids);
    let (tasks, grids, programs) = (tasks.len(), grids.len(), programs.len());
    say(&format!("{tasks} ARC tasks, {grids} grids, {programs} programs"));
}

#[test]
fn the_sample_grids_have_as_many_objects_as_they_are_drawn_with() {
    let cases = [
        ("checkerboard", "o_g(4)", 900),
        ("checkerboard", "o_g(5)", 450),
        ("checkerboard", "o_g(6)", 2),
        ("checkerboard", "o_g(7)", 1),
        ("checkerboard", "o_g(2)", 1),
        ("largest checkerboard, 4,096 objects", "o_g(4)", 4_096),
        ("spiral", "replace(1, 2) | o_g(4)", 2),
        ("snake", "o_g(5)", 15),
        ("snake", "switch(0, 1) | o_g(4)", 16),
        ("comb", "o_g(5)", 15),
        ("concentric rings", "o_g(4)", 15),
        ("all one colour", "o_g(5)", 0),
        ("one maroon cell", "o_g(7)", 0),
        ("one maroon cell", "o_g(6)", 1),
        ("only corners touch", "o_g(5)", 2),
        ("only corners touch", "o_g(7)", 1),
        ("two colours that touch", "o_g(1)", 1),
        ("two colours that touch", "o_g(5)", 2),
        ("labels merge late", "o_g(4)", 3),
    ];
    let grids = samples::adversarial();
    for (name, text, want) in cases {
        let (_, grid) = grids.iter().find(|(known, _)| *known == name).expect(name);
        let batch = GridBatch::from_grids([grid]).unwrap();
        let outputs = run_batch(&compile(text, Ties::Lowest), &batch).unwrap();
        let Output::Objects(objects) = outputs.item(0).unwrap().unwrap() else {
            panic!("`{text}` gives objects");
        };
        assert_eq!(objects.len(), want, "{name}, `{text}`");
    }
}

/// Runs every program over all grids as one batch, and compares item by item.
fn check(programs: &[Program], grids: &[Grid]) {
    let batch = GridBatch::from_grids(grids).expect("the grids fit one job");
    for program in programs {
        let outputs = run_batch(program, &batch).expect("the batch has grids");
        for (item, grid) in grids.iter().enumerate() {
            let got = outputs.item(item).expect("the result is well formed");
            let want: Result<Output, _> = Ok(oracle::run(program, grid));
            let (text, ties) = (program.text(), program.ties());
            assert_eq!(got, want, "`{text}`, ties {ties}, item {item}: {grid:?}");
        }
    }
}

fn compile(text: &str, ties: Ties) -> Program {
    Program::compile(text, ties).expect("the tests' programs compile")
}

/// Every op, all eight groupings of objects, two of the colours that it may name, and the chains.
fn programs_of_every_op() -> Vec<Program> {
    let mut rng = SplitMix64::new(4);
    let ops = OPS.iter().flat_map(|spec| {
        let mut calls = calls(spec);
        rng.shuffle(&mut calls);
        let names_colors = spec.parameters.iter().any(|p| matches!(p, Parameter::Color(_)));
        calls.truncate(if names_colors { 2 } else { 8 });
        calls
    });
    under_both_ties(ops.chain(CHAINS.iter().map(|&text| text.to_owned())))
}

/// Each program once with each way to break ties; synonyms are one program.
fn under_both_ties(texts: impl Iterator<Item = String>) -> Vec<Program> {
    let programs = texts.flat_map(|text| TIES.map(|ties| compile(&text, ties)));
    let unique: BTreeMap<String, Program> =
        programs.map(|program| (program.hash().to_owned(), program)).collect();
    unique.into_values().collect()
}

/// The op with every list of arguments that the compiler takes.
fn calls(spec: &OpSpec) -> Vec<String> {
    let mut calls = vec![spec.name.to_owned()];
    for (position, parameter) in spec.parameters.iter().enumerate() {
        let values: Vec<String> = match *parameter {
            Parameter::Flag(_) => vec!["false".to_owned(), "true".to_owned()],
            Parameter::Color(_) => (0..=9).map(|color| color.to_string()).collect(),
            Parameter::UpTo(_, max) => (0..=max).map(|number| number.to_string()).collect(),
        };
        let before = if position == 0 { "(" } else { ", " };
        let longer = |call: String| values.iter().map(move |v| format!("{call}{before}{v}"));
        calls = calls.into_iter().flat_map(longer).collect();
    }
    let end = if spec.parameters.is_empty() { "" } else { ")" };
    calls.into_iter().map(|call| call + end).collect()
}

/// One to seven ops that give a grid, then any op.
fn random_chain(rng: &mut SplitMix64) -> Program {
    let on_grids: Vec<&OpSpec> = OPS.iter().filter(|spec| spec.gives() == Kind::Grid).collect();
    let mut ops: Vec<String> = (0..=rng.below(7))
        .map(|_| {
            let spec = rng.pick(&on_grids);
            random_call(rng, spec)
        })
        .collect();
    let last = &OPS[rng.below(OPS.len())];
    ops.push(random_call(rng, last));
    compile(&ops.join(" | "), rng.pick(&TIES))
}

fn random_call(rng: &mut SplitMix64, spec: &OpSpec) -> String {
    let calls = calls(spec);
    calls[rng.below(calls.len())].clone()
}

/// Past libtest's capture, so that a run without the ARC tasks says so.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error is open");
}

//! The reference implementation against the oracle: every op, alone and in chains, on every grid and pair.
//! Devices are then compared with the reference.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemErrorCode, NO_OP, Output, Outputs};
use gridpool_protocol::program::{Kind, Op, Program, Ties, Type};
use gridpool_tests::oracle::chains::random_program;
use gridpool_tests::oracle::programs::{every_op, from_every_origin, under_both_ties};
use gridpool_tests::oracle::samples::{self, SplitMix64};
use gridpool_tests::oracle::{self, Item, compare, compare::Pair, tasks};
use rayon::prelude::*;

#[test]
fn every_op_agrees_on_the_grids_that_break_implementations() {
    let (grids, pairs) = adversarial();
    check(&every_op(1, 3), &grids, &pairs);
}

#[test]
fn every_op_agrees_under_many_arguments() {
    let mut rng = SplitMix64::new(2);
    let grids: Vec<Grid> = (0..12).map(|_| samples::random_grid(&mut rng)).collect();
    let pairs: Vec<Pair> = (0..12).map(|_| samples::random_pair(&mut rng)).collect();
    check(&every_op(3, 120), &grids, &pairs);
}

#[test]
fn every_op_agrees_from_every_origin_on_random_grids_and_ties() {
    let small = samples::adversarial().into_iter().map(|(_, grid)| grid);
    let mut grids: Vec<Grid> = small.filter(|grid| grid.cells().len() <= 20).collect();
    assert!(grids.len() >= 15, "ties, and single cells");
    grids.extend(samples::random_grids(5, 250));
    check(&from_every_origin(4), &grids, &samples::random_pairs(6, 250));
}

#[test]
fn random_chains_agree_on_random_grids_and_pairs() {
    // Another seed tests further programs: GRIDPOOL_SEED=8 cargo test --test ops
    let seed = env::var("GRIDPOOL_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    say(&format!("random chains: seed {seed}"));
    let mut rng = SplitMix64::new(seed);
    let mut steps = 0;
    for at in 0..3_000 {
        let of_grids = at % 3 > 0;
        let takes = if of_grids { Type::one(Kind::Grid) } else { Type::PAIR };
        let program = random_program(&mut rng, takes, 8);
        steps += program.steps().len();
        let grids: Vec<Grid> = (0..6).map(|_| samples::random_grid(&mut rng)).collect();
        let pairs: Vec<Pair> = (0..6).map(|_| samples::random_pair(&mut rng)).collect();
        check(&[program], &grids, &pairs);
    }
    assert!(steps > 9_000, "the chains have become short: {steps} steps");
}

#[test]
fn every_op_agrees_on_the_example_tasks() {
    check_tasks(&tasks::examples());
}

#[test]
fn every_op_agrees_on_every_arc_grid() {
    match tasks::arc_tasks() {
        Some(tasks) => check_tasks(&tasks),
        None => say("GRIDPOOL_ARC is not set: not compared on them"),
    }
}

#[test]
fn an_item_gives_the_same_result_alone_and_among_others() {
    let mut rng = SplitMix64::new(8);
    for _ in 0..300 {
        let program = random_program(&mut rng, Type::PAIR, 6);
        let pairs: Vec<Pair> = (0..5).map(|_| samples::random_pair(&mut rng)).collect();
        let together = run_pairs(&program, &pairs);
        for (item, pair) in pairs.iter().enumerate() {
            let alone = run_pairs(&program, std::slice::from_ref(pair));
            let text = program.text();
            assert_eq!(together.item(item), alone.item(0), "`{text}`, item {item}: {pair:?}");
        }
    }
}

/// As the jobs of a bundle get their results.
#[test]
fn the_results_of_some_items_of_a_batch_are_those_of_a_batch_of_their_own() {
    let mut rng = SplitMix64::new(9);
    let solvers = [
        "x1 = objects(I, T, F, T)\nO = apply(toindices, x1)",
        "x1 = hconcat(I, I)\nO = vconcat(x1, x1)",
        "x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)",
    ];
    let mut programs: Vec<Program> = solvers.map(compile).into();
    programs.extend(every_op(1, 3));
    for takes in [Type::one(Kind::Grid), Type::PAIR] {
        programs.extend((0..300).map(|_| random_program(&mut rng, takes, 5)));
    }
    let (grids, pairs) = adversarial();
    let (grids, pairs) = (&grids[..30], &pairs[..30]);
    let kinds: BTreeSet<Kind> = programs.iter().map(|program| program.gives().kind).collect();
    assert_eq!(kinds.len(), 9, "results of every kind: {kinds:?}");
    programs.par_iter().for_each(|program| {
        let batch = |items: Range<usize>| match program.grids_per_item() {
            1 => GridBatch::from_grids(&grids[items]).expect("they fit a job"),
            _ => {
                let pairs = pairs[items].iter().map(|(input, output)| (input, output.as_ref()));
                GridBatch::from_pairs(pairs).expect("they fit a job")
            }
        };
        let all = reference(program, &batch(0..30));
        for items in [0..1, 1..4, 4..29, 29..30] {
            let own = batch(items.clone());
            let alone = reference(program, &own);
            let part = all.part(items.clone(), alone.layout(), own.tables()).expect("its places");
            let part = Outputs::new(program.clone(), Arc::new(own), part).expect("its length");
            let text = program.text();
            assert_eq!(part.first_difference(&alone), Ok(None), "`{text}`, {items:?}");
            assert_eq!(all.errors_in(items.clone()), alone.errors_in(0..items.len()), "`{text}`");
        }
    });
}

#[test]
fn a_cell_that_is_not_a_colour_fails_only_its_item_and_first() {
    let grid = Grid::from_rows(&[[1, 2], [3, 4]]).unwrap();
    let batch = GridBatch::from_pairs(vec![(&grid, Some(&grid)); 4]).unwrap();
    let mut cells = batch.cells().to_vec();
    // Item 1 has a bad input, item 2 a bad output, item 3 both.
    for at in [8 + 3, 16 + 4, 24 + 2, 24 + 5] {
        cells[at] = 10 + u8::try_from(at).unwrap();
    }
    let batch = GridBatch::from_parts(2, batch.tables().clone(), cells);
    let bad = (ItemErrorCode::BadCell as u8, NO_OP);
    let cases: &[(&str, &[(u8, u8)])] = &[
        ("first", &[(0, 0), bad, (0, 0), bad]),
        ("second | rot90", &[(0, 0), (0, 0), bad, bad]),
        ("hconcat", &[(0, 0), bad, bad, bad]),
        ("vconcat | palette", &[(0, 0), bad, bad, bad]),
        ("cellwise(0) | o_g(5)", &[(0, 0), bad, bad, bad]),
        ("apply(rot90)", &[(0, 0), (0, 0), bad, (0, 0), (0, 0), bad, bad, bad]),
        // The first error stays, even if a later step would fail too.
        ("apply(canvas(0, 64, 64)) | first | upscale(2)", &[(3, 2), bad, (3, 2), bad]),
    ];
    for (text, want) in cases {
        let outputs = reference(&compile(text), &batch);
        assert_eq!(compare::statuses(&outputs, &compare::layout(&compile(text), &batch)), *want);
    }
}

#[test]
fn item_errors_name_the_code_and_the_step() {
    use ItemErrorCode::{BadCrop, BadIndex, BadShape, EmptyArg, MissingOutput, Overflow};
    let input: Option<usize> = None;
    let cases = [
        ("tophalf | rot90", Some((EmptyArg, Some(1)))),
        ("tophalf", None),
        ("tophalf | canvas(1, 2, 2)", None),
        ("compress | identity", Some((EmptyArg, Some(1)))),
        ("trim | trim | hsplit(3) | first", Some((EmptyArg, Some(1)))),
        ("o_g(5) | first", Some((EmptyArg, Some(1)))),
        ("o_g(5) | last", Some((EmptyArg, Some(1)))),
        ("o_g(5) | nth(0)", Some((EmptyArg, Some(1)))),
        ("o_g(5) | nth(-1)", Some((EmptyArg, Some(1)))),
        ("o_g(5) | nth(1)", Some((BadIndex, Some(1)))),
        ("o_g(5) | nth(-2)", Some((BadIndex, Some(1)))),
        ("o_g(4) | nth(1)", Some((BadIndex, Some(1)))),
        ("o_g(4) | nth(-1)", None),
        ("rot90 | o_g(5) | argmax(size)", Some((EmptyArg, Some(2)))),
        ("o_g(5) | argmin(color) | subgrid", Some((EmptyArg, Some(1)))),
        ("o_g(5) | merge", None),
        ("o_g(5) | merge | subgrid", Some((EmptyArg, Some(2)))),
        ("o_g(5) | merge | fill(3) | mostcolor", None),
        ("o_g(5) | merge | color", Some((EmptyArg, Some(2)))),
        ("o_g(5) | merge | mostcolor", Some((EmptyArg, Some(2)))),
        ("o_g(5) | merge | palette", None),
        ("ofcolor(9) | uppermost", Some((EmptyArg, Some(1)))),
        ("ofcolor(9) | centerofmass", Some((EmptyArg, Some(1)))),
        ("ofcolor(9) | shape", None),
        ("ofcolor(9) | outbox | box | delta | corners | size", None),
        ("asindices | shift(-1, 0) | subgrid", Some((BadCrop, Some(2)))),
        ("asindices | shift(0, -1) | subgrid", Some((BadCrop, Some(2)))),
        ("asindices | shift(5, 0) | subgrid", None),
        ("asindices | shift(5, 0) | subgrid | height", Some((EmptyArg, Some(3)))),
        ("upscale(30)", None),
        ("upscale(30) | upscale(2)", None),
        ("upscale(30) | upscale(3)", Some((Overflow, Some(1)))),
        ("hupscale(30) | hupscale(9)", Some((Overflow, Some(1)))),
        ("vupscale(30) | vupscale(9) | rot90", Some((Overflow, Some(1)))),
        ("canvas(1, 16, 255) | asindices | outbox", Some((Overflow, Some(2)))),
        ("hsplit(2) | hconcat", Some((EmptyArg, Some(1)))),
        ("hsplit(2) | second", None),
        ("hsplit(2) | apply(rot90)", Some((EmptyArg, Some(1)))),
        ("crop(9, 9, 1, 1) | hsplit(2)", Some((EmptyArg, Some(1)))),
    ];
    let flat = Grid::from_rows(&[[4]]).unwrap();
    for (text, want) in cases {
        assert_failure(text, Item::from(&flat), want);
    }
    let wide = Grid::from_rows(&[[1, 2, 3]]).unwrap();
    let high = Grid::from_rows(&[[1], [2]]).unwrap();
    let pair_cases = [
        ("cellwise(0)", Some((BadShape, Some(0)))),
        ("vconcat", Some((BadShape, Some(0)))),
        ("hconcat", None),
        ("apply(rot90) | vconcat", Some((BadShape, Some(1)))),
        ("apply(tophalf) | cellwise(0)", Some((EmptyArg, Some(1)))),
        ("apply(tophalf) | vconcat", Some((EmptyArg, Some(1)))),
        ("apply(o_g(4) | nth(2)) | apply(subgrid)", Some((BadIndex, Some(1)))),
        ("apply(asindices | shift(0, -1)) | apply(subgrid)", Some((BadCrop, Some(2)))),
        ("apply(canvas(1, 17, 128)) | hconcat", Some((Overflow, Some(1)))),
        ("apply(canvas(1, 32, 64)) | vconcat", None),
        ("apply(canvas(1, 33, 64)) | vconcat", Some((Overflow, Some(1)))),
    ];
    for (text, want) in pair_cases {
        assert_failure(text, Item::Pair(&wide, Some(&high)), want);
    }
    let missing = [
        ("first", None),
        ("nth(-2) | rot90", None),
        ("second", Some((MissingOutput, input))),
        ("last | rot90", Some((MissingOutput, input))),
        ("hconcat", Some((MissingOutput, input))),
        ("vconcat | palette", Some((MissingOutput, input))),
        ("cellwise(3)", Some((MissingOutput, input))),
        ("apply(rot90)", Some((MissingOutput, input))),
        ("apply(rot90) | first", None),
        ("apply(canvas(1, 2, 2)) | second", Some((MissingOutput, input))),
        // If two elements fail, the first one's error counts.
        ("apply(trim | rot90)", Some((EmptyArg, Some(1)))),
        ("apply(trim | rot90) | hconcat", Some((EmptyArg, Some(1)))),
    ];
    for (text, want) in missing {
        assert_failure(text, Item::Pair(&wide, None), want);
    }
}

#[test]
fn grids_grow_up_to_4096_cells_and_sides_of_255() {
    let of = |h: usize, w: usize| Grid::new(h, w, vec![3; h * w]).unwrap();
    let cases = [
        (32, 32, "upscale(2)", Some((64, 64))),
        (32, 33, "upscale(2)", None),
        (33, 32, "upscale(2)", None),
        (1, 85, "hupscale(3)", Some((1, 255))),
        (1, 128, "hupscale(2)", None),
        (85, 1, "vupscale(3)", Some((255, 1))),
        (128, 1, "vupscale(2)", None),
        (64, 32, "hupscale(2)", Some((64, 64))),
        (64, 33, "hupscale(2)", None),
        (62, 62, "asindices | outbox", Some((64, 64))),
        (62, 63, "asindices | outbox", None),
        (14, 253, "asindices | outbox", Some((16, 255))),
        (14, 254, "asindices | outbox", None),
        (254, 2, "asobject | outbox", None),
        (253, 14, "asobject | outbox", Some((255, 16))),
        (1, 254, "asindices | inbox", Some((3, 252))),
        (16, 16, "asobject | upscale(4)", Some((64, 64))),
        (16, 17, "asobject | upscale(4)", None),
        (1, 128, "asobject | upscale(2)", None),
        (32, 64, "canvas(1, 64, 64)", Some((64, 64))),
        (64, 64, "identity", Some((64, 64))),
        (255, 16, "rot90", Some((16, 255))),
    ];
    for (h, w, text, want) in cases {
        let want = want.ok_or(ItemErrorCode::Overflow).map_err(|code| (code, h, w, text));
        let grid = of(h, w);
        check(&under_both_ties([text.to_owned()]), std::slice::from_ref(&grid), &[]);
        let shape = format!("{text}{}", if text.contains('|') { " | shape" } else { "" });
        let got = oracle::run(&compile(&shape), &grid);
        let got = got.map_err(|failure| (failure.code, h, w, text));
        let got = got.map(|output| match output {
            Output::Grid(grid) => (grid.h(), grid.w()),
            Output::Vector { row, col } => {
                (usize::try_from(row).unwrap(), usize::try_from(col).unwrap())
            }
            Output::Colors(_)
            | Output::Flag(_)
            | Output::Number(_)
            | Output::Object(_)
            | Output::Objects(_)
            | Output::Patch(_)
            | Output::Tuple(_)
            | Output::Value(..) => unreachable!("{text} gives a grid or a shape"),
        });
        assert_eq!(got, want, "{text} on {h} x {w}");
    }
    let pairs = [
        ((64, 32), (64, 32), "hconcat", true),
        ((64, 32), (64, 33), "hconcat", false),
        ((64, 32), (1, 200), "hconcat", true),
        ((1, 128), (1, 127), "hconcat", true),
        ((1, 128), (1, 128), "hconcat", false),
        ((32, 64), (32, 64), "vconcat", true),
        ((33, 64), (32, 64), "vconcat", false),
        ((128, 1), (127, 1), "vconcat", true),
        ((128, 1), (128, 1), "vconcat", false),
    ];
    for ((h, w), (other_h, other_w), text, fits) in pairs {
        let pair = (of(h, w), Some(of(other_h, other_w)));
        check(&[compile(text)], &[], std::slice::from_ref(&pair));
        let got = oracle::run(&compile(text), (&pair.0, pair.1.as_ref()));
        assert_eq!(got.is_ok(), fits, "{text}: {h} x {w} and {other_h} x {other_w}");
    }
}

#[test]
fn known_counts_of_objects_on_grids_that_break_implementations() {
    let cases = [
        ("checkerboard", "o_g(4)", 900),
        ("checkerboard", "o_g(5)", 450),
        ("checkerboard", "o_g(6)", 2),
        ("checkerboard", "o_g(7)", 1),
        ("checkerboard", "o_g(2)", 1),
        ("checkerboard", "partition", 2),
        ("checkerboard", "fgpartition", 1),
        ("largest checkerboard, 4,096 objects", "o_g(4)", 4_096),
        ("largest checkerboard, 4,096 objects", "o_g(4) | sizefilter(1)", 4_096),
        ("largest checkerboard, 4,096 objects", "o_g(4) | colorfilter(9)", 2_048),
        ("spiral", "replace(1, 2) | o_g(4)", 2),
        ("snake", "o_g(5)", 15),
        ("snake", "switch(0, 1) | o_g(4)", 16),
        ("comb", "o_g(5)", 15),
        ("concentric rings", "o_g(4)", 15),
        ("concentric rings", "partition", 10),
        ("all one colour", "o_g(5)", 0),
        ("all one colour", "fgpartition", 0),
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
        let program = Program::compile(text, Ties::Lowest).unwrap();
        let outputs = reference(&program, &batch);
        let Output::Objects(objects) = outputs.item(0).unwrap().unwrap() else {
            panic!("`{text}` gives objects");
        };
        assert_eq!(objects.len(), want, "{name}, `{text}`");
    }
}

#[test]
fn every_op_of_the_table_is_tested() {
    let programs = every_op(1, 3);
    let steps = programs.iter().flat_map(|program| program.steps());
    let used: BTreeSet<&str> = steps.map(|step| step.op.name()).collect();
    let applied = programs.iter().any(|program| program.steps()[0].applied);
    assert!(applied, "`apply` is no step, but its steps say so");
    let names = Op::rows().map(|row| row.name);
    assert_eq!(names.filter(|name| !used.contains(name)).count(), 0, "{used:?}");
}

// ---- the comparison ----

/// Compares every program over all grids, or all pairs.
fn check(programs: &[Program], grids: &[Grid], pairs: &[Pair]) {
    compare::check(&reference, programs, grids, pairs);
}

fn reference(program: &Program, batch: &GridBatch) -> Outputs {
    run_batch(program, batch).expect("the batch has items that the program takes")
}

fn run_pairs(program: &Program, pairs: &[Pair]) -> Outputs {
    let batch = GridBatch::from_pairs(compare::borrowed(pairs)).expect("the pairs fit one job");
    reference(program, &batch)
}

/// Checks the failure of the oracle and of the reference.
fn assert_failure(text: &str, item: Item<'_>, want: Option<(ItemErrorCode, Option<usize>)>) {
    let program = compile(text);
    let got = oracle::run(&program, item).err().map(|failure| (failure.code, failure.step));
    assert_eq!(got, want, "{text} on {item:?}");
    match item {
        Item::Grid(grid) => check(&[program], std::slice::from_ref(grid), &[]),
        Item::Pair(input, output) => check(&[program], &[], &[(input.clone(), output.cloned())]),
    }
}

fn adversarial() -> (Vec<Grid>, Vec<Pair>) {
    let grids: Vec<Grid> = samples::adversarial().into_iter().map(|(_, grid)| grid).collect();
    let others = grids.iter().cycle().skip(7);
    let mut pairs: Vec<Pair> =
        grids.iter().zip(others).map(|(a, b)| (a.clone(), Some(b.clone()))).collect();
    pairs.extend(grids.iter().step_by(5).map(|grid| (grid.clone(), None)));
    pairs.extend(grids.iter().step_by(3).map(|grid| (grid.clone(), Some(grid.clone()))));
    (grids, pairs)
}

fn check_tasks(tasks: &[tasks::Task]) {
    let grids: Vec<Grid> = tasks.iter().flat_map(|task| task.grids.clone()).collect();
    let pairs: Vec<Pair> = tasks.iter().flat_map(|task| task.pairs.clone()).collect();
    every_op(10, 1)
        .par_iter()
        .for_each(|program| check(std::slice::from_ref(program), &grids, &pairs));
    say(&format!("{} tasks, {} grids, {} pairs", tasks.len(), grids.len(), pairs.len()));
}

fn compile(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("the tests' programs compile")
}

/// Prints past libtest's capture, so that a run without the ARC tasks says so.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").expect("standard error is open");
}

//! The table is complete, and the reference gives its results.

use std::collections::BTreeSet;

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::{Grouping, Kind, Op};

use super::*;
use crate::reference::run_batch;

fn batch_of(known: &KnownAnswer) -> GridBatch {
    if known.takes_pairs() { pair_batch() } else { batch() }
}

#[test]
fn the_reference_gives_every_known_answer() {
    let mut wrong = Vec::new();
    for known in KNOWN_ANSWERS {
        let outputs = run_batch(&known.program(), &batch_of(known)).unwrap();
        if let Err(error) = known.check(&outputs) {
            wrong.push(error.to_string());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn known_answers_use_every_op_and_both_tie_modes() {
    let programs: Vec<_> = KNOWN_ANSWERS.iter().map(KnownAnswer::program).collect();
    let steps = || programs.iter().flat_map(Program::steps);
    let asked: BTreeSet<&str> = steps().map(|step| step.op.name()).collect();
    for row in Op::rows() {
        assert!(asked.contains(row.name), "{}", row.name);
    }
    assert!(steps().any(|step| step.applied), "nothing is applied to a pair");
    for ties in [Ties::Cpython, Ties::Lowest] {
        for name in ["mostcolor", "leastcolor", "palette"] {
            let asks = |p: &Program| p.ties() == ties && p.text().contains(name);
            assert!(programs.iter().any(asks), "{name} under {ties}");
        }
    }
    for code in 0..8 {
        let Grouping { univalued, diagonal, without_bg } = Grouping::from_code(code).unwrap();
        let wanted = Op::Objects { univalued, diagonal, without_bg };
        assert!(steps().any(|step| step.op == wanted), "{wanted}");
    }
}

#[test]
fn known_answers_have_every_kind_of_result_and_every_error() {
    let programs = KNOWN_ANSWERS.iter().map(KnownAnswer::program);
    let results: BTreeSet<_> =
        programs.map(|p| (p.gives().kind, p.gives().tuple.is_some())).collect();
    for kind in Kind::ALL {
        assert!(results.contains(&(kind, false)), "{kind}");
    }
    assert!(results.iter().any(|&(_, is_tuple)| is_tuple));

    let mut errors = BTreeSet::new();
    for known in KNOWN_ANSWERS {
        let outputs = run_batch(&known.program(), &batch_of(known)).unwrap();
        let items = (0..outputs.len()).map(|item| outputs.item(item).unwrap());
        errors.extend(items.filter_map(Result::err).map(|error| error.code));
    }
    // A batch of grids has no bad cell; `evaluate` tests those. The last codes are of solvers.
    let of_ops =
        |code: &ItemErrorCode| *code != ItemErrorCode::BadCell && *code <= ItemErrorCode::BadShape;
    let all = ItemErrorCode::ALL.into_iter().filter(of_ops);
    assert_eq!(errors, all.collect());
}

#[test]
fn canonical_texts_follow_the_description_of_the_file() {
    let text = |program: &str, rows: &[&[u8]]| {
        let program = Program::compile(program, Ties::Cpython).unwrap();
        let grid = Grid::from_rows(rows).unwrap();
        let batch = match program.takes() {
            Type::PAIR => GridBatch::from_pairs([(&grid, Some(&grid)), (&grid, None)]),
            _ => GridBatch::from_grids([&grid]),
        };
        canonical_text(&run_batch(&program, &batch.unwrap()).unwrap()).unwrap()
    };
    let rows: &[&[u8]] = &[&[1, 1, 0], &[0, 0, 2]];
    assert_eq!(text("rot90", rows), "grid 3 2 0 1 0 1 2 0\n");
    assert_eq!(text("trim", rows), "grid 0 0\n");
    assert_eq!(text("mostcolor", rows), "number 0\n");
    assert_eq!(text("square", rows), "flag false\n");
    assert_eq!(text("shape", rows), "vector 2 3\n");
    assert_eq!(text("palette", rows), "colors 0 1 2\n");
    assert_eq!(text("o_g(5) | first", rows), "object 1,0,0;1,0,1\n");
    assert_eq!(text("o_g(5)", rows), "objects 1,0,0;1,0,1 2,1,2\n");
    assert_eq!(text("ofcolor(1) | shift(-1, 2)", rows), "patch -1,2;-1,3\n");
    assert_eq!(text("ofcolor(7)", rows), "patch\n");
    assert_eq!(text("ofcolor(7) | ulcorner", rows), "error EmptyArg ulcorner\n");
    assert_eq!(
        text("apply(colorcount(1))", rows),
        "tuple [number 2] [number 2]\nerror MissingOutput input\n"
    );
}

#[test]
fn one_changed_cell_is_noticed() {
    let mut grids: Vec<Grid> = (0..batch().len()).map(|item| batch().grid(item)).collect();
    let last = grids.last_mut().unwrap();
    let mut cells = last.cells().to_vec();
    cells[4_000] = (cells[4_000] + 1) % 10;
    *last = Grid::new(64, 64, cells).unwrap();
    let changed = GridBatch::from_grids(&grids).unwrap();
    let known = &KNOWN_ANSWERS[0];
    let error = known.check(&run_batch(&known.program(), &changed).unwrap()).unwrap_err();
    assert!(error.to_string().contains(known.text));
}

#[test]
fn the_batch_has_its_promised_cases() {
    let batch = batch();
    assert_eq!((batch.len(), pair_batch().len()), (25, 8));
    let program = Program::compile("o_g(5)", Ties::Cpython).unwrap();
    let outputs = run_batch(&program, &batch).unwrap();
    let counts = (0..batch.len()).map(|item| match outputs.item(item).unwrap() {
        Ok(Output::Objects(objects)) => objects.len(),
        other => panic!("{other:?}"),
    });
    let counts: Vec<usize> = counts.collect();
    assert!(counts.contains(&0) && counts.iter().any(|&count| count > 255), "{counts:?}");
    // The spirals are one object, or two if the path is commoner than the ground.
    assert!(counts[19] <= 2 && counts[20] <= 2, "{counts:?}");
}

#[test]
fn numbers_are_written_as_they_print() {
    for number in [0, 9, 10, 99, 100, 4_096, -1, -10, -255, i32::MAX, i32::MIN] {
        let mut text = Vec::new();
        write_numbers(&mut text, b';', [number, 7]);
        assert_eq!(text, format!(";{number},7").into_bytes());
    }
}

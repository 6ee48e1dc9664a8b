//! Whole programs: what steps pass on, which values fail, and where results lie.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{Output, PatchCell};
use gridpool_protocol::program::Type;

use super::*;
use crate::known_answer::{KNOWN_ANSWERS, batch, pair_batch};

fn grid(rows: &[&str]) -> Grid {
    let rows: Vec<Vec<u8>> =
        rows.iter().map(|row| row.bytes().map(|c| c - b'0').collect()).collect();
    if rows.is_empty() { Grid::empty() } else { Grid::from_rows(&rows).unwrap() }
}

fn outputs(text: &str, batch: &GridBatch) -> Vec<Result<Output, String>> {
    let program = Program::compile(text, Ties::Cpython).unwrap();
    let outputs = run_batch(&program, batch).unwrap();
    let items = (0..outputs.len()).map(|item| outputs.item(item).unwrap());
    items.map(|item| item.map_err(|error| format!("{} {}", error.code.name(), error.op))).collect()
}

fn of(text: &str, rows: &[&str]) -> Result<Output, String> {
    outputs(text, &GridBatch::from_grids([&grid(rows)]).unwrap()).remove(0)
}

fn of_pair(text: &str, input: &[&str], output: Option<&[&str]>) -> Result<Output, String> {
    let output = output.map(grid);
    let batch = GridBatch::from_pairs([(&grid(input), output.as_ref())]).unwrap();
    outputs(text, &batch).remove(0)
}

fn made(rows: &[&str]) -> Result<Output, String> {
    Ok(Output::Grid(grid(rows)))
}

fn failed(text: &str) -> Result<Output, String> {
    Err(text.to_owned())
}

const ROWS: &[&str] = &["1100", "0003", "0003"];

#[test]
fn ops_see_what_the_op_before_them_made() {
    assert_eq!(of("rot90 | replace(4, 5)", &["123", "456"]), made(&["51", "52", "63"]));
    assert_eq!(of("rot90 | rot90", &["123"]), of("rot180", &["123"]));
    assert_eq!(of("replace(1, 2) | colorcount(2)", &["121"]), Ok(Output::Number(3)));
    assert_eq!(of("switch(1, 8) | palette", &["10"]), Ok(Output::Colors(vec![8, 0])));
    assert_eq!(of("trim | rot90 | upscale(2)", ROWS), made(&["00", "00", "00", "00"]));
}

#[test]
fn pieces_keep_the_ground_that_they_were_found_in() {
    let found = "rot180 | o_g(5) | argmax(lowermost)";
    assert_eq!(of("rot180", ROWS), made(&["3000", "3000", "0011"]));
    assert_eq!(of(&format!("{found} | fill(8)"), ROWS), made(&["3000", "3000", "0088"]));
    assert_eq!(of(&format!("{found} | subgrid"), ROWS), made(&["11"]));
    let moved = format!("{found} | shift(-1, -1) | toobject | paint | o_g(5) | size");
    assert_eq!(of(&moved, ROWS), Ok(Output::Number(2)));
    assert_eq!(of("fill(8, ofcolor(0) | box)", ROWS), made(&["8888", "8008", "8888"]));
    assert_eq!(
        of("ofcolor(1) | outbox | recolor(2) | paint", ROWS),
        made(&["1120", "2223", "0003"])
    );
}

#[test]
fn a_drawn_grid_is_the_next_ground() {
    let text = "ofcolor(1) | fill(0) | o_g(5) | merge | cover";
    assert_eq!(of(text, ROWS), made(&["0000", "0000", "0000"]));
}

#[test]
fn objects_carry_the_cells_that_the_op_saw() {
    let cells = |output: Result<Output, String>| match output {
        Ok(Output::Objects(objects)) => {
            let cells = objects.concat().into_iter().map(|c| (c.color, c.row, c.col));
            cells.collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(cells(of("rot90 | o_g(5)", &["003", "020"])), [(2, 1, 0), (3, 2, 1)]);
    assert_eq!(cells(of("trim | o_g(4)", &["999", "919", "999"])), [(1, 0, 0)]);
    assert_eq!(cells(of("o_g(5) | colorfilter(3)", ROWS)), [(3, 1, 3), (3, 2, 3)]);
}

#[test]
fn patches_may_leave_the_grid() {
    let place = |row, col| PatchCell { row, col };
    let want = Output::Patch(vec![place(-1, -3), place(-1, -2)]);
    assert_eq!(of("ofcolor(1) | shift(-1, -3)", ROWS), Ok(want));
    assert_eq!(of("ofcolor(1) | shift(0, 200) | fill(5)", ROWS), made(ROWS));
}

#[test]
fn a_picture_over_the_limits_overflows() {
    assert_eq!(of("upscale(30) | upscale(30)", ROWS), failed("Overflow upscale(30)"));
    assert_eq!(of("hupscale(30) | hupscale(3)", ROWS), failed("Overflow hupscale(3)"));
    let row = format!("{}{}", "1".repeat(120), "0".repeat(120));
    assert_eq!(of("hupscale(30) | hupscale(2)", &["1100"]), made(&[&row]));
}

#[test]
fn an_empty_grid_is_a_value_that_no_op_accepts() {
    for text in ["trim", "trim | canvas(1, 1, 1) | trim", "hsplit(5) | nth(3)", "vsplit(3) | last"]
    {
        assert_eq!(of(text, &["12", "34"]), made(&[]), "{text}");
    }
    for op in ["rot90", "identity", "height", "asobject", "trim", "palette", "hsplit(2)"] {
        let want = failed(&format!("EmptyArg {op}"));
        assert_eq!(of(&format!("trim | {op}"), &["12", "34"]), want);
    }
    assert_eq!(of("hsplit(3) | hconcat", &["12"]), failed("EmptyArg hconcat"));
    assert_eq!(of("trim | canvas(3, 1, 2)", &["1"]), made(&["33"]));
}

#[test]
fn the_first_error_stays() {
    let text = "o_g(5) | argmax(size) | subgrid | trim | rot90";
    assert_eq!(of(text, &["00"]), failed("EmptyArg argmax(size)"));
    assert_eq!(of("ofcolor(7) | subgrid | canvas(1, 1, 1)", ROWS), failed("EmptyArg subgrid"));
    assert_eq!(of("o_g(5) | nth(2) | size", ROWS), failed("BadIndex nth(2)"));
    assert_eq!(of("ofcolor(1) | shift(-1, 0) | subgrid", ROWS), failed("BadCrop subgrid"));
    assert_eq!(of("trim | mostcolor", &["1"]), failed("EmptyArg mostcolor"));
    assert_eq!(of("ofcolor(9) | center", ROWS), failed("EmptyArg center"));
}

#[test]
fn a_pair_needs_its_output_only_where_it_is_used() {
    let missing = failed("MissingOutput input");
    assert_eq!(of_pair("first", &["12"], None), made(&["12"]));
    assert_eq!(of_pair("first | rot90", &["12"], None), made(&["1", "2"]));
    assert_eq!(of_pair("second", &["12"], None), missing);
    assert_eq!(of_pair("hconcat", &["12"], None), missing);
    assert_eq!(of_pair("apply(rot90)", &["12"], None), missing);
    assert_eq!(of_pair("apply(rot90) | first", &["12"], None), made(&["1", "2"]));
    assert_eq!(of_pair("second | canvas(1, 1, 1)", &["12"], None), missing);
    // A failure counts before emptiness.
    assert_eq!(of_pair("apply(trim) | hconcat", &["12"], None), missing);
    assert_eq!(of_pair("apply(trim) | second", &["12"], Some(&["12"])), made(&[]));
}

#[test]
fn tuples_are_joined_element_by_element() {
    let (a, b): (&[&str], &[&str]) = (&["12", "34"], &["52", "37"]);
    assert_eq!(of_pair("hconcat", a, Some(b)), made(&["1252", "3437"]));
    assert_eq!(of_pair("vconcat", a, Some(b)), made(&["12", "34", "52", "37"]));
    assert_eq!(of_pair("cellwise(0)", a, Some(b)), made(&["02", "30"]));
    assert_eq!(of_pair("cellwise(0)", a, Some(&["12"])), failed("BadShape cellwise(0)"));
    assert_eq!(of_pair("vconcat", a, Some(&["1"])), failed("BadShape vconcat"));
    assert_eq!(of("hsplit(2) | apply(replace(1, 9)) | hconcat", &["1213"]), made(&["9293"]));
    assert_eq!(
        of_pair("apply(o_g(4) | size)", a, Some(&["55"])),
        Ok(Output::Tuple(vec![Output::Number(4), Output::Number(1)]))
    );
    let halves = of("vsplit(2)", &["12", "34", "56"]);
    let want = vec![Output::Grid(grid(&["12"])), Output::Grid(grid(&["56"]))];
    assert_eq!(halves, Ok(Output::Tuple(want)));
}

/// A batch of a known answer that uses every op of `program`.
fn batch_of(program: &Program) -> GridBatch {
    if program.takes() == Type::PAIR { pair_batch() } else { batch() }
}

fn run(evaluator: &mut Evaluator, program: &Program, batch: &GridBatch, span: &ItemSpan) {
    let layout = OutputLayout::new(program, batch.layout().unwrap()).unwrap();
    let width = batch.grids_per_item() as usize;
    let shapes = &batch.tables().shapes()[span.items.start * width..span.items.end * width];
    let cells = &batch.cells()[span.cells.clone()];
    evaluator.load(width, shapes, |to| to.copy_from_slice(cells));
    evaluator.validate();
    for (at, step) in program.steps().iter().enumerate() {
        evaluator.apply(step, at, program.ties());
    }
    evaluator.finish(&layout, span);
}

#[test]
fn an_evaluator_keeps_nothing_of_the_run_before() {
    let mut used = Evaluator::default();
    for known in KNOWN_ANSWERS {
        let program = known.program();
        let batch = batch_of(&program);
        let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
        let all = ItemSpan { items: 0..batch.len(), cells: 0..batch.cells().len() };
        let mut fresh = Evaluator::default();
        run(&mut used, &program, &batch, &all);
        run(&mut fresh, &program, &batch, &all);
        for part in Part::ALL.into_iter().filter(|part| !part.range(&layout).is_empty()) {
            assert_eq!(used.part(part), fresh.part(part), "{} {part:?}", known.text);
        }
    }
}

#[test]
fn spans_put_together_are_the_whole() {
    for known in KNOWN_ANSWERS {
        let program = known.program();
        let batch = batch_of(&program);
        let whole = run_batch(&program, &batch).unwrap();
        let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
        let mut bytes = vec![0xee; layout.bytes()];
        let mut evaluator = Evaluator::default();
        let width = batch.grids_per_item() as usize;
        for start in (0..batch.len()).step_by(3) {
            let end = batch.len().min(start + 3);
            let cell = |item: usize| batch.tables().offsets()[item * width] as usize;
            let piece = ItemSpan { items: start..end, cells: cell(start)..cell(end) };
            run(&mut evaluator, &program, &batch, &piece);
            for part in Part::ALL {
                if let Some(span) = part.span(&layout, &piece) {
                    let from = evaluator.part(part);
                    bytes[span][..from.len()].copy_from_slice(from);
                }
            }
        }
        let joined = Outputs::new(program, Arc::new(batch), bytes).unwrap();
        for item in 0..whole.len() {
            assert_eq!(joined.item(item).unwrap(), whole.item(item).unwrap(), "{}", known.text);
        }
    }
}

#[test]
fn packed_values_lie_without_gaps_even_after_failures() {
    let program = "trim | o_g(5) | argmax(size) | fill(7) | identity";
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let grids = [&["1111", "1001", "1111"], &["1111", "1221", "1111"], &["1111", "1341", "1111"]];
    let batch = GridBatch::from_grids(&grids.map(|rows| grid(rows))).unwrap();
    let mut evaluator = Evaluator::default();
    run(&mut evaluator, &program, &batch, &ItemSpan { items: 0..3, cells: 0..36 });
    assert_eq!(evaluator.part(Part::Cells), [3, 7]);
    assert_eq!(evaluator.part(Part::Shapes), [0, 0, 0, 0, 1, 2]);
    assert_eq!(evaluator.part(Part::Offsets), [0; 12]);
    assert_eq!(evaluator.part(Part::Status), [4, 2, 4, 2, 0, 0]);
    assert_eq!(evaluator.item_errors(), 2);
}

#[test]
fn a_bad_cell_fails_its_item_alone_under_every_op() {
    for known in KNOWN_ANSWERS.iter().filter(|known| !known.takes_pairs()) {
        let text = format!("rot90 | {}", known.text);
        let program = Program::compile(&text, Ties::Cpython).unwrap();
        let mut evaluator = Evaluator::default();
        evaluator.load(1, &[[1, 2], [2, 2], [1, 1]], |cells| {
            cells.copy_from_slice(&[1, 2, 0, 255, 10, 3, 9]);
        });
        evaluator.validate();
        assert_eq!(evaluator.item_errors(), 1);
        for (at, step) in program.steps().iter().enumerate() {
            evaluator.apply(step, at, Ties::Cpython);
        }
        let width = program.gives().width();
        let status = evaluator.part(Part::Status).as_chunks::<2>().0;
        let bad = [ItemErrorCode::BadCell as u8, NO_OP];
        assert_eq!(status[width..2 * width], vec![bad; width], "{text}");
        let others = status[..width].iter().chain(&status[2 * width..]);
        assert!(others.into_iter().all(|status| *status != bad), "{text}");
    }
}

#[test]
fn an_item_in_error_shows_no_cell_of_the_run_before() {
    let program = Program::compile("rot90", Ties::Cpython).unwrap();
    let mut evaluator = Evaluator::default();
    for cells in [[7; 4], [255, 1, 1, 1]] {
        evaluator.load(1, &[[2, 2]], |to| to.copy_from_slice(&cells));
        evaluator.validate();
        evaluator.apply(&program.steps()[0], 0, Ties::Cpython);
    }
    assert_eq!(evaluator.part(Part::Status), [ItemErrorCode::BadCell as u8, NO_OP]);
    assert_eq!(evaluator.part(Part::Shapes), [0, 0]);
    assert_eq!(evaluator.part(Part::Cells), [0; 4]);
}

//! Tests of the output for people.

use gridpool_client::{Answer, Outputs};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::color::Colors;
use gridpool_protocol::output::{ObjectCell, Output, PatchCell};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, ItemRange};

use super::super::input::{Body, Pair, Task};
use super::super::results::fixtures::{answered, device, failed, grid, identity, paired};
use super::*;

const PLAIN: Style = Style { all: false, colors: Colors::None, columns: 80 };

/// The output for a program over grids.
fn shown(inputs: &[Input], jobs: Vec<Answer<Outputs>>, style: Style) -> String {
    shown_of("identity", inputs, jobs, style)
}

fn shown_of(program: &str, inputs: &[Input], jobs: Vec<Answer<Outputs>>, style: Style) -> String {
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let inputs = Inputs::new(inputs.to_vec(), &program).unwrap();
    let mut out = Vec::new();
    let elapsed = Duration::from_millis(1_234);
    write(&mut out, &inputs, &Results::new(jobs), elapsed, style).unwrap();
    String::from_utf8(out).unwrap()
}

/// The output for one grid.
fn one(program: &str, grid: &Grid, output: Output) -> String {
    let job = answered(program, std::slice::from_ref(grid), &[Some(output)]);
    let text = shown(&[list("x", std::slice::from_ref(grid))], vec![job], PLAIN);
    let (result, _) = text.split_once("\n\n1 input").unwrap();
    result.strip_prefix("x  OK\n").unwrap().to_owned()
}

fn list(name: &str, grids: &[Grid]) -> Input {
    Input { name: name.to_owned(), body: Body::Grids(grids.to_vec()) }
}

#[test]
fn a_task_is_shown_pair_by_pair_with_a_summary() {
    let (a, b) = (Grid::from_rows(&[[1, 2], [3, 4]]).unwrap(), grid(9));
    let train = vec![Pair { input: a.clone(), output: Some(b.clone()) }];
    let test = vec![Pair { input: b.clone(), output: None }];
    let input = Input { name: "007bbfb7".to_owned(), body: Body::Task(Task { train, test }) };
    assert_eq!(
        shown(&[input], vec![identity(&[a, b.clone(), b])], PLAIN),
        "\
007bbfb7  OK
train pair 0, input  train pair 0, output  test pair 0, input
 1 2                  9                     9
 3 4

1 input, 3 grids: 1 OK; 1.23 s
cpu0#1  3 grids  identity x1
"
    );
}

#[test]
fn objects_are_drawn_with_their_numbers_and_listed() {
    let cell = |color, row, col| ObjectCell { color, row, col };
    let objects = vec![vec![cell(1, 0, 0), cell(5, 0, 1), cell(5, 1, 1)], vec![cell(2, 1, 3)]];
    let input = Grid::from_rows(&[[1, 5, 0, 0], [0, 5, 0, 2], [0, 0, 0, 0]]).unwrap();
    let job = answered("o_g(1)", std::slice::from_ref(&input), &[Some(Output::Objects(objects))]);
    let text = shown(&[list("x", &[input])], vec![job], PLAIN);
    let want = "\
x  OK
grid 0: 2 objects
 1 1 · ·
 · 1 · 2
1: blue, grey: 3 cells, rows 0 to 1, columns 0 to 1
2: red: 1 cell, row 1, column 3
";
    assert!(text.starts_with(want), "{text}");
    let none = answered("o_g(1)", &[grid(0)], &[Some(Output::Objects(Vec::new()))]);
    let text = shown(&[list("x", &[grid(0)])], vec![none], PLAIN);
    assert!(text.starts_with("x  OK\ngrid 0: 0 objects\n\n"), "{text}");
}

#[test]
fn values_and_item_errors_take_one_line() {
    let grids = [grid(1), grid(2)];
    let number = answered("numcolors", &grids, &[Some(Output::Number(7)), None]);
    let colors = answered("palette", &grids, &[Some(Output::Colors(vec![8, 0])), None]);
    let style = Style { columns: 60, ..PLAIN };
    let text = shown(&[list("x", &grids), list("y", &grids)], vec![number, colors], style);
    let want = "\
x  OK
grid 0: 7
grid 1: BadCell in input: a cell is not a colour from 0 to 9

y  OK
grid 0: 8 0
grid 1: BadCell in input: a cell is not a colour from 0 to 9

2 inputs, 4 grids: 2 OK; 2 item errors: 2 BadCell; 1.23 s
cpu0#1  4 grids  numcolors x1, palette x1
";
    assert_eq!(text, want);
}

#[test]
fn an_object_and_a_patch_are_drawn_as_their_box_with_its_place() {
    let grid = Grid::from_rows(&[[0, 3, 3], [4, 0, 0]]).unwrap();
    let cell = |color, row, col| ObjectCell { color, row, col };
    let object = vec![cell(3, -1, 1), cell(3, -1, 2), cell(4, 0, 0)];
    assert_eq!(
        one("asobject | shift(-1, 0)", &grid, Output::Object(object)),
        "grid 0: 3 cells\nat row -1, column 0\n · 3 3\n 4 · ·"
    );
    let patch = [(0, 0), (1, 1), (1, 2)].map(|(row, col)| PatchCell { row, col });
    assert_eq!(
        one("ofcolor(0)", &grid, Output::Patch(patch.into())),
        "grid 0: 3 cells\nat row 0, column 0\n # · ·\n · # #"
    );
}

#[test]
fn empty_results_are_named() {
    let grid = grid(1);
    assert_eq!(one("trim", &grid, Output::Grid(Grid::empty())), "grid 0: an empty grid");
    assert_eq!(one("ofcolor(0)", &grid, Output::Patch(Vec::new())), "grid 0: an empty patch");
    let merged = one("o_g(1) | merge", &grid, Output::Object(Vec::new()));
    assert_eq!(merged, "grid 0: an empty object");
    let colors = one("o_g(1) | merge | palette", &grid, Output::Colors(Vec::new()));
    assert_eq!(colors, "grid 0: no colour");
}

#[test]
fn flags_vectors_and_their_tuples_are_text() {
    let grid = grid(1);
    assert_eq!(one("square", &grid, Output::Flag(true)), "grid 0: true");
    assert_eq!(one("shape", &grid, Output::Vector { row: 1, col: 1 }), "grid 0: (1, 1)");
    let heights = Output::Tuple(vec![Output::Number(3), Output::Number(-1)]);
    assert_eq!(one("vsplit(2) | apply(height)", &grid, heights), "grid 0: 3, -1");
}

#[test]
fn the_elements_of_a_tuple_are_side_by_side_under_the_ops_that_pick_them() {
    let (a, b) = (Grid::from_rows(&[[1, 2], [3, 4]]).unwrap(), grid(9));
    let train = vec![Pair { input: a.clone(), output: Some(b.clone()) }];
    let test = vec![Pair { input: b.clone(), output: None }];
    let pairs = [train.clone(), test.clone()].concat();
    let input = Input { name: "007bbfb7".to_owned(), body: Body::Task(Task { train, test }) };
    let both = Output::Tuple(vec![Output::Grid(a.clone()), Output::Grid(b)]);
    let job = paired("apply(identity)", &pairs, &[Some(both), None]);
    assert_eq!(
        shown_of("apply(identity)", &[input], vec![job], PLAIN),
        "\
007bbfb7  OK
train pair 0   test pair 0: BadCell in input: a cell is not a colour from 0 to 9
first  second
 1 2    9
 3 4

1 input, 2 pairs: 1 OK; 1 item error: 1 BadCell; 1.23 s
cpu0#1  2 pairs  identity x1
"
    );
    let parts = vec![Output::Grid(a), Output::Grid(Grid::empty()), Output::Grid(grid(7))];
    assert_eq!(
        one("hsplit(3)", &Grid::new(2, 4, vec![0; 8]).unwrap(), Output::Tuple(parts)),
        "grid 0\nfirst  second: an empty grid  nth(2)\n 1 2                           7\n 3 4"
    );
}

#[test]
fn a_long_item_error_is_wrapped_at_the_screen() {
    let grids = [grid(1)];
    let job = answered("numcolors", &grids, &[None]);
    let text = shown(&[list("x", &grids)], vec![job], Style { columns: 40, ..PLAIN });
    let want = "x  OK\ngrid 0: BadCell in input: a cell is not\na colour from 0 to 9\n";
    assert!(text.starts_with(want), "{text}");
}

#[test]
fn the_output_counts_omitted_rows_and_all_shows_them() {
    let inputs: Vec<Input> = (0..6).map(|n| list(&n.to_string(), &vec![grid(n); 20])).collect();
    let jobs = || (0..6).map(|n| identity(&vec![grid(n); 20])).collect::<Vec<_>>();
    let text = shown(&inputs, jobs(), PLAIN);
    assert!(text.contains("… 8 more grids are not shown; --all shows them"), "{text}");
    assert!(text.contains("… 2 more inputs are not shown; --all shows them"), "{text}");
    assert!(text.contains("3  OK") && !text.contains("4  OK"), "{text}");
    let text = shown(&inputs, jobs(), Style { all: true, ..PLAIN });
    assert!(text.contains("5  OK") && !text.contains("not shown"), "{text}");
}

#[test]
fn items_of_a_split_job_count_for_the_workers_that_ran_them() {
    let grids = vec![grid(1); 5];
    let mut job = identity(&grids);
    let whole = job.receipt.attempts.remove(0);
    let part = |worker: &str, start, end| Attempt {
        worker: worker.into(),
        part: ItemRange { start, end },
        ..whole.clone()
    };
    let lost = Attempt {
        outcome: AttemptOutcome::Preempted,
        detail: String::new(),
        ..part("cpu1#1", 3, 5)
    };
    let done = [part("cpu0#1", 0, 2), part("cpu0#1", 2, 3), part("cpu1#1", 3, 5)];
    job.receipt.attempts = done.into_iter().chain([lost]).collect();
    let text = shown(&[list("x", &grids)], vec![job], PLAIN);
    let want = "
cpu0#1  3 grids in 2 parts  identity x2
cpu1#1  2 grids in 1 part  identity x1
cpu1#1  1 attempt at a part stopped because of another attempt
";
    assert!(text.ends_with(want), "{text}");
}

/// A line as a screen shows it: without escape sequences, which end in `m`.
fn visible(line: &str) -> String {
    let mut pieces = line.split('\x1b');
    let start = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(start, |text, piece| text + piece.split_once('m').unwrap().1)
}

#[test]
fn lines_fit_the_screen_and_colours_change_no_character() {
    let wide = Grid::new(1, 255, vec![5; 255]).unwrap();
    let narrow = Grid::new(2, 7, vec![1; 14]).unwrap();
    let grids = [wide, narrow.clone(), narrow.clone(), narrow];
    let inputs = [list("x", &grids)];
    let plain = Style { columns: 36, ..PLAIN };
    let text = shown(&inputs, vec![identity(&grids)], plain);
    assert!(text.lines().all(|line| line.chars().count() <= 36), "{text}");
    assert!(text.contains(" 5 5…\n") && text.contains("grid 1          grid 2\n"), "{text}");
    let colored = shown(&inputs, vec![identity(&grids)], Style { colors: Colors::True, ..plain });
    assert!(colored.contains("\x1b["));
    assert!(colored.lines().map(visible).eq(text.lines()), "{colored}");
}

#[test]
fn a_failed_input_has_its_reason_and_lost_attempts_are_listed() {
    let mut job = identity(&[grid(1)]);
    let detail = "killed by signal 9 (SIGKILL)".to_owned();
    let lost = Attempt::unreported(
        "cpu0#1",
        device(),
        ItemRange::default(),
        AttemptOutcome::WorkerDied,
        detail,
    );
    job.receipt.attempts.insert(0, lost);
    job.receipt.attempts[1].worker = "cpu0#2".into();
    let inputs = [list("x\x1b[2J", &[grid(1)]), list("y", &[grid(2)])];
    assert_eq!(
        shown(&inputs, vec![failed(Verdict::Poison, 1), job], PLAIN),
        "\
x\u{fffd}[2J  POISON: the worker was killed

y  OK
grid 0
 1

2 inputs, 2 grids: 1 OK, 1 POISON; 1.23 s
cpu0#1  1 attempt lost, the worker died: killed by signal 9 (SIGKILL)
cpu0#2  1 grid  identity x1
"
    );
}

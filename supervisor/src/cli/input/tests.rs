//! Tests of inputs and of the errors of wrong ones.

mod arrow;
mod formats;

use std::fs;
use std::path::{Path, PathBuf};

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Program, Ties};

use super::*;

/// Reads `bytes` from standard input.
fn piped(bytes: &[u8]) -> Result<Vec<Input>, InputError> {
    read(&[], Stdin { is_terminal: false, reader: &mut &*bytes })
}

/// Reads the arguments; standard input is a terminal.
fn typed(arguments: &[&Path]) -> Result<Vec<Input>, InputError> {
    let arguments: Vec<PathBuf> = arguments.iter().map(|path| path.to_path_buf()).collect();
    read(&arguments, Stdin { is_terminal: true, reader: &mut &b""[..] })
}

/// The error for `bytes`, without the name of the file.
fn refusal(bytes: &[u8]) -> String {
    let error = piped(bytes).expect_err(&String::from_utf8_lossy(bytes));
    assert_eq!(error.exit_code(), 65);
    error.to_string().strip_prefix("standard input: ").unwrap().to_owned()
}

/// An array as NumPy writes it.
fn npy(descr: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header =
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}").into_bytes();
    let padded = (header.len() + 11).next_multiple_of(64) - 10;
    let header = [&header[..], &vec![b' '; padded - 1 - header.len()], b"\n"].concat();
    with_header(&header, data)
}

/// Cells in the order of their rows.
fn uint8(shape: &str, cells: &[u8]) -> Vec<u8> {
    npy("'|u1'", "False", shape, cells)
}

fn with_header(header: &[u8], data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header, data].concat()
}

fn grid<const W: usize>(rows: &[[u8; W]]) -> Grid {
    Grid::from_rows(rows).unwrap()
}

#[test]
fn a_task_keeps_its_pairs_in_order_and_may_lack_outputs_and_sections() {
    let text = br#"{"name": "x", "test": [{"input": [[3]]}],
        "train": [{"output": [[1, 2]], "input": [[1], [2]]}]}"#;
    let inputs = piped(text).unwrap();
    let task = Task {
        train: vec![Pair { input: grid(&[[1], [2]]), output: Some(grid(&[[1, 2]])) }],
        test: vec![Pair { input: grid(&[[3]]), output: None }],
    };
    assert_eq!(inputs, [Input { name: "-".to_owned(), body: Body::Task(task) }]);
    assert_eq!(piped(br#"{"test": [{"input": [[3]]}]}"#).unwrap()[0].item_count(Unit::Grid), 1);
}

#[test]
fn a_combined_file_gives_its_tasks_by_name_in_its_own_order() {
    let inputs = piped(
        br#"{"version": 1, "b": {"train": [{"input": [[1]]}]}, "a": {"test": [{"input": [[2]]}]}}"#,
    );
    let names: Vec<String> = inputs.unwrap().into_iter().map(|input| input.name).collect();
    assert_eq!(names, ["b", "a"]);
}

#[test]
fn a_list_of_grids_may_be_ragged() {
    let inputs = piped(b" [[[1, 2]], [[3], [4]]] ").unwrap();
    assert_eq!(inputs[0].body, Body::Grids(vec![grid(&[[1, 2]]), grid(&[[3], [4]])]));
}

#[test]
fn an_error_in_json_names_task_pair_side_row_and_column() {
    let cases = [
        // Not JSON.
        ("", "it is empty: expected JSON, a .npz, a .npy array or an Arrow file"),
        ("hello", "it begins as no JSON, .npz, .npy array or Arrow file does"),
        ("nothing", "line 1, column 2: not JSON: expected ident"),
        ("[[[1, 2]\n[3, 4]]]", "line 2, column 1: not JSON: expected `,` or `]`"),
        (r#"{"train": [{"input": [[1,"#, "line 1, column 25: not JSON: EOF while parsing"),
        ("[[[1]]] []", "line 1, column 9: not JSON: trailing characters"),
        // The wrong thing in a place.
        ("3", "expected a task, tasks by name, or a list of grids or of pairs, found 3"),
        ("\"a\"", "expected a task, tasks by name, or a list of grids or of pairs, found \"a\""),
        ("null", "expected a task, tasks by name, or a list of grids or of pairs, found null"),
        ("[3]", "grid 0: expected a grid (a list of rows) or a pair (an object with `input`"),
        ("[[1, 2], [3, 4]]", "this is one grid, not a list of grids: put it"),
        ("[[[1]], [2]]", "grid 1, row 0: expected a row, a list of colours, found 2"),
        (r#"{"train": 3}"#, "train: expected a list of pairs, found 3"),
        (r#"{"train": [[[1]]]}"#, "train pair 0: expected a pair, an object with `input`"),
        (r#"{"train": [{"input": {}}]}"#, "train pair 0, input: expected a grid, a list of rows"),
        (
            r#"{"train": [{"input": [[1]], "output": null}]}"#,
            "train pair 0, output: expected a grid, a list of rows (a pair without output has no such \
             key), found null",
        ),
        (r#"{"a": [[[1]]]}"#, "task a: expected a task, an object with `train` and `test`, found"),
        // Something missing, or too much of it.
        ("[]", "it holds no grid"),
        ("{}", "it holds no task: it has neither `train` nor `test` nor tasks by name"),
        (r#"{"name": "x"}"#, "it holds no task"),
        (r#"{"train": [], "test": []}"#, "it has no pair in `train` or `test`"),
        (r#"{"a": {"train": []}}"#, "task a: it has no pair in `train` or `test`"),
        (r#"{"train": [{"output": [[1]]}]}"#, "train pair 0: the key `input` is missing"),
        (r#"{"train": [], "train": []}"#, "the key `train` is there twice"),
        (
            r#"{"test": [{"input": [[1]], "input": [[1]]}]}"#,
            "test pair 0: the key `input` is there",
        ),
        (r#"{"train": [], "a": {"train": [{"input": [[1]]}]}}"#, "it is both a task"),
        (r#"{"a": {"trian": []}}"#, "task a: there is no key `trian` here: a task has `train`"),
        (r#"{"test": [{"ouput": [[1]]}]}"#, "test pair 0: there is no key `ouput` here: a pair"),
        // Lists of pairs.
        (r#"{"input": [[1]], "output": [[1]]}"#, "this is one pair, not a list of pairs"),
        (r#"[{"input": [[1]]}, [[1]]]"#, "grid 1: this is a grid in a list of pairs: put"),
        (r#"[[[1]], [[2]], {"input": [[1]]}]"#, "pair 2: this is a pair in a list of grids: put"),
        (r#"[{"output": [[1]]}]"#, "pair 0: the key `input` is missing"),
        (r#"[{"input": [[1]]}, {}]"#, "pair 1: the key `input` is missing"),
        (r#"[{"input": [[1]]}, null]"#, "grid 1: expected a grid (a list of rows) or a pair (an"),
        (r#"[{"input": [[1]]}, {"input": [[1, 10]]}]"#, "pair 1, input, row 0, column 1: 10 is"),
        (r#"[{"input": [[1]], "output": []}]"#, "pair 0, output: the grid is empty"),
        (r#"[{"input": [[1]], "output": null}]"#, "pair 0, output: expected a grid, a list of"),
        (r#"[{"input": [[1]], "grid": [[1]]}]"#, "pair 0: there is no key `grid` here: a pair has"),
        (r#"[{"train": [{"input": [[1]]}]}]"#, "pair 0: there is no key `train` here: a pair has"),
        // Shapes.
        ("[[]]", "grid 0: the grid is empty: it needs at least one row and one column"),
        ("[[[]]]", "grid 0: the grid is empty"),
        ("[[[1], []]]", "grid 0: row 1 has 0 cells, row 0 has 1"),
        (r#"{"a": {"test": [{"input": [[1], [1, 2]]}]}}"#, "task a, test pair 0, input: row 1 has"),
    ];
    for (text, want) in cases {
        let error = refusal(text.as_bytes());
        assert!(error.starts_with(want), "{text}: {error}");
    }
}

#[test]
fn a_cell_that_is_not_a_colour_is_quoted() {
    let cases =
        ["10", "-1", "1.5", "1.0", "\"a\"", "null", "true", "1e3", "18446744073709551616", "256"];
    for cell in cases {
        let text = format!(
            r#"{{"train": [{{"input": [[0]]}}, {{"input": [[0, 1], [2, 3], [{cell}, 4]]}}]}}"#
        );
        let shown = match cell {
            "1e3" => "1000.0",
            "18446744073709551616" => "1.8446744073709552e19",
            other => other,
        };
        let want =
            format!("train pair 1, input, row 2, column 0: {shown} is not a colour from 0 to 9");
        assert_eq!(refusal(text.as_bytes()), want);
    }
    assert_eq!(
        refusal(b"[[[0, [1]]]]"),
        "grid 0, row 0, column 1: a list is not a colour from 0 to 9"
    );
    let long = format!("[[[\"\\u001b[31m{}\"]]]", "x".repeat(500));
    let error = refusal(long.as_bytes());
    assert!(error.starts_with(r#"grid 0, row 0, column 0: "\u{1b}[31mxxx"#), "{error}");
    assert!(error.len() < 200, "{error}");
}

#[test]
fn grids_over_the_limits_are_refused_and_grids_at_the_limits_are_read() {
    let text = |h: usize, w: usize| {
        let row = format!("[{}]", vec!["1"; w].join(","));
        format!("[[{}]]", vec![row; h].join(",")).into_bytes()
    };
    for (h, w) in [(64, 64), (255, 16), (1, 255)] {
        assert_eq!(piped(&text(h, w)).unwrap()[0].item_count(Unit::Grid), 1);
    }
    assert_eq!(refusal(&text(256, 1)), "grid 0: the grid is 256 x 1; a side has at most 255 cells");
    assert_eq!(
        refusal(&text(64, 65)),
        "grid 0: the grid is 64 x 65 = 4160 cells; at most 4096 are allowed"
    );
}

#[test]
fn nesting_bombs_are_errors() {
    for bomb in ["[", "{\"a\":", "[{\"input\":"] {
        let text = bomb.repeat(100_000);
        assert!(!refusal(text.as_bytes()).is_empty());
    }
}

#[test]
fn npy_arrays_of_two_and_three_dimensions_are_read_in_either_order() {
    let cells: Vec<u8> = (0..12).map(|cell| cell % 10).collect();
    let want = Body::Grids(vec![grid(&[[0, 1], [2, 3], [4, 5]]), grid(&[[6, 7], [8, 9], [0, 1]])]);
    assert_eq!(piped(&uint8("(2, 3, 2)", &cells)).unwrap()[0].body, want);
    // The first index runs first.
    let columns = [0, 6, 2, 8, 4, 0, 1, 7, 3, 9, 5, 1];
    let bytes = npy("'|u1'", "True", "(2, 3, 2)", &columns);
    assert_eq!(piped(&bytes).unwrap()[0].body, want);
    let one = uint8("(1, 2)", &[3, 4]);
    assert_eq!(piped(&one).unwrap()[0].body, Body::Grids(vec![grid(&[[3, 4]])]));
}

#[test]
fn every_error_of_an_npy_array_has_its_sentence() {
    let good = uint8("(2, 2, 2)", &[0; 8]);
    assert_eq!(
        refusal(&good[..good.len() - 3]),
        "it ends too early: 3 bytes of the array are missing"
    );
    assert_eq!(refusal(&good[..20]), "not a .npy array: it ends inside its header");
    assert_eq!(refusal(&good[..7]), "not a .npy array: it ends inside its header");
    assert!(refusal(&[&good[..], &[0][..]].concat()).starts_with("not a .npy array: "));
    assert_eq!(
        refusal(&npy("'<f8'", "False", "(1, 2, 2)", &[0; 32])),
        "its cells are float64; gridpool reads integers: convert the array with astype('uint8')"
    );
    let fields = npy("[('red', '|u1')]", "False", "(1, 2, 2)", &[0; 4]);
    assert!(refusal(&fields).ends_with("save an array of numbers, without fields"));
    assert!(refusal(&npy("'|b1'", "False", "(2, 2)", &[0; 4])).starts_with("its cells are bool;"));
    assert_eq!(
        refusal(&uint8("(4,)", &[0; 4])),
        "its shape is (4,); expected (grids, rows, columns) or (rows, columns)"
    );
    assert_eq!(refusal(&uint8("(0, 2, 2)", &[])), "it holds no grid");
    assert!(refusal(&uint8("(2, 0, 2)", &[])).starts_with("grid 0: the grid is empty"));
    assert_eq!(
        refusal(&uint8("(1, 256, 1)", &[0; 256])),
        "grid 0: the grid is 256 x 1; a side has at most 255 cells"
    );
    let mut cells = [0; 12];
    cells[10] = 10;
    assert_eq!(
        refusal(&uint8("(3, 2, 2)", &cells)),
        "grid 2, row 1, column 0: 10 is not a colour from 0 to 9"
    );
}

#[test]
fn npy_headers_never_panic_or_hang() {
    let bomb = |header: String| with_header(header.as_bytes(), &[]);
    assert!(refusal(&bomb("(".repeat(4_000))).starts_with("not a .npy array: "));
    let deep = format!("{{'shape': {}", "(".repeat(4_000));
    assert!(refusal(&bomb(deep)).starts_with("not a .npy array: "));
    assert!(refusal(&bomb("[".repeat(5_000))).ends_with("its header is too long"));
    assert!(refusal(&bomb("[[[[".to_owned())).starts_with("not a .npy array: "));
    let vast = "{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 9999999999, 9), }\n";
    assert!(refusal(&bomb(vast.to_owned())).starts_with("not a .npy array: "));
    let many = "{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999, 30, 30), }\n";
    assert!(refusal(&bomb(many.to_owned())).starts_with("it ends too early: 8999999999100 bytes"));
    let good = uint8("(2, 2, 2)", &[0; 8]);
    for at in 0..good.len() {
        for byte in [0, b'(', 0xff] {
            let mut broken = good.clone();
            broken[at] = byte;
            let _outcome = piped(&broken).map_err(|error| error.to_string());
        }
    }
}

#[test]
fn a_directory_gives_its_tasks_sorted_and_named_by_stem() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let error = typed(&[folder.path()]).unwrap_err();
    assert!(error.to_string().ends_with("no task: there is no *.json file directly in it"));
    write("b.json", r#"{"train": [{"input": [[1]]}]}"#);
    write("a.json", r#"{"train": [{"input": [[1]]}]}"#);
    write("all.json", r#"{"x": {"train": [{"input": [[1]]}]}}"#);
    write(".hidden.json", "not read");
    write("README.md", "not read");
    fs::create_dir(folder.path().join("sub.json")).unwrap();
    let inputs = typed(&[folder.path(), &folder.path().join("b.json")]).unwrap();
    let names: Vec<String> = inputs.into_iter().map(|input| input.name).collect();
    let typed_path = folder.path().join("b.json").display().to_string();
    assert_eq!(names, ["a", "x", "b", typed_path.as_str()]);
    std::os::unix::fs::symlink("nowhere", folder.path().join("c.json")).unwrap();
    let error = typed(&[folder.path()]).unwrap_err().to_string();
    assert!(error.contains("c.json: cannot be read: No such file"), "{error}");
    fs::remove_file(folder.path().join("c.json")).unwrap();
    write("c.json", r#"{"train": [{"input": [[10]]}]}"#);
    let error = typed(&[folder.path()]).unwrap_err().to_string();
    let want = "c.json: train pair 0, input, row 0, column 0: 10 is not a colour from 0 to 9";
    assert!(error.ends_with(want), "{error}");
    assert!(error.starts_with(&folder.path().display().to_string()), "{error}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = typed(&[Path::new("none.json")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "none.json: cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(error.exit_code(), 65);
    for json in ["[[1, 2]]", " {\"train\": []}", &format!("[[{}1]]", "1, ".repeat(10_000))] {
        let error = typed(&[Path::new(json)]).unwrap_err().to_string();
        assert!(error.contains(": no file has this name; grids are read from standard"), "{error}");
        assert!(error.len() < 5_000, "{}", error.len());
    }
    let fake = folder.path().join("fake.npy");
    fs::write(&fake, "[[[1]]]").unwrap();
    let error = typed(&[&fake]).unwrap_err().to_string();
    assert!(error.ends_with("not a .npy array: it does not begin with \\x93NUMPY"), "{error}");
    let large = fs::File::create(folder.path().join("large.json")).unwrap();
    large.set_len(INPUT_BYTES_MAX + 1).unwrap();
    let error = typed(&[&folder.path().join("large.json")]).unwrap_err().to_string();
    assert!(error.ends_with("it has more than 1073741824 bytes: split it into several files"));
}

#[test]
fn standard_input_is_read_when_named_or_when_something_is_piped() {
    let read_dash = |arguments: &[&str]| {
        let arguments: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
        read(&arguments, Stdin { is_terminal: true, reader: &mut &b"[[[1]]]"[..] })
    };
    assert_eq!(read_dash(&["-"]).unwrap()[0].name, "-");
    assert_eq!(read_dash(&["-", "-"]).unwrap_err(), InputError::StdinTwice);
    let error = typed(&[]).unwrap_err();
    assert_eq!((&error, error.exit_code()), (&InputError::Missing, 2));
}

fn pair(input: u8, output: Option<u8>) -> Pair {
    Pair { input: grid(&[[input]]), output: output.map(|output| grid(&[[output]])) }
}

/// One task and one list of pairs.
fn of_pairs() -> Vec<Input> {
    let task = Task { train: vec![pair(1, Some(2)), pair(3, None)], test: vec![pair(4, Some(5))] };
    let body = Body::Pairs(vec![pair(6, None), pair(7, Some(8))]);
    let named = |name: &str, body| Input { name: name.to_owned(), body };
    vec![named("task", Body::Task(task)), named("list", body)]
}

fn inputs(list: Vec<Input>, program: &str) -> Result<Inputs, InputError> {
    Inputs::new(list, &Program::compile(program, Ties::Cpython).unwrap())
}

#[test]
fn grids_come_train_before_test_and_input_before_output() {
    let inputs = inputs(of_pairs(), "rot90").unwrap();
    let colors: Vec<u8> = inputs
        .items()
        .map(|item| match item {
            Item::Grid(grid) => grid.cells()[0],
            Item::Pair(pair) => panic!("{pair:?} is no grid"),
        })
        .collect();
    assert_eq!(colors, [1, 2, 3, 4, 5, 6, 7, 8]);
    let firsts: Vec<usize> = inputs.numbered().map(|(first, _)| first).collect();
    assert_eq!((firsts, inputs.item_count()), (vec![0, 5], 8));
    let places = |input: &Input| input.places(Unit::Grid).map(|p| p.to_string()).collect();
    let places: Vec<Vec<String>> = inputs.list().iter().map(places).collect();
    assert_eq!(
        places[0],
        [
            "train pair 0, input",
            "train pair 0, output",
            "train pair 1, input",
            "test pair 0, input",
            "test pair 0, output",
        ]
    );
    assert_eq!(places[1], ["pair 0, input", "pair 1, input", "pair 1, output"]);
}

#[test]
fn an_item_of_a_program_over_pairs_is_a_pair_with_or_without_output() {
    let inputs = inputs(of_pairs(), "apply(rot90) | first").unwrap();
    let cells: Vec<usize> = inputs.items().map(|item| item.cells()).collect();
    assert_eq!(cells, [2, 1, 2, 1, 2]);
    let firsts: Vec<usize> = inputs.numbered().map(|(first, _)| first).collect();
    assert_eq!((firsts, inputs.item_count()), (vec![0, 3], 5));
    let places = |input: &Input| input.places(Unit::Pair).map(|p| p.to_string()).collect();
    let places: Vec<Vec<String>> = inputs.list().iter().map(places).collect();
    assert_eq!(
        places,
        [vec!["train pair 0", "train pair 1", "test pair 0"], vec!["pair 0", "pair 1"]]
    );
}

#[test]
fn a_program_over_pairs_refuses_plain_grids_and_names_a_program_for_them() {
    let cases = [
        ("first", ", or run `identity` on it"),
        ("second | rot90 | o_g(0)", ", or run `rot90 | objects(false, false, false)` on it"),
        ("apply(rot90 | hmirror)", ", or run `rot90 | hmirror` on it"),
        (
            "mapply(rot90) | nth(1) | hsplit(2) | apply(trim)",
            ", or run `rot90 | hsplit(2) | apply(trim)` on it",
        ),
        ("hconcat | rot90", ""),
        ("apply(rot90) | cellwise(0)", ""),
    ];
    for (program, instead) in cases {
        let mixed = [of_pairs(), piped(b"[[[1]], [[2]]]").unwrap()].concat();
        let error = inputs(mixed, program).unwrap_err();
        assert_eq!(error.exit_code(), 65);
        let want = format!(
            "standard input: the program takes pairs, and this holds 2 plain grids: give a task, a \
             directory of tasks or an array of pairs, [{{\"input\": grid, \"output\": grid}}]{instead}"
        );
        assert_eq!(error.to_string(), want);
    }
    let array = uint8("(2, 2)", &[0; 4]);
    let error = inputs(piped(&array).unwrap(), "first").unwrap_err().to_string();
    assert!(error.contains("this holds 1 plain grid: give"), "{error}");
}

#[test]
fn files_of_one_name_in_two_directories_get_different_names() {
    let folder = tempfile::tempdir().unwrap();
    for directory in ["one", "two"] {
        fs::create_dir(folder.path().join(directory)).unwrap();
        let file = folder.path().join(directory).join("a.json");
        fs::write(file, r#"{"train": [{"input": [[1]]}]}"#).unwrap();
    }
    fs::write(folder.path().join("two/b.json"), r#"{"train": [{"input": [[1]]}]}"#).unwrap();
    let inputs = typed(&[&folder.path().join("one"), &folder.path().join("two")]).unwrap();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names, ["one/a", "two/a", "b"]);
}

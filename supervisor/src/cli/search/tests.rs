//! Reading of programs, tasks, and what is printed.

use std::io::{Cursor, Read};

use gridpool_client::Candidate;
use gridpool_protocol::batch::Grid;
use gridpool_protocol::exit::cli as exit;

use super::bitmap::Bitmap;
use super::programs::{BadLines, Programs};
use super::tasks::{Tasks, Which};
use crate::cli::input::{Body, Input, Pair, Task};

fn read(text: &str) -> (Vec<Candidate>, u64) {
    let reader: Box<dyn Read + Send> = Box::new(Cursor::new(text.as_bytes().to_vec()));
    let bad = BadLines::default();
    let all = Programs::of(reader, bad.clone()).collect();
    (all, bad.count())
}

#[test]
fn lines_are_programs_and_bad_ones_say_what_to_write() {
    let text = "{\"id\": \"a\", \"program\": \"rot90\"}\n\n{\"program\": \"O = I\\n\"}\nrot90\n\
                {\"id\": 7, \"program\": \"hmirror\"}\n{\"program\": 3}\n{\"id\": 1}\n[]\n{\"text\": \"\"}";
    let text = &format!("\u{feff}{text}");
    let (all, bad) = read(text);
    let ids: Vec<_> = all.iter().map(|candidate| candidate.id.as_str()).collect();
    assert_eq!(ids, ["a", "3", "4", "7", "6", "7", "8", "9"]);
    assert_eq!((all[1].text(), bad), (Some("O = I\n"), 5));
    let why = |at: usize| all[at].program.clone().unwrap_err();
    assert!(
        why(2).starts_with("line 4: it is not JSON (expected value, column 1); "),
        "{}",
        why(2)
    );
    assert!(why(4).contains("its program is no text"));
    assert!(why(5).contains("no field `program`"));
    assert!(why(6).contains("no JSON object"));
    assert!(why(7).contains("unknown field `text`"));
    let write = r#"write {"id": "any name", "program": "rot90 | hmirror"}"#;
    assert!((2..8).filter(|at| *at != 3).all(|at| why(at).ends_with(write)));
}

#[test]
fn a_line_has_bytecode_or_a_program_and_what_is_no_base64_is_told() {
    let lines = [
        r#"{"id": "a", "bytecode": "AQID"}"#,
        r#"{"bytecode": "AQI"}"#,
        r#"{"bytecode": 1}"#,
        r#"{"program": "rot90", "bytecode": "AQID"}"#,
    ];
    let (all, bad) = read(&lines.join("\n"));
    assert_eq!((&all[0], bad), (&Candidate::of_bytecode("a", vec![1, 2, 3]), 3));
    let why = |at: usize| all[at].program.clone().unwrap_err();
    assert!(why(1).starts_with("line 2: its bytecode is no base64 ("), "{}", why(1));
    assert!(why(1).ends_with("): take the line as `gridpool compile` prints it"), "{}", why(1));
    assert!(why(2).contains("its bytecode is no text"), "{}", why(2));
    assert!(why(3).ends_with("leave one of them out"), "{}", why(3));
}

#[test]
fn tasks_with_an_equal_pair_are_found_once_each() {
    let grid = Grid::from_rows(&[[1]]).unwrap();
    let pair = || Pair { input: grid.clone(), output: Some(grid.clone()) };
    let input = |(name, pairs): (&str, usize)| Input {
        name: name.to_owned(),
        body: Body::Pairs((0..pairs).map(|_| pair()).collect()),
    };
    let inputs: Vec<_> = [("a", 2), ("b", 3), ("c", 1), ("d", 2)].into_iter().map(input).collect();
    let tasks = Tasks::of(&inputs, Which::Train).unwrap();
    let found = |statuses: [u8; 8]| -> Vec<String> {
        let named = tasks.with_equal(&statuses).map(|(at, task)| format!("{at}{}", task.name));
        named.collect()
    };
    assert_eq!(found([200; 8]), [""; 0]);
    assert_eq!(found([0; 8]), ["0a", "1b", "2c", "3d"]);
    assert_eq!(found([200, 0, 200, 0, 0, 200, 200, 0]), ["0a", "1b", "3d"]);
    assert_eq!(found([4, 4, 4, 4, 4, 0, 4, 4]), ["2c"]);
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
    let long = "x".repeat(300 * 1_024);
    let (all, bad) = read(&format!("{long}\n{{\"program\": \"rot90\"}}\n{long}"));
    assert_eq!((all.len(), bad), (3, 2));
    assert!(all[0].program.as_ref().unwrap_err().contains("more than 131072 bytes"));
    assert_eq!(all[1], Candidate::new("2", "rot90"));
    assert!(all[2].program.is_err());
    assert_eq!(read("\n\n").0, []);
}

#[test]
fn pairs_with_outputs_count_and_tasks_without_are_left_out() {
    let grid = |cell: u8| Grid::from_rows(&[[cell]]).unwrap();
    let pair = |cell, output: Option<u8>| Pair { input: grid(cell), output: output.map(grid) };
    let task = |train, test| Body::Task(Task { train, test });
    let inputs = [
        Input {
            name: "a/one.json".to_owned(),
            body: task(
                vec![pair(1, Some(2)), pair(3, Some(4))],
                vec![pair(5, None), pair(6, Some(7))],
            ),
        },
        Input { name: "none".to_owned(), body: task(vec![], vec![pair(1, None)]) },
        Input { name: "two".to_owned(), body: Body::Pairs(vec![pair(8, Some(9))]) },
    ];
    let train = Tasks::of(&inputs, Which::Train).unwrap();
    let names: Vec<_> =
        train.list().iter().map(|task| (task.name.as_str(), task.pairs.clone())).collect();
    assert_eq!(names, [("one", 0..2), ("two", 2..3)]);
    assert_eq!(train.pair(2), [grid(8), grid(9)]);
    let all = Tasks::of(&inputs, Which::All).unwrap();
    assert_eq!(all.list()[0].pairs, 0..3);
    let none = Tasks::of(&inputs[1..2], Which::All).unwrap_err();
    assert!(none.to_string().contains("no task has a pair"));
    let grids = Input { name: "g".to_owned(), body: Body::Grids(vec![grid(1)]) };
    assert!(Tasks::of(&[grids], Which::All).unwrap_err().to_string().contains("plain grids"));
}

#[test]
fn a_bitmap_on_a_full_disk_is_an_output_that_failed() {
    let mut bitmap = Bitmap::create("/dev/full".as_ref(), 10).unwrap();
    bitmap.row(&[200]).unwrap();
    let error = bitmap.finish().unwrap_err();
    assert_eq!(error.exit_code(), exit::OUTPUT, "{error}");
    assert!(error.to_string().contains("incomplete"), "{error}");
    let nowhere = Bitmap::create("/no/such/folder/bits.npy".as_ref(), 10).map(drop).unwrap_err();
    assert_eq!(nowhere.exit_code(), exit::USAGE, "{nowhere}");
}

#[test]
fn a_bitmap_has_a_row_for_each_program_and_a_bit_for_each_pair() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bits.npy");
    let mut bitmap = Bitmap::create(&path, 10).unwrap();
    bitmap.row(&[0, 200, 0, 10, 200, 200, 200, 200, 200, 0]).unwrap();
    bitmap.row(&[]).unwrap();
    bitmap.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 128 + 4);
    assert_eq!(&bytes[128..], [0b101, 0b10, 0, 0]);
    let head = String::from_utf8_lossy(&bytes[10..128]);
    assert!(head.contains("'shape': (2, 2)"), "{head}");
}

//! What a file holds is what the program gave; grids can be read again.

use std::fs;
use std::io::Read;

use gridpool_client::{Answer, Outputs};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::Output as Value;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::Verdict;
use proptest::prelude::*;

use super::*;
use crate::cli::input::{self, Body, Input, Pair, Stdin};
use crate::cli::results::fixtures::{answered, failed, identity, paired};

/// Writes the answers of a program over a list of grids to a file of this name, and gives its bytes.
fn written(
    name: &str,
    program: &str,
    body: Body,
    jobs: Vec<Answer<Outputs>>,
) -> Result<Vec<u8>, CommandError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let inputs = Inputs::new(vec![Input { name: "list".to_owned(), body }], &program).unwrap();
    Export::open(&path, &program)?.write(&inputs, &Results::new(jobs))?;
    let names: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(names.len(), 1, "no draft is left");
    Ok(fs::read(path).unwrap())
}

/// The grids of a file with this name.
fn read(name: &str, bytes: &[u8]) -> Body {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    let stdin = Stdin { is_terminal: true, reader: &mut &b""[..] };
    input::read(&[path], stdin).unwrap().remove(0).body
}

fn refusal(name: &str, program: &str, body: Body, jobs: Vec<Answer<Outputs>>) -> (String, u8) {
    let error = written(name, program, body, jobs).unwrap_err();
    (error.to_string(), error.exit_code())
}

fn any_grid() -> impl Strategy<Value = Grid> {
    (1_usize..12, 1_usize..12).prop_flat_map(|(h, w)| {
        prop::collection::vec(0_u8..10, h * w)
            .prop_map(move |cells| Grid::new(h, w, cells).unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn grids_come_back_from_every_format(grids in prop::collection::vec(any_grid(), 1..20)) {
        for name in ["x.npz", "x.jsonl", "x.arrow"] {
            let body = Body::Grids(grids.clone());
            let bytes = written(name, "identity", body.clone(), vec![identity(&grids)]).unwrap();
            prop_assert_eq!(read(name, &bytes), body, "{}", name);
        }
        let same = Body::Grids(vec![grids[0].clone(); 3]);
        let jobs = vec![identity(&grids[..1]), identity(&vec![grids[0].clone(); 2])];
        prop_assert_eq!(read("x.npy", &written("x.npy", "identity", same.clone(), jobs).unwrap()), same);
    }

    #[test]
    fn pairs_of_grids_come_back_from_an_npz(
        pairs in prop::collection::vec((any_grid(), any_grid()), 1..9)
    ) {
        let pairs = pairs.into_iter().map(|(input, output)| Pair { input, output: Some(output) });
        let pairs: Vec<Pair> = pairs.collect();
        let grids = |pair: &Pair| vec![Value::Grid(pair.input.clone()), Value::Grid(pair.output.clone().unwrap())];
        let answers: Vec<_> = pairs.iter().map(|pair| Some(Value::Tuple(grids(pair)))).collect();
        let body = Body::Pairs(pairs.clone());
        let jobs = vec![paired("apply(identity)", &pairs, &answers)];
        prop_assert_eq!(read("x.npz", &written("x.npz", "apply(identity)", body.clone(), jobs).unwrap()), body);
    }
}

fn grid(h: usize, w: usize) -> Grid {
    Grid::new(h, w, vec![3; h * w]).unwrap()
}

fn answers() -> (Body, Vec<Answer<Outputs>>) {
    let grids = [grid(1, 2), grid(2, 1), grid(1, 1)];
    let first = answered("identity", &grids[..2], &[Some(Value::Grid(grids[0].clone())), None]);
    (Body::Grids(grids.to_vec()), vec![first, failed(Verdict::Deadline, 1)])
}

#[test]
fn items_without_a_result_are_told_in_each_format() {
    let (body, jobs) = answers();
    let lines = String::from_utf8(written("x.jsonl", "identity", body, jobs).unwrap()).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!((lines[0], lines[2]), ("[[3,3]]", "null"));
    assert!(lines[1].starts_with(r#"{"error":{"code":"BadCell","op":"input""#), "{}", lines[1]);

    let (body, jobs) = answers();
    let bytes = written("x.npz", "identity", body, jobs).unwrap();
    let mut zip = zip::ZipArchive::new(io::Cursor::new(&bytes)).unwrap();
    let mut array = |name: &str| {
        let mut bytes = Vec::new();
        zip.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
        let array = crate::cli::npy::Array::read(&bytes).unwrap();
        (array.descr.to_owned(), array.shape.clone(), array.data.to_vec())
    };
    assert_eq!(array("cells.npy"), ("|u1".to_owned(), vec![2], vec![3, 3]));
    let (descr, shape, sizes) = array("sizes.npy");
    assert_eq!((descr.as_str(), shape), ("<i4", vec![3, 2]));
    assert_eq!(sizes, [1, 2, 0, 0, 0, 0].map(i32::to_le_bytes).as_flattened());
    let (descr, shape, items) = array("error_items.npy");
    assert_eq!((descr.as_str(), shape), ("<i8", vec![2]));
    assert_eq!(items, [1_i64, 2].map(i64::to_le_bytes).as_flattened());
    let (descr, _, texts) = array("error_texts.npy");
    let characters =
        texts.as_chunks::<4>().0.iter().filter_map(|c| char::from_u32(u32::from_le_bytes(*c)));
    let texts: String = characters.filter(|&character| character != '\0').collect();
    assert!(descr.starts_with("<U") && texts.starts_with("BadCell in input: "), "{texts}");
    assert!(texts.ends_with("its job ended before it was done"), "{texts}");

    let (body, jobs) = answers();
    let bytes = written("x.arrow", "identity", body, jobs).unwrap();
    let mut reader = arrow_ipc::reader::FileReader::try_new(io::Cursor::new(bytes), None).unwrap();
    let batch = reader.next().unwrap().unwrap();
    let nulls = |name: &str| -> Vec<bool> {
        let column = batch.column_by_name(name).unwrap();
        (0..column.len()).map(|at| column.is_null(at)).collect()
    };
    assert_eq!(
        (nulls("result"), nulls("error")),
        (vec![false, true, true], vec![true, false, false])
    );

    let (body, jobs) = answers();
    let (said, code) = refusal("x.npy", "identity", body, jobs);
    assert!(said.contains("x.npy: item 1 has no value for an array (BadCell in input: "), "{said}");
    assert!(said.ends_with(": write .npz, .jsonl, .arrow or .json"), "{said}");
    assert_eq!(code, exit::DATA);
}

#[test]
fn numbers_flags_vectors_and_tuples_have_arrays() {
    let grids = [grid(1, 2), grid(2, 1)];
    let body = || Body::Grids(grids.to_vec());
    let npy = |program: &str, answers: [Value; 2]| {
        let jobs = vec![answered(program, &grids, &answers.map(Some))];
        let bytes = written("x.npy", program, body(), jobs).unwrap();
        let array = crate::cli::npy::Array::read(&bytes).unwrap();
        (array.descr.to_owned(), array.shape.clone(), array.data.to_vec())
    };
    let bytes = |numbers: &[i32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let numbers = npy("colorcount(3)", [Value::Number(2), Value::Number(-7)]);
    assert_eq!(numbers, ("<i4".to_owned(), vec![2], bytes(&[2, -7])));
    let flags = npy("portrait", [Value::Flag(false), Value::Flag(true)]);
    assert_eq!(flags, ("|b1".to_owned(), vec![2], vec![0, 1]));
    let vector = |row, col| Value::Vector { row, col };
    let vectors = npy("shape", [vector(1, 2), vector(2, 1)]);
    assert_eq!(vectors, ("<i4".to_owned(), vec![2, 2], bytes(&[1, 2, 2, 1])));
    let two = |color| Value::Tuple(vec![Value::Grid(Grid::new(1, 1, vec![color]).unwrap()); 2]);
    let tuples = npy("hsplit(2)", [two(4), two(5)]);
    assert_eq!(tuples, ("|u1".to_owned(), vec![2, 2, 1, 1], vec![4, 4, 5, 5]));
}

#[test]
fn what_a_format_cannot_hold_is_refused_before_the_program_runs() {
    let body = || Body::Grids(vec![grid(1, 1)]);
    let cases = [
        (
            "x.txt",
            "rot90",
            "the end of the name tells the format: write .npz, .npy, .jsonl, .arrow or .json",
        ),
        ("x", "rot90", "the end of the name tells the format"),
        (
            "x.npy",
            "o_g(5)",
            "the program gives a list of objects, and a file .npy holds grids, numbers, flags",
        ),
        ("x.npz", "palette", "the program gives a list of colours, and a file .npz holds"),
        ("x.arrow", "ofcolor(1)", "write .jsonl or .json"),
        ("no/x.npz", "rot90", "there is no folder"),
    ];
    for (name, program, words) in cases {
        let (said, code) = refusal(name, program, body(), Vec::new());
        assert!(said.contains(words), "`{words}` is not in: {said}");
        assert_eq!(code, exit::USAGE, "{said}");
    }
    let grids = [grid(1, 2), grid(2, 1)];
    let (said, code) =
        refusal("x.npy", "identity", Body::Grids(grids.to_vec()), vec![identity(&grids)]);
    assert!(
        said.contains("item 1 is 2 x 1, item 0 is 1 x 2, and an array has grids of one shape"),
        "{said}"
    );
    assert_eq!(code, exit::DATA);
}

//! The document, value by value.

use gridpool_client::{Answer, Outputs};
use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::PatchCell;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::ItemRange;
use serde_json::{Value as Json, json};

use super::super::results::fixtures::{answered, failed, grid, identity, paired, partial};
use super::*;

fn document(program: &str, inputs: &[Input], jobs: Vec<Answer<Outputs>>) -> Json {
    let program = Program::compile(program, Ties::Cpython).unwrap();
    let inputs = Inputs::new(inputs.to_vec(), &program).unwrap();
    let mut bytes = Vec::new();
    write(&mut bytes, &inputs, &Results::new(jobs)).unwrap();
    assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1);
    serde_json::from_slice(&bytes).unwrap()
}

fn pairs(pairs: &[(u8, Option<u8>)]) -> Vec<Pair> {
    let pair =
        |&(input, output): &(u8, Option<u8>)| Pair { input: grid(input), output: output.map(grid) };
    pairs.iter().map(pair).collect()
}

fn task(name: &str, train: &[(u8, Option<u8>)], test: &[(u8, Option<u8>)]) -> Input {
    let body = Body::Task(Task { train: pairs(train), test: pairs(test) });
    Input { name: name.to_owned(), body }
}

fn list(grids: Vec<Grid>) -> Input {
    Input { name: "list".to_owned(), body: Body::Grids(grids) }
}

#[test]
fn a_task_keeps_its_shape_and_a_pair_without_output_has_none() {
    let inputs =
        [task("a", &[(1, Some(2)), (3, None)], &[(4, Some(5))]), task("b", &[], &[(6, None)])];
    let grids: Vec<Grid> = (1..=6).map(grid).collect();
    let document = document("identity", &inputs, vec![identity(&grids)]);
    assert_eq!(
        document["results"],
        json!([
            {"input": "a", "verdict": "OK", "output": {
                "train": [{"input": [[1]], "output": [[2]]}, {"input": [[3]]}],
                "test": [{"input": [[4]], "output": [[5]]}],
            }},
            {"input": "b", "verdict": "OK", "output": {
                "train": [],
                "test": [{"input": [[6]]}],
            }},
        ])
    );
    assert_eq!(document["receipts"][0]["items"], 6);
    assert_eq!(document["receipts"][0]["attempts"][0]["worker"], "cpu0#1");
}

#[test]
fn a_program_over_pairs_gives_one_result_for_each_pair() {
    let list = Input { name: "list".to_owned(), body: Body::Pairs(pairs(&[(7, Some(8))])) };
    let inputs = [task("a", &[(1, Some(2)), (3, None)], &[(4, Some(5))]), list];
    // Two jobs; the cut is within the task.
    let (first, second) = (pairs(&[(1, Some(2)), (3, None)]), pairs(&[(4, Some(5)), (7, Some(8))]));
    let both = |a, b| Some(Output::Tuple(vec![Output::Grid(grid(a)), Output::Grid(grid(b))]));
    let jobs = vec![
        paired("apply(identity)", &first, &[both(1, 2), None]),
        paired("apply(identity)", &second, &[both(4, 5), both(7, 8)]),
    ];
    let document = document("apply(identity)", &inputs, jobs);
    let error = json!({"error": {"code": "BadCell", "op": "input",
        "message": "a cell is not a colour from 0 to 9"}});
    assert_eq!(
        document["results"],
        json!([
            {"input": "a", "verdict": "OK", "output": {
                "train": [[[[1]], [[2]]], error],
                "test": [[[[4]], [[5]]]],
            }},
            {"input": "list", "verdict": "OK", "output": [[[[7]], [[8]]]]},
        ])
    );
    assert_eq!(document["receipts"][0]["items"], 2);
}

#[test]
fn a_program_over_grids_keeps_inputs_and_outputs_of_a_list_of_pairs() {
    let body = Body::Pairs(pairs(&[(1, Some(2)), (3, None)]));
    let inputs = [Input { name: "list".to_owned(), body }];
    let document = document("identity", &inputs, vec![identity(&[grid(1), grid(2), grid(3)])]);
    let want = json!([{"input": [[1]], "output": [[2]]}, {"input": [[3]]}]);
    assert_eq!(document["results"][0]["output"], want);
}

#[test]
fn every_kind_of_result_has_its_own_form() {
    let of = |program: &str, answer: Output| {
        let wide = Grid::from_rows(&[[1, 0, 2]]).unwrap();
        let jobs = vec![answered(program, &[wide.clone(), wide.clone()], &[Some(answer), None])];
        let document = document(program, &[list(vec![wide.clone(), wide])], jobs);
        let output = document["results"][0]["output"].clone();
        assert_eq!(
            output[1],
            json!({"error": {"code": "BadCell", "op": "input",
                "message": "a cell is not a colour from 0 to 9"}})
        );
        assert_eq!(document["results"][0]["verdict"], "OK");
        output[0].clone()
    };
    let turned = Grid::from_rows(&[[1], [0], [2]]).unwrap();
    assert_eq!(of("rot90", Output::Grid(turned.clone())), json!([[1], [0], [2]]));
    assert_eq!(of("trim", Output::Grid(Grid::empty())), json!([]));
    assert_eq!(of("numcolors", Output::Number(3)), json!(3));
    assert_eq!(of("portrait", Output::Flag(false)), json!(false));
    assert_eq!(of("shape", Output::Vector { row: 1, col: -3 }), json!([1, -3]));
    assert_eq!(of("palette", Output::Colors(vec![8, 1, 0])), json!([8, 1, 0]));
    let cell = |color, col| ObjectCell { color, row: 0, col };
    let objects = vec![vec![cell(1, 0), cell(0, 1)], vec![cell(2, 2)]];
    let first = json!([[1, [0, 0]], [0, [0, 1]]]);
    assert_eq!(of("o_g(5) | first", Output::Object(objects[0].clone())), first);
    assert_eq!(of("o_g(5)", Output::Objects(objects)), json!([first, [[2, [0, 2]]]]));
    let away = vec![cell(4, -2)];
    let want = json!([[4, [0, -2]]]);
    assert_eq!(of("asobject | shift(0, -2)", Output::Object(away)), want);
    let places = [(0, 1), (1, 0)].map(|(row, col)| PatchCell { row, col });
    assert_eq!(of("ofcolor(0)", Output::Patch(places.into())), json!([[0, 1], [1, 0]]));
    assert_eq!(of("ofcolor(0)", Output::Patch(Vec::new())), json!([]));
    let parts = vec![Output::Grid(turned), Output::Grid(Grid::empty())];
    assert_eq!(of("vsplit(2)", Output::Tuple(parts)), json!([[[1], [0], [2]], []]));
}

#[test]
fn an_item_of_a_failed_job_has_no_result_and_its_input_the_worst_verdict() {
    let inputs = [list(vec![grid(1), grid(2)]), list(vec![grid(3)]), list(vec![grid(4)])];
    let jobs = vec![identity(&[grid(1)]), failed(Verdict::DeviceLost, 2), identity(&[grid(4)])];
    let document = document("identity", &inputs, jobs);
    assert_eq!(
        document["results"],
        json!([
            {"input": "list", "verdict": "DEVICE_LOST", "output": [[[1]], null]},
            {"input": "list", "verdict": "DEVICE_LOST", "output": null},
            {"input": "list", "verdict": "OK", "output": [[[4]]]},
        ])
    );
    assert_eq!(document["receipts"].as_array().unwrap().len(), 3);
}

#[test]
fn an_input_with_items_that_were_not_accepted_has_no_verdict() {
    let program = Program::compile("identity", Ties::Cpython).unwrap();
    let inputs = [list(vec![grid(1), grid(2)]), list(vec![grid(3), grid(4)]), list(vec![grid(5)])];
    let inputs = Inputs::new(inputs.to_vec(), &program).unwrap();
    let results = Results::of_the_first(vec![identity(&[grid(1), grid(2), grid(3)])]);
    let mut out = Vec::new();
    write(&mut out, &inputs, &results).unwrap();
    let document: Json = serde_json::from_slice(&out).unwrap();
    assert_eq!(
        document["results"],
        json!([
            {"input": "list", "verdict": "OK", "output": [[[1]], [[2]]]},
            {"input": "list", "verdict": null, "output": [[[3]], null]},
            {"input": "list", "verdict": null, "output": null},
        ])
    );
    assert_eq!(document["receipts"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_done_of_a_job_is_there_and_the_rest_is_null() {
    let inputs = [list(vec![grid(1), grid(2)]), list(vec![grid(3), grid(4)]), list(vec![grid(5)])];
    let grids = [1, 2, 3, 4, 5].map(grid);
    let done = vec![ItemRange { start: 0, end: 3 }];
    let document = document("identity", &inputs, vec![partial(Verdict::Cancelled, &grids, done)]);
    assert_eq!(
        document["results"],
        json!([
            {"input": "list", "verdict": "OK", "output": [[[1]], [[2]]]},
            {"input": "list", "verdict": "CANCELLED", "output": [[[3]], null]},
            {"input": "list", "verdict": "CANCELLED", "output": null},
        ])
    );
}

#[test]
fn a_missing_result_is_an_error_and_never_an_empty_result() {
    let program = Program::compile("identity", Ties::Cpython).unwrap();
    let inputs = Inputs::new(vec![list(vec![grid(1), grid(2)])], &program).unwrap();
    let mut out = Vec::new();
    let error = write(&mut out, &inputs, &Results::new(vec![identity(&[grid(1)])]));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

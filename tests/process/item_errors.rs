//! Items that a program cannot serve: the error takes the item's place, the other items have their results, and
//! the job is OK.

use serde_json::{Value, json};

use crate::command::gridpool;

/// An item's error, without its sentence.
fn error(code: &str, op: &str) -> Value {
    json!({"error": {"code": code, "op": op}})
}

/// A grid of one colour.
fn flat(h: usize, w: usize, color: u8) -> Value {
    json!(vec![vec![color; w]; h])
}

/// Programs over grids: an input for each item, and what must come of it.
fn over_grids() -> Vec<(&'static str, Vec<(Value, Value)>)> {
    let small = json!([[1, 2], [3, 4]]);
    let corner = json!([[0, 0], [0, 5]]);
    vec![
        (
            "upscale(30)",
            vec![
                (flat(1, 1, 3), flat(30, 30, 3)),
                (flat(2, 3, 1), error("Overflow", "upscale(30)")),
                (flat(1, 4, 2), flat(30, 120, 2)),
            ],
        ),
        (
            "hupscale(16) | downscale(16)",
            vec![
                (flat(1, 16, 3), error("Overflow", "hupscale(16)")),
                (flat(1, 15, 3), flat(1, 15, 3)),
                (flat(17, 15, 3), flat(2, 15, 3)),
                (flat(18, 15, 3), error("Overflow", "hupscale(16)")),
            ],
        ),
        (
            "trim | rot90",
            vec![
                (flat(3, 4, 7), flat(2, 1, 7)),
                (small.clone(), error("EmptyArg", "rot90")),
                (flat(3, 3, 8), flat(1, 1, 8)),
            ],
        ),
        // Empty by definition is no error, and a canvas needs no cells.
        ("trim", vec![(small.clone(), json!([])), (flat(3, 3, 8), flat(1, 1, 8))]),
        ("trim | canvas(1, 1, 2)", vec![(small.clone(), flat(1, 2, 1))]),
        (
            "o_g(5) | argmax(size) | subgrid",
            vec![
                (flat(2, 2, 1), error("EmptyArg", "argmax(size)")),
                (corner.clone(), json!([[5]])),
                (flat(1, 1, 0), error("EmptyArg", "argmax(size)")),
            ],
        ),
        (
            "o_g(4) | nth(2) | subgrid | rot90",
            vec![
                (small, json!([[3]])),
                (corner.clone(), error("BadIndex", "nth(2)")),
                (json!([[1, 2, 3]]), json!([[3]])),
            ],
        ),
        (
            "ofcolor(5) | shift(-1, 0) | subgrid",
            vec![
                (json!([[5, 0], [0, 0]]), error("BadCrop", "subgrid")),
                (corner, json!([[0]])),
                (flat(1, 2, 0), error("EmptyArg", "subgrid")),
            ],
        ),
    ]
}

/// Programs over pairs.
fn over_pairs() -> Vec<(&'static str, Vec<(Value, Value)>)> {
    let both = json!({"input": [[1, 2]], "output": [[1, 3], [4, 5]]});
    let alone = json!({"input": [[7]]});
    let narrow = json!({"input": [[6, 6]], "output": [[6]]});
    vec![
        (
            "second",
            vec![
                (both.clone(), json!([[1, 3], [4, 5]])),
                (alone.clone(), error("MissingOutput", "input")),
                (narrow.clone(), json!([[6]])),
            ],
        ),
        ("first", vec![(alone.clone(), json!([[7]])), (narrow.clone(), json!([[6, 6]]))]),
        (
            "apply(rot90)",
            vec![
                (alone.clone(), error("MissingOutput", "input")),
                (narrow.clone(), json!([[[6], [6]], [[6]]])),
            ],
        ),
        (
            "cellwise(0)",
            vec![
                (narrow.clone(), error("BadShape", "cellwise(0)")),
                (both.clone(), json!([[1, 0]])),
                (alone.clone(), error("MissingOutput", "input")),
            ],
        ),
        (
            "vconcat | numcolors",
            vec![
                (both.clone(), json!(5)),
                (narrow.clone(), error("BadShape", "vconcat")),
                (both.clone(), json!(5)),
            ],
        ),
        (
            "apply(trim) | apply(rot90) | first",
            vec![
                (alone, error("EmptyArg", "apply(rot90)")),
                (both, error("EmptyArg", "apply(rot90)")),
            ],
        ),
    ]
}

#[test]
fn an_item_that_cannot_be_served_says_why_and_its_neighbours_are_served() {
    for (program, items) in over_grids().into_iter().chain(over_pairs()) {
        let (inputs, want): (Vec<Value>, Vec<Value>) = items.into_iter().unzip();
        // All in one job, and each in its own.
        for batch in ["512", "1"] {
            let call = gridpool(["run", program, "--devices", "cpu:1", "--json", "--batch", batch]);
            let mut document = call.stdin(json!(inputs).to_string()).run().document();
            let result = &mut document["results"][0];
            assert_eq!(result["verdict"], "OK", "{program}");
            let got: Vec<Value> =
                list(&mut result["output"]).iter_mut().map(without_sentence).collect();
            assert_eq!(got, want, "{program}, --batch {batch}");
            let errors = want.iter().filter(|item| item.get("error").is_some()).count();
            let receipts = list(&mut document["receipts"]);
            let counted = receipts.iter().filter_map(|receipt| receipt["item_errors"].as_u64());
            assert_eq!(counted.sum::<u64>(), errors as u64, "{program}");
            assert!(receipts.iter().all(|receipt| receipt["verdict"] == "OK"), "{program}");
        }
    }
}

#[test]
fn the_summary_counts_item_errors_by_code() {
    let pairs = json!([
        {"input": [[1, 2]], "output": [[1]]},
        {"input": [[1]]},
        {"input": [[3]], "output": [[3]]},
        {"input": [[2]]},
    ]);
    let call = gridpool(["run", "cellwise(0)", "--devices", "cpu:1"]);
    let text = call.stdin(pairs.to_string()).run().output();
    for words in [
        "pair 0: BadShape in cellwise(0): ",
        "pair 1: MissingOutput in input: ",
        "1 input, 4 pairs: 1 OK; 3 item errors: 1 BadShape, 2 MissingOutput; ",
    ] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
}

/// The item, and an error's code and op alone; it must have a sentence.
fn without_sentence(item: &mut Value) -> Value {
    if let Some(error) = item.get_mut("error").and_then(Value::as_object_mut) {
        let sentence = error.remove("message");
        let long = |text: &str| text.len() > 10;
        assert!(sentence.as_ref().and_then(Value::as_str).is_some_and(long), "{sentence:?}");
    }
    item.take()
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list")
}

//! A model whose requests may share runs, and decide how long they run.

use crate::onnx::{FLOAT, INT64, Message, graph, looped, model, node};

/// The type of an attribute that is a whole number.
const INT: u64 = 2;

/// A `ValueInfoProto` of any number of rows with one column.
fn column(name: &str, element: u64) -> Message {
    let sides = [Message::default(), Message::default().number(1, 1)];
    let tensor = Message::default().number(1, element);
    let tensor = tensor.message(2, &Message::default().all(1, &sides));
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// An `AttributeProto` that is a whole number.
fn whole(name: &str, number: u64) -> Message {
    Message::default().text(1, name).number(3, number).number(20, INT)
}

/// A model whose requests may share runs: it loops as often as the largest of its rows says, and then gives every
/// row plus 255.
pub(crate) fn row_turns() -> Vec<u8> {
    let (again, weights) = looped("most", "turned");
    let largest = |from, to| node("ReduceMax", &[from], to).message(5, &whole("keepdims", 0));
    let nodes = [
        largest("n", "most"),
        again,
        largest("turned", "last"),
        node("Cast", &["n"], "row").message(5, &whole("to", FLOAT)),
        node("Add", &["row", "last"], "y"),
    ];
    model(&graph(&nodes, &weights, &[column("n", INT64)], &[column("y", FLOAT)]))
}

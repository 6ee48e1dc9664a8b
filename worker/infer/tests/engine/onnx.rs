//! Makes small ONNX models: the few messages of Protocol Buffers that they need, and a temporary folder.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// An opset that CUDA's provider knows too, as in tests/data/models/make.py.
const OPSET: u64 = 17;
const IR_VERSION: u64 = 8;
/// Types of elements, as ONNX numbers them.
pub(crate) const FLOAT: u64 = 1;
pub(crate) const INT64: u64 = 7;
const BOOL: u64 = 9;
/// The type of an attribute that is a graph.
const GRAPH: u64 = 5;

/// Columns of the output of [`turns`].
pub(crate) const TURNS_WIDTH: u64 = 256;

/// A message of Protocol Buffers.
#[derive(Clone, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).expect("seven bits"));
    }

    pub(crate) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(crate) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    pub(crate) fn all(self, field: u64, messages: &[Self]) -> Self {
        messages.iter().fold(self, |whole, message| whole.message(field, message))
    }
}

/// A `ValueInfoProto`.
pub(crate) fn value(name: &str, element: u64, shape: &[u64]) -> Message {
    let sides: Vec<_> = shape.iter().map(|&side| Message::default().number(1, side)).collect();
    let shape = Message::default().all(1, &sides);
    let tensor = Message::default().number(1, element).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A `TensorProto` of FP32 that repeats these numbers.
pub(crate) fn weights(name: &str, shape: &[u64], numbers: &[f32]) -> Message {
    let once: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let count: u64 = shape.iter().product();
    let raw = once.repeat(usize::try_from(count).expect("it fits") / numbers.len());
    let sides = shape.iter().fold(Message::default(), |tensor, &side| tensor.number(1, side));
    sides.number(2, FLOAT).text(8, name).bytes(9, &raw)
}

/// A `NodeProto`.
pub(crate) fn node(op: &str, inputs: &[&str], output: &str) -> Message {
    let inputs = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    inputs.text(2, output).text(3, &format!("{op}_{output}")).text(4, op)
}

/// A `GraphProto`.
pub(crate) fn graph(
    nodes: &[Message],
    weights: &[Message],
    inputs: &[Message],
    outputs: &[Message],
) -> Message {
    let named = Message::default().all(1, nodes).text(2, "made").all(5, weights);
    named.all(11, inputs).all(12, outputs)
}

pub(crate) fn model(graph: &Message) -> Vec<u8> {
    let opset = Message::default().text(1, "").number(2, OPSET);
    Message::default().number(1, IR_VERSION).message(7, graph).message(8, &opset).0
}

/// A model that loops as often as its input `n` says, and then gives 0 to 255: a request decides how long it
/// runs.
pub(crate) fn turns() -> Vec<u8> {
    let (again, weights) = looped("n", "y");
    let y = value("y", FLOAT, &[1, TURNS_WIDTH]);
    model(&graph(&[again], &weights, &[value("n", INT64, &[])], &[y]))
}

/// A node that loops as often as `count` says and gives 0 to 255, and the weights that it needs.
pub(crate) fn looped(count: &str, output: &str) -> (Message, [Message; 2]) {
    let row = [1, TURNS_WIDTH];
    let state = |name| value(name, FLOAT, &row);
    let body = graph(
        &[node("Identity", &["go"], "go_on"), node("MatMul", &["before", "unit"], "after")],
        &[],
        &[value("turn", INT64, &[]), value("go", BOOL, &[]), state("before")],
        &[value("go_on", BOOL, &[]), state("after")],
    );
    let attribute = Message::default().text(1, "body").message(6, &body).number(20, GRAPH);
    let again = node("Loop", &[count, "", "start"], output).message(5, &attribute);
    let side = TURNS_WIDTH;
    let numbers = |count: u64| (0..count).map(move |at| at as f32);
    let diagonal =
        numbers(side * side).map(|at| f32::from(u8::from(at % (side + 1) as f32 == 0.0)));
    let unit = weights("unit", &[side, side], &diagonal.collect::<Vec<_>>());
    let start = weights("start", &row, &numbers(side).collect::<Vec<_>>());
    (again, [unit, start])
}

/// A folder for a test's files, deleted when it is dropped.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for temporary files"))
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("a file can be written");
        path
    }
}

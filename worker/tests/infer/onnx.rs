//! Models that are made on the spot: what of ONNX's Protocol Buffers they need, written by hand, and a
//! folder that goes with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An opset and a version of the format that CUDA's provider knows too, as in tests/data/models/make.py.
const OPSET: u64 = 17;
const IR_VERSION: u64 = 8;
/// Types of elements, as ONNX numbers them.
const FLOAT: u64 = 1;
const INT64: u64 = 7;
const BOOL: u64 = 9;
/// The type of an attribute that is a graph.
const GRAPH: u64 = 5;

/// Columns of what [`turns`] gives.
pub(crate) const TURNS_WIDTH: u64 = 256;

/// A message of Protocol Buffers.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).expect("seven bits"));
    }

    fn number(mut self, field: u64, value: u64) -> Self {
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

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn all(self, field: u64, messages: &[Self]) -> Self {
        messages.iter().fold(self, |whole, message| whole.message(field, message))
    }
}

/// A `ValueInfoProto`.
fn value(name: &str, element: u64, shape: &[u64]) -> Message {
    let sides: Vec<_> = shape.iter().map(|&side| Message::default().number(1, side)).collect();
    let shape = Message::default().all(1, &sides);
    let tensor = Message::default().number(1, element).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A `TensorProto` of FP32: these numbers over and over.
fn weights(name: &str, shape: &[u64], numbers: &[f32]) -> Message {
    let once: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let count: u64 = shape.iter().product();
    let raw = once.repeat(usize::try_from(count).expect("not so many") / numbers.len());
    let sides = shape.iter().fold(Message::default(), |tensor, &side| tensor.number(1, side));
    sides.number(2, FLOAT).text(8, name).bytes(9, &raw)
}

/// A `NodeProto`.
fn node(op: &str, inputs: &[&str], output: &str) -> Message {
    let inputs = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    inputs.text(2, output).text(3, &format!("{op}_{output}")).text(4, op)
}

/// A `GraphProto`.
fn graph(
    nodes: &[Message],
    weights: &[Message],
    inputs: &[Message],
    outputs: &[Message],
) -> Message {
    let named = Message::default().all(1, nodes).text(2, "made").all(5, weights);
    named.all(11, inputs).all(12, outputs)
}

fn model(graph: &Message) -> Vec<u8> {
    let opset = Message::default().text(1, "").number(2, OPSET);
    Message::default().number(1, IR_VERSION).message(7, graph).message(8, &opset).0
}

/// A model that goes round as often as its input `n` says, and gives 0 to 255 after that: it runs as
/// long as it is asked to.
pub(crate) fn turns() -> Vec<u8> {
    let row = [1, TURNS_WIDTH];
    let state = |name| value(name, FLOAT, &row);
    let body = graph(
        &[node("Identity", &["go"], "go_on"), node("MatMul", &["before", "unit"], "after")],
        &[],
        &[value("turn", INT64, &[]), value("go", BOOL, &[]), state("before")],
        &[value("go_on", BOOL, &[]), state("after")],
    );
    let attribute = Message::default().text(1, "body").message(6, &body).number(20, GRAPH);
    let again = node("Loop", &["n", "", "start"], "y").message(5, &attribute);
    let side = TURNS_WIDTH;
    let numbers = |count: u64| (0..count).map(move |at| at as f32);
    let diagonal =
        numbers(side * side).map(|at| f32::from(u8::from(at % (side + 1) as f32 == 0.0)));
    let unit = weights("unit", &[side, side], &diagonal.collect::<Vec<_>>());
    let start = weights("start", &row, &numbers(side).collect::<Vec<_>>());
    model(&graph(&[again], &[unit, start], &[value("n", INT64, &[])], &[state("y")]))
}

/// A model of so many large tables and small ones, of 4 MiB and of 256 KiB, of which it adds up one row:
/// `at` says which. Every number of a table is the table's, counted from 1.
pub(crate) fn tables(large: u16, small: u16) -> Vec<u8> {
    const COLUMNS: u64 = 64;
    let count = large + small;
    let name = |table: u16| format!("table{table}");
    let row = |table: u16| format!("row{table}");
    let sum = |table: u16| if table == count { "y".to_owned() } else { format!("sum{table}") };
    let (mut nodes, mut all) = (Vec::new(), Vec::new());
    let mut before = "zero".to_owned();
    for table in 1..=count {
        let rows = if table <= large { 1 << 14 } else { 1 << 10 };
        nodes.push(node("Gather", &[&name(table), "at"], &row(table)));
        nodes.push(node("Add", &[&before, &row(table)], &sum(table)));
        all.push(weights(&name(table), &[rows, COLUMNS], &[f32::from(table)]));
        before = sum(table);
    }
    all.push(weights("zero", &[1, COLUMNS], &[0.0]));
    let (at, y) = (value("at", INT64, &[1]), value("y", FLOAT, &[1, COLUMNS]));
    model(&graph(&nodes, &all, &[at], &[y]))
}

/// A model that fills so many numbers as its input `n` says with 0 and gives the largest: ONNX Runtime
/// keeps the memory of its largest run.
pub(crate) fn fills() -> Vec<u8> {
    let nodes = [node("ConstantOfShape", &["n"], "all"), node("ReduceMax", &["all"], "y")];
    let (n, y) = (value("n", INT64, &[1]), value("y", FLOAT, &[1]));
    model(&graph(&nodes, &[], &[n], &[y]))
}

/// A folder for a test's files, which goes when the test does.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gridpool-infer-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        Self(folder)
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file can be written");
        path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the folder is this test's");
    }
}

//! Models with much memory, made by the test.

use crate::onnx::{FLOAT, INT64, graph, model, node, value, weights};

/// A model of `large` tables of 4 MiB and `small` tables of 256 KiB. It adds up row `at` of all of them. Every
/// number in a table is the table's number, counted from 1.
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

/// A model that fills `n` numbers with 0 and returns the largest: ONNX Runtime keeps the memory of its largest
/// run.
pub(crate) fn fills() -> Vec<u8> {
    let nodes = [node("ConstantOfShape", &["n"], "all"), node("ReduceMax", &["all"], "y")];
    let (n, y) = (value("n", INT64, &[1]), value("y", FLOAT, &[1]));
    model(&graph(&nodes, &[], &[n], &[y]))
}

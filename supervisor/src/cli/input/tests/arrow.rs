//! Tests of Arrow files and streams.

use std::sync::Arc;

use arrow_array::builder::{
    FixedSizeListBuilder, Int64Builder, LargeListBuilder, ListBuilder, UInt8Builder,
};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, StringViewArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};

use super::*;

type Grids<'a> = &'a [Option<&'a [&'a [i64]]>];

/// A column of lists of lists of int64.
fn column(grids: Grids<'_>) -> ArrayRef {
    let mut column = LargeListBuilder::new(ListBuilder::new(Int64Builder::new()));
    for grid in grids {
        for row in grid.unwrap_or_default() {
            column.values().append_value(row.iter().map(|&cell| Some(cell)));
        }
        column.append(grid.is_some());
    }
    Arc::new(column.finish())
}

fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.write(&batch.slice(0, 1)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

#[test]
fn a_column_of_grids_is_read_from_all_batches_of_a_file_or_stream() {
    let two = column(&[Some(&[&[1, 2], &[3, 4]]), Some(&[&[5]])]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7, 8]));
    let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let views: ArrayRef =
        Arc::new(StringViewArray::from(vec!["a longer one than a view holds", "b"]));
    let before = vec![("id", numbers), ("name", words), ("view", views)];
    let bytes = file([before, vec![("grid", Arc::clone(&two))]].concat());
    let (first, second) = (grid(&[[1, 2], [3, 4]]), grid(&[[5]]));
    let want = vec![first.clone(), second.clone(), first.clone()];
    assert_eq!(piped(&bytes).unwrap()[0].body, Body::Grids(want));

    let batch = RecordBatch::try_from_iter([("x", two)]).unwrap();
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch.slice(1, 1)).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(piped(&stream).unwrap()[0].body, Body::Grids(vec![second]));

    let rows = FixedSizeListBuilder::new(UInt8Builder::new(), 2);
    let mut fixed = FixedSizeListBuilder::new(rows, 2);
    for cells in [[1, 2], [3, 4]] {
        fixed.values().values().append_slice(&cells);
        fixed.values().append(true);
    }
    fixed.append(true);
    let bytes = file(vec![("grid", Arc::new(fixed.finish()))]);
    assert_eq!(piped(&bytes).unwrap()[0].body, Body::Grids(vec![first.clone(), first]));
}

#[test]
fn the_columns_input_and_output_are_pairs() {
    let before = column(&[Some(&[&[1]]), Some(&[&[2]])]);
    let after = column(&[Some(&[&[3]]), None]);
    let pair = |input: u8, output: Option<u8>| Pair {
        input: grid(&[[input]]),
        output: output.map(|color| grid(&[[color]])),
    };
    let bytes = file(vec![("output", after), ("input", Arc::clone(&before))]);
    let want = vec![pair(1, Some(3)), pair(2, None), pair(1, Some(3))];
    assert_eq!(piped(&bytes).unwrap()[0].body, Body::Pairs(want));
    let want = vec![pair(1, None), pair(2, None), pair(1, None)];
    assert_eq!(piped(&file(vec![("input", before)])).unwrap()[0].body, Body::Pairs(want));
}

#[test]
fn every_error_of_an_arrow_file_has_its_place_and_what_to_give() {
    let good = column(&[Some(&[&[1]])]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![7]));
    let cases = [
        (vec![("x", column(&[Some(&[&[1, 12]])]))], "grid 0, row 0, column 1: 12 is not a colour"),
        (vec![("x", column(&[Some(&[&[-1]])]))], "grid 0, row 0, column 0: -1 is not a colour"),
        (vec![("x", column(&[Some(&[&[1], &[1, 2]])]))], "grid 0: row 1 has 2 cells"),
        (vec![("x", column(&[Some(&[])]))], "grid 0: the grid is empty"),
        (vec![("x", column(&[Some(&[&[1]]), None]))], "grid 1: null is no grid"),
        (vec![("id", numbers.clone())], "its columns are `id` of Int: give one column of grids"),
        (vec![("a", good.clone()), ("b", good.clone())], "`b` of "),
        (vec![("input", numbers)], "found `input` of Int"),
        (
            vec![("input", good), ("output", column(&[Some(&[&[1], &[10]])]))],
            "pair 0, output, row 1, column 0: 10 is not a colour",
        ),
    ];
    for (columns, words) in cases {
        let said = refusal(&file(columns));
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
}

#[test]
fn a_cut_file_is_an_error_and_a_changed_one_an_error_or_other_grids_and_never_a_panic() {
    let whole = file(vec![("grid", column(&[Some(&[&[1, 2], &[3, 4]]), Some(&[&[5]])]))]);
    let tolerated = |bytes: &[u8]| {
        if let Err(error) = piped(bytes) {
            assert_eq!(error.exit_code(), 65);
        }
    };
    for end in 0..whole.len() {
        assert!(piped(&whole[..end]).is_err(), "{end} of {} bytes", whole.len());
    }
    for at in 0..whole.len() {
        for bit in [0, 3, 7] {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            tolerated(&changed);
        }
    }
    let said = refusal(&whole[..whole.len() / 2]);
    assert!(said.starts_with("not an Arrow file that gridpool reads: "), "{said}");
}

//! What bytes decode to, well-formed or not.

use super::super::NO_OP;
use super::super::value::ItemErrorCode;
use super::*;
use crate::program::Ties;

fn outputs(text: &str, edit: impl Fn(&OutputLayout, &mut Vec<u8>)) -> Outputs {
    let program = Program::compile(text, Ties::Cpython).unwrap();
    let grid = Grid::from_rows(&[[1, 1, 0], [0, 2, 2]]).unwrap();
    let batch = if program.grids_per_item() == 2 {
        GridBatch::from_pairs([(&grid, Some(&grid))])
    } else {
        GridBatch::from_grids([&grid])
    };
    let batch = Arc::new(batch.unwrap());
    let parts = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
    let mut bytes = vec![0; parts.bytes()];
    edit(&parts, &mut bytes);
    Outputs::new(program, batch, bytes).unwrap()
}

fn decoded(text: &str, edit: impl Fn(&OutputLayout, &mut Vec<u8>)) -> Output {
    outputs(text, edit).item(0).unwrap().unwrap()
}

fn put(bytes: &mut [u8], part: Range<usize>, start: &[u8]) {
    bytes[part][..start.len()].copy_from_slice(start);
}

#[test]
fn objects_decode_from_labels_and_the_inputs_colours() {
    let objects = decoded("o_g(5)", |parts, bytes| {
        put(bytes, parts.shapes(), &[2, 3]);
        put(bytes, parts.counts(), &[2, 0]);
        put(bytes, parts.labels_low(), &[1, 1, 0, 0, 2, 2]);
        assert!(parts.cells().is_empty() && parts.offsets().is_empty());
    });
    let cell = |color, row, col| ObjectCell { color, row, col };
    let first = vec![cell(1, 0, 0), cell(1, 0, 1)];
    assert_eq!(objects, Output::Objects(vec![first, vec![cell(2, 1, 1), cell(2, 1, 2)]]));
}

#[test]
fn packed_grids_lie_where_their_offsets_say() {
    let grid = decoded("upscale(2)", |parts, bytes| {
        assert_eq!(parts.cells().len(), 24);
        put(bytes, parts.shapes(), &[1, 2]);
        put(bytes, parts.offsets(), &[22, 0, 0, 0]);
        bytes[parts.cells()][22..].copy_from_slice(&[7, 8]);
    });
    assert_eq!(grid, Output::Grid(Grid::from_rows(&[[7, 8]]).unwrap()));
    assert_eq!(decoded("trim", |_, _| {}), Output::Grid(Grid::empty()));
}

#[test]
fn objects_and_patches_lie_at_their_origin_and_have_holes() {
    let fill = |parts: &OutputLayout, bytes: &mut Vec<u8>| {
        put(bytes, parts.shapes(), &[2, 2]);
        put(bytes, parts.origins(), &[0xff, 0xff, 5, 0]);
        put(bytes, parts.cells(), &[3, HOLE, HOLE, 0]);
    };
    let cell = |color, row, col| ObjectCell { color, row, col };
    assert_eq!(decoded("asobject", fill), Output::Object(vec![cell(3, -1, 5), cell(0, 0, 6)]));
    let place = |row, col| PatchCell { row, col };
    assert_eq!(decoded("asindices", fill), Output::Patch(vec![place(-1, 5), place(0, 6)]));
}

#[test]
fn numbers_flags_vectors_and_tuples_decode() {
    let set = |parts: &OutputLayout, bytes: &mut Vec<u8>| {
        put(bytes, parts.numbers(), &[1, 0, 0xfe, 0xff]);
    };
    assert_eq!(decoded("square", set), Output::Flag(true));
    assert_eq!(decoded("shape", set), Output::Vector { row: 1, col: -2 });
    let pair = Output::Tuple(vec![Output::Number(1), Output::Number(0)]);
    let first = |parts: &OutputLayout, bytes: &mut Vec<u8>| put(bytes, parts.numbers(), &[1]);
    assert_eq!(decoded("apply(width)", first), pair);
}

#[test]
fn scribbled_results_are_errors_and_never_panic() {
    let texts = ["rot90", "upscale(3)", "palette", "mostcolor", "o_g(5)", "rot90 | o_g(5)"];
    let more = ["ofcolor(1)", "first | o_g(5)", "apply(o_g(4))", "hsplit(3)", "asobject | center"];
    for text in texts.into_iter().chain(more) {
        for seed in 0..64_u8 {
            let outputs = outputs(text, |_, bytes| {
                let mut next = seed;
                for byte in bytes {
                    next = next.wrapping_mul(13).wrapping_add(seed);
                    *byte = next;
                }
            });
            let _decoded = outputs.item(0);
        }
    }
}

#[test]
fn an_item_error_names_the_op_and_the_first_element_wins() {
    let status = |codes: [u8; 4]| {
        outputs("apply(rot90) | apply(trim)", move |parts, bytes| {
            put(bytes, parts.status(), &codes);
        })
    };
    let error = |codes| status(codes).item(0).unwrap().unwrap_err();
    let bad = error([0, 0, 1, NO_OP]);
    assert_eq!((bad.code, bad.op.as_str()), (ItemErrorCode::BadCell, "input"));
    let empty = error([4, 1, 1, NO_OP]);
    assert_eq!((empty.code, empty.op.as_str()), (ItemErrorCode::EmptyArg, "apply(trim)"));
    assert!(status([99, 0, 0, 0]).item(0).is_err());
}

#[test]
fn a_batch_of_other_items_has_no_results() {
    let program = Program::compile("first", Ties::Cpython).unwrap();
    let grid = Grid::from_rows(&[[1]]).unwrap();
    let batch = Arc::new(GridBatch::from_grids([&grid]).unwrap());
    assert!(Outputs::new(program, batch, vec![0; 64]).is_err());
}

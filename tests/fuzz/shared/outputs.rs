//! Results as a client decodes them, of programs of every kind, whatever lies where they should be.

use std::sync::Arc;

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};

/// A program for every kind of result, in place and packed, and for tuples of them.
pub(crate) const PROGRAMS: [&str; 14] = [
    "rot90",
    "trim",
    "upscale(3)",
    "o_g(5)",
    "upscale(2) | o_g(1)",
    "o_g(1) | argmax(size)",
    "ofcolor(3)",
    "palette",
    "numcolors",
    "o_g(5) | size",
    "o_g(5) | argmax(size) | ulcorner",
    "hsplit(2)",
    "mapply(o_g(5))",
    "mapply(palette)",
];

/// One byte for the program, one for the batch; the others are the result, cut or filled to its length.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&[which, seed], packed)) = bytes.split_first_chunk::<2>() else { return };
    let text = PROGRAMS[usize::from(which) % PROGRAMS.len()];
    let Ok(program) = Program::compile(text, Ties::Cpython) else { return };
    let batch = Arc::new(batch(&program, seed));
    let layout = batch.layout().expect("it has items");
    let Ok(layout) = OutputLayout::new(&program, layout) else { return };
    let short = Outputs::new(program.clone(), Arc::clone(&batch), packed.to_vec());
    assert_eq!(short.is_ok(), packed.len() == layout.bytes());
    let mut packed = packed.to_vec();
    packed.resize(layout.bytes(), 0);
    let outputs = Outputs::new(program, batch, packed).expect("as long as its layout");
    let mut cells = Vec::new();
    let mut all_decode = true;
    for item in 0..outputs.len() {
        let whole = outputs.item(item);
        // Of a tuple with an error nothing else is looked at here, but it is where results are compared.
        all_decode &= matches!(whole, Ok(Ok(_)));
        if let (Ok(value), Ok(error)) = (&whole, outputs.item_error(item)) {
            assert_eq!(value.as_ref().err(), error.as_ref());
        }
        // Each says so if the result is of another kind.
        let _grid = outputs.grid_into(item, &mut cells);
        let _count = outputs.count_objects(item);
        let _labels = outputs.label_map(item);
    }
    let difference = outputs.first_difference(&outputs);
    if all_decode {
        assert_eq!(difference.expect("every item decodes"), None);
    }
}

/// The right results of all programs.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let packed = |(at, text): (u8, &str)| {
        let program = Program::compile(text, Ties::Cpython).expect("they compile");
        let outputs = run_batch(&program, &batch(&program, 3)).expect("a small batch");
        [&[at, 3][..], &outputs.packed()].concat()
    };
    (0..).zip(PROGRAMS).map(packed).collect()
}

/// A few grids, or pairs, that a number stands for.
pub(crate) fn batch(program: &Program, seed: u8) -> GridBatch {
    let grid = |k: usize| {
        let (h, w) = (1 + (k * 7 + usize::from(seed)) % 9, 1 + (k * 5 + usize::from(seed)) % 11);
        let cell =
            |at: usize| u8::try_from((at * at + k + usize::from(seed)) % 10).expect("a digit");
        Grid::new(h, w, (0..h * w).map(cell).collect()).expect("a small grid")
    };
    let count = 1 + usize::from(seed % 4);
    let mut batch = GridBatch::of_items(program.grids_per_item());
    for k in 0..count {
        let (input, output) = (grid(2 * k), grid(2 * k + 1));
        let pushed = match program.grids_per_item() {
            1 => batch.push(&input),
            _ => batch.push_pair(&input, (k % 3 != 2).then_some(&output)),
        };
        pushed.expect("a few small grids");
    }
    batch
}

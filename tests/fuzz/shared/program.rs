//! The compiler of programs; what it takes, the reference runs.

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Program, Ties};

use super::outputs::{PROGRAMS, batch};

/// A result larger than this is not computed here: it would only take time.
const RESULT_BYTES_MAX: usize = 1 << 20;

const TEXTS: [&str; 8] = [
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "underfill(3, o_g(5) | first | outbox)",
    "hsplit(2) | apply(hmirror) | hconcat",
    "crop(1, 2, 3, 4) | shift(-1, 2)",
    "canvas(3, 4, 5) | vupscale(2)",
    "o_g(5) | colorfilter(2) | merge | cover",
    "first | cellwise(0)",
    "fill(5, ofcolor(0)) | trim | compress",
];

/// One byte for the ties and the batch, the others are the text.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&how, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let ties = if how & 1 == 0 { Ties::Cpython } else { Ties::Lowest };
    let program = match Program::compile(text, ties) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let again = Program::compile(program.text(), ties).expect("its own text compiles");
    assert_eq!(again.hash(), program.hash(), "{text}");
    assert!(program.length() > 0, "{text}");

    let batch = batch(&program, how);
    let layout = batch.layout().expect("it has items");
    let Ok(output) = OutputLayout::new(&program, layout) else { return };
    if output.bytes() > RESULT_BYTES_MAX {
        return;
    }
    let outputs = run_batch(&program, &batch).expect("its layout is within the limits");
    for item in 0..outputs.len() {
        let value = outputs.item(item).expect("the reference's results are well formed");
        assert!(value.is_ok() || outputs.item_error(item).is_ok_and(|e| e.is_some()), "{text}");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = PROGRAMS.iter().map(|text| [b"\0", text.as_bytes()].concat());
    texts.chain(TEXTS.iter().map(|text| [b"\x01", text.as_bytes()].concat())).collect()
}

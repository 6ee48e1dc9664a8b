//! A `.npy` array on standard input: what comes after the magic.

use super::inputs::input;

pub(crate) fn run(bytes: &[u8]) {
    let mut array = b"\x93NUMPY".to_vec();
    array.extend(bytes);
    input(&array);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let array = |shape: &str, cells: &[u8]| {
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend(cells);
        bytes
    };
    vec![
        array("(3, 2, 2)", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]),
        array("(2, 3)", &[1, 2, 3, 4, 5, 6]),
        array("(3, 2, 2)", &[1, 2, 3]),
        array("(1, 1, 2)", &[1, 10]),
    ]
}

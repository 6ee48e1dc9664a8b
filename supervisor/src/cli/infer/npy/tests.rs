//! Tests with arrays of NumPy, and with arrays that are not tensors.

use gridpool_client::TensorOutputs;
use gridpool_protocol::limits::TENSOR_RANK_MAX;
use gridpool_protocol::tensor::{TensorLayout, Texts};

use super::super::file::{write_npy, write_npz};
use super::super::npz::Arrays;
use super::*;
use crate::cli::npy::head;

const STORED: &[u8] = include_bytes!("../../../../../tests/data/arrays.npz");
const DEFLATED: &[u8] = include_bytes!("../../../../../tests/data/arrays_packed.npz");

fn named(bytes: &[u8]) -> Vec<(Tensor, Vec<u8>)> {
    match Arrays::read(bytes.to_vec()).unwrap() {
        Arrays::Named(tensors) => tensors,
        Arrays::Nameless(tensor, _) => panic!("{tensor} is all"),
    }
}

/// A file with this header and data.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), data].concat()
}

/// The numbers from `first` on, as the type `name` of NumPy writes them.
fn numbers(name: &str, first: u8) -> Vec<u8> {
    let number = |at: u8| -> Vec<u8> {
        match name {
            "u1" | "i1" => vec![at],
            "u2" | "i2" => u16::from(at).to_le_bytes().into(),
            "u4" | "i4" => u32::from(at).to_le_bytes().into(),
            "u8" | "i8" => u64::from(at).to_le_bytes().into(),
            // From 8 to 13: three bits before the point's place, the exponent 3 above its zero.
            "f2" => ((18_u16 << 10) | (u16::from(at) - 8) << 7).to_le_bytes().into(),
            "f4" => f32::from(at).to_le_bytes().into(),
            "f8" => f64::from(at).to_le_bytes().into(),
            "V2" => f32::from(at).to_le_bytes()[2..].into(),
            "b1" => vec![at % 2],
            other => panic!("{other}"),
        }
    };
    (first..first + 6).flat_map(number).collect()
}

#[test]
fn every_array_that_numpy_saves_is_read_compressed_or_not() {
    let tensors = named(STORED);
    assert_eq!(tensors, named(DEFLATED));
    let types = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "b1", "V2"];
    for ((name, (tensor, data)), first) in types.into_iter().zip(&tensors).zip(0_u8..) {
        let (want, first) = match name {
            "b1" | "V2" => (name.to_owned(), 0),
            _ => (format!("in/{name}:0"), first),
        };
        assert_eq!((tensor.name(), tensor.shape()), (want.as_str(), [2, 3].as_slice()));
        assert_eq!(&tensor.datatype().descr()[1..], name);
        assert_eq!(data, &numbers(name, first), "{name}");
    }
    let seen: Vec<_> =
        tensors[types.len()..].iter().map(|(tensor, _)| tensor.to_string()).collect();
    assert_eq!(seen, ["columns INT32 [2, 3, 4]", "empty FP32 [0, 3]", "scalar INT64 []"]);
    let columns: Vec<u8> = (0_u32..24).flat_map(u32::to_le_bytes).collect();
    assert_eq!(tensors[types.len()].1, columns, "sorted by rows");
}

#[test]
fn written_outputs_can_be_read_again_under_their_names() {
    let tensors = named(STORED);
    let (specs, data): (Vec<_>, Vec<_>) = tensors.iter().cloned().unzip();
    let data: Vec<_> = data.iter().map(Vec::as_slice).collect();
    let packed = TensorLayout::new(specs).unwrap().pack(&data).unwrap();
    let mut file = std::io::Cursor::new(Vec::new());
    write_npz(&mut file, &TensorOutputs::new(packed).unwrap()).unwrap();
    assert_eq!(named(&file.into_inner()), tensors);
    for (tensor, data) in tensors {
        let packed = TensorLayout::new(vec![tensor.clone()]).unwrap().pack(&[&data]).unwrap();
        let mut file = Vec::new();
        write_npy(&mut file, &TensorOutputs::new(packed).unwrap()).unwrap();
        assert_eq!(read(tensor.name(), file).unwrap(), (tensor, data));
    }
}

#[test]
fn the_header_is_numpys() {
    for (shape, text) in [(vec![], "()"), (vec![7], "(7,)"), (vec![2, 3], "(2, 3)")] {
        let head = head("<f4", &shape);
        assert_eq!((head.len() % 64, head.last()), (0, Some(&b'\n')));
        let said = String::from_utf8_lossy(&head[10..]);
        let want = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {text}, }}");
        assert_eq!(said.trim_end(), want);
    }
    assert_eq!(head("|u1", &[1 << 33, 0, 1 << 33]).len() % 64, 0);
    let deep = Tensor::new("x", DataType::Bool, vec![1; TENSOR_RANK_MAX]).unwrap();
    let file = [head("|b1", deep.shape()), vec![1]].concat();
    assert_eq!(read("x", file).unwrap(), (deep, vec![1]));
}

#[test]
fn an_array_that_is_not_a_tensor_is_refused_with_its_name_and_what_to_do() {
    let header = |descr: &str, shape: &str| {
        format!("{{'shape': {shape}, \"fortran_order\": False, 'descr': {descr}}}")
    };
    let cases: [(Vec<u8>, &[&str]); 13] = [
        (npy(&header("'>f4'", "(1,)"), &[0; 4]), &["big-endian", "save x.astype('<f4')"]),
        (
            npy(&header("'<U1'", "(1,)"), &[0, 0xd8, 0, 0]),
            &["has an element 0 that is not Unicode text"],
        ),
        (npy(&header("'<U2'", "(1,)"), &[0; 7]), &["7 bytes of data", "need 8"]),
        (npy(&header("'|O'", "()"), &[0; 8]), &["only Python reads", "save x.astype('U')"]),
        (npy(&header("'<c8'", "()"), &[0; 8]), &["`<c8`, which no tensor has"]),
        (npy(&header("[('a', '<f4')]", "()"), &[0; 4]), &["without fields"]),
        (npy(&header("'<f4'", "(2,)"), &[0; 7]), &["7 bytes of data", "need 8"]),
        (npy(&header("'<f4'", "(2,)"), &[0; 9]), &["9 bytes of data", "need 8"]),
        (npy(&header("'|b1'", "(1,)"), &[2]), &["neither true nor false"]),
        (npy(&header("'<f4'", "(-1,)"), &[]), &["has no plain type"]),
        (npy(&header("'<f4'", "(99999999999999999999,)"), &[]), &["has no plain type"]),
        (npy(&header("'<f4'", "(9999999999,)"), &[]), &["dimension 0 is 9999999999"]),
        (npy(&header("'<f4'", "()"), &[])[..40].to_vec(), &["it ends inside its header"]),
    ];
    for (bytes, words) in cases {
        let said = read("x", bytes).unwrap_err().to_string();
        assert!(words.iter().all(|&word| said.contains(word)), "{said}");
        assert!(said.contains("`x`"), "{said}");
    }
    let said = |bytes: &[u8]| Arrays::read(bytes.to_vec()).unwrap_err().to_string();
    assert!(said(b"[[0]]").contains("neither an .npz nor an .npy"));
    assert!(said(&STORED[..STORED.len() / 2]).contains("broken or incomplete"));
}

#[test]
fn arrays_of_text_and_of_bytes_are_read_without_what_fills_them_up() {
    let texts = |descr: &str, order: &str, data: &[u8]| {
        let shape = "'shape': (2, 2), ";
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, {shape}}}\n");
        let (tensor, data) = read("x", npy(&header, data)).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (DataType::Bytes, &[2, 2][..]));
        let texts = Texts::new(&data, 4).map(|text| text.unwrap().to_vec());
        texts.map(|text| String::from_utf8(text).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(texts("|S2", "False", b"a\0bb\0c\0\0"), ["a", "bb", "\0c", ""]);
    assert_eq!(texts("|S2", "True", b"a\0bb\0c\0\0"), ["a", "\0c", "bb", ""]);
    let characters: Vec<u8> =
        "ä\0b€\0\0cd".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    assert_eq!(texts("<U2", "False", &characters), ["ä", "b€", "", "cd"]);
    assert_eq!(texts("|S0", "False", b""), [""; 4]);
}

#[test]
fn a_changed_byte_or_a_cut_never_panics_the_reader() {
    let whole = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", &[0; 24]);
    let mut read_anyway = 0;
    for at in 0..whole.len() {
        for byte in [0, b'\'', b'(', b')', b'9', 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            read_anyway += usize::from(read("x", bytes).is_ok());
        }
        assert!(read("x", whole[..at].to_vec()).is_err(), "cut at {at}");
    }
    assert!(read_anyway >= 24 * 6, "its data may be anything");
}

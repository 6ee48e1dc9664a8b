//! Packed tensors, as a worker reads them out of shared memory and a client out of its own.

use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::tensor::{DATA_ALIGNMENT, DataType, Packed, Tensor, TensorLayout, Texts};

/// Reads the memory in every way: all agree, and what was read is written again as it was.
pub(crate) fn run(bytes: &[u8]) {
    let mut memory = bytes.to_vec();
    let shared = TensorLayout::read(&SharedSlice::private(&mut memory));
    let private = Packed::read(bytes);
    match private {
        Ok(packed) => {
            let layout = shared.expect("what private memory gives, shared memory gives too");
            assert_eq!(&layout, packed.layout());
            check(&layout, &packed, bytes);
        }
        Err(private) => {
            assert_eq!(shared.as_ref(), Err(&private));
            assert!(!private.to_string().is_empty());
        }
    }
}

fn check(layout: &TensorLayout, packed: &Packed<'_>, bytes: &[u8]) {
    let header = layout.header();
    assert_eq!(header, bytes[..header.len()]);
    let mut end = header.len();
    for (at, tensor) in layout.tensors().iter().enumerate() {
        let range = layout.range(at);
        assert_eq!(range.start, end.next_multiple_of(DATA_ALIGNMENT));
        assert_eq!(packed.data(at).len(), tensor.bytes());
        assert_eq!(layout.find(tensor.name()), Some(at));
        let elements: u128 = tensor.shape().iter().map(|&side| u128::from(side)).product();
        let least = elements * tensor.datatype().bytes() as u128;
        let is_text = tensor.datatype() == DataType::Bytes;
        assert!(tensor.bytes() as u128 == least || is_text && tensor.bytes() as u128 > least);
        assert_eq!(tensor.elements() as u128, elements);
        // Only that it ends.
        drop(Texts::new(packed.data(at), tensor.elements()).check());
        end = range.end;
    }
    assert_eq!(layout.bytes(), end);
    assert!(end <= bytes.len());
}

/// Sets to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let pack = |tensors: &[(&str, DataType, &[u64])]| {
        let new = |&(name, datatype, shape): &(&str, DataType, &[u64])| {
            Tensor::new(name, datatype, shape.to_vec()).expect("it is within its limits")
        };
        let layout = TensorLayout::new(tensors.iter().map(new).collect()).expect("a small set");
        let data: Vec<_> = layout.tensors().iter().map(|t| vec![1; t.bytes()]).collect();
        let data: Vec<_> = data.iter().map(Vec::as_slice).collect();
        layout.pack(&data).expect("as long as the layout says")
    };
    vec![
        pack(&[]),
        pack(&[("x", DataType::Fp32, &[1, 3])]),
        pack(&[("scale", DataType::Fp64, &[]), ("on", DataType::Bool, &[2])]),
        pack(&[("text", DataType::Bytes, &[2, 2])]),
        pack(&[("rows", DataType::Int64, &[0, 4]), ("w", DataType::Bf16, &[5])]),
    ]
}

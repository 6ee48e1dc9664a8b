//! Sets of tensors that survive being packed, and bytes that are none.

use proptest::prelude::*;

use super::*;

fn set() -> TensorLayout {
    let tensor = |name: &str, datatype, shape: &[u64]| {
        Tensor::new(name, datatype, shape.to_vec()).expect("it is within its limits")
    };
    let tensors = vec![
        tensor("x", DataType::Fp32, &[2, 3]),
        tensor("none", DataType::Int64, &[0, 7]),
        tensor("scalar", DataType::Bool, &[]),
        tensor("y", DataType::Bf16, &[33]),
    ];
    TensorLayout::new(tensors).expect("a small set")
}

fn packed() -> Vec<u8> {
    set().pack(&[&[1; 24], &[], &[1], &[2; 66]]).expect("as long as the layout says")
}

/// What either reader says; both must say the same.
fn read(bytes: &[u8]) -> Result<TensorLayout, TensorError> {
    let private = Packed::read(bytes).map(|packed| packed.layout().clone());
    let shared = TensorLayout::read(&SharedSlice::private(&mut bytes.to_vec()));
    assert_eq!(private, shared);
    private
}

#[test]
fn a_set_is_read_as_it_was_written_and_its_data_is_aligned() {
    let (layout, bytes) = (set(), packed());
    assert_eq!(read(&bytes).unwrap(), layout);
    let packed = Packed::read(&bytes).unwrap();
    let (tensor, data) = packed.find("y").unwrap();
    assert_eq!((tensor.shape(), data), (&[33][..], &[2; 66][..]));
    assert_eq!((packed.data(0), packed.data(1)), (&[1; 24][..], &[][..]));
    assert!(packed.find("z").is_none());
    for at in 0..layout.tensors().len() {
        assert_eq!(layout.range(at).start % DATA_ALIGNMENT, 0);
    }
    let mut memory = vec![9; layout.bytes()];
    layout.write_header(&SharedSlice::private(&mut memory)).unwrap();
    assert_eq!(memory[..layout.range(0).start], bytes[..layout.range(0).start]);
    let short = layout.write_header(&SharedSlice::private(&mut memory[1..])).unwrap_err();
    assert!(matches!(short, TensorError::Memory { .. }), "{short}");
}

#[test]
fn no_tensor_at_all_is_a_set_too() {
    let layout = TensorLayout::new(Vec::new()).unwrap();
    let bytes = layout.pack(&[]).unwrap();
    assert_eq!(bytes.len(), HEAD_BYTES);
    assert_eq!(read(&bytes).unwrap(), layout);
    layout.write_header(&SharedSlice::private(&mut [0; HEAD_BYTES])).unwrap();
}

#[test]
fn a_set_that_is_cut_off_anywhere_is_refused() {
    let bytes = packed();
    for length in 0..bytes.len() {
        let error = read(&bytes[..length]).unwrap_err();
        assert!(matches!(error, TensorError::Memory { got, .. } if got == length), "{error}");
    }
    let longer = [&bytes[..], &[7; 100]].concat();
    assert!(read(&longer).is_ok(), "an arena may be larger than what lies in it");
}

#[test]
fn errors_in_a_header_are_named() {
    let broken = |at: usize, with: &[u8]| {
        let mut bytes = packed();
        bytes[at..at + with.len()].copy_from_slice(with);
        read(&bytes).unwrap_err().to_string()
    };
    assert_eq!(broken(0, b"GPT2"), "these bytes are not packed tensors");
    assert_eq!(broken(12, &[1]), "these bytes are not packed tensors");
    assert!(broken(4, &[1, 1]).starts_with("a set of 257 tensors"), "{}", broken(4, &[1, 1]));
    assert!(broken(4, &[3]).contains("the header"), "{}", broken(4, &[3]));
    assert!(broken(4, &[5]).contains("the header"), "{}", broken(4, &[5]));
    assert!(broken(8, &[0, 0]).contains("the header"));
    assert!(broken(8, &[255, 255, 255, 255]).contains("at most"));
    assert_eq!(broken(16, &[99]), "tensor `x`: there is no type with number 99");
    assert!(broken(17, &[17]).contains("17 dimensions"));
    assert!(broken(20, &[0xff]).contains("is not valid UTF-8"));
    assert!(broken(20, &[0]).contains("zero byte"));
    assert!(broken(18, &[0, 0]).contains("is empty"));
    let side = broken(21, &u64::MAX.to_le_bytes());
    assert!(side.contains("`x`: dimension 0 is 18446744073709551615"), "{side}");
    let large = broken(21, &(1_u64 << 31).to_le_bytes());
    assert!(large.contains("`x` takes 25769803776 bytes"), "{large}");
}

#[test]
fn sets_beyond_a_limit_are_refused() {
    let tensor = |name: &str, bytes| Tensor::new(name, DataType::Uint8, vec![bytes]).unwrap();
    let twice = TensorLayout::new(vec![tensor("a", 1), tensor("b", 1), tensor("a", 2)]);
    assert_eq!(twice.unwrap_err(), TensorError::Duplicate { name: "a".into() });
    let names: Vec<_> = (0..=TENSORS_MAX).map(|at| tensor(&format!("{at}"), 1)).collect();
    assert!(TensorLayout::new(names[1..].to_vec()).is_ok());
    let count = TENSORS_MAX + 1;
    assert_eq!(TensorLayout::new(names).unwrap_err(), TensorError::TooMany { count });
    let half = TENSOR_BYTES_MAX / 2 - 128;
    assert!(TensorLayout::new(vec![tensor("a", half), tensor("b", half)]).is_ok());
    let error = TensorLayout::new(vec![tensor("a", half), tensor("b", half + 256)]).unwrap_err();
    assert!(matches!(error, TensorError::Bytes { ref name, .. } if name == "b"), "{error}");
    let parts = set().pack(&[&[0; 24]]).unwrap_err();
    assert_eq!(parts, TensorError::Parts { got: 1, want: 4 });
    let data = set().pack(&[&[0; 24], &[], &[1], &[2; 65]]).unwrap_err();
    assert_eq!(data.to_string(), "tensor `y`: 65 bytes of data; its shape and type take 66");
}

#[test]
fn the_header_of_a_text_has_the_size_of_its_data() {
    let data = b"\x03\0\0\0one\0\0\0\0";
    let text = |shape: &[u64]| Tensor::new("t", DataType::Bytes, shape.to_vec()).unwrap();
    let after = Tensor::new("x", DataType::Int8, vec![1]).unwrap();
    let layout = TensorLayout::new(vec![text(&[2, 1]).with_data(data).unwrap(), after]).unwrap();
    let bytes = layout.pack(&[data, &[7]]).unwrap();
    assert_eq!(read(&bytes).unwrap(), layout);
    let packed = Packed::read(&bytes).unwrap();
    assert_eq!((packed.data(0), packed.data(1)), (&data[..], &[7][..]));
    assert_eq!((layout.tensors()[0].bytes(), layout.tensors()[0].elements()), (11, 2));
    let at = HEAD_BYTES + TENSOR_HEAD_BYTES + 1 + 2 * SIDE_BYTES;
    let sized = |size: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
        read(&bytes).unwrap_err().to_string()
    };
    assert_eq!(sized(7), "tensor `t`: it has 1 elements, but its shape says 2");
    assert!(sized(u64::MAX).contains("a tensor of BYTES has at most 67108864 bytes"));
    assert!(sized(1 << 20).contains("are needed"));
    for (shape, data) in [(&[2][..], &data[..8]), (&[0], data), (&[1], data)] {
        let error = text(shape).with_data(data).unwrap_err();
        assert!(matches!(error, TensorError::Texts { .. }), "{error}");
    }
}

#[test]
fn the_longest_header_is_as_long_as_its_limit() {
    use crate::limits::TENSOR_NAME_BYTES_MAX;
    let name = |at: usize| format!("{at:0TENSOR_NAME_BYTES_MAX$}");
    let tensor = |at| Tensor::new(name(at), DataType::Bytes, vec![1; TENSOR_RANK_MAX]).unwrap();
    let layout = TensorLayout::new((0..TENSORS_MAX).map(tensor).collect()).unwrap();
    assert_eq!(layout.header().len(), TENSORS_HEADER_BYTES_MAX);
}

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let shape = prop::collection::vec(0..5_u64, 0..4);
    let datatype = prop::sample::select(DataType::ALL.to_vec());
    let one = ("[a-z]{1,3}", datatype, shape);
    let one = one.prop_map(|(name, datatype, shape)| Tensor::new(name, datatype, shape).unwrap());
    prop::collection::vec(one, 0..6).prop_map(|mut tensors| {
        let mut names = BTreeSet::new();
        tensors.retain(|tensor| names.insert(tensor.name().to_owned()));
        tensors
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_set_comes_back(tensors in tensors(), fill in 0..100_u8) {
        let layout = TensorLayout::new(tensors).unwrap();
        let data: Vec<Vec<u8>> = (fill..).zip(layout.tensors())
            .map(|(fill, tensor)| vec![fill; tensor.bytes()]).collect();
        let bytes = layout.pack(&data.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), layout);
        let packed = Packed::read(&bytes).unwrap();
        for (at, data) in data.iter().enumerate() {
            prop_assert_eq!(packed.data(at), &data[..]);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..7_u8) {
        drop(read(&bytes));
        let marked = [&MAGIC[..], &[count, 0, 0, 0], &bytes].concat();
        drop(read(&marked));
    }
}

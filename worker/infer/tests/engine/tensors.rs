//! The device on which the tests of inference run, and their tensors.
//!
//! The tests of the worker share this file.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use gridpool_infer::library::Places;
use gridpool_infer::{LibraryError, Runtime};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::{DataType, Packed, Tensor, TensorLayout};

/// If it is set, tests fail on a machine without ONNX Runtime.
pub(crate) const REQUIRED: &str = "GRIDPOOL_REQUIRE_ONNXRUNTIME";
/// `gpu` runs the tests on a GPU.
const DEVICE: &str = "GRIDPOOL_INFER_DEVICE";
/// How long an answer may take on the slowest test machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Threads of the CPU's part of models.
const THREADS: usize = 2;

/// The one ONNX Runtime of this process.
static RUNTIME: LazyLock<Option<Runtime>> =
    LazyLock::new(|| match Runtime::find(&Places::here(None), THREADS) {
        Err(error @ LibraryError::NotFound { .. }) => {
            assert!(env::var_os(REQUIRED).is_none(), "{error}");
            None
        }
        found => Some(found.expect("a library that was found")),
    });

/// ONNX Runtime, or `None` if it is missing and not required.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
pub(crate) fn runtime() -> Option<Runtime> {
    if RUNTIME.is_none() {
        println!("skipped: no ONNX Runtime (pip install onnxruntime)");
    }
    RUNTIME.clone()
}

/// The device of the tests.
pub(crate) fn device() -> DeviceKind {
    let named = env::var(DEVICE).unwrap_or_else(|_| "cpu".to_owned());
    assert!(["cpu", "gpu"].contains(&named.as_str()), "{DEVICE}={named}: write cpu or gpu");
    if named == "gpu" { DeviceKind::Gpu } else { DeviceKind::Cpu }
}

/// A model of `tests/data/models`.
pub(crate) fn model(name: &str) -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = folders.map(|folder| folder.join("tests/data/models"));
    let folder = folders.find(|folder| folder.is_dir()).expect("it lies in the repository");
    folder.join(format!("{name}.onnx"))
}

/// A tensor with its data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Full {
    pub(crate) name: String,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn full(name: &str, datatype: DataType, shape: &[u64], bytes: &[u8]) -> Full {
    Full { name: name.to_owned(), datatype, shape: shape.to_vec(), bytes: bytes.to_vec() }
}

pub(crate) fn fp32(name: &str, shape: &[u64], numbers: &[f32]) -> Full {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    full(name, DataType::Fp32, shape, &bytes)
}

pub(crate) fn int64(name: &str, shape: &[u64], numbers: &[i64]) -> Full {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    full(name, DataType::Int64, shape, &bytes)
}

/// Numbers between -1 and 1 that look irregular, and are equal for equal seeds.
pub(crate) fn irregular(seed: u64, count: usize) -> Vec<f32> {
    let number = |at: u64| {
        let mixed = (seed * 1_000_003 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        f32::from(u16::try_from(mixed & 0xffff).expect("16 bits")) / 32_768.0 - 1.0
    };
    (0..count as u64).map(number).collect()
}

pub(crate) fn pack(tensors: &[Full]) -> Vec<u8> {
    let new = |full: &Full| {
        Tensor::new(&full.name, full.datatype, full.shape.clone())?.with_data(&full.bytes)
    };
    let layout = tensors.iter().map(new).collect::<Result<Vec<_>, _>>().and_then(TensorLayout::new);
    let data: Vec<_> = tensors.iter().map(|full| &full.bytes[..]).collect();
    layout.and_then(|layout| layout.pack(&data)).expect("a small set of tensors")
}

pub(crate) fn unpack(bytes: &[u8]) -> Vec<Full> {
    let packed = Packed::read(bytes).expect("the engine packs what can be read");
    let tensors = packed.layout().tensors().iter().enumerate();
    tensors.map(|(at, t)| full(t.name(), t.datatype(), t.shape(), packed.data(at))).collect()
}

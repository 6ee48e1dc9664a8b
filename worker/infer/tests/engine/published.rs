//! Real architectures with their published outputs: the `light` models of the package `onnx`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use gridpool_infer::ModelOptions;
use gridpool_infer::library::package_folders;

use crate::harness::{ask, engine};
use crate::tensors::{REQUIRED, fp32};

/// The models' folder in the package.
const IN_PACKAGE: &str = "onnx/backend/test/data/light";
/// Names, with the relative and absolute tolerance that `onnx` itself allows a backend
/// (`onnx/backend/test/case/model/__init__.py`).
const MODELS: [(&str, f32, f32); 9] = [
    ("bvlc_alexnet", 1e-3, 1e-7),
    ("densenet121", 2e-3, 1e-7),
    ("inception_v1", 1e-3, 1e-7),
    ("inception_v2", 1e-3, 1e-7),
    ("resnet50", 1e-3, 1e-7),
    ("shufflenet", 1e-3, 1e-7),
    ("squeezenet", 1e-3, 1e-7),
    ("vgg19", 1e-3, 1e-7),
    ("zfnet512", 1e-3, 1e-7),
];

/// The folder of the models, or `None` if it is missing and not required.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
fn folder() -> Option<PathBuf> {
    let packages = package_folders(&|name| env::var_os(name));
    let named = env::var_os("GRIDPOOL_ONNX_LIGHT").map(PathBuf::from);
    let found = packages.into_iter().map(|folder| folder.join(IN_PACKAGE));
    let found = named.into_iter().chain(found).find(|folder| folder.is_dir());
    if found.is_none() {
        assert!(env::var_os(REQUIRED).is_none(), "no {IN_PACKAGE}: pip install onnx");
        println!("skipped: no {IN_PACKAGE} (pip install onnx)");
    }
    found
}

/// A number of Protocol Buffers: seven bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields with bytes of a Protocol Buffers message: numbers and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).expect("a length");
                let (field, rest) = bytes.split_at(length);
                fields.push((key >> 3, field));
                bytes = rest;
            }
            other => assert_eq!(other, 2, "a wire type that tensors do not have"),
        }
    }
    fields
}

/// The numbers of a `TensorProto` of floats: raw, or packed.
fn numbers(path: &Path) -> Vec<f32> {
    const FLOAT_DATA: u64 = 4;
    const RAW_DATA: u64 = 9;
    let bytes = fs::read(path).expect("a published output");
    let data = fields(&bytes).into_iter().filter(|field| [FLOAT_DATA, RAW_DATA].contains(&field.0));
    let data: Vec<u8> = data.flat_map(|field| field.1.to_vec()).collect();
    data.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

#[test]
fn published_architectures_give_their_published_outputs() {
    let (Some(engine), Some(folder)) = (engine(), folder()) else { return };
    for (name, relative, absolute) in MODELS {
        let path = folder.join(format!("light_{name}.onnx"));
        let info = engine.load(name, &path, &ModelOptions::default()).expect(name);
        let input = &info.inputs[0];
        let shape: Vec<u64> = input.shape.iter().map(|&side| side.unsigned_abs()).collect();
        let count = shape.iter().product::<u64>();
        // `onnx` makes them so: np.arange(n) / n in double precision, then rounded to single.
        #[expect(clippy::cast_possible_truncation, reason = "it is what NumPy does")]
        let ramp: Vec<f32> = (0..count).map(|at| (at as f64 / count as f64) as f32).collect();
        let got = ask(&engine, name, &[fp32(&input.name, &shape, &ramp)]);
        let want = numbers(&folder.join(format!("light_{name}_output_0.pb")));
        let got = got[0].fp32();
        assert!(want.len() >= 1_000 && got.len() == want.len(), "{name}: {}", got.len());
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            let allowed = absolute + relative * want.abs();
            assert!((got - want).abs() <= allowed, "{name} {at}: {got} instead of {want}");
        }
        assert!(engine.unload(name));
    }
}

//! Loads the CUDA libraries of PyPI's wheels. `pip install onnxruntime-gpu[cuda,cudnn]` puts them beside
//! ONNX Runtime, where no loader looks. They are loaded before the provider, so that it finds them.

use std::fs;
use std::path::{Path, PathBuf};

/// The libraries that ONNX Runtime's CUDA provider needs, in the order they need each other.
const NEEDED: [&str; 8] = [
    "libcudart",
    "libnvJitLink",
    "libcublasLt",
    "libcublas",
    "libnvrtc",
    "libcurand",
    "libcufft",
    "libcudnn",
];
/// The folder of NVIDIA's wheels, beside that of ONNX Runtime.
const FOLDER: &str = "nvidia";

/// Loads the libraries beside `library`, if there are any. The provider reports what is still missing.
pub(super) fn preload(library: &Path) {
    for path in beside(library) {
        match ort::util::preload_dylib(&path) {
            Ok(()) => tracing::debug!(path = %path.display(), "preloaded"),
            Err(error) => tracing::warn!(path = %path.display(), %error, "not preloaded"),
        }
    }
}

/// NVIDIA's libraries beside `library`, by their layout in a folder of packages:
/// `PACKAGES/onnxruntime/capi/libonnxruntime.so` and `PACKAGES/nvidia/*/lib`.
fn beside(library: &Path) -> Vec<PathBuf> {
    let Some(packages) = library.ancestors().nth(3) else { return Vec::new() };
    let listed = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let folders = listed(&packages.join(FOLDER)).into_iter().map(|folder| folder.join("lib"));
    let files: Vec<_> = folders.flat_map(|folder| listed(&folder)).collect();
    let of = |name: &'static str| {
        let is_it = move |path: &&PathBuf| {
            let file = path.file_name().and_then(|file| file.to_str());
            file.and_then(|file| file.strip_prefix(name))
                .is_some_and(|rest| rest.starts_with(".so"))
        };
        files.iter().filter(is_it).cloned().collect::<Vec<_>>()
    };
    NEEDED.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_beside_onnx_runtime_are_found_in_the_order_they_need_each_other() {
        let packages = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = packages.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let library = file("onnxruntime/capi/libonnxruntime.so.1.31.1");
        assert!(beside(&library).is_empty());
        let cudnn = file("nvidia/cudnn/lib/libcudnn.so.9");
        file("nvidia/cudnn/lib/libcudnn_ops.so.9");
        let cublas = file("nvidia/cu13/lib/libcublas.so.13");
        let lt = file("nvidia/cu13/lib/libcublasLt.so.13");
        let runtime = file("nvidia/cu13/lib/libcudart.so.13");
        assert_eq!(beside(&library), [runtime, lt, cublas, cudnn]);
        assert!(beside(Path::new("lib.so")).is_empty());
    }
}

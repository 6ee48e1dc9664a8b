//! ONNX Runtime: which library a pool would use here, why not another, and which of its providers load with
//! all the libraries that they need.

use std::path::Path;

use gridpool_infer::{
    LibraryError, LoadError, Places, Provider, Runtime, Surveyed, has_provider, try_provider,
};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::diagnose::{Check, Group};

const GROUP: Group = Group::Environment;
const NAME: &str = "onnxruntime";
/// TensorRT's library, which its provider needs to load.
const TENSORRT: &str = "libnvinfer.so.10";
/// The loader's error for a needed library that is missing.
const CANNOT_OPEN: &str = ": cannot open shared object file";

/// Checks the library and its providers. If this machine has a GPU, the CUDA provider must load.
pub(super) fn run(named: Option<&Path>, has_gpu: bool, sees_gpu: bool) -> Vec<Check> {
    let seen = match Runtime::survey(&Places::here(named)) {
        Ok(seen) => seen,
        Err(error) => return vec![none(&error)],
    };
    let passed_over = passed_over(&seen);
    let Some((path, Ok(version))) = seen.last() else {
        return vec![unusable(&seen)];
    };
    match Runtime::open(path, 1) {
        Err(error) => {
            let says = Chain(&error).to_string();
            vec![Check::fail(GROUP, NAME, says, REINSTALL).fact("path", path.display())]
        }
        Ok(runtime) => {
            let others = if passed_over.is_empty() {
                String::new()
            } else {
                format!("; passed over: {passed_over}")
            };
            let says = format!("ONNX Runtime {version} at {}{others}", path.display());
            let check = Check::pass(GROUP, NAME, says)
                .fact("path", path.display())
                .fact("version", version)
                .fact("passed over", passed_over);
            let mut checks = vec![check];
            for one in [Provider::Cpu, Provider::Cuda, Provider::TensorRt] {
                let tried = has_provider(&runtime, one).then(|| try_provider(&runtime, one));
                checks.push(provider(one, tried, has_gpu, sees_gpu));
            }
            checks
        }
    }
}

const REINSTALL: &str = "`pip install --upgrade onnxruntime` (or `onnxruntime-gpu` for a GPU), or name \
                         another one with --onnxruntime";

/// The check if there is no library: a skip, unless the user has named one.
fn none(error: &LibraryError) -> Check {
    let says = error.to_string();
    match error {
        LibraryError::NotFound { looked_in } => {
            let says = "no ONNX Runtime on this machine: a pool serves programs and no models";
            let next =
                "to serve models, `pip install onnxruntime` (or `onnxruntime-gpu` for a GPU)";
            let looked: Vec<_> = looked_in.iter().map(|path| path.display().to_string()).collect();
            Check::skip(GROUP, NAME, says, next).fact("looked in", looked.join(", "))
        }
        LibraryError::Missing { from, .. } => {
            let next = format!(
                "set {from} to the file libonnxruntime.so of ONNX Runtime, or leave it out"
            );
            Check::fail(GROUP, NAME, says, next)
        }
        LibraryError::Environment { .. }
        | LibraryError::Load { .. }
        | LibraryError::Second { .. }
        | LibraryError::TooOld { .. } => Check::fail(GROUP, NAME, says, REINSTALL),
    }
}

/// The libraries that exist and are not usable, each with the reason.
fn passed_over(seen: &[Surveyed]) -> String {
    let errors = seen.iter().filter_map(|(_, version)| version.as_ref().err());
    errors.map(LibraryError::to_string).collect::<Vec<_>>().join("; ")
}

/// The check if no library is usable.
fn unusable(seen: &[Surveyed]) -> Check {
    let paths: Vec<_> = seen.iter().map(|(path, _)| path.display().to_string()).collect();
    Check::fail(GROUP, NAME, passed_over(seen), REINSTALL).fact("path", paths.join(", "))
}

/// Checks that a provider loads; `tried` is `None` if ONNX Runtime was built without it.
fn provider(
    provider: Provider,
    tried: Option<Result<(), LoadError>>,
    has_gpu: bool,
    sees_gpu: bool,
) -> Check {
    let name = format!("provider {provider}");
    let runtime_name = provider.runtime_name();
    let check = match tried {
        Some(Ok(())) => {
            let says = format!("{runtime_name} loads with all that it needs");
            Check::pass(GROUP, name, says)
        }
        None => {
            let says = format!("this ONNX Runtime was built without {runtime_name}");
            let next = match provider {
                Provider::Cpu => REINSTALL.to_owned(),
                Provider::Cuda | Provider::TensorRt => {
                    "for models on a GPU, `pip install onnxruntime-gpu[cuda,cudnn]`".to_owned()
                }
            };
            Check::skip(GROUP, name, says, next)
        }
        Some(Err(error)) => {
            let why = Chain(&error).to_string();
            let is_tensorrt = matches!(error, LoadError::TensorRtMissing);
            let missing =
                if is_tensorrt { Some(TENSORRT.to_owned()) } else { missing_library(&why) };
            let says = match &missing {
                Some(library) => {
                    format!("{runtime_name} needs {library}, which is not on this machine")
                }
                None => format!("{runtime_name} does not load: {why}"),
            };
            let next = advice(provider);
            // Only models that ask for TensorRT use it.
            let is_needed = has_gpu && provider != Provider::TensorRt;
            let check = if is_needed {
                Check::fail(GROUP, name, says, next)
            } else {
                Check::skip(GROUP, name, says, next)
            };
            check.fact("missing", missing.unwrap_or_default()).fact("said", why)
        }
    };
    check.fact("sees a gpu", sees_gpu)
}

fn advice(provider: Provider) -> &'static str {
    match provider {
        Provider::TensorRt => {
            "`pip install tensorrt` (TensorRT 10) and have its folder in LD_LIBRARY_PATH, or use `cuda`"
        }
        Provider::Cuda => {
            "`pip install onnxruntime-gpu[cuda,cudnn]`, or have the folders of the CUDA and cuDNN that this \
             ONNX Runtime was built for in LD_LIBRARY_PATH"
        }
        Provider::Cpu => REINSTALL,
    }
}

/// The missing library that a loader's error names.
fn missing_library(why: &str) -> Option<String> {
    let (before, _) = why.split_once(CANNOT_OPEN)?;
    let name = before.rsplit([' ', '\n']).next()?;
    (name.contains(".so")).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn the_library_that_is_missing_is_named() {
        let why = "CUDAExecutionProvider: Failed to load library libonnxruntime_providers_cuda.so with \
                   error: libcublasLt.so.12: cannot open shared object file: No such file or directory";
        assert_eq!(missing_library(why).as_deref(), Some("libcublasLt.so.12"));
        assert_eq!(missing_library("no such luck"), None);
    }

    #[test]
    fn a_provider_that_does_not_load_fails_on_a_machine_with_a_gpu() {
        let tried = || Some(Err(LoadError::TensorRtMissing));
        assert_eq!(provider(Provider::Cuda, tried(), true, true).outcome, Outcome::Fail);
        assert_eq!(provider(Provider::Cuda, tried(), false, false).outcome, Outcome::Skip);
        let tensorrt = provider(Provider::TensorRt, tried(), true, true);
        assert_eq!(tensorrt.outcome, Outcome::Skip, "no model has asked for it");
        assert!(tensorrt.next.contains("pip install tensorrt"), "{}", tensorrt.next);
        assert_eq!(provider(Provider::Cuda, None, false, false).outcome, Outcome::Skip);
        assert_eq!(provider(Provider::Cpu, Some(Ok(())), false, false).outcome, Outcome::Pass);
    }

    #[test]
    fn an_absent_runtime_is_a_skip_and_one_that_was_named_and_is_absent_a_failure() {
        let absent = none(&LibraryError::NotFound { looked_in: vec!["/x".into()] });
        assert_eq!((absent.outcome, absent.facts["looked in"].as_str()), (Outcome::Skip, "/x"));
        let from = "--onnxruntime";
        let named = none(&LibraryError::Missing { path: "/x".into(), from });
        assert_eq!(named.outcome, Outcome::Fail);
        assert!(named.next.starts_with("set --onnxruntime to"), "{}", named.next);
    }

    #[test]
    fn unusable_libraries_are_named_with_their_reasons() {
        let load = |reason: &str| {
            let path = PathBuf::from("/x/libonnxruntime.so");
            (path.clone(), Err(LibraryError::Load { path, reason: reason.to_owned() }))
        };
        let old = (
            PathBuf::from("/y"),
            Err(LibraryError::TooOld { path: "/y".into(), version: "1.9.0".to_owned() }),
        );
        let check = unusable(&[load("it has no OrtGetApiBase"), old]);
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.says.contains("is not a usable ONNX Runtime: it has no OrtGetApiBase"));
        assert!(check.says.contains("ONNX Runtime 1.9.0 at /y is too old"), "{}", check.says);
    }
}

//! What the supervisor passes to the processes that it starts, and what it withholds: environment variables, by
//! an allow-list, and the flags by which a process confines itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use gridpool_ipc::sandbox::trespass;
use gridpool_protocol::sandbox::SandboxMode;

use crate::traces::HEADERS_VARIABLE;

/// The variables that every process inherits. The book lists them: `docs/src/guide/security.md`.
const EVERY: [&str; 17] = [
    // The log.
    "GRIDPOOL_LOG",
    "GRIDPOOL_LOG_FORMAT",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "TERM",
    "RUST_BACKTRACE",
    // Texts of the system.
    "LANG",
    "LC_ALL",
    "LC_MESSAGES",
    "TZ",
    // The program's loader and allocator.
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_BIND_NOW",
    "GLIBC_TUNABLES",
    "LLVM_PROFILE_FILE",
];
/// Beginnings of names that every process inherits: the C library's allocator, sanitizers and valgrind, our tests.
const EVERY_PREFIX: [&str; 8] =
    ["MALLOC_", "ASAN_", "LSAN_", "MSAN_", "TSAN_", "UBSAN_", "VALGRIND_", "GRIDPOOL_TEST_"];
/// What a process with the NVIDIA driver inherits as well.
const DRIVER_PREFIX: [&str; 3] = ["CUDA_", "NVIDIA_", "STUB_CUDA_"];
/// What a worker inherits as well. The driver's cache of kernels is in `HOME`; ONNX Runtime is looked for in the
/// Python environments that the others name.
const WORKER: [&str; 6] =
    ["HOME", "PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "CUBLAS_WORKSPACE_CONFIG"];
/// Libraries of workers: ONNX Runtime, `OpenMP`, MKL, `OpenBLAS`, cuDNN, `TensorRT`; and the stub of our tests.
const WORKER_PREFIX: [&str; 9] = [
    "ORT_",
    "OMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "CUBLAS_",
    "CUDNN_",
    "TENSORRT_",
    "GRIDPOOL_STUB",
];
/// A name with one of these words is a secret, whatever its beginning: `NVIDIA_API_KEY`.
const SECRET: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// How the processes of a pool are confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    pub(super) mode: SandboxMode,
    /// Files and folders that workers may write.
    writes: Vec<PathBuf>,
    /// Whether processes of the same user may look into workers.
    is_inspectable: bool,
}

/// What a process is, and so what it inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inherits {
    Gateway,
    Monitor,
    Worker,
}

impl Confinement {
    /// Workers may write `writes`.
    #[must_use]
    pub fn new(mode: SandboxMode, writes: Vec<PathBuf>) -> Self {
        Self { mode, writes, is_inspectable: env::var_os(trespass::INSPECTABLE).is_some() }
    }

    /// The same, whose workers can be looked into, as `gridpool diagnose` does.
    #[must_use]
    pub fn inspectable(self) -> Self {
        Self { is_inspectable: true, ..self }
    }

    /// Withholds the variables that the process does not need. Call it before others are set.
    pub(super) fn restrict(&self, command: &mut Command, process: Inherits) {
        // The tracer is handed what is in it; no other process needs it, whatever the mode.
        command.env_remove(HEADERS_VARIABLE);
        if self.mode == SandboxMode::Off {
            return;
        }
        let inherited = env::vars_os().filter(|(name, _)| process.inherits(name));
        command.env_clear().envs(inherited);
    }

    /// The flags of a worker and of the monitor.
    pub(super) fn worker_arguments(&self) -> Vec<OsString> {
        let mut arguments = vec!["--sandbox".into(), self.mode.name().into()];
        for path in &self.writes {
            arguments.extend(["--sandbox-write".into(), path.into()]);
        }
        if self.is_inspectable {
            arguments.push("--inspectable".into());
        }
        arguments
    }
}

impl Inherits {
    fn inherits(self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        let (names, prefixes): (&[&str], [&[&str]; 2]) = match self {
            Self::Gateway => (&[], [&[], &[]]),
            Self::Monitor => (&[], [&DRIVER_PREFIX, &[]]),
            Self::Worker => (&WORKER, [&DRIVER_PREFIX, &WORKER_PREFIX]),
        };
        let mut prefixes = EVERY_PREFIX.iter().chain(prefixes.into_iter().flatten());
        let is_secret = SECRET.iter().any(|word| name.contains(word));
        EVERY.contains(&name)
            || names.contains(&name)
            || (!is_secret && prefixes.any(|prefix| name.starts_with(prefix)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_inherits_what_it_needs_and_no_secret() {
        let inherits = |process: Inherits, name: &str| process.inherits(OsStr::new(name));
        for process in [Inherits::Gateway, Inherits::Monitor, Inherits::Worker] {
            assert!(inherits(process, "GRIDPOOL_LOG") && inherits(process, "LD_LIBRARY_PATH"));
            for secret in ["AWS_SECRET_ACCESS_KEY", "NVIDIA_API_KEY", "CUDA_TOKEN", "SSH_AUTH_SOCK"]
            {
                assert!(!inherits(process, secret), "{process:?} {secret}");
            }
            assert!(!inherits(process, "GRIDPOOL_HTTP"), "{process:?}");
        }
        assert!(inherits(Inherits::Worker, "ORT_DYLIB_PATH") && inherits(Inherits::Worker, "HOME"));
        assert!(inherits(Inherits::Monitor, "NVIDIA_VISIBLE_DEVICES"));
        assert!(!inherits(Inherits::Monitor, "HOME") && !inherits(Inherits::Gateway, "CUDA_PATH"));
    }
}

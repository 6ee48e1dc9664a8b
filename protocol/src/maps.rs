//! Which CUDA libraries are mapped into a process, by what `/proc/PID/maps` says: the supervisor may hold
//! none, and a worker none that is foreign to its role.

use std::fs;
use std::io;

/// Libraries that bring a CUDA runtime of their own into a process. The driver's `libcuda` is not
/// among them: it is what a GPU worker opens itself.
const FOREIGN: [&str; 12] = [
    "libcublas",
    "libcudart",
    "libcudnn",
    "libcufft",
    "libcupti",
    "libcusolver",
    "libnccl",
    "libnvinfer",
    "libnvrtc",
    "libonnxruntime",
    "libtensorflow",
    "libtorch",
];

/// What the driver's library is called.
const DRIVER: &str = "libcuda.";

/// What is mapped into a process.
///
/// # Errors
/// The system's: the process is gone, or another user's.
pub fn of(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/maps"))
}

/// The same of this process.
///
/// # Errors
/// The system's.
pub fn own() -> io::Result<String> {
    fs::read_to_string("/proc/self/maps")
}

/// The first mapped file whose name is that of a library with a CUDA runtime of its own.
#[must_use]
pub fn foreign_library(maps: &str) -> Option<&str> {
    files(maps).find(|path| FOREIGN.iter().any(|library| file_name(path).starts_with(library)))
}

/// The driver's library, if it is mapped.
#[must_use]
pub fn driver_library(maps: &str) -> Option<&str> {
    files(maps).find(|path| file_name(path).starts_with(DRIVER))
}

/// Any of them: what a supervisor may not hold.
#[must_use]
pub fn cuda_library(maps: &str) -> Option<&str> {
    foreign_library(maps).or_else(|| driver_library(maps))
}

/// Every mapped file, once for each of its mappings.
pub fn files(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]))
}

/// The name of a file without its folders.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str) -> String {
        format!("7f00-7f01 r-xp 00000000 08:01 42      {path}\n")
    }

    #[test]
    fn a_foreign_library_is_found_by_its_file_name() {
        let clean = line("/usr/lib/libcuda.so.1") + &line("/opt/libtorch_is_a_folder/libfine.so");
        assert_eq!(foreign_library(&clean), None);
        let dirty = clean + &line("/opt/cuda/lib64/libcudart.so.12");
        assert_eq!(foreign_library(&dirty), Some("/opt/cuda/lib64/libcudart.so.12"));
        assert_eq!(foreign_library(&own().unwrap()), None);
    }

    #[test]
    fn the_drivers_library_is_not_the_runtimes() {
        assert_eq!(driver_library(&line("/opt/libcudart.so.12")), None);
        let driver = "/usr/lib/libcuda.so.580.1";
        assert_eq!(driver_library(&line(driver)), Some(driver));
        assert_eq!(cuda_library(&line(driver)), Some(driver));
        assert_eq!(driver_library(&of(std::process::id()).unwrap()), None);
    }
}

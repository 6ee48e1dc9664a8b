//! The CUDA libraries in a process, from `/proc/PID/maps`. The supervisor may have none, and a worker only
//! those of its role.

use std::fs;
use std::io;

/// Libraries that bring their own CUDA runtime into a process. The driver's `libcuda` is not one of them: a
/// GPU worker opens it itself.
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

/// Start of the driver library's file name.
const DRIVER: &str = "libcuda.";

/// Reads the mappings of a process.
///
/// # Errors
/// The system's error: the process is gone, or belongs to another user.
pub fn of(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/maps"))
}

/// Reads the mappings of this process.
///
/// # Errors
/// The system's error.
pub fn own() -> io::Result<String> {
    fs::read_to_string("/proc/self/maps")
}

/// The first mapped library with its own CUDA runtime.
#[must_use]
pub fn foreign_library(maps: &str) -> Option<&str> {
    files(maps).find(|path| FOREIGN.iter().any(|library| file_name(path).starts_with(library)))
}

/// The driver's library, if it is mapped.
#[must_use]
pub fn driver_library(maps: &str) -> Option<&str> {
    files(maps).find(|path| file_name(path).starts_with(DRIVER))
}

/// The first mapped CUDA library of any kind. A supervisor must have none.
#[must_use]
pub fn cuda_library(maps: &str) -> Option<&str> {
    foreign_library(maps).or_else(|| driver_library(maps))
}

/// The file of each mapping that has one.
pub fn files(maps: &str) -> impl Iterator<Item = &str> {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]))
}

/// The last component of a path.
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

//! libcuda: whether it is there and loads, whether it accepts the kernels, and the GPU that this process
//! sees.

use std::env;
use std::path::PathBuf;

use gridpool_device::cuda::{DeviceFacts, Library};
use gridpool_device::fault::{Fault, cuda};
use gridpool_kernels::ptx;
use gridpool_protocol::diagnose::{Check, Group};

use super::{IN_A_CONTAINER, INSTALL_DRIVER};

/// File names of libcuda.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];
/// Folders of libcuda in distributions, containers and WSL.
const FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/cuda/compat",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Checks libcuda, the kernels, and the GPU that was asked for.
pub(super) fn run(uuid: Option<&str>, is_wanted: bool) -> Vec<Check> {
    let library = match Library::load() {
        Ok(library) => library,
        Err(fault) => return missing(&fault, uuid, is_wanted),
    };
    let mut checks = vec![found(&library), kernels(library.version)];
    if let Some(uuid) = uuid {
        checks.push(gpu(uuid, library.only_device()));
    }
    checks
}

/// The checks if libcuda is missing or not usable.
fn missing(fault: &Fault, uuid: Option<&str>, is_wanted: bool) -> Vec<Check> {
    let libcuda = if *fault == Fault::NoDriver {
        absent(unloadable(), is_wanted)
    } else {
        let path = path();
        let says = format!("libcuda at {path} cannot be used: {fault}");
        let next = format!("{}: {IN_A_CONTAINER}", install());
        Check::fail(Group::Environment, "libcuda", says, next).fact("path", path)
    };
    let not_tried = |name: &str| {
        let says = "not tried: there is no libcuda that can be used";
        Check::skip(Group::Environment, name, says, "see libcuda first")
    };
    let mut checks = vec![libcuda, not_tried("kernels")];
    checks.extend(uuid.map(|_| not_tried("gpu")));
    checks
}

/// The check if no libcuda loads. `unloadable` is a file that exists, and why it does not load.
fn absent(unloadable: Option<(PathBuf, String)>, is_wanted: bool) -> Check {
    let group = Group::Environment;
    if let Some((path, why)) = unloadable {
        let says = format!("{} is there and cannot be loaded: {why}", path.display());
        let next = format!("install the driver's libraries again; {IN_A_CONTAINER}");
        return Check::fail(group, "libcuda", says, next).fact("path", path.display());
    }
    if is_wanted {
        let says = "there is a GPU or its kernel module here, and no libcuda.so.1 in any folder that \
                    loaders look in";
        return Check::fail(group, "libcuda", says, IN_A_CONTAINER);
    }
    let says = "no NVIDIA driver on this machine: a pool has CPU devices only";
    Check::skip(group, "libcuda", says, install())
}

fn install() -> String {
    format!("{INSTALL_DRIVER} {} or newer", ptx::oldest_release().driver)
}

/// A libcuda that exists as a file, and the loader's error.
fn unloadable() -> Option<(PathBuf, String)> {
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&named).chain(FOLDERS.map(PathBuf::from));
    let files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let mut files = files.filter(|file| file.exists());
    files.find_map(|file| {
        #[expect(unsafe_code, reason = "loading a library runs code of it")]
        // SAFETY: it bears the name of the driver's library, which may be loaded at any time.
        let loaded = unsafe { libloading::Library::new(&file) };
        loaded.err().map(|error| (file, error.to_string()))
    })
}

fn path() -> String {
    let path = Library::path();
    path.map_or_else(|| "an unknown path".to_owned(), |path| path.display().to_string())
}

fn found(library: &Library) -> Check {
    let (path, version) = (path(), cuda(library.version));
    let says = format!("libcuda is at {path} and offers CUDA {version}");
    Check::pass(Group::Environment, "libcuda", says).fact("path", path).fact("cuda", version)
}

/// Checks that a driver with this CUDA version loads the kernels.
fn kernels(version: u32) -> Check {
    let (isa, target, needs) = (ptx::isa(), ptx::target(), ptx::oldest_release());
    let text = format!("PTX {}.{} for sm_{target}", isa.0, isa.1);
    let needed = format!("needs CUDA {} (driver {})", cuda(needs.cuda), needs.driver);
    let says =
        format!("the kernels are {text}, which {needed}; the driver offers {}", cuda(version));
    let check = if version >= needs.cuda {
        Check::pass(Group::Environment, "kernels", says)
    } else {
        let next = format!("install the NVIDIA driver {} or newer", needs.driver);
        Check::fail(Group::Environment, "kernels", says, next)
    };
    check.fact("ptx", text).fact("needs cuda", cuda(needs.cuda)).fact("cuda", cuda(version))
}

/// Checks that this process sees the GPU that was asked for.
fn gpu(uuid: &str, device: Result<DeviceFacts, Fault>) -> Check {
    let group = Group::Environment;
    let check = match device {
        Err(fault) => {
            let says = format!("libcuda does not show the GPU {uuid}: {fault}");
            let next = "run `nvidia-smi -L`: if the GPU is not listed, or the driver's versions differ, \
                        load the driver again or reboot; if it is, look at `dmesg` for an Xid";
            Check::fail(group, "gpu", says, next)
        }
        Ok(device) if device.uuid != uuid => {
            let says = format!("libcuda shows {} instead of {uuid}", device.uuid);
            Check::fail(group, "gpu", says, "do not set CUDA_VISIBLE_DEVICES by hand")
        }
        Ok(DeviceFacts { name, capability: (major, minor), .. }) => {
            let least = ptx::target();
            let has = format!("{name} has compute capability {major}.{minor}");
            let check = if 10 * major + minor < least {
                let (major, minor) = (least / 10, least % 10);
                let says = format!("{has}; the kernels are for {major}.{minor} and up");
                Check::fail(group, "gpu", says, "leave it out of the pool's devices")
            } else {
                Check::pass(group, "gpu", has)
            };
            check.fact("name", name).fact("capability", format!("{major}.{minor}"))
        }
    };
    check.fact("uuid", uuid)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_driver_that_is_too_old_for_the_kernels_names_the_needed_version() {
        let old = kernels(11_080);
        assert_eq!(old.outcome, Outcome::Fail);
        assert!(old.says.contains("needs CUDA 12.0 (driver 525)"), "{}", old.says);
        assert!(old.says.ends_with("the driver offers 11.8"), "{}", old.says);
        assert_eq!(kernels(12_000).outcome, Outcome::Pass);
        assert_eq!(kernels(13_000).outcome, Outcome::Pass);
    }

    #[test]
    fn no_driver_is_a_skip_unless_a_gpu_is_expected() {
        let skip = absent(None, false);
        assert_eq!(skip.outcome, Outcome::Skip);
        assert!(skip.next.ends_with("driver 525 or newer"), "{}", skip.next);
        assert_eq!(absent(None, true).outcome, Outcome::Fail);
        let broken = absent(Some((PathBuf::from("/x/libcuda.so.1"), "bad ELF".to_owned())), false);
        assert_eq!(broken.outcome, Outcome::Fail);
        assert_eq!(broken.says, "/x/libcuda.so.1 is there and cannot be loaded: bad ELF");
    }

    #[test]
    fn a_library_without_a_call_fails_and_later_checks_are_skipped() {
        let fault = Fault::MissingSymbol { symbol: "cuInit" };
        let checks = missing(&fault, Some("GPU-x"), true);
        let outcomes: Vec<_> = checks.iter().map(|check| check.outcome).collect();
        assert_eq!(outcomes, [Outcome::Fail, Outcome::Skip, Outcome::Skip]);
        assert!(checks[0].says.contains("libcuda has no cuInit"), "{}", checks[0].says);
    }

    #[test]
    fn a_gpu_is_what_was_asked_for_and_new_enough() {
        let facts = |capability| {
            let (name, uuid) = ("a GPU".to_owned(), "GPU-1".to_owned());
            Ok(DeviceFacts { name, uuid, capability })
        };
        assert_eq!(gpu("GPU-1", facts((9, 0))).outcome, Outcome::Pass);
        let other = gpu("GPU-2", facts((9, 0)));
        assert!(other.says.contains("shows GPU-1 instead of GPU-2"), "{}", other.says);
        let old = gpu("GPU-1", facts((5, 2)));
        assert!(old.says.ends_with("5.2; the kernels are for 6.0 and up"), "{}", old.says);
        let lost = gpu("GPU-1", Err(Fault::Cuda { call: "cuInit", code: 803 }));
        assert!(lost.says.contains("cuInit"), "{}", lost.says);
        for check in [other, old, lost] {
            assert_eq!(check.outcome, Outcome::Fail);
            assert!(!check.next.is_empty());
        }
    }
}

//! What a user types or has in a file: inputs of the command line, the config file, names.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use gridpool::cli::input::{Stdin, Unit, read};
use gridpool::config::{self, Settings, parse_devices};
use gridpool_protocol::chaos::ChaosFault;
use gridpool_protocol::fault::Overrides;
use gridpool_protocol::ids::{ContentHash, DeviceId, WorkerId};
use gridpool_protocol::limits::{COLOR_MAX, GRID_CELLS_MAX};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// JSON on standard input.
pub(crate) fn input_json(bytes: &[u8]) {
    input(bytes);
}

/// A `.npy` array on standard input: what comes after the magic.
pub(crate) fn input_npy(bytes: &[u8]) {
    let mut array = b"\x93NUMPY".to_vec();
    array.extend(bytes);
    input(&array);
}

fn input(mut bytes: &[u8]) {
    let stdin = Stdin { is_terminal: false, reader: &mut bytes };
    match read(&[PathBuf::from("-")], stdin) {
        Ok(inputs) => {
            assert!(!inputs.is_empty());
            for input in &inputs {
                for grid in input.grids() {
                    assert_eq!(grid.h() * grid.w(), grid.cells().len());
                    assert!((1..=GRID_CELLS_MAX).contains(&grid.cells().len()));
                    assert!(grid.cells().iter().all(|&cell| cell <= COLOR_MAX));
                }
                assert_eq!(input.places(Unit::Grid).count(), input.item_count(Unit::Grid));
                assert_eq!(input.grids().count(), input.item_count(Unit::Grid));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The config file.
pub(crate) fn config(bytes: &[u8]) {
    let memory = memfd_create("config", MFdFlags::MFD_CLOEXEC).expect("a file in memory");
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes).expect("there is room");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match Settings::resolve(config::Overrides::default(), Some(Path::new(&path))) {
        Ok(settings) => {
            let limits = settings.limits;
            assert!(limits.backoff_min <= limits.backoff_max, "{limits:?}");
            assert!(limits.heartbeat_suspect < limits.heartbeat_kill, "{limits:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Devices, workers, contents, faults and what is done about them, by name.
pub(crate) fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(device) = text.parse::<DeviceId>() {
        assert_eq!(device.to_string().parse(), Ok(device));
    }
    if let Ok(worker) = text.parse::<WorkerId>() {
        assert_eq!(worker.to_string().parse(), Ok(worker));
    }
    if let Ok(content) = text.parse::<ContentHash>() {
        assert_eq!(content.to_string().parse(), Ok(content));
    }
    if let Ok(fault) = text.parse::<ChaosFault>() {
        assert_eq!(fault.to_string().parse::<ChaosFault>().ok(), Some(fault));
    }
    if let Ok(overrides) = text.parse::<Overrides>() {
        assert_eq!(overrides.to_string().parse::<Overrides>().ok(), Some(overrides));
    }
    match parse_devices(text) {
        Ok(devices) => assert!(!devices.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

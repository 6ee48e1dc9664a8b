//! The config file.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use gridpool::config::{Overrides, Settings};
use nix::sys::memfd::{MFdFlags, memfd_create};

pub(crate) fn run(bytes: &[u8]) {
    let memory = memfd_create("config", MFdFlags::MFD_CLOEXEC).expect("a file in memory");
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes).expect("there is room");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match Settings::resolve(Overrides::default(), Some(Path::new(&path))) {
        Ok(settings) => {
            let limits = settings.limits;
            assert!(limits.backoff_min <= limits.backoff_max, "{limits:?}");
            assert!(limits.heartbeat_suspect < limits.heartbeat_kill, "{limits:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "devices = \"cpu:2\"\nsocket = \"/tmp/p.sock\"\nworker_bin = \"w\"\n[limits]\nstandbys = 1\n",
        "[limits]\nqueue_jobs_max = 10\ndrain_timeout_s = 30\nheartbeat_kill_ms = 5000\n",
        "devices = \"0,0\"\n[limits]\nbackoff_min_s = 31\nspin_us = 0x10\n",
        "limits = { attempts_max = 1_000, restart_window_s = 1 }\n\"devices\" = 'all'\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

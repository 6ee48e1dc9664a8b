//! The files that a process may use, by Landlock. A kernel that has an older Landlock enforces what it knows,
//! and one without Landlock enforces nothing.

#![expect(unsafe_code, reason = "the version of Landlock has no wrapper")]

use std::fs;
use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope, path_beneath_rules,
};
use nix::libc;

use super::Calls;

/// The newest version whose rules were tried with a pool.
const TRIED: ABI = ABI::V7;

/// Lets this thread, and those it starts, read `reads`, read and write `writes`, and nothing else: no other
/// file, no TCP socket, no signal to a process outside. With [`Calls::Network`] it may connect.
pub(super) fn restrict(reads: &[PathBuf], writes: &[PathBuf], calls: Calls) -> io::Result<()> {
    let net = match calls {
        Calls::Listed | Calls::Local | Calls::Unlisted => AccessNet::from_all(TRIED),
        Calls::Network => AccessNet::BindTcp.into(),
    };
    let restricted = || -> Result<(), RulesetError> {
        let all = AccessFs::from_all(TRIED);
        // It may start no program.
        let reading = AccessFs::from_read(TRIED) & !AccessFs::Execute;
        let rules = Ruleset::default()
            .handle_access(all)?
            .handle_access(net)?
            .scope(Scope::from_all(TRIED))?
            .create()?
            .add_rules(path_beneath_rules(reads, reading))?
            .add_rules(path_beneath_rules(writes, all & !AccessFs::Execute))?;
        rules.restrict_self().map(drop)
    };
    restricted().map_err(io::Error::other)
}

/// The version of Landlock that this kernel has; 0 if it has none.
#[must_use]
pub fn landlock_version() -> u32 {
    const CREATE_RULESET_VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with this flag the kernel reads nothing and makes nothing; it returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).unwrap_or(0)
}

/// The devices of the NVIDIA driver, and of WSL's.
#[must_use]
pub fn nvidia_devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_ours = |name: &str| name.starts_with("nvidia") || name == "dxg";
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    ours.map(|entry| entry.path()).collect()
}

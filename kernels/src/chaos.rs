//! The kernels that fault on purpose, in a PTX module of their own. The module that every worker loads, whose
//! hash receipts name, has none of them.

use gridpool_protocol::chaos::DeviceFault;

/// PTX made from `kernels/cuda/chaos.cu` by `kernels/build_ptx.py`, for the same drivers and devices as
/// [`crate::module::PTX`].
pub static PTX: &str = include_str!("../ptx/chaos.ptx");

/// A kernel that faults, and the number that triggers the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosKernel {
    /// Its name in the module.
    pub name: &'static str,
    /// Its only argument.
    pub number: u64,
}

impl ChaosKernel {
    /// An index into an array of four elements of four bytes. It is 64 TiB past the start, outside every address
    /// space of a host or a device.
    const FAR_OUTSIDE: u64 = 1 << 44;

    /// The kernel for a fault; `None` for the fault that needs no kernel.
    #[must_use]
    pub fn of(fault: DeviceFault) -> Option<Self> {
        let kernel = |name, number| Some(Self { name, number });
        match fault {
            DeviceFault::Assert => kernel("gp_chaos_assert", 0),
            DeviceFault::Endless => kernel("gp_chaos_endless", 0),
            DeviceFault::Memory => None,
            DeviceFault::Misaligned => kernel("gp_chaos_misaligned", 1),
            DeviceFault::Oob => kernel("gp_chaos_oob", Self::FAR_OUTSIDE),
            DeviceFault::Trap => kernel("gp_chaos_trap", 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::chaos::ChaosFault;

    use super::*;
    use crate::module;

    #[test]
    fn every_entry_point_is_the_kernel_of_a_fault_and_none_is_in_the_other_module() {
        let entries = PTX.lines().filter_map(|line| line.strip_prefix(".visible .entry "));
        let mut entries: Vec<_> = entries.map(|line| line.trim_end_matches(['(', ' '])).collect();
        let mut names: Vec<_> = ChaosFault::ALL
            .into_iter()
            .filter_map(|fault| match fault {
                ChaosFault::Device(fault) => ChaosKernel::of(fault),
                ChaosFault::Host(_) | ChaosFault::Reply(_) => None,
            })
            .map(|kernel| kernel.name)
            .collect();
        entries.sort_unstable();
        names.sort_unstable();
        assert_eq!(entries, names);
        assert!(!module::PTX.contains("chaos"));
    }

    #[test]
    fn the_ptx_is_old_enough_for_every_accepted_driver() {
        assert!(PTX.contains("\n.version 8.0\n.target sm_60\n"));
    }

    /// A compiler may assume that a loop without reads ends.
    #[test]
    fn the_endless_kernel_reads_its_flag_in_every_round() {
        let (_, endless) = PTX.split_once(".entry gp_chaos_endless(").expect("it is there");
        let (_, round) = endless.split_once("$L__").expect("it has a loop");
        let (round, _) = round.split_once("bra").expect("which goes round");
        assert!(round.contains("ld.volatile.global.u32"), "{round}");
    }
}

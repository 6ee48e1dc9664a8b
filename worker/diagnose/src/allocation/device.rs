//! Memory of a GPU, allocated through the driver in this process.

use gridpool_device::cuda::{MemoryFault, PlainMemory};
use gridpool_device::fault::Fault;
use gridpool_protocol::diagnose::{Check, Group, Outcome};

const GROUP: Group = Group::Allocation;
/// Memory that is left free for other contexts and for the driver itself.
const HEADROOM: usize = 1 << 30;
/// Free memory that may be missing afterwards: other processes may have taken it.
const BACK_TOLERANCE: usize = 64 << 20;
/// Odd sizes, and sizes at which counts of 31 and of 32 bits end.
const SIZES: [usize; 12] = [
    1,
    3,
    255,
    4_097,
    1_048_577,
    100_000_007,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
];
/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;

const IF_IT_FAILS: &str = "look at `nvidia-smi` for other processes on the GPU and at `dmesg` for an Xid; \
                           if there is none, reset the GPU with `nvidia-smi -r`";

/// Runs all checks of the device's memory.
pub(super) fn run(uuid: &str) -> Vec<Check> {
    let memory = PlainMemory::open(uuid);
    match memory.and_then(|memory| Ok((memory.free_and_total()?, memory))) {
        Ok(((free, total), memory)) => exercised(&memory, free, total),
        Err(fault) => {
            let says = format!("no context on the GPU: {fault}");
            vec![Check::fail(GROUP, "device memory", says, IF_IT_FAILS)]
        }
    }
}

fn exercised(memory: &PlainMemory, free: usize, total: usize) -> Vec<Check> {
    let largest = free.saturating_sub(HEADROOM);
    let tried = |bytes| memory.exercise(bytes);
    let sizes = check_sizes(largest, tried);
    let sizes = sizes.fact("free bytes", free).fact("all bytes", total);
    // No address space is large enough for the last two, so some drivers call them invalid.
    let either = &[OUT_OF_MEMORY, INVALID_VALUE][..];
    let more = total.saturating_add(1);
    let too_much = [(more, &either[..1]), (usize::MAX / 2, either), (usize::MAX, either)];
    let mut checks = vec![sizes];
    let rest: [&dyn Fn() -> Check; 3] = [
        &|| check_refusal("no device memory", &[(0, &[INVALID_VALUE])], tried),
        &|| check_refusal("too much device memory", &too_much, tried),
        &|| check_back(free, memory.free_and_total().map(|room| room.0)),
    ];
    for run in rest {
        // A call on a lost device may hang, so checks stop at a failure.
        if checks.iter().any(|check| check.outcome == Outcome::Fail) {
            break;
        }
        checks.push(run());
    }
    checks
}

/// Allocates sizes up to `largest`, the smallest first.
fn check_sizes(largest: usize, tried: impl Fn(usize) -> Result<(), MemoryFault>) -> Check {
    const NAME: &str = "device memory";
    let sizes = sizes_up_to(largest);
    for &bytes in &sizes {
        if let Err(fault) = tried(bytes) {
            let says = format!("{bytes} bytes of the device's memory: {fault}");
            return Check::fail(GROUP, NAME, says, IF_IT_FAILS).at(bytes as u64);
        }
    }
    let listed =
        |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let untried: Vec<usize> = SIZES.into_iter().filter(|&bytes| bytes > largest).collect();
    let count = sizes.len();
    let right = match sizes.last() {
        Some(last) => format!(
            "{count} sizes from 1 to {last} bytes are allocated, written and read at their ends and at 2^31 \
             and 2^32, and freed"
        ),
        None => "no size was tried".to_owned(),
    };
    let check = match untried.first() {
        None => Check::pass(GROUP, NAME, right),
        Some(first) => {
            let says = format!(
                "{first} bytes and more are not free on the device (with {} MB left for others); {right}",
                HEADROOM >> 20
            );
            Check::skip(GROUP, NAME, says, "end other processes on the GPU, and repeat it")
        }
    };
    check.fact("sizes", listed(&sizes)).fact("sizes not tried", listed(&untried))
}

/// The sizes of the list up to `largest`, then powers of two, then `largest`.
fn sizes_up_to(largest: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|&bytes| bytes <= largest).collect();
    let mut bytes = 1_usize << 33;
    while bytes < largest {
        sizes.push(bytes);
        bytes = bytes.saturating_mul(2);
    }
    if largest > 0 && sizes.last() != Some(&largest) {
        sizes.push(largest);
    }
    sizes
}

/// Checks that sizes are refused, each with one of its codes, and that the device works afterwards.
fn check_refusal(
    name: &str,
    sizes: &[(usize, &[u32])],
    tried: impl Fn(usize) -> Result<(), MemoryFault>,
) -> Check {
    let mut said = String::new();
    for &(bytes, want) in sizes {
        match tried(bytes) {
            Err(MemoryFault::Fault(fault @ Fault::Cuda { .. })) if is_code(&fault, want) => {
                said = fault.to_string();
            }
            Err(other) => {
                let says = format!("{bytes} bytes are refused with another error: {other}");
                return Check::fail(GROUP, name, says, IF_IT_FAILS).at(bytes as u64);
            }
            Ok(()) => {
                let says = format!("{bytes} bytes were given");
                return Check::fail(GROUP, name, says, IF_IT_FAILS).at(bytes as u64);
            }
        }
    }
    match tried(SIZES[4]) {
        Ok(()) => {
            let sizes: Vec<_> = sizes.iter().map(|size| size.0.to_string()).collect();
            let sizes = sizes.join(", ");
            let says = format!("{sizes} bytes are refused ({said}), and the device works on");
            Check::pass(GROUP, name, says)
        }
        Err(fault) => {
            let says = format!("after a refusal ({said}) the device does not work on: {fault}");
            Check::fail(GROUP, name, says, IF_IT_FAILS)
        }
    }
}

fn is_code(fault: &Fault, want: &[u32]) -> bool {
    matches!(fault, Fault::Cuda { code, .. } if want.contains(code))
}

/// Checks that as much is free as before.
fn check_back(before: usize, after: Result<usize, Fault>) -> Check {
    const NAME: &str = "device memory back";
    let check = match &after {
        Ok(after) if after.saturating_add(BACK_TOLERANCE) >= before => {
            Check::pass(GROUP, NAME, format!("{after} bytes are free, {before} were before"))
        }
        Ok(after) => {
            let says = format!("{} bytes are not free again: {after} of {before}", before - after);
            let next = "see in `nvidia-smi` whether another process took them; if none did, report the \
                        driver's version";
            Check::fail(GROUP, NAME, says, next)
        }
        Err(fault) => Check::fail(GROUP, NAME, fault.to_string(), IF_IT_FAILS),
    };
    check.fact("free before", before).fact("free after", after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(code: u32) -> Result<(), MemoryFault> {
        Err(Fault::Cuda { call: "cuMemAlloc", code }.into())
    }

    #[test]
    fn sizes_go_past_32_bits_up_to_all_that_is_free() {
        let sizes = sizes_up_to(100 << 30);
        assert!(sizes.is_sorted() && sizes.contains(&((1 << 32) + 1)));
        assert_eq!(sizes[sizes.len() - 2..], [64 << 30, 100 << 30]);
        assert_eq!(sizes_up_to(4_097), [1, 3, 255, 4_097]);
        assert!(sizes_up_to(0).is_empty());
    }

    #[test]
    fn the_smallest_size_that_fails_is_named_and_sizes_that_are_not_free_do_not_pass() {
        assert_eq!(check_sizes(10 << 30, |_| Ok(())).outcome, Outcome::Pass);
        let wraps = |bytes: usize| if bytes > 1 << 32 { refuses(700) } else { Ok(()) };
        let check = check_sizes(10 << 30, wraps);
        assert_eq!((check.outcome, check.first_failing), (Outcome::Fail, Some((1 << 32) + 1)));
        let check = check_sizes(3 << 30, |_| Ok(()));
        assert_eq!(check.outcome, Outcome::Skip);
        assert!(check.says.starts_with("4294967295 bytes and more are not free"), "{}", check.says);
    }

    #[test]
    fn a_refusal_must_have_its_code_and_leave_the_device_working() {
        let check =
            |at_0: fn() -> Result<(), MemoryFault>, then: fn() -> Result<(), MemoryFault>| {
                check_refusal("no device memory", &[(0, &[1])], |b| {
                    if b == 0 { at_0() } else { then() }
                })
            };
        assert_eq!(check(|| refuses(1), || Ok(())).outcome, Outcome::Pass);
        assert!(check(|| Ok(()), || Ok(())).says.contains("0 bytes were given"));
        assert!(check(|| refuses(700), || Ok(())).says.contains("with another error"));
        let lost = check(|| refuses(1), || refuses(999));
        assert!(lost.says.contains("the device does not work on"), "{}", lost.says);
    }

    #[test]
    fn memory_that_is_not_freed_is_counted() {
        assert_eq!(check_back(1 << 40, Ok(1 << 40)).outcome, Outcome::Pass);
        let check = check_back(1 << 40, Ok(1 << 39));
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.says.starts_with(&format!("{} bytes are not free", 1_u64 << 39)));
    }
}

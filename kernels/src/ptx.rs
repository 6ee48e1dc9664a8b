//! What the kernels' PTX requires of a driver and a device, read from the PTX itself.

use crate::module::PTX;

/// A release of CUDA: its PTX version, its number in `cuDriverGetVersion`, and the first driver that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Version of the PTX language.
    pub isa: (u32, u32),
    /// 12,040 is CUDA 12.4.
    pub cuda: u32,
    /// The branch of the driver.
    pub driver: u32,
}

const fn release(isa: (u32, u32), cuda: u32, driver: u32) -> Release {
    Release { isa, cuda, driver }
}

/// Releases that brought a version of PTX (release notes of CUDA and of PTX), the oldest first.
const RELEASES: [Release; 10] = [
    release((8, 0), 12_000, 525),
    release((8, 1), 12_010, 530),
    release((8, 2), 12_020, 535),
    release((8, 3), 12_030, 545),
    release((8, 4), 12_040, 550),
    release((8, 5), 12_050, 555),
    release((8, 6), 12_070, 565),
    release((8, 7), 12_080, 570),
    release((8, 8), 12_090, 575),
    release((9, 0), 13_000, 580),
];

/// The version of PTX of the kernels: their `.version`.
///
/// # Panics
/// Never: a test reads it.
#[must_use]
pub fn isa() -> (u32, u32) {
    let text = directive(".version ").expect("the kernels say their version");
    let (major, minor) = text.split_once('.').expect("a version has two numbers");
    let number = |text: &str| text.parse().expect("a version has two numbers");
    (number(major), number(minor))
}

/// The lowest compute capability for the kernels, times ten: their `.target`.
///
/// # Panics
/// Never: a test reads it.
#[must_use]
pub fn target() -> u32 {
    let text = directive(".target sm_").expect("the kernels say their target");
    text.parse().expect("a target is a number")
}

/// The oldest release whose drivers load the kernels.
///
/// # Panics
/// Never: a test looks it up.
#[must_use]
pub fn oldest_release() -> Release {
    let isa = isa();
    let first = RELEASES.into_iter().find(|release| release.isa >= isa);
    first.expect("the kernels are of a release that is listed")
}

fn directive(name: &str) -> Option<&'static str> {
    PTX.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::CUDA_VERSION_MIN;

    #[test]
    fn the_oldest_accepted_driver_is_the_one_that_the_text_needs() {
        assert_eq!(oldest_release().cuda, CUDA_VERSION_MIN);
        assert_eq!(oldest_release().isa, isa(), "the release has that very version");
        assert!((50..200).contains(&target()), "{}", target());
    }

    #[test]
    fn newer_text_needs_newer_drivers() {
        let ascend = |pair: &[Release]| {
            pair[0].isa < pair[1].isa
                && pair[0].cuda < pair[1].cuda
                && pair[0].driver < pair[1].driver
        };
        assert!(RELEASES.windows(2).all(ascend));
    }
}

//! Adds up what ran: kernels in order of first launch, with how often and how long.

use gridpool_protocol::receipt::KernelUse;

/// Launches counted and timed by kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    uses: Vec<KernelUse>,
}

impl Tally {
    /// One launch of `name` that took `device_us` microseconds.
    pub(crate) fn add(&mut self, name: &str, device_us: f64) {
        self.add_use(KernelUse { name: name.to_owned(), launches: 1, device_us });
    }

    /// All of this tally's launches and another's.
    pub(crate) fn merged(mut self, other: Self) -> Self {
        other.uses.into_iter().for_each(|kernel| self.add_use(kernel));
        self
    }

    pub(crate) fn into_uses(self) -> Vec<KernelUse> {
        self.uses
    }

    fn add_use(&mut self, more: KernelUse) {
        match self.uses.iter_mut().find(|kernel| kernel.name == more.name) {
            Some(kernel) => {
                kernel.launches += more.launches;
                kernel.device_us += more.device_us;
            }
            None => self.uses.push(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_add_up_in_order_of_the_first() {
        let mut tally = Tally::default();
        for name in ["validate", "rot90", "replace", "rot90"] {
            tally.add(name, 1.5);
        }
        let uses = tally.clone().merged(tally).into_uses();
        let rows: Vec<_> =
            uses.iter().map(|k| (k.name.as_str(), k.launches, k.device_us)).collect();
        assert_eq!(rows, [("validate", 2, 3.0), ("rot90", 4, 6.0), ("replace", 2, 3.0)]);
    }
}

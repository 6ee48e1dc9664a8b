//! Sets of registers, for the verifier: a bit for each.

/// A set of registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Registers([u64; 4]);

impl Registers {
    fn place(register: u8) -> (usize, u64) {
        (usize::from(register / 64), 1 << (register % 64))
    }

    pub(super) fn contains(&self, register: u8) -> bool {
        let (word, bit) = Self::place(register);
        self.0[word] & bit != 0
    }

    pub(super) fn insert(&mut self, register: u8) {
        let (word, bit) = Self::place(register);
        self.0[word] |= bit;
    }

    pub(super) fn remove(&mut self, register: u8) {
        let (word, bit) = Self::place(register);
        self.0[word] &= !bit;
    }

    pub(super) fn remove_all(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word &= !other);
    }
}

impl FromIterator<u8> for Registers {
    fn from_iter<I: IntoIterator<Item = u8>>(registers: I) -> Self {
        let mut set = Self::default();
        registers.into_iter().for_each(|register| set.insert(register));
        set
    }
}

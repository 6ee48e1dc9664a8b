//! A CPython `set` of small integers, and the order in which it lists its elements.
//!
//! Follows `set_add_entry`, `set_table_resize` and `set_insert_clean` of CPython's
//! `Objects/setobject.c` (3.7 to 3.13), for non-negative integers, whose hash is their value, and
//! without removal, so that a slot is either free or full.

const MINSIZE: usize = 8;
const LINEAR_PROBES: usize = 9;
const PERTURB_SHIFT: u32 = 5;

/// A set of colours whose order depends on insertion, like CPython's.
#[derive(Clone, Debug)]
pub struct PythonSet {
    table: Vec<Option<u8>>,
    used: usize,
}

impl FromIterator<u8> for PythonSet {
    fn from_iter<I: IntoIterator<Item = u8>>(keys: I) -> Self {
        let mut set = Self { table: vec![None; MINSIZE], used: 0 };
        for key in keys {
            set.add(key);
        }
        set
    }
}

impl PythonSet {
    /// The elements in the order of `for x in the_set`.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        self.table.iter().copied().flatten()
    }

    fn add(&mut self, key: u8) {
        let slot = self.slot_of(key);
        if self.table[slot].is_some() {
            return;
        }
        self.table[slot] = Some(key);
        self.used += 1;
        if self.used * 5 >= self.mask() * 3 {
            self.resize(self.used * 4);
        }
    }

    /// The slot of `key`, or the slot where it would be inserted.
    fn slot_of(&self, key: u8) -> usize {
        let mut perturb = usize::from(key);
        let mut at = perturb & self.mask();
        loop {
            let probes = if at + LINEAR_PROBES <= self.mask() { LINEAR_PROBES } else { 0 };
            let mut near = at..=at + probes;
            if let Some(slot) = near.find(|&slot| self.table[slot].is_none_or(|k| k == key)) {
                return slot;
            }
            perturb >>= PERTURB_SHIFT;
            at = (at * 5 + 1 + perturb) & self.mask();
        }
    }

    /// Moves every element, in table order, to a table of more than `at_least` slots.
    fn resize(&mut self, at_least: usize) {
        let mut slots = MINSIZE;
        while slots <= at_least {
            slots *= 2;
        }
        let old = std::mem::replace(&mut self.table, vec![None; slots]);
        for key in old.into_iter().flatten() {
            let slot = self.slot_of(key);
            self.table[slot] = Some(key);
        }
    }

    fn mask(&self) -> usize {
        self.table.len() - 1
    }
}

//! One value for each role.

use std::ops::{Index, IndexMut};

use gridpool_protocol::ids::Role;

/// An array rather than a map: each event asks for it dozens of times.
#[derive(Clone, Debug)]
pub(super) struct PerRole<T>([T; Role::ALL.len()]);

impl<T> PerRole<T> {
    pub(super) fn new(of: impl FnMut(Role) -> T) -> Self {
        Self(Role::ALL.map(of))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Role, &T)> {
        Role::ALL.into_iter().zip(&self.0)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Role, &mut T)> {
        Role::ALL.into_iter().zip(&mut self.0)
    }
}

impl<T> Index<Role> for PerRole<T> {
    type Output = T;

    fn index(&self, role: Role) -> &T {
        &self.0[role as usize]
    }
}

impl<T> IndexMut<Role> for PerRole<T> {
    fn index_mut(&mut self, role: Role) -> &mut T {
        &mut self.0[role as usize]
    }
}

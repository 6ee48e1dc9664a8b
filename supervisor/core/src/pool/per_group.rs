//! One value for each group.

use std::ops::{Index, IndexMut};

use gridpool_protocol::ids::Group;

/// Arrays rather than a map: each event asks for them dozens of times.
#[derive(Clone, Debug)]
pub(super) struct PerGroup<T> {
    grid: T,
    models: Vec<T>,
}

impl<T> PerGroup<T> {
    /// Of the workers for programs; there are no models yet.
    pub(super) fn new(grid: T) -> Self {
        Self { grid, models: Vec::new() }
    }

    /// Adds a group of models.
    pub(super) fn push(&mut self, value: T) -> Group {
        let at = u16::try_from(self.models.len()).expect("a pool has few models");
        self.models.push(value);
        Group::Models(at)
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> u16 {
        u16::try_from(1 + self.models.len()).expect("a pool has few models")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Group, &T)> {
        (0..).map(at).zip([&self.grid].into_iter().chain(&self.models))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Group, &mut T)> {
        (0..).map(at).zip([&mut self.grid].into_iter().chain(&mut self.models))
    }
}

/// The group at a place among all.
pub(super) fn at(place: u16) -> Group {
    place.checked_sub(1).map_or(Group::Grid, Group::Models)
}

impl<T> Index<Group> for PerGroup<T> {
    type Output = T;

    fn index(&self, group: Group) -> &T {
        match group {
            Group::Grid => &self.grid,
            Group::Models(at) => &self.models[usize::from(at)],
        }
    }
}

impl<T> IndexMut<Group> for PerGroup<T> {
    fn index_mut(&mut self, group: Group) -> &mut T {
        match group {
            Group::Grid => &mut self.grid,
            Group::Models(at) => &mut self.models[usize::from(at)],
        }
    }
}

//! One op over all values of a run. A failed value gives an empty picture, no objects and zeros, and keeps
//! its status.

use gridpool_protocol::output::{ItemErrorCode, PALETTE_BYTES};
use gridpool_protocol::program::{Kind, Symmetry};

use super::{Evaluator, STATUS_OK, Status, area};
use crate::reference::join;
use crate::reference::label::Labeler;
use crate::reference::measure::Measured;
use crate::reference::picture::{GridMut, Made, Origin, Picture, Pictures, Tuple};
use crate::reference::select::{Objects, Selector};
use crate::reference::symmetry;
use crate::reference::ties::Palette;

/// Calls `make` for every value that has not failed; it pushes one picture to `to`.
fn push_all(
    status: &mut [Status],
    at: u8,
    to: &mut Pictures,
    mut make: impl FnMut(usize, &mut Pictures) -> Made,
) {
    to.clear();
    for (value, status) in status.iter_mut().enumerate() {
        push_one(status, at, to, |to| make(value, to));
    }
}

/// Calls `make` for one value unless it has failed.
fn push_one(
    status: &mut Status,
    at: u8,
    to: &mut Pictures,
    make: impl FnOnce(&mut Pictures) -> Made,
) {
    if *status == STATUS_OK {
        match make(to) {
            Ok(()) => return,
            Err(error) => *status = [error as u8, at],
        }
    }
    to.push_empty();
}

impl Evaluator {
    /// Fails the values that are empty grids.
    pub(super) fn refuse_empty_grids(&mut self) {
        for (status, shape) in self.status.iter_mut().zip(self.grids.shapes()) {
            if *shape == [0, 0] && *status == STATUS_OK {
                *status = [ItemErrorCode::EmptyArg as u8, self.at];
            }
        }
    }

    /// The pictures of the values: grids, or else objects or patches.
    fn pictures(&self) -> &Pictures {
        if self.kind == Kind::Grid { &self.grids } else { &self.pieces }
    }

    /// Mirrors or turns each picture within its place.
    pub(super) fn mirror(&mut self, symmetry: Symmetry) {
        let of_grids = self.kind == Kind::Grid;
        let pictures = if of_grids { &mut self.grids } else { &mut self.pieces };
        pictures.write_images(&mut self.next, |shape, from, to| {
            symmetry::apply(symmetry, shape, from, to)
        });
        std::mem::swap(pictures, &mut self.next);
    }

    /// A grid for each grid.
    pub(super) fn make_grids(&mut self, make: impl Fn(Picture<'_>, &mut Pictures) -> Made) {
        let Self { status, grids, next, .. } = self;
        push_all(status, self.at, next, |value, to| make(grids.get(value), to));
        std::mem::swap(grids, next);
    }

    /// A picture of the same kind for each grid, object or patch.
    pub(super) fn make_pictures(&mut self, make: impl Fn(Picture<'_>, &mut Pictures) -> Made) {
        if self.kind == Kind::Grid {
            self.make_grids(make);
        } else {
            self.make_pieces(|_, piece, to| make(piece, to));
        }
    }

    /// An object or patch for each grid, which becomes its ground.
    pub(super) fn find(&mut self, make: impl Fn(Picture<'_>, &mut Pictures) -> Made) {
        let Self { status, grids, pieces, .. } = self;
        push_all(status, self.at, pieces, |value, to| make(grids.get(value), to));
    }

    /// An object or patch for each ground and object or patch.
    pub(super) fn make_pieces(
        &mut self,
        make: impl Fn(Picture<'_>, Picture<'_>, &mut Pictures) -> Made,
    ) {
        let Self { status, grids, pieces, next, .. } = self;
        push_all(status, self.at, next, |value, to| make(grids.get(value), pieces.get(value), to));
        std::mem::swap(pieces, next);
    }

    /// A grid for each ground and object or patch.
    pub(super) fn cut_grounds(
        &mut self,
        make: impl Fn(Picture<'_>, Picture<'_>, &mut Pictures) -> Made,
    ) {
        let Self { status, grids, pieces, next, .. } = self;
        push_all(status, self.at, next, |value, to| make(grids.get(value), pieces.get(value), to));
        std::mem::swap(grids, next);
    }

    /// Moves each object or patch; an empty one has no place.
    pub(super) fn move_pieces(&mut self, to: impl Fn(Origin) -> Origin) {
        for value in 0..self.pieces.len() {
            let Picture { shape, origin, cells } = self.pieces.get(value);
            if !cells.is_empty() {
                self.pieces.set(value, shape, to(origin));
            }
        }
    }

    /// Draws each object or patch on its ground; the ground becomes the value.
    pub(super) fn draw(&mut self, draw: impl Fn(&mut GridMut<'_>, Picture<'_>)) {
        for (value, &status) in self.status.iter().enumerate() {
            if status == STATUS_OK {
                draw(&mut self.grids.grid_mut(value), self.pieces.get(value));
            } else {
                self.grids.wipe(value);
            }
        }
    }

    /// `parts` grids for each grid.
    pub(super) fn split(
        &mut self,
        parts: u8,
        make: impl Fn(Picture<'_>, usize, &mut Pictures) -> Made,
    ) {
        self.next.clear();
        self.next_status.clear();
        for (value, &status) in self.status.iter().enumerate() {
            for part in 0..usize::from(parts) {
                let mut status = status;
                push_one(&mut status, self.at, &mut self.next, |to| {
                    make(self.grids.get(value), part, to)
                });
                self.next_status.push(status);
            }
        }
        self.take_next();
    }

    /// One grid for each tuple of grids. If any of them has failed, the result fails like the first one that did.
    pub(super) fn join(&mut self, make: impl Fn(Tuple<'_>, &mut Pictures) -> Made) {
        self.next.clear();
        self.next_status.clear();
        for (item, elements) in self.status.chunks_exact(self.width).enumerate() {
            let failed = elements.iter().find(|&&status| status != STATUS_OK);
            let mut status = failed.copied().unwrap_or(STATUS_OK);
            push_one(&mut status, self.at, &mut self.next, |to| {
                let tuple = self.grids.tuple(item * self.width, self.width);
                if tuple.clone().any(Picture::is_empty) {
                    return Err(ItemErrorCode::EmptyArg);
                }
                make(tuple, to)
            });
            self.next_status.push(status);
        }
        self.take_next();
    }

    /// Element `index` of each tuple of grids, with its own status, independent of the others.
    pub(super) fn take_element(&mut self, index: usize) {
        self.next.clear();
        self.next_status.clear();
        for value in (index..self.status.len()).step_by(self.width) {
            let mut status = self.status[value];
            let grid = self.grids.get(value);
            push_one(&mut status, self.at, &mut self.next, |to| join::nth(grid, to));
            self.next_status.push(status);
        }
        self.take_next();
    }

    /// Makes the next grids and their statuses the current values.
    fn take_next(&mut self) {
        std::mem::swap(&mut self.grids, &mut self.next);
        std::mem::swap(&mut self.status, &mut self.next_status);
    }

    /// The objects of each grid: `label` writes the labels and returns how many there are.
    pub(super) fn label(&mut self, label: impl Fn(&mut Labeler, Picture<'_>, &mut [u16]) -> u16) {
        self.counts.clear();
        self.labels.clear();
        self.labels.resize(self.grids.cells().len(), 0);
        for (value, &status) in self.status.iter().enumerate() {
            let grid = self.grids.get(value);
            let start = self.grids.place(value).start;
            let labels = &mut self.labels[start..start + grid.cells.len()];
            let is_ok = status == STATUS_OK;
            self.counts.push(if is_ok { label(&mut self.labeler, grid, labels) } else { 0 });
        }
    }

    /// Keeps some objects of each grid.
    pub(super) fn filter(
        &mut self,
        filter: impl Fn(&mut Selector, Picture<'_>, &mut [u16], u16) -> u16,
    ) {
        for (value, count) in self.counts.iter_mut().enumerate() {
            let ground = self.grids.get(value);
            let start = self.grids.place(value).start;
            let labels = &mut self.labels[start..start + ground.cells.len()];
            *count = filter(&mut self.selector, ground, labels, *count);
        }
    }

    /// Chooses or makes one object from those of each grid.
    pub(super) fn choose(
        &mut self,
        choose: impl Fn(&mut Selector, Objects<'_>, &mut Pictures) -> Made,
    ) {
        let Self { status, grids, pieces, labels, counts, selector, .. } = self;
        push_all(status, self.at, pieces, |value, to| {
            let ground = grids.get(value);
            let start = grids.place(value).start;
            let labels = &labels[start..start + area(ground.shape)];
            choose(selector, Objects { ground, labels, count: counts[value] }, to)
        });
    }

    /// How many objects each grid has.
    pub(super) fn count_objects(&mut self) {
        self.numbers.clear();
        let counts = self.counts.iter().map(|&count| i32::from(count).to_le_bytes());
        self.numbers.extend(counts);
    }

    /// A number, flag or vector for each picture.
    pub(super) fn measure(
        &mut self,
        measure: impl Fn(Picture<'_>) -> Result<Measured, ItemErrorCode>,
    ) {
        let mut numbers = std::mem::take(&mut self.numbers);
        let mut status = std::mem::take(&mut self.status);
        numbers.clear();
        let pictures = self.pictures();
        for (value, status) in status.iter_mut().enumerate() {
            let mut number = [0; 4];
            if *status == STATUS_OK {
                match measure(pictures.get(value)) {
                    Ok(measured) => number = measured.to_bytes(),
                    Err(error) => *status = [error as u8, self.at],
                }
            }
            numbers.push(number);
        }
        (self.numbers, self.status) = (numbers, status);
    }

    /// The colours of each picture: their number, the colours, zeros.
    pub(super) fn list_colors(&mut self, colors: impl Fn(Picture<'_>) -> Palette) {
        let mut palettes = std::mem::take(&mut self.palettes);
        palettes.clear();
        for value in 0..self.status.len() {
            let palette = colors(self.pictures().get(value));
            let colors = palette.colors();
            let mut bytes = [0; PALETTE_BYTES];
            bytes[0] = u8::try_from(colors.len()).expect("there are ten colours");
            bytes[1..=colors.len()].copy_from_slice(colors);
            palettes.push(bytes);
        }
        self.palettes = palettes;
    }
}

//! Ops that choose among the objects of a grid, or join them.
//!
//! Objects are a label map: a cell's label is its object's number from 1, or 0. Numbers are in
//! canonical order, so the first of equals is the one with the lowest number.
//!
//! Mirrors `kernels/cuda/select.cuh`.

use std::cmp::Reverse;

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Key;

use super::picture::{HOLE, Made, Picture, Pictures};

/// The objects of one grid.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// The grid that contains them.
    pub ground: Picture<'a>,
    /// The object of each of its cells.
    pub labels: &'a [u16],
    /// How many objects there are.
    pub count: u16,
}

/// The keys of one object.
#[derive(Clone, Copy, Debug)]
struct Sketch {
    size: u16,
    /// Colour of the first cell, row-major.
    color: u8,
    top: u8,
    bottom: u8,
    left: u8,
    right: u8,
}

impl Sketch {
    const EMPTY: Self =
        Self { size: 0, color: 0, top: u8::MAX, bottom: 0, left: u8::MAX, right: 0 };

    fn add(&mut self, row: u8, col: u8, color: u8) {
        if self.size == 0 {
            self.color = color;
        }
        self.size += 1;
        self.top = self.top.min(row);
        self.bottom = self.bottom.max(row);
        self.left = self.left.min(col);
        self.right = self.right.max(col);
    }

    /// The box of two objects.
    fn around(self, other: Self) -> Self {
        Self {
            size: self.size + other.size,
            color: self.color,
            top: self.top.min(other.top),
            bottom: self.bottom.max(other.bottom),
            left: self.left.min(other.left),
            right: self.right.max(other.right),
        }
    }

    fn key(&self, key: Key) -> u16 {
        match key {
            Key::Color => u16::from(self.color),
            Key::Height => u16::from(self.bottom - self.top),
            Key::Leftmost => u16::from(self.left),
            Key::Lowermost => u16::from(self.bottom),
            Key::Rightmost => u16::from(self.right),
            Key::Size => self.size,
            Key::Uppermost => u16::from(self.top),
            Key::Width => u16::from(self.right - self.left),
        }
    }
}

/// Chooses among objects. Keeps only memory between calls.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// One for each object, in order.
    sketches: Vec<Sketch>,
    /// For each old label the new one.
    numbers: Vec<u16>,
}

impl Selector {
    /// The object with the greatest key; of equals the first.
    ///
    /// # Errors
    /// [`ItemErrorCode::EmptyArg`] if there is no object.
    pub fn argmax(&mut self, objects: Objects<'_>, key: Key, to: &mut Pictures) -> Made {
        self.survey(objects);
        let best = self.sketches.iter().enumerate().min_by_key(|(_, s)| Reverse(s.key(key)));
        let (best, _) = best.ok_or(ItemErrorCode::EmptyArg)?;
        self.take(objects, best, to)
    }

    /// The object with the least key; of equals the first.
    ///
    /// # Errors
    /// [`ItemErrorCode::EmptyArg`] if there is no object.
    pub fn argmin(&mut self, objects: Objects<'_>, key: Key, to: &mut Pictures) -> Made {
        self.survey(objects);
        let best = self.sketches.iter().enumerate().min_by_key(|(_, s)| s.key(key));
        let (best, _) = best.ok_or(ItemErrorCode::EmptyArg)?;
        self.take(objects, best, to)
    }

    /// Object number `index` from 0; negative from the end.
    ///
    /// # Errors
    /// If there is no such object: [`ItemErrorCode::EmptyArg`] for the first (0) and the last (-1),
    /// else [`ItemErrorCode::BadIndex`].
    pub fn nth(&mut self, objects: Objects<'_>, index: i16, to: &mut Pictures) -> Made {
        let from_start = if index < 0 { i32::from(objects.count) } else { 0 } + i32::from(index);
        let at = usize::try_from(from_start).ok().filter(|&at| at < usize::from(objects.count));
        let missing = match index {
            0 | -1 => ItemErrorCode::EmptyArg,
            _ => ItemErrorCode::BadIndex,
        };
        let at = at.ok_or(missing)?;
        self.survey(objects);
        self.take(objects, at, to)
    }

    /// All cells of all objects as one object; empty if there is none.
    ///
    /// # Errors
    /// None.
    pub fn merge(&mut self, objects: Objects<'_>, to: &mut Pictures) -> Made {
        self.survey(objects);
        match self.sketches.iter().copied().reduce(Sketch::around) {
            Some(all) => push(objects, all, |label| label != 0, to),
            None => {
                to.push_empty();
                Ok(())
            }
        }
    }

    /// Keeps the objects whose first cell has a colour; returns how many.
    pub fn colorfilter(
        &mut self,
        ground: Picture<'_>,
        labels: &mut [u16],
        count: u16,
        color: u8,
    ) -> u16 {
        self.survey(Objects { ground, labels, count });
        self.renumber(labels, |sketch| sketch.color == color)
    }

    /// Keeps the objects with this many cells; returns how many.
    pub fn sizefilter(
        &mut self,
        ground: Picture<'_>,
        labels: &mut [u16],
        count: u16,
        size: u16,
    ) -> u16 {
        self.survey(Objects { ground, labels, count });
        self.renumber(labels, |sketch| sketch.size == size)
    }

    /// Sketches every object.
    fn survey(&mut self, Objects { ground, labels, count }: Objects<'_>) {
        self.sketches.clear();
        self.sketches.resize(usize::from(count), Sketch::EMPTY);
        let labels = labels.chunks_exact(ground.w().max(1));
        for (row, (colors, labels)) in (0..=u8::MAX).zip(ground.rows().zip(labels)) {
            for (col, (&color, &label)) in (0..=u8::MAX).zip(colors.iter().zip(labels)) {
                if label != 0 {
                    self.sketches[usize::from(label) - 1].add(row, col, color);
                }
            }
        }
    }

    /// Numbers the objects that `stays` chooses, from 1, in order; the others get 0.
    fn renumber(&mut self, labels: &mut [u16], stays: impl Fn(&Sketch) -> bool) -> u16 {
        let mut count = 0;
        self.numbers.clear();
        self.numbers.push(0);
        for sketch in &self.sketches {
            let stays = stays(sketch);
            count += u16::from(stays);
            self.numbers.push(if stays { count } else { 0 });
        }
        for label in labels {
            *label = self.numbers[usize::from(*label)];
        }
        count
    }

    /// Pushes object number `index`, counted from 0, alone.
    fn take(&self, objects: Objects<'_>, index: usize, to: &mut Pictures) -> Made {
        push(objects, self.sketches[index], |label| usize::from(label) == index + 1, to)
    }
}

/// The cells in a box whose labels `belongs` accepts, as an object.
fn push(
    Objects { ground, labels, .. }: Objects<'_>,
    Sketch { top, bottom, left, right, .. }: Sketch,
    belongs: impl Fn(u16) -> bool,
    to: &mut Pictures,
) -> Made {
    let size = [bottom - top, right - left].map(|last| usize::from(last) + 1);
    let corner = [usize::from(top), usize::from(left)];
    to.push_by_place(size, [i16::from(top), i16::from(left)], |i, j| {
        let at = (corner[0] + i) * ground.w() + corner[1] + j;
        if belongs(labels[at]) { ground.cells[at] } else { HOLE }
    })
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{Drawing, drawing, grid, made};
    use super::*;

    const ROWS: &[&str] = &["10022", "10030", "00003", "44400"];
    /// Three objects: the column of 1, the mixed one of 2 and 3, the row of 4.
    const LABELS: [u16; 20] = [1, 0, 0, 2, 2, 1, 0, 0, 2, 0, 0, 0, 0, 0, 2, 3, 3, 3, 0, 0];

    fn chosen(
        choose: impl FnOnce(&mut Selector, Objects<'_>, &mut Pictures) -> Made,
    ) -> Result<Drawing, ItemErrorCode> {
        let ground = grid(ROWS);
        let objects = Objects { ground: ground.picture(), labels: &LABELS, count: 3 };
        made(|to| choose(&mut Selector::default(), objects, to))
    }

    fn column() -> Result<Drawing, ItemErrorCode> {
        Ok(drawing([0, 0], &["1", "1"]))
    }

    fn mixed() -> Result<Drawing, ItemErrorCode> {
        Ok(drawing([0, 3], &["22", "3.", ".3"]))
    }

    fn row() -> Result<Drawing, ItemErrorCode> {
        Ok(drawing([3, 0], &["444"]))
    }

    #[test]
    fn each_key_has_its_greatest_and_least_object() {
        let cases = [
            (Key::Size, mixed(), column()),
            (Key::Height, mixed(), row()),
            (Key::Width, row(), column()),
            (Key::Color, row(), column()),
            (Key::Uppermost, row(), column()),
            (Key::Lowermost, row(), column()),
            (Key::Leftmost, mixed(), column()),
            (Key::Rightmost, mixed(), column()),
        ];
        for (key, most, least) in cases {
            assert_eq!(chosen(|s, objects, to| s.argmax(objects, key, to)), most, "{key:?}");
            assert_eq!(chosen(|s, objects, to| s.argmin(objects, key, to)), least, "{key:?}");
        }
    }

    #[test]
    fn the_first_of_equals_is_chosen() {
        let ground = grid(&["102"]);
        let objects = Objects { ground: ground.picture(), labels: &[1, 0, 2], count: 2 };
        for key in [Key::Size, Key::Height, Key::Width, Key::Uppermost, Key::Lowermost] {
            let most = made(|to| Selector::default().argmax(objects, key, to));
            let least = made(|to| Selector::default().argmin(objects, key, to));
            assert_eq!((most, least), (Ok(grid(&["1"])), Ok(grid(&["1"]))), "{key:?}");
        }
    }

    #[test]
    fn nth_counts_from_both_ends() {
        let nth = |index| chosen(|s, objects, to| s.nth(objects, index, to));
        assert_eq!([nth(0), nth(1), nth(2)], [column(), mixed(), row()]);
        assert_eq!([nth(-1), nth(-2), nth(-3)], [row(), mixed(), column()]);
        assert_eq!(nth(3), Err(ItemErrorCode::BadIndex));
        assert_eq!(nth(-4), Err(ItemErrorCode::BadIndex));
    }

    #[test]
    fn an_empty_list_has_no_first_object() {
        let ground = grid(&["00"]);
        let objects = Objects { ground: ground.picture(), labels: &[0, 0], count: 0 };
        let nth = |index| made(|to| Selector::default().nth(objects, index, to));
        assert_eq!([nth(0), nth(-1)], [Err(ItemErrorCode::EmptyArg), Err(ItemErrorCode::EmptyArg)]);
        assert_eq!([nth(1), nth(-2)], [Err(ItemErrorCode::BadIndex), Err(ItemErrorCode::BadIndex)]);
        let most = made(|to| Selector::default().argmax(objects, Key::Size, to));
        let least = made(|to| Selector::default().argmin(objects, Key::Size, to));
        assert_eq!((most, least), (Err(ItemErrorCode::EmptyArg), Err(ItemErrorCode::EmptyArg)));
        assert_eq!(made(|to| Selector::default().merge(objects, to)), Ok(drawing([0, 0], &[])));
    }

    #[test]
    fn merge_is_the_union() {
        let all = drawing([0, 0], &["1..22", "1..3.", "....3", "444.."]);
        assert_eq!(chosen(Selector::merge), Ok(all));
    }

    #[test]
    fn filters_renumber_the_objects_that_stay() {
        let ground = grid(ROWS);
        let filtered = |filter: &dyn Fn(&mut Selector, &mut [u16]) -> u16| {
            let mut labels = LABELS;
            let count = filter(&mut Selector::default(), &mut labels);
            (count, labels)
        };
        let by_color = |color| filtered(&|s, ls| s.colorfilter(ground.picture(), ls, 3, color));
        let by_size = |size| filtered(&|s, ls| s.sizefilter(ground.picture(), ls, 3, size));
        let row_alone = LABELS.map(|label| u16::from(label == 3));
        assert_eq!(by_color(4), (1, row_alone));
        // The first cell decides: the mixed object has colour 2.
        assert_eq!(by_color(2), (1, LABELS.map(|label| u16::from(label == 2))));
        assert_eq!(by_color(3), (0, [0; 20]));
        assert_eq!(by_size(3), (1, row_alone));
        assert_eq!(by_size(0), (0, [0; 20]));
        assert_eq!(by_size(2), (1, LABELS.map(|label| u16::from(label == 1))));
    }
}

//! Connected components of a grid, numbered in canonical order.
//!
//! Two passes. The first gives every cell a provisional label and records which labels meet; the second
//! numbers the components. Labels are made in row-major order and the lower one always wins, so the
//! components are in the order of their first cells.
//!
//! Mirrors `kernels/cuda/label.cuh`.

use gridpool_protocol::program::Grouping;

use super::Shape;

/// Labels grids. Keeps only memory between calls.
#[derive(Clone, Debug, Default)]
pub struct Labeler {
    /// For each provisional label, a label that it met and that is not greater; 0 is outside.
    parents: Vec<u16>,
}

impl Labeler {
    /// Writes to `labels` each cell's object number from 1, or 0 for cells of `background`, and returns the number
    /// of objects. `background` is the colour that `grouping.without_bg` leaves out; it is `None` exactly if
    /// that is false.
    ///
    /// # Panics
    /// If `cells` or `labels` does not have as many cells as `shape` says.
    pub fn label(
        &mut self,
        grouping: Grouping,
        background: Option<u8>,
        shape: Shape,
        cells: &[u8],
        labels: &mut [u16],
    ) -> u16 {
        let [h, w] = shape.map(usize::from);
        assert_eq!((cells.len(), labels.len()), (h * w, h * w), "a grid has h * w cells");
        match (grouping.univalued, grouping.diagonal) {
            (false, false) => self.scan::<false, false>(background, w, cells, labels),
            (false, true) => self.scan::<false, true>(background, w, cells, labels),
            (true, false) => self.scan::<true, false>(background, w, cells, labels),
            (true, true) => self.scan::<true, true>(background, w, cells, labels),
        }
        let objects = self.number();
        for label in labels {
            *label = self.parents[usize::from(*label)];
        }
        objects
    }

    /// First pass: each cell takes the label of a neighbour before it, or a new one.
    fn scan<const UNIVALUED: bool, const DIAGONAL: bool>(
        &mut self,
        background: Option<u8>,
        w: usize,
        cells: &[u8],
        labels: &mut [u16],
    ) {
        self.parents.clear();
        self.parents.push(0);
        let (mut row, mut col) = (0, 0);
        for (at, &color) in cells.iter().enumerate() {
            let mut label = 0;
            if Some(color) != background {
                let mut meet = |other: usize| {
                    if labels[other] != 0 && (!UNIVALUED || cells[other] == color) {
                        label = self.unite(label, labels[other]);
                    }
                };
                if col > 0 {
                    meet(at - 1);
                }
                if row > 0 {
                    meet(at - w);
                    if DIAGONAL && col > 0 {
                        meet(at - w - 1);
                    }
                    if DIAGONAL && col + 1 < w {
                        meet(at - w + 1);
                    }
                }
                if label == 0 {
                    label = self.fresh();
                }
            }
            labels[at] = label;
            col += 1;
            if col == w {
                (row, col) = (row + 1, 0);
            }
        }
    }

    fn fresh(&mut self) -> u16 {
        let label = u16::try_from(self.parents.len()).expect("a grid has at most 4,096 cells");
        self.parents.push(label);
        label
    }

    /// Records that two labels meet; returns the lower of their roots. 0 meets nothing.
    fn unite(&mut self, a: u16, b: u16) -> u16 {
        if a == 0 || a == b {
            return b;
        }
        let (a, b) = (self.root(a), self.root(b));
        let (low, high) = (a.min(b), a.max(b));
        self.parents[usize::from(high)] = low;
        low
    }

    fn root(&mut self, mut label: u16) -> u16 {
        loop {
            let parent = self.parents[usize::from(label)];
            if parent == label {
                return label;
            }
            // Each visit halves the path for the next.
            let above = self.parents[usize::from(parent)];
            self.parents[usize::from(label)] = above;
            label = above;
        }
    }

    /// Second pass: turns parents into object numbers. A parent is lower than its child, so it already has its
    /// number.
    fn number(&mut self) -> u16 {
        let mut objects = 0;
        for at in 1..self.parents.len() {
            let parent = usize::from(self.parents[at]);
            self.parents[at] = if parent == at {
                objects += 1;
                objects
            } else {
                self.parents[parent]
            };
        }
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(code: u8, background: Option<u8>, shape: Shape, cells: &[u8]) -> (u16, Vec<u16>) {
        let mut labels = vec![u16::MAX; cells.len()];
        let grouping = Grouping::from_code(code).unwrap();
        let count = Labeler::default().label(grouping, background, shape, cells, &mut labels);
        (count, labels)
    }

    /// Labels by flood fill from every cell that has no object yet, in row-major order.
    fn flooded(code: u8, background: Option<u8>, [h, w]: Shape, cells: &[u8]) -> (u16, Vec<u16>) {
        let grouping = Grouping::from_code(code).unwrap();
        let (h, w) = (isize::from(i16::from(h)), isize::from(i16::from(w)));
        let mut labels = vec![0; cells.len()];
        let mut count = 0;
        for start in 0..cells.len() {
            if labels[start] != 0 || Some(cells[start]) == background {
                continue;
            }
            count += 1;
            labels[start] = count;
            let mut stack = vec![start];
            while let Some(at) = stack.pop() {
                let (i, j) = (at.cast_signed() / w, at.cast_signed() % w);
                for (di, dj) in (-1..=1).flat_map(|di| (-1..=1).map(move |dj| (di, dj))) {
                    let inside = (0..h).contains(&(i + di)) && (0..w).contains(&(j + dj));
                    if !inside || (di != 0 && dj != 0 && !grouping.diagonal) {
                        continue;
                    }
                    let next = ((i + di) * w + j + dj).cast_unsigned();
                    let joins = Some(cells[next]) != background
                        && (!grouping.univalued || cells[next] == cells[at]);
                    if joins && labels[next] == 0 {
                        labels[next] = count;
                        stack.push(next);
                    }
                }
            }
        }
        (count, labels)
    }

    #[test]
    fn the_examples_of_the_specification_hold() {
        let mixed = [1, 1, 0, 0, 2, 2];
        assert_eq!(labels(1, Some(0), [2, 3], &mixed), (1, vec![1, 1, 0, 0, 1, 1]));
        assert_eq!(labels(5, Some(0), [2, 3], &mixed), (2, vec![1, 1, 0, 0, 2, 2]));
        let diagonal = [1, 0, 0, 1];
        assert_eq!(labels(7, Some(0), [2, 2], &diagonal), (1, vec![1, 0, 0, 1]));
        assert_eq!(labels(5, Some(0), [2, 2], &diagonal), (2, vec![1, 0, 0, 2]));
    }

    #[test]
    fn all_eight_groupings_differ_as_they_should() {
        let cells = [1, 0, 2, 0, 1, 2, 3, 3, 0];
        let counts: Vec<u16> = (0..8)
            .map(|code| labels(code, (code & 1 == 1).then_some(0), [3, 3], &cells).0)
            .collect();
        // 0 and 2: the whole grid. 1: {1} apart from the rest. 3: one object.
        // 4: 1,0,2,0,1,3,0 = 7. 5: 1,2,1,3 = 4. 6: {1,1},{0,0},2,3,0 = 5. 7: {1,1},2,3 = 3.
        assert_eq!(counts, [1, 2, 1, 1, 7, 4, 5, 3]);
    }

    #[test]
    fn a_grid_of_its_background_has_no_object() {
        assert_eq!(labels(5, Some(4), [2, 2], &[4; 4]), (0, vec![0; 4]));
        assert_eq!(labels(4, None, [2, 2], &[4; 4]), (1, vec![1; 4]));
    }

    #[test]
    fn a_checkerboard_has_900_objects_or_two() {
        let cells: Vec<u8> = (0..900).map(|at| u8::from((at / 30 + at % 30) % 2 == 1)).collect();
        let (count, map) = labels(4, None, [30, 30], &cells);
        assert_eq!(count, 900);
        assert!(map.iter().copied().eq(1..=900));
        assert_eq!(labels(6, None, [30, 30], &cells).0, 2);
        assert_eq!(labels(5, Some(0), [30, 30], &cells).0, 450);
    }

    #[test]
    fn labels_that_meet_late_are_one_object_with_the_lowest_number() {
        // A comb open at the top: five teeth joined by the last row.
        let comb =
            [[1, 0, 1, 0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0, 1, 0, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1]];
        let (count, map) = labels(5, Some(0), [3, 9], comb.as_flattened());
        assert_eq!(count, 1);
        assert!(map.iter().all(|&label| label <= 1));
    }

    #[test]
    fn union_find_agrees_with_flood_fill() {
        let mut seed = 1_u32;
        let mut next = move |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from((seed >> 16) % bound).unwrap()
        };
        for round in 0..600 {
            let shape = if round == 0 { [64, 64] } else { [1 + next(30), 1 + next(30)] };
            let colors = 1 + u32::from(next(4));
            let area = usize::from(shape[0]) * usize::from(shape[1]);
            let cells: Vec<u8> = (0..area).map(|_| next(colors)).collect();
            for code in 0..8 {
                let background = (code & 1 == 1).then_some(cells[0]);
                let got = labels(code, background, shape, &cells);
                assert_eq!(got, flooded(code, background, shape, &cells), "{shape:?} {cells:?}");
            }
        }
    }
}

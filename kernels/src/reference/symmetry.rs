//! The eight symmetries of the square, each from one index formula.
//!
//! Mirrors `kernels/cuda/symmetry.cuh`.

use gridpool_protocol::program::Symmetry;

use super::Shape;

/// Writes the image of `from` under `symmetry` to `to` and returns its shape. Objects and patches are mirrored
/// within their boxes; the empty picture is its own image.
///
/// # Panics
/// If `from` or `to` does not have as many cells as `shape` says.
pub fn apply(symmetry: Symmetry, shape: Shape, from: &[u8], to: &mut [u8]) -> Shape {
    let [h, w] = shape;
    let columns = usize::from(w);
    assert_eq!(
        from.len(),
        usize::from(h) * columns,
        "a picture has as many places as its shape says"
    );
    if from.is_empty() {
        return shape;
    }
    match symmetry {
        Symmetry::Identity => to.copy_from_slice(from),
        Symmetry::Rot180 => {
            to.copy_from_slice(from);
            to.reverse();
        }
        Symmetry::Hmirror => {
            let rows = to.chunks_exact_mut(columns).zip(from.chunks_exact(columns).rev());
            rows.for_each(|(to, from)| to.copy_from_slice(from));
        }
        Symmetry::Vmirror => {
            to.copy_from_slice(from);
            to.chunks_exact_mut(columns).for_each(<[u8]>::reverse);
        }
        // Row i of the image is a column of the input, read down or up.
        Symmetry::Dmirror => rows_from(to, h, |i| column(from, columns, i)),
        Symmetry::Rot90 => rows_from(to, h, |i| column(from, columns, i).rev()),
        Symmetry::Rot270 => rows_from(to, h, |i| column(from, columns, columns - 1 - i)),
        Symmetry::Cmirror => rows_from(to, h, |i| column(from, columns, columns - 1 - i).rev()),
    }
    if symmetry.transposes() { [w, h] } else { shape }
}

/// Column `j` of a grid that is `columns` wide, top to bottom.
fn column(cells: &[u8], columns: usize, j: usize) -> impl DoubleEndedIterator<Item = &u8> {
    cells[j..].iter().step_by(columns)
}

/// Fills `to`, whose rows have `width` cells, with one line of cells for each row.
fn rows_from<'a, L: Iterator<Item = &'a u8>>(to: &mut [u8], width: u8, line: impl Fn(usize) -> L) {
    for (i, row) in to.chunks_exact_mut(usize::from(width)).enumerate() {
        row.iter_mut().zip(line(i)).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(symmetry: Symmetry, shape: Shape, cells: &[u8]) -> (Shape, Vec<u8>) {
        let mut to = vec![0; cells.len()];
        let shape = apply(symmetry, shape, cells, &mut to);
        (shape, to)
    }

    #[test]
    fn each_symmetry_has_its_image_of_an_asymmetric_grid() {
        let cases: [(Symmetry, Shape, [u8; 6]); 8] = [
            (Symmetry::Identity, [2, 3], [1, 2, 3, 4, 5, 6]),
            (Symmetry::Rot90, [3, 2], [4, 1, 5, 2, 6, 3]),
            (Symmetry::Rot180, [2, 3], [6, 5, 4, 3, 2, 1]),
            (Symmetry::Rot270, [3, 2], [3, 6, 2, 5, 1, 4]),
            (Symmetry::Hmirror, [2, 3], [4, 5, 6, 1, 2, 3]),
            (Symmetry::Vmirror, [2, 3], [3, 2, 1, 6, 5, 4]),
            (Symmetry::Dmirror, [3, 2], [1, 4, 2, 5, 3, 6]),
            (Symmetry::Cmirror, [3, 2], [6, 3, 5, 2, 4, 1]),
        ];
        for (symmetry, shape, cells) in cases {
            let (got_shape, got) = image(symmetry, [2, 3], &[1, 2, 3, 4, 5, 6]);
            assert_eq!((got_shape, got.as_slice()), (shape, &cells[..]), "{symmetry:?}");
        }
    }

    #[test]
    fn the_eight_form_the_group_of_the_square() {
        let cells: Vec<u8> = (0..35).collect();
        let images: Vec<_> = Symmetry::ALL.map(|s| image(s, [5, 7], &cells)).to_vec();
        for (shape, cells) in &images {
            for symmetry in Symmetry::ALL {
                let product = image(symmetry, *shape, cells);
                assert!(images.contains(&product), "{symmetry:?} leaves the group");
            }
        }
        let twice = |s, t| {
            let (shape, once) = image(s, [5, 7], &cells);
            image(t, shape, &once)
        };
        assert_eq!(
            twice(Symmetry::Rot90, Symmetry::Rot90),
            image(Symmetry::Rot180, [5, 7], &cells)
        );
        assert_eq!(twice(Symmetry::Rot90, Symmetry::Rot270).1, cells);
        assert_eq!(twice(Symmetry::Dmirror, Symmetry::Hmirror).1, {
            image(Symmetry::Rot270, [5, 7], &cells).1
        });
    }

    #[test]
    fn two_symmetries_in_sequence_are_their_product() {
        let cells: Vec<u8> = (0..35).collect();
        for first in Symmetry::ALL {
            let (shape, once) = image(first, [5, 7], &cells);
            for next in Symmetry::ALL {
                let both = image(first.then(next), [5, 7], &cells);
                assert_eq!(image(next, shape, &once), both, "{first:?} and then {next:?}");
            }
        }
    }

    #[test]
    fn lines_and_single_cells_keep_their_cells() {
        for symmetry in Symmetry::ALL {
            assert_eq!(image(symmetry, [1, 1], &[7]), ([1, 1], vec![7]));
            let (shape, cells) = image(symmetry, [1, 3], &[1, 2, 3]);
            assert_eq!(shape, if symmetry.transposes() { [3, 1] } else { [1, 3] });
            assert!(cells == [1, 2, 3] || cells == [3, 2, 1]);
            assert_eq!(image(symmetry, [0, 0], &[]), ([0, 0], vec![]));
        }
    }
}

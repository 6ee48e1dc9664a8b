//! What symmetries do one after the other.

use super::ops::Symmetry;

impl Symmetry {
    /// Whether height and width change places.
    #[must_use]
    pub fn transposes(self) -> bool {
        self.axes().transposes
    }

    /// The one that does what this and then `next` do.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let (first, second) = (self.axes(), next.axes());
        // What `next` calls rows are columns of the input if this one transposes.
        let [rows, cols] = match first.transposes {
            true => [second.flips[1], second.flips[0]],
            false => second.flips,
        };
        let axes = Axes {
            transposes: first.transposes != second.transposes,
            flips: [first.flips[0] != rows, first.flips[1] != cols],
        };
        let same = |symmetry: &Self| symmetry.axes() == axes;
        Self::ALL.into_iter().find(same).expect("the eight are closed")
    }

    /// Of an image of h x w cells: `out[i][j]` is `in[j][i]` for dmirror, `in[h-1-i][j]` for hmirror,
    /// `in[h-1-j][i]` for rot90.
    fn axes(self) -> Axes {
        let (transposes, flips) = match self {
            Self::Cmirror => (true, [true, true]),
            Self::Dmirror => (true, [false, false]),
            Self::Hmirror => (false, [true, false]),
            Self::Identity => (false, [false, false]),
            Self::Rot180 => (false, [true, true]),
            Self::Rot270 => (true, [false, true]),
            Self::Rot90 => (true, [true, false]),
            Self::Vmirror => (false, [false, true]),
        };
        Axes { transposes, flips }
    }
}

/// Where cell (i, j) of an image comes from: row i or, of a transposing symmetry, row j of the input,
/// or that counted from the last if rows are flipped; columns alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Axes {
    transposes: bool,
    flips: [bool; 2],
}

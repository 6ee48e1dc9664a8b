//! Grids and programs that look random and are the same in every run.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Program, Ties};

/// Every op, and after a colon what its arguments are: colours `c`, lengths `n`, factors `f`, shifts
/// `s`, sizes `z`, indices `i`, keys `k`, booleans `b`, an op on a tuple's elements `o`. Ops that lead
/// on to many others are there more than once.
const OPS: &str = "
    identity hmirror vmirror dmirror cmirror rot90 rot180 rot270 replace:cc switch:cc mostcolor
    leastcolor palette numcolors colorcount:c objects:bbb objects:bbb objects:bbb partition
    fgpartition colorfilter:c sizefilter:z argmax:k argmin:k first last second nth:i merge size
    ofcolor:c asindices asobject toindices toobject recolor:c shift:ss shift:ss normalize
    backdrop delta box inbox outbox corners fill:c underfill:c cover paint underpaint move:ss
    subgrid crop:nnnn tophalf bottomhalf lefthalf righthalf trim compress upscale:f hupscale:f
    vupscale:f downscale:f canvas:cff hsplit:f vsplit:f hconcat vconcat cellwise:c apply:o
    apply:o apply:o height width shape square portrait hline vline uppermost lowermost leftmost
    rightmost ulcorner urcorner llcorner lrcorner center centerofmass color
";

const KEYS: [&str; 8] =
    ["size", "height", "width", "color", "uppermost", "lowermost", "leftmost", "rightmost"];

/// xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % bound
    }

    pub(crate) fn shuffle(&mut self, cells: &mut [u8]) {
        for at in 0..cells.len() {
            let other = at + self.below(cells.len() - at);
            cells.swap(at, other);
        }
    }

    /// A grid of up to ten colours that come in runs, as in ARC's grids, so that objects grow.
    pub(crate) fn grid(&mut self, h: usize, w: usize) -> Grid {
        let colors = 1 + self.below(10);
        let palette: Vec<usize> = (0..colors).map(|_| self.below(10)).collect();
        let change = 1 + self.below(4);
        let mut cells = Vec::with_capacity(h * w);
        let mut color = palette[0];
        for _ in 0..h * w {
            if self.below(change) == 0 {
                color = palette[self.below(colors)];
            }
            cells.push(u8::try_from(color).expect("colours are small"));
        }
        Grid::new(h, w, cells).expect("the sides are within the limits")
    }

    pub(crate) fn ragged(&mut self, items: usize) -> Vec<Grid> {
        let grid = |_| {
            let (h, w) = (1 + self.below(30), 1 + self.below(30));
            self.grid(h, w)
        };
        (0..items).map(grid).collect()
    }

    /// A program of up to `length` ops. Most start with a grid, some with a pair.
    pub(crate) fn program(&mut self, length: usize) -> Program {
        let ties = if self.below(2) == 0 { Ties::Cpython } else { Ties::Lowest };
        let wanted = 1 + self.below(length);
        let (mut text, mut program) = (String::new(), None);
        let mut ops = 0;
        // After a number nothing compiles; so the tries are counted, not the ops.
        for _ in 0..40 * wanted {
            let op = self.op();
            let longer = if ops == 0 { op } else { format!("{text} | {op}") };
            if let Ok(compiled) = Program::compile(&longer, ties) {
                (text, program) = (longer, Some(compiled));
                ops += 1;
            }
            if ops == wanted {
                break;
            }
        }
        program.expect("some op works on a grid")
    }

    fn op(&mut self) -> String {
        let ops: Vec<_> = OPS.split_whitespace().collect();
        let op = ops[self.below(ops.len())];
        let Some((name, arguments)) = op.split_once(':') else { return op.to_owned() };
        let arguments: Vec<_> = arguments.chars().map(|kind| self.argument(kind)).collect();
        format!("{name}({})", arguments.join(", "))
    }

    fn argument(&mut self, kind: char) -> String {
        let small = |n: usize| i32::try_from(n).expect("arguments are small");
        match kind {
            'b' => (self.below(2) == 0).to_string(),
            'c' => self.below(10).to_string(),
            'f' => (1 + self.below(4)).to_string(),
            'i' => (small(self.below(7)) - 3).to_string(),
            'k' => KEYS[self.below(KEYS.len())].to_owned(),
            'n' => self.below(20).to_string(),
            'o' => self.op(),
            's' => (small(self.below(15)) - 7).to_string(),
            _ => self.below(6).to_string(),
        }
    }
}

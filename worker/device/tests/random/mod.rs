//! Grids and programs that look random and are equal in every run.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Accepts, Key, OPS, Parameter, Program, Ties};

/// Ops that lead on to many others: they are drawn more often.
const OFTEN: [&str; 4] = ["objects", "shift", "apply", "apply"];

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
        // Nothing compiles after a number, so tries are counted instead of ops.
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
        let often = |name: &&str| OPS.iter().find(|op| op.name == *name).expect("it is an op");
        let ops: Vec<_> = OPS.iter().chain(OFTEN.iter().map(often)).collect();
        let op = ops[self.below(ops.len())];
        if op.parameters.is_empty() {
            return op.name.to_owned();
        }
        let arguments: Vec<_> = op.parameters.iter().map(|p| self.argument(*p)).collect();
        format!("{}({})", op.name, arguments.join(", "))
    }

    fn argument(&mut self, parameter: Parameter) -> String {
        let small = |n: usize| i16::try_from(n).expect("arguments are small");
        match parameter.accepts {
            Accepts::Flag => (self.below(2) == 0).to_string(),
            Accepts::Color => self.below(10).to_string(),
            Accepts::Key => Key::ALL[self.below(Key::ALL.len())].name().to_owned(),
            Accepts::Program => self.op(),
            // Tuples as wide as they may be, and pictures as large.
            Accepts::Number { max, .. } if ["factor", "parts"].contains(&parameter.name) => {
                [1, 2, 3, 4, max][self.below(5)].to_string()
            }
            // Mostly around 0: offsets far away leave little of a grid.
            Accepts::Number { min, max } => {
                let near = small(self.below(15)) - 7;
                let number = if min < 0 { near } else { min + small(self.below(8)) };
                number.clamp(min, max).to_string()
            }
        }
    }
}

//! Blocks of lines, side by side as far as the screen is wide.
//!
//! Owns layout. May not read the lines: each line brings its width, since escape sequences take none.

use std::io::{self, Write};

/// Columns between two blocks.
const GAP: usize = 2;

/// One line and the columns that it takes on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StyledLine {
    pub(super) text: String,
    pub(super) columns: usize,
}

impl From<String> for StyledLine {
    fn from(text: String) -> Self {
        let columns = text.chars().count();
        Self { text, columns }
    }
}

/// Lines that belong together, top to bottom.
pub(super) type Block = Vec<StyledLine>;

/// Blocks from left to right in rows, as one block. A block that is wider than the screen has its own row. A
/// blank line separates a row of pictures from the next.
pub(super) fn arrange(blocks: &[Block], columns: usize) -> Block {
    let mut lines = Block::new();
    let mut rest = blocks;
    while !rest.is_empty() {
        let mut used = 0;
        let fits = rest.iter().take_while(|block| {
            used += width(block) + GAP;
            used - GAP <= columns
        });
        let (row, below) = rest.split_at(fits.count().max(1));
        lines.append(&mut beside(row));
        if !below.is_empty() && row.iter().any(|block| block.len() > 1) {
            lines.push(StyledLine::default());
        }
        rest = below;
    }
    lines
}

/// Writes blocks as [`arrange`] lays them out.
pub(super) fn flow(out: &mut dyn Write, blocks: &[Block], columns: usize) -> io::Result<()> {
    arrange(blocks, columns).iter().try_for_each(|line| writeln!(out, "{}", line.text))
}

/// Blocks side by side, aligned at the top.
fn beside(row: &[Block]) -> Block {
    let height = row.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = vec![StyledLine::default(); height];
    for (number, joined) in lines.iter_mut().enumerate() {
        let mut start = 0;
        for block in row {
            if let Some(line) = block.get(number).filter(|line| line.columns > 0) {
                let blank = start - joined.columns;
                joined.text.push_str(&format!("{:blank$}{}", "", line.text));
                joined.columns = start + line.columns;
            }
            start += width(block) + GAP;
        }
    }
    lines
}

fn width(block: &Block) -> usize {
    block.iter().map(|line| line.columns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowed(blocks: &[&[&str]], columns: usize) -> String {
        let block = |lines: &&[&str]| -> Block {
            lines.iter().map(|line| StyledLine::from((*line).to_owned())).collect()
        };
        let blocks: Vec<Block> = blocks.iter().map(block).collect();
        let mut out = Vec::new();
        flow(&mut out, &blocks, columns).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn blocks_stand_side_by_side_until_the_screen_is_full() {
        let blocks: &[&[&str]] = &[&["aaa", "a"], &["b"], &["ccc", "c", "ccc"], &["d"]];
        assert_eq!(flowed(blocks, 80), "aaa  b  ccc  d\na       c\n        ccc\n");
        assert_eq!(flowed(blocks, 11), "aaa  b  ccc\na       c\n        ccc\n\nd\n");
        assert_eq!(flowed(blocks, 10), "aaa  b\na\n\nccc  d\nc\nccc\n");
    }

    #[test]
    fn a_block_wider_than_the_screen_stands_alone() {
        assert_eq!(flowed(&[&["a"], &["bbbb"], &["c"]], 2), "a\nbbbb\nc\n");
        assert_eq!(flowed(&[], 2), "");
    }
}

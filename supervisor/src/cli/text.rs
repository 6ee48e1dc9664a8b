//! Plain text on a screen of some width: wraps words into lines and cells into columns.

/// Columns between two cells of a table.
const GAP: usize = 2;

/// The words of `text` in lines of at most `columns` characters; a longer word has its own line.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A table whose columns, but for the last, are as wide as their longest cells.
pub(super) fn fitted<const N: usize>(rows: &[[String; N]], columns: usize) -> String {
    let longest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..N - 1).map(|column| longest(column).unwrap_or(0)).collect();
    table(rows, &widths, columns)
}

/// Rows of cells, each cell wrapped within its column. `widths` are those of all columns but the last, which
/// takes the rest of the screen.
pub(super) fn table<const N: usize>(
    rows: &[[String; N]],
    widths: &[usize],
    columns: usize,
) -> String {
    let taken: usize = widths.iter().map(|width| width + GAP).sum();
    let last = columns.saturating_sub(taken).max(GAP);
    let widths: Vec<usize> = widths.iter().copied().chain([last]).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<Vec<String>> =
            row.iter().zip(&widths).map(|(cell, &width)| wrap(cell, width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for number in 0..height {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(&widths) {
                let piece = cell.get(number).map_or("", String::as_str);
                let fill = (width + GAP).saturating_sub(piece.chars().count());
                line.push_str(&format!("{piece}{:fill$}", ""));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_between_and_never_within() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible to me", 5), ["incomprehensible", "to me"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn cells_stand_in_columns_and_wrap_within_them() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let rows = [row(["a", "one two three"]), row(["long signature", "x"])];
        assert_eq!(table(&rows, &[5], 14), "a      one two\n       three\nlong   x\nsignature\n");
    }
}

//! What Python has and the language has not, and what to write instead.

/// Statements of Python that the language has not.
pub(super) const BLOCKS: &[&str] = &[
    "for", "while", "if", "elif", "else", "class", "with", "try", "except", "finally", "async",
    "assert",
];

/// What to write instead of them.
pub(super) const INSTEAD_OF_BLOCKS: &str = "write branch(condition, a, b) to choose, and \
     apply(function, container), sfilter(container, condition) or another function for a loop";

/// What to write instead of a sign or word of Python.
pub(super) fn instead(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "+" => "write add(a, b), or combine(a, b) for containers",
        "-" => "write subtract(a, b)",
        "*" => "write multiply(a, b)",
        "/" | "//" => "write divide(a, b), which rounds down",
        "==" => "write equality(a, b)",
        "!=" | "not" => "write flip(equality(a, b)), or flip(a)",
        "<" | ">" => "write greater(a, b)",
        "and" => "write both(a, b)",
        "or" => "write either(a, b)",
        "in" => "write contained(value, container)",
        "[" => "write first(x), last(x), or index(grid, loc) for a cell",
        "{" => "write initset(value) and insert(value, set)",
        "." => "values have no attributes: write function(value)",
        "if" | "else" => "write branch(condition, a, b)",
        "&" => "write intersection(a, b)",
        _ => return None,
    })
}

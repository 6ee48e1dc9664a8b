//! What Python has and the language has not, and what to write instead.

/// Statements of Python that the language has not.
pub(super) const BLOCKS: &[&str] = &[
    "for", "while", "break", "continue", "if", "elif", "else", "class", "with", "try", "except",
    "finally", "async", "assert", "pass", "del", "global", "nonlocal", "raise", "yield",
];

/// What is expected in some places.
pub(super) const A_VALUE: &str = "a name, a number or a call";
pub(super) const A_PARAMETER: &str = "the name of a parameter";
pub(super) const BEHIND_A_PARAMETER: &str = "`,` or `)`";
pub(super) const BEHIND_A_PARAMETER_OF_A_LAMBDA: &str = "`,` or `:`";
pub(super) const A_TYPE: &str = "a type";
pub(super) const A_NUMBER: &str = "a number after `-`";
pub(super) const THE_END: &str = "the end of the line";

/// What to write instead of what stands where something else is expected.
pub(super) fn instead_of_expected(what: &str, found: &str) -> Option<&'static str> {
    match (what, found) {
        (A_PARAMETER, "/") => Some("leave it out: each argument may be named, or not"),
        (A_VALUE | A_PARAMETER, _) => instead_of_value(found),
        (BEHIND_A_PARAMETER | BEHIND_A_PARAMETER_OF_A_LAMBDA, "=") => {
            Some("parameters have no defaults: write the name alone, and the value in each call")
        }
        (A_NUMBER, _) => Some("write invert(n)"),
        (THE_END, "=") => Some("on the left of `=` stands one name"),
        _ => instead(found),
    }
}

/// What to write instead of a statement that the language has not.
pub(super) fn instead_of_block(word: &str) -> &'static str {
    match word {
        "for" | "while" | "break" | "continue" => {
            "write apply(function, container), sfilter(container, condition), power(function, n) or another function \
             for a loop"
        }
        "if" | "elif" | "else" => "write branch(condition, a, b) to choose",
        _ => "leave it out: a function is lines NAME = … and a return",
    }
}

/// What to write instead of a sign or word of Python behind a value.
pub(super) fn instead(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "+" => "write add(a, b), or combine(a, b) for containers",
        "-" => "write subtract(a, b)",
        "*" => "write multiply(a, b)",
        "/" | "//" => "write divide(a, b), which rounds down",
        "==" | "is" => "write equality(a, b)",
        "!=" | "not" => "write flip(equality(a, b)), or flip(a)",
        "<" | ">" => "write greater(a, b)",
        "<=" | ">=" => "write flip(greater(a, b)), which is a <= b",
        "and" => "write both(a, b)",
        "or" => "write either(a, b)",
        "in" => "write contained(value, container)",
        "[" => {
            "write first(x), last(x), index(grid, loc) for a cell, or crop(grid, start, dims) for a part"
        }
        "{" => "write initset(value) and insert(value, set)",
        "." => "values have no attributes: write function(value)",
        "if" | "else" => "write branch(condition, a, b)",
        "for" => "write apply(function, container), or sfilter(container, condition)",
        "&" => "write intersection(a, b)",
        ":=" => "write NAME = … on a line of its own",
        _ => return None,
    })
}

/// What to write instead of a sign of Python where a value should begin.
fn instead_of_value(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "[" => "write (a, b) for a tuple, or apply(function, container) for all elements",
        "*" | "**" => "write the values one by one",
        "@" => "leave it out: functions have no decorators",
        _ => return instead(sign).filter(|_| matches!(sign, "{" | "not")),
    })
}

/// What to write instead of a function or value of Python that the language has not.
pub(super) fn instead_of_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "len" => "write size(container)",
        "range" => "write interval(start, stop, step)",
        "max" => "write maximum(container), or argmax(container, compfunc)",
        "min" => "write minimum(container), or argmin(container, compfunc)",
        "sorted" => "write order(container, compfunc)",
        "tuple" | "list" => "write totuple(container), or (a, b)",
        "set" | "frozenset" => "write initset(value) and insert(value, set)",
        "zip" => "write pair(a, b)",
        "map" => "write apply(function, container)",
        "filter" => "write sfilter(container, condition)",
        "print" => "leave it out: --trace gives the value of a line",
        _ => return None,
    })
}

/// The sign of ASCII that one of another alphabet looks like.
pub(super) fn look_alike(sign: char) -> Option<char> {
    Some(match sign {
        '（' => '(',
        '）' => ')',
        '，' => ',',
        '：' => ':',
        '；' => ';',
        '＝' => '=',
        '｜' => '|',
        '−' | '–' | '—' => '-',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::program::Ties;
    use crate::solver::{Solver, Source, traced};

    #[test]
    fn what_python_has_and_the_language_has_not_is_told_once_with_what_to_write() {
        let cases = [
            ("O = [1, 2]", "write (a, b) for a tuple, or apply"),
            ("O = [size(o) for o in I]", "apply(function, container)"),
            ("O = I[1:2]", "crop(grid, start, dims)"),
            ("O = rot90(I) if portrait(I) else I", "write branch"),
            ("O = totuple(r for r in I)", "write apply"),
            ("O = flip(T and F)", "write both"),
            ("O = flip(T or F)", "write either"),
            ("O = rot90(x := I)", "on a line of its own"),
            ("x = 3\nO = add(-x, I)", "write invert(n)"),
            (
                "a, b = I",
                "2 names stand on the left of `=`; how many values a grid has is known only when",
            ),
            (
                "a, b, c = shape(I)\nO = canvas(a, (b, c))",
                "3 names stand on the left of `=`; a vector has 2 values",
            ),
            (
                "a, b = (1, 2, 3)\nO = a",
                "2 names stand on the left of `=`; a tuple of numbers has 3 values",
            ),
            ("a, b = palette(I)\nO = a", "write first(name) and last(name)"),
            ("(a, b), c = I", "this is no name, and stands on the left"),
            ("first(I), b = I", "this is no name, and stands on the left"),
            ("a, *b = I", "write the values one by one"),
            ("x = y = I", "one name"),
            ("@cache\ndef f(I):\n    return I", "no decorators"),
            ("def f(*a):\n    return a", "one by one"),
            ("def f(I):\n    pass", "the language has no `pass`"),
            ("def f(I):\n    global x\n    return I", "the language has no `global`"),
            ("for x in I:\n  O = I", "sfilter(container, condition)"),
            ("O = replace(I, 1.5, 2)", "`1.5` is no whole number"),
            ("O = replace(I, 0x3, 2)", "`0x3` is no decimal number"),
            ("O = replace(I, 007, 2)", "`007` is no number"),
            ("O = replace(I, 007, 2)", "write 7"),
            ("O = canvas(0, (1__0, 2))", "write 10"),
            ("O = canvas(0, (10_, 2))", "write 10"),
            ("1x = I", "names begin with a letter"),
            ("O = replace(I, 'red', 3)", "there are no strings"),
            ("x = f'{I}'\nO = I", "there are no strings"),
            ("O = rot90（I)", "write `(`"),
            ("O = add(1, −2)", "write `-`"),
            ("O = rot90\u{200b}(I)", "U+200B is not in the language"),
            ("O = rot\0(I)", "U+0000"),
            ("O = replace(I, ?a:color, 3)", "`gridpool search` runs templates"),
            ("```python\nO = I", "leave this line out"),
            ("O = ofcolor(I, 1) | ofcolor(I, 2)", "write combine(a, b)"),
            ("O = len(I)", "write size(container)"),
            ("O = sorted(I)", "write order"),
            ("print(I)\nO = I", "--trace"),
            ("O = replace(I, ZER0, 1)", "close to it: ZERO"),
            ("O = replace(I, ELEVEN, 1)", "or write the number as it is: 11, -3"),
            ("O = replace(I, NEG_THREE, 1)", "write the number as it is: 11, -3"),
            ("import numpy", "the program has no statement"),
        ];
        for (text, want) in cases {
            let mistakes = Solver::compile(text, Ties::Cpython).unwrap_err();
            let said = mistakes.to_string();
            assert!(said.contains(want), "{text}\nsays\n{said}\nnot\n{want}");
            assert_eq!(mistakes.all().len(), 1, "{said}");
        }
        let typed = "def f(I: Grid) -> Grid:\n    x: Grid = rot90(I)\n    return x";
        assert!(Solver::compile(typed, Ties::Cpython).is_ok());
    }

    #[test]
    fn files_of_python_are_read_as_they_are_written() {
        let same = [
            // Types of every sort.
            "def f(I: 'Grid') -> 'Grid':\n    return rot90(I)",
            "def f(I: Tuple[Tuple[int, ...], ...] | None) -> tuple[tuple[int, ...], ...]:\n    return rot90(I)",
            "def f(I):\n    g: Callable[[Grid], Grid] = rot90\n    x: FrozenSet[Tuple[int, int]]\n    return g(I)",
            "def f(I):\n    x: int; O: list[list[int]] = rot90(I)\n    return O",
            "O: \"Grid\" = rot90(I)",
            // Descriptions.
            "def f(I):\n    r\"\"\"A \\d \\\"\"\" quarter.\"\"\"\n    return rot90(I)",
            "def f(I):\n    'it\\'s' 'turned'\n    f'{I}'\n    return rot90(I)",
            "def f(I): 'Turns.'; return rot90(I)",
            "'''A file.'''\nO = rot90(I)",
            // What runs the file as a script.
            "def f(I):\n    return rot90(I)\n\nif __name__ == '__main__':\n    for x in y['z']:\n        f(x[0.5])",
            "def f(I):\n    return rot90(I)\nif __name__ == \"__main__\": main(`x`)",
            // A function in the place of a constant.
            "def F(x):\n    return rot90(x)\ndef f(I):\n    return F(I)",
            "def UP(x):\n    return rot90(x)\nO = UP(I)",
        ];
        let hash = |text: &str| match Solver::compile(text, Ties::Cpython) {
            Ok(solver) => solver.hash().to_string(),
            Err(mistakes) => panic!("{text}\nsays\n{mistakes}"),
        };
        for text in same {
            assert_eq!(hash(text), hash("O = rot90(I)"), "{text}");
        }
    }

    #[test]
    fn a_statement_may_give_several_names_their_values() {
        let same = [
            (
                "h, w = shape(I)\nO = canvas(h, (w, h))",
                "O = canvas(first(shape(I)), astuple(last(shape(I)), first(shape(I))))",
            ),
            (
                "(a, b) = (rot90(I), hmirror(I))\nO = hconcat(b, a)",
                "a = rot90(I)\nb = hmirror(I)\nO = hconcat(b, a)",
            ),
            (
                "a = rot90(I)\nb = hmirror(I)\na, b, = b, a\nO = hconcat(a, b)",
                "a = rot90(I)\nb = hmirror(I)\nO = hconcat(b, a)",
            ),
            (
                "l, r = hsplit(I, 2)\nO = hconcat(r, l)",
                "x = hsplit(I, TWO)\nl = first(x)\nO = hconcat(last(x), l)",
            ),
            (
                "c, (i) = first(asobject(I))\nj, k = i\nO = canvas(c, (k, j))",
                "x = first(asobject(I))\nc = first(x)\ni = last(x)\nj = first(i)\nO = canvas(c, astuple(last(i), j))",
            ),
            (
                "def g(x):\n    return rot90(x), hmirror(x)\ndef f(I):\n    a, b = g(I)\n    return vconcat(b, a)",
                "a = rot90(I)\nb = hmirror(I)\nx = (a, b)\nO = vconcat(b, a)",
            ),
            ("f, g = rot90, hmirror\nO = f(g(I))", "O = rot90(hmirror(I))"),
            ("A, B = ONE, TWO\ndef f(I):\n    return replace(I, A, B)", "O = replace(I, ONE, TWO)"),
            ("O = 1, 2", "O = (1, 2)"),
            ("x = I,\nO = first(x)", "O = first((I,))"),
        ];
        let hash = |text: &str| match Solver::compile(text, Ties::Cpython) {
            Ok(solver) => solver.hash().to_string(),
            Err(mistakes) => panic!("{text}\nsays\n{mistakes}"),
        };
        for (text, plain) in same {
            assert_eq!(hash(text), hash(plain), "{text}");
        }
        let text = "K = ONE\nA, B = astuple(K, TWO)\ndef g(I):\n    return I\ndef f(I):\n    return replace(I, A, B)\n";
        let (part, _) = Source::parse(text).unwrap().extract("f").unwrap();
        assert_eq!(hash(&part), hash(text), "{part}");
        // What has no name of its own takes no memory for one.
        let [names, values] = ["a", "I"].map(|word| vec![word; 4_000].join(","));
        let solver = Solver::compile(&format!("{names}={values}\nO=a"), Ties::Cpython).unwrap();
        let names = solver.lines().iter().filter_map(|line| line.name.as_ref());
        assert!(names.map(String::len).sum::<usize>() < 5_000);
        let of_line = traced("h, w = shape(I)\nO = canvas(h, (w, h))", "h").unwrap();
        assert_eq!(hash(&of_line), hash("x = shape(I)\nh = first(x)\nw = last(x)\nO = h"));
    }

    #[test]
    fn what_is_wrong_with_arguments_parameters_and_types_is_told_with_what_to_write() {
        let cases = [
            ("O = fill(grid=I, patch=ofcolor(I, 0))", "the argument `value` is missing\n"),
            (
                "O = fill(I, value=3, value=4, patch=I)",
                "no argument `value` here, or it is given twice",
            ),
            ("f = rbind(add, 3)\nO = f(x=2)", "write the values alone, without names"),
            ("def f(I, k=3):\n    return I", "parameters have no defaults: write the name alone"),
            ("f = lambda x, k=3: x\nO = f(I)", "parameters have no defaults: write the name alone"),
            ("f = lambda *a: I\nO = f()", "write the values one by one"),
            ("def f(I, /):\n    return I", "leave it out: each argument may be named"),
            ("def f(I:):\n    return I", "expected a type, found `)`"),
            ("x: = rot90(I)\nO = x", "expected a type, found `=`"),
            ("O = rot90(I) # a remark\rO = hmirror(O)", "end lines by a line feed"),
            ("x = 'a\\'b'\nO = I", "there are no strings"),
            (
                "def f(I):\n    if __name__ == '__main__':\n        f(0.5)\n    return I",
                "the language has no `if`",
            ),
            // What would hide the lines below it.
            (
                "def f(I):\n    return I\nif __name__ == '__main__':\n    main(\nO = hmirror(I)",
                "a bracket that this line opens is never closed",
            ),
            (
                "def f(I):\n    return I\nif __name__ == '__main__':\n    main(\nO = I\ndef g(I):\n    return I",
                "a bracket that this line opens is never closed",
            ),
            ("from dsl import (a,\nO = I", "a bracket that this line opens is never closed"),
            ("rotated_a, b = rot90(I), I\nO = rotated", "close to it: rotated_a"),
            (
                "def f(I):\n    return I\nif __name__ == '__main__':\n    '''\ndef g(I):\n    return I",
                "this string is never closed",
            ),
            ("() = I\nO = I", "no name stands on the left of `=`"),
            ("x: int) = I\nO = I", "found `)`"),
            (
                "a, b = rot90(I), hmirror(I)\ndef f(I):\n    return I",
                "this line stands outside of functions",
            ),
        ];
        for (text, want) in cases {
            let mistakes = Solver::compile(text, Ties::Cpython).unwrap_err();
            let said = mistakes.to_string();
            assert!(said.contains(want), "{text}\nsays\n{said}\nnot\n{want}");
            assert!(!said.contains("rotated_a, "), "nobody can write that name: {said}");
            assert_eq!(mistakes.all().len(), 1, "{said}");
        }
    }
}

//! Texts that compile and texts that do not.

use super::*;

fn error(text: &str) -> ProgramError {
    Program::compile(text, Ties::Cpython).expect_err(text)
}

#[test]
fn canonical_text_compiles_to_the_same_program() {
    for spec in OPS {
        let program = Program::compile(&spec.example(), Ties::Lowest).unwrap();
        let again = Program::compile(program.text(), Ties::Lowest).unwrap();
        assert_eq!(program, again);
        let (_, gives) = spec.kinds()[0];
        assert_eq!(program.gives(), gives, "{}", spec.name);
    }
}

#[test]
fn canonical_texts_are_the_shortest_plain_form() {
    let cases = [
        ("fill(5,ofcolor(0))", "ofcolor(0) | fill(5)"),
        ("subgrid(o_g(5)|argmax( size ))", "objects(true, false, true) | argmax(size) | subgrid"),
        ("move(-1, 2, asobject)", "asobject | move(-1, 2)"),
        ("mapply(rot90|rot90)", "apply(rot90) | apply(rot90)"),
        ("apply(fill(1, ofcolor(2)))", "apply(ofcolor(2)) | apply(fill(1))"),
        ("get_nth_t(-1)", "second"),
        ("last", "second"),
        ("nth(0) | trim", "first | trim"),
        ("o_g(4) | nth(-1) | center", "objects(true, false, false) | last | center"),
        ("o_g(0) | nth(0)", "objects(false, false, false) | first"),
        ("hsplit(3) | last", "hsplit(3) | nth(2)"),
        ("vsplit(3)|mapply(hmirror)|vconcat", "vsplit(3) | apply(hmirror) | vconcat"),
    ];
    for (text, want) in cases {
        assert_eq!(Program::compile(text, Ties::Cpython).unwrap().text(), want);
    }
}

#[test]
fn kinds_flow_from_step_to_step() {
    let types = |text: &str| {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        (program.takes(), program.gives())
    };
    let grid = Type::one(Kind::Grid);
    assert_eq!(types("cellwise(0)"), (Type::PAIR, grid));
    assert_eq!(types("apply(palette)"), (Type::PAIR, Type::tuple(Kind::Colors, 2)));
    assert_eq!(types("hsplit(4)"), (grid, Type::tuple(Kind::Grid, 4)));
    assert_eq!(types("o_g(1) | merge | toindices"), (grid, Type::one(Kind::Patch)));
    assert_eq!(types("first | o_g(1) | size"), (Type::PAIR, Type::one(Kind::Number)));
    assert_eq!(types("ofcolor(1) | hline"), (grid, Type::one(Kind::Flag)));
    assert_eq!(types("asobject | ulcorner"), (grid, Type::one(Kind::Vector)));
}

#[test]
fn synonyms_share_a_hash_and_tie_modes_do_not() {
    let hash = |text, ties| Program::compile(text, ties).unwrap().hash().to_owned();
    assert_eq!(hash("o_g(5)", Ties::Cpython), hash("objects(true,false,true)", Ties::Cpython));
    assert_eq!(hash("transpose", Ties::Cpython), hash(" dmirror ", Ties::Cpython));
    assert_ne!(hash("rot90", Ties::Cpython), hash("rot90", Ties::Lowest));
}

#[test]
fn errors_point_at_the_place_and_say_what_to_write() {
    let cases = [
        ("rot9", 0..4, "there is no op `rot9`", "close to it: rot90"),
        ("rot90 | flip", 8..12, "`flip` is a boolean not", ""),
        ("replace(1)", 0..10, "`replace` takes 2 arguments, got 1", "write replace(old, new)"),
        ("replace(1, 12)", 11..13, "`new` of `replace` is a colour from 0 to 9, got `12`", ""),
        ("replace(-1, 2)", 8..10, "`old` of `replace` is a colour from 0 to 9, got `-1`", ""),
        ("objects(1, true, true)", 8..9, "`univalued` of `objects` is `true` or `false`", ""),
        ("objects(True, true, true)", 8..12, "write `true` or `false` instead of `True`", ""),
        ("o_g(8)", 4..5, "`type` of `o_g` is a number from 0 to 7, got `8`", ""),
        ("first | first", 8..13, "works on a list of objects or a pair or tuple of grids, but", ""),
        ("argmax(size)", 0..6, "a list of objects, but a program starts with a grid", ""),
        ("apply(rot90) | rot90", 15..20, "gives a pair of grids", "write apply(rot90)"),
        ("rot90 | apply(rot90)", 8..13, "`apply` works on a pair or tuple, but", ""),
        ("apply(5)", 6..7, "`program` of `apply` is an op, or ops joined by `|`, got `5`", ""),
        ("apply(hsplit(2))", 6..15, "inside `apply` each element must stay one value", ""),
        ("apply(rot90, 1)", 0..15, "`apply` takes 1 argument, got 2", "write apply(program)"),
        ("nth(2)", 0..6, "a pair of grids has elements 0 to 1, or -2 to -1, not 2", ""),
        ("fill(5)", 0..4, "`fill` works on an object or a patch, but a program starts", ""),
        ("fill(5, 3)", 8..9, "the last argument of `fill` is a patch, got `3`", ""),
        ("fill(5, palette)", 8..15, "`fill` needs an object or a patch here, got a list of", ""),
        ("fill(5, rot90 | ofcolor(0))", 8..26, "`rot90` would change the grid that `fill`", ""),
        ("o_g(5) | argmax(length)", 16..22, "`key` of `argmax` is one of size, height", ""),
        ("canvas(0, 255, 255)", 0..19, "255 x 255 has more than 4096 cells", ""),
        ("crop(-1, 0, 2, 2)", 5..7, "`row` of `crop` is a number from 0 to 255, got `-1`", ""),
        ("upscale(0)", 8..9, "`factor` of `upscale` is a number from 1 to 30, got `0`", ""),
        (
            "palette | rot90",
            10..15,
            "`rot90` works on a grid, but what comes before it gives a list of colours",
            "",
        ),
        ("rot90 |", 7..7, "expected an op, found the end", ""),
        ("", 0..0, "expected an op, found the end", ""),
        ("rot90 rot90", 6..7, "expected `|` or the end, found `r`", ""),
        ("rot90(", 5..6, "expected an op, found the end", ""),
        ("replace(1, 2", 7..8, "this bracket is never closed", ""),
        ("rot90)", 5..6, "this bracket closes nothing", ""),
        ("replace(99999999999999999999, 1)", 8..28, "is not a number that fits", ""),
        ("größe", 0..7, "there is no op `größe`", ""),
        ("replace(rot90, 1)", 8..13, "is a colour from 0 to 9, got `rot90`", ""),
    ];
    for (text, span, message, help) in cases {
        let error = error(text);
        assert!(error.message().contains(message), "{text}: {error}");
        if text != "rot90(" {
            assert_eq!(error.span(), span, "{text}: {error}");
        }
        assert!(error.to_string().contains(help), "{text}: {error}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let long = vec!["rot90"; crate::limits::PROGRAM_OPS_MAX + 1].join("|");
    assert!(error(&long).message().contains("at most 64 ops"));
    let hidden = format!("apply({})", long);
    assert!(error(&hidden).message().contains("at most 64 ops"));
    let deep = format!("{}1{}", "replace(".repeat(100), ")".repeat(100));
    assert!(error(&deep).message().contains("nest deeper"));
    let huge = "x".repeat(5_000);
    assert!(error(&huge).message().contains("at most 4096"));
}

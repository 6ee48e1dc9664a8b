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
        for (takes, gives) in spec.kinds() {
            let text = spec.example_on(takes);
            let program = Program::compile(&text, Ties::Lowest).unwrap();
            let last = program.steps().last().unwrap();
            let is_of_elements = last.applied && takes == Type::PAIR;
            assert!(last.takes == takes || is_of_elements, "{text} takes {:?}", last.takes);
            assert!(program.gives() == gives || is_of_elements, "{text}");
        }
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
        (
            "fill(5)",
            0..4,
            "object or a patch, but a program starts with a grid",
            "fill(5, ofcolor(0))",
        ),
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
        ("# turn", 0..1, "expected an op, found a comment", ""),
        ("rot90 rot90", 6..7, "expected `|` or the end, found `r`", "write `|` between ops"),
        ("replace 1 7", 8..9, "expected `|` or the end, found `1`", "arguments in brackets"),
        ("rot90(", 5..6, "expected an op, found the end", ""),
        ("replace(1, 2", 7..8, "this bracket is never closed", ""),
        ("rot90)", 5..6, "this bracket closes nothing", ""),
        ("replace(99999999999999999999, 1)", 8..28, "is not a number that fits", ""),
        ("crop(0, 0, 02, 2)", 11..13, "`02` is no number", "write 2"),
        ("apply(first)", 6..11, "grids, but inside `apply` each element is a grid", ""),
        ("apply(hconcat)", 6..13, "inside `apply` each element is a grid", ""),
        (
            "mapply(argmax(size))",
            7..13,
            "a list of objects, but inside `mapply` each element is a grid",
            "find a list of objects first: objects(true, false, true) | argmax(size)",
        ),
        ("apply(apply(rot90))", 6..11, "inside `apply` each", "on one value write rot90"),
        ("fill(5, first)", 8..13, "but the patch of `fill` is found in a grid", ""),
        ("fill(5, fill(3))", 8..12, "but the patch of `fill` is found in a grid", ""),
        ("paint(ofcolor(3))", 6..16, "`paint` needs an object here, got a patch", "toobject"),
        (
            "move(1,1,ofcolor(2))",
            9..19,
            "`move` needs an object here, got a patch",
            "recolor(color)",
        ),
        ("paint(3)", 6..7, "the last argument of `paint` is an object, got `3`", ""),
        ("ofcolor(3) | paint", 13..18, "works on an object, but what comes before", "toobject"),
        ("fill(5, o_g(5))", 8..14, "here, got a list of objects", "choose one with argmax(size)"),
        (
            "hsplit(2) | fill(5, ofcolor(0))",
            12..16,
            "`fill` works on a grid here, but what comes before it gives a pair of grids",
            "for each of them write apply(fill(5, ofcolor(0)))",
        ),
        (
            "o_g(5) | fill(3, ofcolor(0))",
            9..13,
            "`fill` works on a grid here, but what comes before it gives a list of objects",
            "choose one with argmax(size) or first, or put them together with merge, then fill(3)",
        ),
        ("asobject | fill(3, ofcolor(0))", 11..15, "a grid here, but", "before it write fill(3)"),
        (
            "cover(o_g(5) | first, 3)",
            0..24,
            "`cover` takes at most 1 argument, the patch, got 2",
            "write cover(patch)",
        ),
        (
            "fill(5, ofcolor(0), 2)",
            0..22,
            "`fill` takes at most 2 arguments, the last for the patch, got 3",
            "write fill(color, patch)",
        ),
        ("asobject | fill(3, 4)", 11..21, "`fill` takes 1 argument, got 2", "write fill(color)"),
        (
            "apply(fill(5))",
            6..10,
            "inside `apply` each element is a grid",
            "write fill(5, ofcolor(0)), or find an object or a patch before it",
        ),
        ("rot90 | fill(3)", 8..12, "what comes before it gives a grid", "fill(3, ofcolor(0)), or"),
        (
            "move(1,1)",
            0..4,
            "an object",
            "write move(1, 1, objects(true, false, true) | first), or",
        ),
        ("hsplit(2) | fill(5)", 12..16, "a pair of grids", "write apply(fill(5, ofcolor(0)))"),
        ("hsplit(2) | replace(0,5)", 12..19, "a pair of grids", "them write apply(replace(0,5))"),
        ("hsplit(3) | vsplit(2)", 12..18, "3 grids", "take one of them first: first | vsplit(2)"),
        ("hsplit(1) | rot90", 12..17, "gives a tuple of 1 grid", "write apply(rot90)"),
        (
            "apply(height) | second",
            16..22,
            "gives a pair of numbers",
            "elements can be taken of grids only: write second | height",
        ),
        ("apply(o_g(5)) | apply(size) | last", 30..34, "of numbers", "write last before `apply`"),
        (
            "apply(o_g(5)) | first",
            16..21,
            "gives a pair of lists of objects",
            "for each of them write apply(first); for one of them write first | o_g(5)",
        ),
        ("normalize(o_g(5))", 0..17, "0 arguments, got 1", "joined by `|`: o_g(5) | normalize"),
        (
            "subgrid(argmax(o_g(5),size))",
            8..27,
            "`argmax` takes 1 argument, got 2",
            "ops are joined by `|`: o_g(5) | argmax(size)",
        ),
        ("rot90(hmirror)", 0..14, "takes 0 arguments, got 1", "by `|`: hmirror | rot90"),
        ("fill(rot90, 5, ofcolor(0))", 0..26, "at most 2", "`|`: rot90 | fill(5, ofcolor(0))"),
        ("rot90(hmirror, 3)", 0..17, "takes 0 arguments, got 2", "write rot90"),
        (
            "o_g(5) | fill(3)",
            9..13,
            "gives a list of objects",
            "choose one with argmax(size) or first, or put them together with merge",
        ),
        (
            "o_g(5) | rot90",
            9..14,
            "gives a list of objects",
            "choose one with argmax(size) or first, and cut it out: first | subgrid | rot90",
        ),
        ("o_g(5) | subgrid", 9..16, "gives a list of objects", "or put them together with merge"),
        ("o_g(5) | mapply(size)", 9..15, "gives a list of objects", "choose one with argmax(size)"),
        ("ofcolor(1) | o_g(1)", 13..16, "gives a patch", "of its grid first: subgrid | o_g(1)"),
        ("argmax(size)", 0..6, "a program", "objects(true, false, true) | argmax(size)"),
        ("normalize", 0..9, "starts with a grid", "patch first: ofcolor(0) | normalize"),
        (
            "crop((0,0),(1,1))",
            5..6,
            "found `(`",
            "vectors are written as plain numbers: crop(row, col, height, width)",
        ),
        ("apply((rot90))", 6..7, "found `(`", "brackets stand only after the name of an op"),
        (
            "objects(univalued=true, diagonal=false)",
            17..18,
            "found `=`",
            "arguments have no names here: write objects(true, …)",
        ),
        ("replace(1, new=3)", 14..15, "found `=`", "write replace(1, 3)"),
        ("o_g(type=)", 8..9, "found `=`", "write the value alone"),
        ("replace(ZERO, FIVE)", 8..12, "got `ZERO`", "colours are numbers: ZERO is 0"),
        ("upscale(TEN)", 8..11, "got `TEN`", "numbers are written in digits: TEN is 10"),
        (
            "mapply(hsplit(2)|cellwise(0))",
            7..16,
            "inside `mapply` each element must stay one value",
            "take one side first: first | hsplit(2)|cellwise(0)",
        ),
        ("rot90 |\nfill(\n5)", 8..12, "gives a grid", "write fill(5, ofcolor(0)), or find"),
        ("größe", 0..7, "there is no op `größe`", ""),
        ("replace(rot90, 1)", 8..13, "is a colour from 0 to 9, got `rot90`", ""),
    ];
    for (text, span, message, help) in cases {
        let error = error(text);
        assert!(error.message().contains(message), "{text}: {error}");
        if text != "rot90(" {
            assert_eq!(error.span(), span, "{text}: {error}");
        }
        let drawn = error.to_string();
        let last = drawn.lines().last().unwrap();
        assert!(last.contains(help) && last.chars().count() <= 100, "{text}: {error}");
        assert!(help.is_empty() || drawn.lines().count() == 4, "{text}: {error}");
    }
}

#[test]
fn without_a_sure_remedy_there_is_no_help() {
    let texts = [
        "apply(first)",
        "apply(fill(5, hsplit(2)))",
        "fill(5, fill(3))",
        "fill(5, hsplit(2) | fill(3, ofcolor(0)))",
        "fill(5, ofcolor(0) | rot90)",
        "palette | rot90",
        "replace(rot90, 1)",
    ];
    for text in texts {
        let error = error(text);
        assert_eq!(error.to_string().lines().count(), 3, "{error}");
    }
}

#[test]
fn what_help_says_to_write_compiles() {
    let texts = [
        "apply(fill(5, ofcolor(0)))",
        "hsplit(2) | apply(objects(true, false, true) | argmax(size))",
        "move(1, 1, objects(true, false, true) | first)",
        "o_g(5) | first | subgrid | rot90",
        "o_g(5) | merge | fill(3)",
        "ofcolor(3) | toobject | paint",
        "ofcolor(3) | recolor(1) | paint",
        "second | height",
        "first | hsplit(2)|cellwise(0)",
        "hsplit(3) | first | vsplit(2)",
        "ofcolor(1) | subgrid | o_g(1)",
        "objects(true, false, true) | first | color",
    ];
    for text in texts {
        Program::compile(text, Ties::Cpython).expect(text);
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
    let huge = "x".repeat(crate::limits::PROGRAM_BYTES_MAX + 1);
    assert!(error(&huge).message().contains("at most 16384"));
    let huge = format!("O = {huge}");
    assert!(error(&huge).message().contains("at most 16384"));
}

//! What compiles, to which kinds, and what is said of what does not.

use super::*;
use crate::limits::PROGRAM_BYTES_MAX;

fn compile(text: &str) -> Solver {
    Solver::compile(text, Ties::Cpython).unwrap_or_else(|mistakes| panic!("{text}: {mistakes}"))
}

fn gives(text: &str) -> String {
    compile(text).code.gives().to_string()
}

#[track_caller]
fn refused(text: &str) -> String {
    match Solver::compile(text, Ties::Cpython) {
        Ok(solver) => panic!("{text} compiles to\n{solver}"),
        Err(mistakes) => mistakes.to_string(),
    }
}

/// arc-dsl's solvers, if the tests have them.
fn arc_dsl() -> Option<String> {
    let folder = std::env::var("GRIDPOOL_ARC_DSL").ok()?;
    Some(std::fs::read_to_string(format!("{folder}/solvers.py")).unwrap())
}

#[test]
fn all_solvers_of_arc_dsl_compile_and_their_bytes_are_read_back() {
    let Some(text) = arc_dsl() else { return };
    let (mut compiled, mut most, mut registers, mut refused) = (0, 0, 0, Vec::new());
    let source = Source::parse(&text).unwrap();
    for (name, _) in source.definitions() {
        let (part, _) = source.extract(name).unwrap();
        match Solver::compile(&part, Ties::Cpython) {
            Ok(solver) => {
                compiled += 1;
                most = most.max(solver.code.instructions().len());
                registers = registers.max(solver.code.registers());
                let bytes = solver.code.to_bytes();
                assert_eq!(Code::from_bytes(&bytes), Ok(solver.code), "{name}");
            }
            Err(mistakes) => refused.push(format!("{name}: {mistakes}")),
        }
    }
    assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
    assert_eq!(compiled, 400);
    assert!((most, registers) <= (400, 64), "{most} instructions, {registers} registers");
}

#[test]
fn results_have_the_kinds_that_python_would_give() {
    let cases = [
        ("O = rot90(I)", "a grid"),
        ("rot90(I)", "a grid"),
        ("def f(I):\n    return rot90(I)", "a grid"),
        ("O = objects(I, T, F, T)", "a set of objects"),
        ("O = apply(size, objects(I, T, F, T))", "a set of numbers"),
        ("O = order(objects(I, T, F, T), size)", "a tuple of objects"),
        ("O = mapply(toindices, objects(I, T, F, T))", "a patch"),
        ("O = astuple(ONE, TWO)", "a vector"),
        ("O = astuple(ONE, UNITY)", "a cell"),
        ("O = astuple(I, ONE)", "a pair of a grid and a number"),
        ("O = (I, rot90(I), rot180(I))", "a tuple of grids"),
        ("O = hsplit(I, 3)", "a tuple of grids"),
        ("O = papply(hconcat, hsplit(I, 2), hsplit(I, 2))", "a tuple of grids"),
        ("O = add(1, UP)", "a vector"),
        ("O = both(T, F)", "a flag"),
        ("O = first(I)", "a tuple of numbers"),
        ("O = product(palette(I), palette(I))", "a patch"),
        ("O = valmax(objects(I, T, F, T), size)", "a number"),
        ("O = apply(lambda x: astuple(size(x), color(x)), objects(I, T, F, T))", "a patch"),
        ("O = rapply(initset(rot90), I)", "a set of grids"),
        ("O = I | o_g(5) | argmax(size) | subgrid", "a grid"),
        ("O = I | fill(5, ofcolor(0))", "a grid"),
        ("O = canvas(0, (3, 3))", "a grid"),
        ("O = power(trim, size(palette(I)))(I)", "a grid"),
        ("O = branch(portrait(I), hmirror, vmirror)(I)", "a grid"),
        ("O = extract((rot90, rot180), lambda f: equality(f(I), I))(I)", "a grid"),
        ("O = apply(height, I)", "a tuple of numbers"),
        ("O = height(shape(I))", "a number"),
    ];
    for (text, kind) in cases {
        assert_eq!(gives(text), kind, "{text}");
    }
}

#[test]
fn flags_joined_with_numbers_are_numbers() {
    let cases = [
        ("return combine((T, F, T), (5, 6, 7))", "a tuple of numbers"),
        ("return combine((5, 6, 7), (T, F, T))", "a tuple of numbers"),
        ("return combine((T, F, T), (F, F, T))", "a tuple of flags"),
        ("return last(combine((T, F, T), (5, 6, 7)))", "a number"),
        ("return last(insert(7, initset(T)))", "a number"),
        ("return insert(T, initset(7))", "a set of numbers"),
        ("return insert(F, initset(T))", "a set of flags"),
        ("return combine(initset(T), initset(5))", "a set of numbers"),
        ("return combine(initset((T, T, T)), initset((5, 6, 7)))", "a set of tuples of numbers"),
        (
            "return combine(((T, I), (F, I), (T, I)), ((5, I), (6, I), (7, I)))",
            "a tuple of pairs of a number and a grid",
        ),
        ("return difference((T, F, T), (5, 6, 7))", "a tuple of flags"),
        ("return remove(5, (T, F, T))", "a tuple of flags"),
        ("return power(lambda x: add(x, 1), size(palette(I)))(T)", "a number"),
        ("return power(lambda x: flip(x), size(palette(I)))(T)", "a flag"),
        ("return branch(T, T, size(I))", "a number"),
        ("return merge(((T, F, T), (5, 6, 7)))", "a tuple of numbers"),
    ];
    for (text, kind) in cases {
        assert_eq!(gives(text), kind, "{text}");
    }
}

#[test]
fn names_layout_and_unused_values_do_not_change_the_hash() {
    let hash = |text: &str| compile(text).hash().to_string();
    let one = hash("x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)");
    let same = [
        "a = objects(I, T, F, T)\nb = argmax(a, size)\nreturn subgrid(b, I)",
        "O = subgrid(argmax(objects(I, True, False, True), size), I)",
        "def solve(grid):\n    # a remark\n    return subgrid(argmax(objects(grid, T, F, T), size), grid)",
        "x9 = rot90(I)\nx1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)",
        "O = I | o_g(5) | argmax(size) | subgrid",
        "O = subgrid(patch=argmax(container=objects(I, T, F, T), compfunc=size), grid=I)",
        "f = lambda g: argmax(g, size)\nO = subgrid(f(objects(I, T, F, T)), I)",
    ];
    for text in same {
        assert_eq!(hash(text), one, "{text}");
    }
    let others = [
        "O = subgrid(argmin(objects(I, T, F, T), size), I)",
        // It may end the item, so it is not left out.
        "x9 = first(objects(I, T, F, T))\nO = subgrid(argmax(objects(I, T, F, T), size), I)",
    ];
    for text in others {
        assert_ne!(hash(text), one, "{text}");
    }
    let lowest = Solver::compile("O = mostcolor(I)", Ties::Lowest).unwrap();
    assert_ne!(**lowest.hash(), hash("O = mostcolor(I)"));
}

#[test]
fn equal_calls_are_computed_once() {
    let length = |text: &str| compile(text).code.instructions().len();
    assert_eq!(length("O = hconcat(rot90(I), rot90(I))"), 3);
    let loops = "a = apply(size, objects(I, T, F, T))\nb = apply(size, objects(I, T, F, T))\nO = astuple(a, b)";
    assert_eq!(length(loops), 6);
    assert_eq!(length("x = rot90(I)\ny = rot180(I)\nO = y"), 2, "unused values are left out");
}

#[test]
fn mistakes_say_where_what_and_what_instead() {
    let cases: &[(&str, &[&str])] = &[
        (
            "x6 = first(I)\nx7 = increment(x6)\nO = I",
            &["line 2, column 6: increment wants a number or a vector; x6 is a tuple of numbers"],
        ),
        ("\u{a0}x = (2, 61, I)", &["line 1, column 6: "]),
        ("x1 = size(I)\nO = (2, 61, I)", &["line 2, column 5: "]),
        ("O = objekts(I, T, F, T)", &["line 1, column 5: there is no name `objekts`", "objects"]),
        ("O = fill(I, ONE)", &["fill(grid, value, patch) takes 3 arguments, got 2"]),
        ("O = rot90(ONE)", &["rot90 wants a grid; ONE is a number"]),
        ("O = apply(I, rot90)", &["apply wants a function; I is a grid"]),
        ("O = rot90", &["the function rot90 stands where a value is needed"]),
        ("O = compose(rot90, rot90)", &["a function stands where a value is needed"]),
        ("O = I(ONE)", &["a grid is called as a function"]),
        ("O = fill(I, ONE, ofcolor(I, TWO)", &["this bracket is never closed"]),
        ("O = I + I", &["found `+`", "write add(a, b)"]),
        ("O = I[0]", &["found `[`", "index(grid, loc)"]),
        ("for x in I:\n  O = I", &["the language has no `for`"]),
        ("O = apply(rot90, objects(I, T, F, T))", &["rot90 wants a grid; it gets an object"]),
        ("O = sfilter(objects(I, T, F, T), merge)", &["merge wants"]),
        (
            "O = sfilter(I, identity)",
            &["the condition must give a flag; it gives a tuple of numbers"],
        ),
        ("O = rbind(size, ONE)", &["the function size has no argument to fix"]),
        ("O = power(rot90, ZERO)(I)", &["power wants a number of at least 1; it gets 0"]),
        (
            "O = branch(T, I, ONE)",
            &["branch wants values of one kind; it gets a grid and a number"],
        ),
        ("f = lambda x: f(x)\nO = f(I)", &["there is no name `f`"]),
        ("def f(I):\n  return f(I)", &["calls nest deeper"]),
        (
            "def f(a, b):\n  return a",
            &["a program takes 1 argument, the grid; `f` takes 2 arguments"],
        ),
        ("def f(I):", &["the program has no statement"]),
        ("O = 99999999999", &["not a number of 32 bits"]),
        ("O = replace(I, replacee=ONE, colour=TWO)", &["there is no argument `colour`"]),
        (
            "O = rot90(I)\nhmirror(O)\nO = vmirror(O)",
            &["line 2, column 1: nothing takes this value", "`return …` to end with it"],
        ),
        (
            "def f(I):\n  returned = rot90\n  returned(I)\n  return I",
            &["line 3, column 3: nothing takes this value"],
        ),
        ("O = 'text'\nreturn I", &["there are no strings in the language"]),
    ];
    for (text, wants) in cases {
        let said = refused(text);
        for want in *wants {
            assert!(said.contains(want), "{text}\nsays\n{said}\nnot\n{want}");
        }
    }
}

#[test]
fn every_mistake_is_named_but_not_those_that_follow_from_one() {
    let text = "x1 = objekts(I, T, F, T)\nx2 = first(x1)\nx3 = rot90(ONE)\nx4 = fill(I, x3)\nO = nothing(x2)";
    let mistakes = Solver::compile(text, Ties::Cpython).unwrap_err();
    let lines: Vec<u32> = mistakes.all().iter().map(|one| mistakes.place(one).0).collect();
    assert_eq!(lines, [1, 3, 5], "{mistakes}");
    let in_file = mistakes.from_line(101).to_string();
    assert!(in_file.starts_with("line 101, column 6: "), "{in_file}");
}

#[test]
fn a_call_of_a_function_of_the_text_leaves_the_place_of_its_caller() {
    let text = "def has(r, v):\n    return contained(v, r)\ndef f(I):\n    return extract(I, rbind(has, TEN))";
    let solver = compile(text);
    let ops = solver.code.instructions().iter().map(|one| one.op);
    let at = ops.clone().position(|op| op == Opcode::Extract).unwrap();
    assert_eq!(solver.place(at), Some(("extract", 4)));
    let said = refused("def ten(r):\n    return (TEN, TEN)\ndef f(I):\n    return sfilter(I, ten)");
    assert!(said.starts_with("line 4, column 12: the condition must give a flag"), "{said}");
}

#[test]
fn sizes_are_bounded() {
    assert!(refused(&format!("O = {}", "x".repeat(PROGRAM_BYTES_MAX))).contains("at most"));
    let deep = format!("O = {}I{}", "rot90(".repeat(100), ")".repeat(100));
    assert!(refused(&deep).contains("nest deeper than 64"));
    let doubled: String =
        (1..30).map(|at| format!("x{} = compose(x{at}, x{at})\n", at + 1)).collect();
    let said = refused(&format!("x1 = compose(rot90, trim)\n{doubled}O = x30(I)"));
    assert!(said.contains("the program"), "{said}");
    let nested: String = (1..20).map(|at| format!("x{} = initset(x{at})\n", at + 1)).collect();
    assert!(refused(&format!("x1 = I\n{nested}O = x20")).contains("nest deeper than 8"));
    let many: String =
        (0..600).map(|at| format!("x = fill(I, {at}, ofcolor(I, {at}))\n")).collect();
    assert!(refused(&format!("{many}O = x")).contains("at most"));
}

#[test]
fn chains_and_solvers_are_told_apart() {
    for text in ["rot90 | fill(5, ofcolor(0))", "hsplit(3)", "", "rot90 |", "replace(x=1)"] {
        assert!(!is_solver(text), "{text}");
    }
    for text in ["O = rot90(I)", "def f(x): return x", "rot90(I)", "x=1", "lambda x: x"] {
        assert!(is_solver(text), "{text}");
    }
}

#[test]
fn a_statement_can_be_made_the_result() {
    let text = "def solve(I):\n    x1 = objects(I, T, F, T)\n    x2 = size(x1)\n    return canvas(x2, UNITY)\n";
    let kind = |until: &str| gives(&traced(text, until).unwrap());
    assert_eq!(kind("x1"), "a set of objects");
    assert_eq!((kind("x2"), kind("3")), ("a number".to_owned(), "a number".to_owned()));
    assert_eq!(kind("4"), "a grid");
    let unknown = traced(text, "x9").unwrap_err().to_string();
    assert!(unknown.contains("there is no statement `x9`"), "{unknown}");
    assert!(unknown.contains("the first are x1, x2"), "{unknown}");
    let unnamed = traced("rot90(I)", "x9").unwrap_err().to_string();
    assert!(unnamed.contains("none has a name here: write its line"), "{unnamed}");
}

#[test]
fn a_definition_brings_those_that_it_uses() {
    let text = "def turn(x):\n    return rot90(x)\n\ndef other(x):\n    return x\n\n\
                def solve(I):\n    return turn(I)\n";
    let source = Source::parse(text).unwrap();
    let names: Vec<_> = source.definitions().collect();
    assert_eq!(names, [("turn", 1), ("other", 4), ("solve", 7)]);
    let (part, _) = source.extract("solve").unwrap();
    assert!(part.contains("def turn") && !part.contains("def other"), "{part}");
    assert_eq!(compile(&part).hash(), compile("O = rot90(I)").hash());
    assert_eq!(source.extract("gone"), None);
}

#[test]
fn broken_bytes_are_no_program() {
    let code = compile(
        "x = apply(size, objects(I, T, F, T))\nO = branch(positive(maximum(x)), rot90, rot180)(I)",
    )
    .code;
    let bytes = code.to_bytes();
    assert_eq!(Code::from_bytes(&bytes), Ok(code));
    for at in 0..bytes.len() {
        assert!(Code::from_bytes(&bytes[..at]).is_err());
        for flipped in [1, 128, 255] {
            let mut broken = bytes.clone();
            broken[at] ^= flipped;
            // Some are other programs; none is a panic.
            if let Ok(other) = Code::from_bytes(&broken) {
                assert_eq!(other.verify(), Ok(()));
                assert_eq!(other.to_bytes(), broken);
            }
        }
    }
}

#[test]
fn indentation_is_checked() {
    let cases = [
        (
            "def f(I):\n    def g(x):\n        return x\n    return g(I)",
            "line 2, column 5: a `def` stands inside",
        ),
        (
            "def f(I):\n    x = rot90(I)\n      return x",
            "line 3, column 7: this line is indented deeper",
        ),
        (
            "def f(I):\n    x = rot90(I)\n  return x",
            "line 3, column 3: the indentation of this line fits no",
        ),
        ("x = rot90(I)\n  O = x", "line 2, column 3: this line is indented deeper"),
    ];
    for (text, want) in cases {
        let said = refused(text);
        assert!(said.starts_with(want), "{text}\nsays\n{said}");
    }
    assert_eq!(
        gives("\u{feff}def f(I):\n\n    x = rot90(\n  I)\n    # a remark\n    return x"),
        "a grid"
    );
}

#[test]
fn functions_see_the_values_outside_of_them() {
    let want = compile("O = replace(I, 5, 0)").hash().clone();
    let texts = [
        "BG = 5\ndef solve_a(I):\n    return replace(I, BG, 0)",
        "def solve_a(I):\n    return replace(I, BG, 0)\nBG = 5",
        "def turned(x):\n    return replace(x, BG, 0)\nBG = 5\nO = turned(I)",
    ];
    for text in texts {
        assert_eq!(*compile(text).hash(), want, "{text}");
    }
    for text in &texts[..2] {
        let (part, _) = Source::parse(text).unwrap().extract("solve_a").unwrap();
        assert_eq!(*compile(&part).hash(), want, "{part}");
    }
    let said = refused("BG = rot90(I)\ndef solve_a(I):\n    return BG");
    assert!(said.starts_with("line 1, column 1: `BG` stands outside of functions"), "{said}");
}

#[test]
fn a_definition_keeps_its_lines_and_mistakes_stay_in_theirs() {
    let text = "BG = 5\n\ndef bad(I):\n    return I +\n\ndef good(I):\n    return objekts(BG)\n\n\
                def right(I):\n    return rot90(I)\n\nif __name__ == '__main__':\n    print(right)\n";
    let source = Source::parse(text).unwrap();
    let names: Vec<_> = source.definitions().collect();
    assert_eq!(names, [("bad", 3), ("good", 6), ("right", 9)]);
    let part = |name: &str| source.extract(name).unwrap();
    assert!(
        refused(&part("bad").0).starts_with("line 4, column 14: "),
        "{}",
        refused(&part("bad").0)
    );
    assert!(refused(&part("good").0).starts_with("line 7, column 12: "));
    assert_eq!(part("right").1, 1);
    assert_eq!(compile(&part("right").0).lines()[0].line, 10);
}

#[test]
fn a_bracket_that_is_never_closed_is_shown_where_it_opens() {
    let cases = [
        ("O = fill(I, ONE, ofcolor(I, TWO)", "line 1, column 9"),
        ("O = (ONE, ", "line 1, column 5"),
        ("O = rot90(", "line 1, column 10"),
        (
            "def f(I):\n    x1 = fill(I, ONE, ofcolor(I, TWO)\n    x2 = rot90(x1)\n    return x2",
            "line 2, column 14",
        ),
        ("def f(I):\n    x1 = fill(I, ONE,\n    return x1", "line 2, column 14"),
        ("def f(I):\n    return rot90(I\n\ndef g(I):\n    return I", "line 2, column 17"),
        ("  def f(I):\n    return rot90((I)\n  def g(I):\n    return I", "line 2, column 17"),
        ("def f(I:\n    return I", "line 1, column 6"),
        ("f = lambda x: add(x,\nO = f(I)", "line 1, column 18"),
    ];
    for (text, want) in cases {
        let said = refused(text);
        let want = format!("{want}: this bracket is never closed");
        assert!(said.starts_with(&want), "{text}\nsays\n{said}");
        assert_eq!(said.matches("line ").count(), 1, "{text}\nsays\n{said}");
    }
    let marked = refused("\u{feff}O = rot90(ONE)");
    assert!(
        marked.starts_with("line 1, column 5: ") && marked.contains("\n  O = rot90"),
        "{marked}"
    );
    assert!(refused("O = return I").contains("found `return`"));
}

#[test]
fn values_of_the_grid_above_the_last_function_are_refused() {
    let above = refused("x = rot90(I)\ny = size(x)\ndef f(I):\n    return y");
    assert!(above.starts_with("line 1, column 1: `x` stands outside of functions"), "{above}");
    assert_eq!(above.lines().count(), 4, "{above}");
    // Beside an `O`, or behind the last function, they are the program.
    let want = compile("O = rot180(I)").hash().clone();
    let texts = [
        "x = rot90(I)\ndef f(x):\n    return rot90(x)\nO = f(x)",
        "def f(x):\n    return rot90(x)\nx = rot90(I)\ny = f(x)",
        "x = rot90(I)\ndef f(x):\n    return rot90(x)\nreturn f(x)",
    ];
    for text in texts {
        assert_ne!(*compile(text).hash(), want, "{text}");
        assert_eq!(*compile(text).hash(), *compile("O = rot90(rot90(I))").hash(), "{text}");
    }
}

#[test]
fn another_table_of_opcodes_is_another_version_of_the_machine() {
    let rows = Opcode::ALL.iter().map(|opcode| {
        let row = Primitive::of(*opcode).map(|row| (row.parameters, row.fit));
        format!("{} {} {row:?}\n", *opcode as u8, opcode.name())
    });
    let table = Code::digest(rows.collect::<String>().as_bytes());
    // A program of the old table must not be read by the new one: with the digest goes the version.
    assert_eq!((MACHINE_VERSION, &crate::program::hex(&table)[..16]), (1, "fd7667e1a5464f3d"));
}

//! What the machine does that no arc-dsl solver shows: errors, their order, steps, limits.

use gridpool_protocol::limits::STEPS_DEFAULT;
use gridpool_protocol::solver::value::Grid;
use gridpool_protocol::solver::{Literal, PRIMITIVES, Solver};

use super::*;

fn grid(rows: &[&[i8]]) -> Value {
    let width = rows.first().map_or(0, |row| row.len());
    Value::Grid(Grid::new(rows.len(), width, rows.concat()).unwrap().into())
}

fn sample() -> Value {
    grid(&[&[0, 1, 0], &[0, 1, 2], &[0, 0, 2]])
}

/// The result as Python writes it, or the error with op and line.
fn run_on(text: &str, grid: Value) -> String {
    let solver =
        Solver::compile(text, Ties::Cpython).unwrap_or_else(|error| panic!("{text}: {error}"));
    match Machine::default().run(solver.code(), grid, STEPS_DEFAULT) {
        Ok(finished) => Literal(solver.code().gives(), &finished.value).to_string(),
        Err(Failed { code, instruction }) => {
            let (op, line) = solver.place(instruction).unwrap();
            format!("{} in {op} in line {line}", code.name())
        }
    }
}

fn run(text: &str) -> String {
    run_on(text, sample())
}

#[test]
fn every_primitive_has_a_family() {
    let value = Value::Number(0);
    for primitive_row in PRIMITIVES {
        let operands = [&value, &value, &value, &value];
        let made = primitive(primitive_row.opcode, operands, &Kind::Number, Ties::Lowest);
        assert!(made.is_some(), "{}", primitive_row.name);
    }
}

#[test]
fn an_item_ends_with_its_first_error() {
    let cases = [
        ("O = first(sizefilter(objects(I, T, F, T), TEN))", "EmptyArg in first in line 1"),
        (
            "x = divide(ONE, ZERO)\nO = first(sizefilter(objects(I, T, F, T), TEN))",
            "BadNumber in divide in line 1",
        ),
        ("x = add(index(I, (9, 9)), ONE)\nO = I", "BadType in add in line 1"),
        ("O = argmax(sizefilter(objects(I, T, F, T), TEN), size)", "EmptyArg in argmax in line 1"),
        ("O = extract(objects(I, T, F, T), lambda x: F)", "EmptyArg in extract in line 1"),
        ("O = upscale(I, TEN) | upscale(TEN)", "Overflow in upscale in line 1"),
        ("O = power(lambda x: multiply(x, TEN), TEN)(ONE)", "Overflow in multiply in line 1"),
        (
            "O = replace(I, ZERO, canvas(ONE, UNITY) | mostcolor | multiply(TEN) | multiply(TWO))",
            "Overflow in replace in line 1",
        ),
        (
            "O = vconcat(I, tophalf(trim(I)) | vconcat(canvas(ZERO, TWO_BY_TWO)))",
            "BadShape in vconcat in line 1",
        ),
        ("O = cellwise(I, trim(I), ZERO)", "BadIndex in cellwise in line 1"),
        ("O = interval(ZERO, FIVE, ZERO)", "BadNumber in interval in line 1"),
        (
            "O = power(rot90, size(sizefilter(objects(I, T, F, T), TEN)))(I)",
            "BadNumber in power in line 1",
        ),
        (
            "O = interval(ZERO, multiply(TEN, multiply(TEN, multiply(TEN, multiply(TEN, multiply(TEN, TEN))))), ONE)",
            "Overflow in interval in line 1",
        ),
        ("O = shift(ofcolor(I, ONE), ulcorner(ofcolor(I, NINE)))", "BadType in shift in line 1"),
        ("O = color(initset(ulcorner(ofcolor(I, NINE))))", "BadType in color in line 1"),
        (
            "x = initset(ulcorner(ofcolor(I, NINE)))\nO = colorfilter(initset(x), ONE)",
            "BadType in colorfilter in line 2",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(run(text), want, "{text}");
    }
}

#[test]
fn only_the_chosen_function_runs() {
    let text = "f = lambda x: first(sizefilter(x, TEN))\nO = branch(T, size, compose(size, f))(objects(I, T, F, T))";
    assert_eq!(run(text), "2");
    let chosen = "O = extract((rot90, rot180, hmirror), lambda f: equality(f(I), rot180(I)))(I)";
    assert_eq!(run(chosen), run("O = rot180(I)"));
    let none = "O = extract((rot90, rot180), lambda f: equality(f(I), I))(I)";
    assert_eq!(run(none), "EmptyArg in fail in line 1");
    let best = "O = argmax((trim, rot90, tophalf), lambda f: size(asindices(f(I))))(I)";
    assert_eq!(run(best), run("O = rot90(I)"));
}

#[test]
fn a_choice_between_kinds_keeps_the_kind_of_the_chosen_value() {
    let cases = [
        ("O = height(branch(T, ofcolor(I, 0), totuple(ofcolor(I, 0))))", "3"),
        ("O = height(branch(F, ofcolor(I, 0), totuple(ofcolor(I, 0))))", "5"),
        ("O = size(hmirror(branch(T, ofcolor(I, 0), I)))", "5"),
        ("O = size(hmirror(branch(F, ofcolor(I, 0), I)))", "3"),
        ("O = contained(ORIGIN, hmirror(branch(T, ofcolor(I, 0), I)))", "True"),
        ("O = equality(hmirror(branch(F, ofcolor(I, 0), I)), hmirror(I))", "True"),
        ("O = multiply(branch(T, 70000, (2, 3)), 2) | equality(140000)", "True"),
        ("O = multiply(branch(F, 70000, (2, 3)), 2) | equality((4, 6))", "True"),
        ("O = size(combine(branch(T, palette(I), (5, 5)), (5, 6, 6)))", "5"),
        ("O = size(combine(branch(F, palette(I), (5, 5)), (5, 6, 6)))", "5"),
        ("O = apply(even, branch(T, palette(I), (5, 5, 5)))", "(False, True)"),
        ("O = size(apply(even, branch(F, palette(I), (5, 5, 5))))", "3"),
        ("O = contained(branch(T, palette(I), (0, 1, 2)), initset(palette(I)))", "True"),
        ("O = sfilter((palette(I),), matcher(identity, branch(F, palette(I), (0, 1, 2))))", "()"),
        ("O = palette(branch(T, asobject(I), I))", "frozenset({0, 1, 2})"),
        ("O = height(branch(T, branch(F, I, ofcolor(I, 2)), totuple(ofcolor(I, 0))))", "2"),
        (
            "x = branch(T, palette(I), (1, 2))\ny = branch(F, x, combine(x, (5, 5)))\nO = size(combine(y, (7, 7)))",
            "5",
        ),
        (
            "x = branch(T, asobject(I), I)\ny = branch(T, hmirror, vmirror)(x)\nO = height(branch(T, y, asindices(I)))",
            "3",
        ),
        // Only the chosen arm runs, and a number keeps its 32 bits.
        ("f = branch(T, identity, lambda g: first(ofcolor(g, 9)))\nO = equality(f(I), I)", "True"),
        (
            "f = branch(F, identity, lambda g: first(ofcolor(g, 9)))\nO = equality(f(I), I)",
            "EmptyArg in first in line 1",
        ),
        (
            "f = branch(T, lambda g: multiply(size(g), 30000), shape)\nO = equality(f(I), 90000)",
            "True",
        ),
        (
            "f = branch(F, lambda g: multiply(size(g), 30000), shape)\nO = equality(f(I), (3, 3))",
            "True",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(run(text), want, "{text}");
    }
}

#[test]
fn values_at_the_edges_are_those_of_python() {
    let cases = [
        ("O = index(I, (9, 9))", "None"),
        ("O = ulcorner(ofcolor(I, NINE))", "()"),
        ("O = equality(ulcorner(ofcolor(I, NINE)), ORIGIN)", "False"),
        ("O = shape(ofcolor(I, NINE))", "(0, 0)"),
        ("O = square(ofcolor(I, NINE))", "True"),
        ("O = maximum(apply(size, sizefilter(objects(I, T, F, T), TEN)))", "0"),
        ("O = valmax(palette(sizefilter(objects(I, T, F, T), TEN) | merge), increment)", "1"),
        ("O = crop(I, (-2, 0), (1, 3))", "((0, 1, 2),)"),
        ("O = crop(I, (-1, 0), (1, 3))", "()"),
        ("O = tophalf(tophalf(I))", "()"),
        ("O = trim(trim(I))", "()"),
        ("O = hupscale(I, ZERO)", "((), (), ())"),
        ("O = divide(NEG_ONE, TWO)", "-1"),
        ("O = halve((-3, 3))", "(-2, 1)"),
        ("O = connect(ORIGIN, (1, 2))", "frozenset()"),
        (
            "O = inbox(initset(ORIGIN))",
            "frozenset({(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)})",
        ),
        ("O = order(palette(I), invert)", "(2, 1, 0)"),
        ("O = mostcommon((1, 2, 2, 1))", "1"),
        ("O = contained(ORIGIN, objects(I, T, F, T))", "False"),
        ("O = contained(UNITY, first(asobject(I)))", "False"),
        ("O = dedupe((3, 1, 3))", "(3, 1)"),
        ("O = pair(ONE | repeat(TWO), UNITY)", "((1, 1), (1, 1))"),
        ("O = astuple(ONE, ulcorner(ofcolor(I, NINE)))", "(1, ())"),
        ("O = occurrences(I, ((1, (5, 5)),))", "frozenset({(0, 1), (1, 1)})"),
        ("O = occurrences(I, ((2, (5, 5)),))", "frozenset()"),
        ("O = occurrences(I, ((2, (5, 5)), (2, (6, 5))))", "frozenset()"),
        ("O = occurrences(I, ((0, (0, 0)), (0, (0, 0)), (0, (0, 0))))", "frozenset({(0, 0)})"),
        ("O = hperiod(recolor(ONE, connect(ORIGIN, (0, 4095))))", "1"),
        ("O = minimum(insert(ulcorner(ofcolor(I, NINE)), asindices(I)))", "()"),
        ("O = position(((0, 1), (1, 2), (2, 0)), ((1, 1), (1, 1)))", "(1, 1)"),
        ("O = position(((1, 1), (1, 1)), ((0, 1), (1, 2)))", "(-1, 0)"),
        ("O = position(asobject(I), ((1, 1), (1, 1)))", "(1, 1)"),
        (
            "x = combine(((2, 1), (1, 2), (1, 2)), ((1, (0, 0)), (1, (0, 0)), (1, (0, 0))))\n\
             O = toindices(remove((1, (0, 0)), x))",
            "frozenset({(1, 2), (2, 1)})",
        ),
        ("O = initset(astuple(ONE, ulcorner(ofcolor(I, NINE))))", "frozenset({(1, ())})"),
        ("O = color(initset(astuple(ONE, ulcorner(ofcolor(I, NINE)))))", "1"),
        (
            "O = argmin((astuple(ONE, ORIGIN), astuple(ONE, ulcorner(ofcolor(I, NINE)))), identity)",
            "(1, ())",
        ),
        ("O = astuple(index(I, (9, 9)), I)", "(None, ((0, 1, 0), (0, 1, 2), (0, 0, 2)))"),
        ("O = equality(ofcolor(I, NINE), sizefilter(objects(I, T, F, T), TEN))", "True"),
        ("O = equality(palette(I), asindices(I))", "False"),
        ("O = equality(repeat(ONE, ZERO), totuple(sizefilter(objects(I, T, F, T), TEN)))", "True"),
        ("O = equality(repeat(ONE, ZERO), ofcolor(I, NINE))", "False"),
        ("O = equality(ulcorner(ofcolor(I, NINE)), repeat(I, ZERO))", "True"),
        ("O = equality(TWO, UNITY)", "False"),
        ("O = order(difference(palette(I), asindices(I)), identity)", "(0, 1, 2)"),
        ("O = intersection(palette(I), asindices(I))", "frozenset()"),
        ("x = palette(I)\nO = difference(x, x)", "frozenset()"),
        ("O = apply(height, I)", "(3, 3, 3)"),
    ];
    for (text, want) in cases {
        assert_eq!(run(text), want, "{text}");
    }
}

#[test]
fn steps_are_counted_and_their_limit_ends_the_item_at_the_next_instruction() {
    let solver = Solver::compile("O = apply(increment, palette(I))", Ties::Cpython).unwrap();
    let mut machine = Machine::default();
    // palette, map, three times increment and next, return.
    let steps = 9;
    let finished = machine.run(solver.code(), sample(), steps).unwrap();
    assert_eq!(finished.steps, steps);
    for limit in 0..steps {
        let failed = machine.run(solver.code(), sample(), limit).unwrap_err();
        assert_eq!(failed.code, ItemErrorCode::StepLimit, "{limit}");
    }
    let endless = "f = lambda x: power(increment, TEN)(x)\n\
                   O = power(power(f, TEN), multiply(TEN, multiply(TEN, TEN)))(ZERO)";
    assert_eq!(run(endless), "100000");
    let limited = Solver::compile(endless, Ties::Cpython).unwrap();
    let failed = machine.run(limited.code(), sample(), 1_000).unwrap_err();
    assert_eq!(failed.code, ItemErrorCode::StepLimit);
}

#[test]
fn values_that_weigh_too_much_are_an_overflow() {
    let wide = Value::Grid(Grid::new(64, 64, vec![1; 4_096]).unwrap().into());
    let cases = [
        ("O = product(asindices(I), asindices(I))", "Overflow in product in line 1"),
        ("O = repeat(I, multiply(TEN, TEN))", "Overflow in repeat in line 1"),
        ("O = hperiod(recolor(ONE, connect(ORIGIN, (0, 4096))))", "Overflow in hperiod in line 1"),
        ("O = vperiod(recolor(ONE, connect(ORIGIN, (4096, 0))))", "Overflow in vperiod in line 1"),
        ("O = prapply(connect, asindices(I), asindices(I))", "Overflow in prapply in line 1"),
        ("O = apply(lambda x: I, totuple(asindices(I)))", "Overflow in apply in line 1"),
        (
            "O = backdrop(initset((-9999, -9999)) | insert((9999, 9999)))",
            "Overflow in backdrop in line 1",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(run_on(text, wide.clone()), want, "{text}");
    }
}

#[test]
fn a_loop_that_collects_a_set_weighs_equal_values_once() {
    let wide = Value::Grid(Grid::new(64, 64, vec![1; 4_096]).unwrap().into());
    // The tuples weigh 131,071 together, or one more.
    let tuples = |most| format!("f = lambda n, m: repeat(m, n)\nx = (0, 65000, {most}, 65000)");
    let (fits, heavy) = (tuples(66_068), tuples(66_069));
    let cases = [
        (format!("{fits}\nO = apply(size, prapply(f, x, (5, 5, 5)))"), "frozenset({0, 65000, 66068})"),
        (format!("{heavy}\nO = size(prapply(f, x, (5, 5, 5)))"), "Overflow in prapply in line 3"),
        (format!("{fits}\nO = size(prapply(f, x, (5, 5, 6)))"), "Overflow in prapply in line 3"),
        (format!("{fits}\nO = papply(f, x, (5, 5, 5, 5))"), "Overflow in papply in line 3"),
        ("O = size(apply(lambda x: I, asindices(I)))".to_owned(), "1"),
        // Those that come later go between those that were there.
        (
            "f = lambda x: repeat(branch(positive(first(x)), 2, branch(even(last(x)), 3, 1)), 9000)\n\
             O = apply(first, apply(f, asindices(I)))"
                .to_owned(),
            "frozenset({1, 2, 3})",
        ),
        // A later turn may still fail.
        (
            "O = apply(lambda x: (divide(9, subtract(40, first(x))), I), asindices(I))".to_owned(),
            "BadNumber in divide in line 1",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(run_on(&text, wide.clone()), want, "{text}");
    }
    let solver =
        Solver::compile("O = apply(lambda x: trim(I), asindices(I))", Ties::Cpython).unwrap();
    let finished = Machine::default().run(solver.code(), wide, STEPS_DEFAULT).unwrap();
    // asindices, apply, 4,096 times trim and next, return.
    assert_eq!(finished.steps, 3 + 2 * 4_096);
}

#[test]
fn keys_that_are_sets_are_compared_by_inclusion() {
    let text = "O = argmax((initset(ONE), insert(TWO, initset(ONE)), initset(NINE)), identity)";
    assert_eq!(run(text), "frozenset({1, 2})");
    let text = "O = order((insert(TWO, initset(ONE)), initset(NINE), initset(ONE)), identity)";
    // As sorted([{1, 2}, {9}, {1}]) of CPython 3.11.
    assert_eq!(run(text), "(frozenset({1, 2}), frozenset({9}), frozenset({1}))");
}

#[test]
fn a_sort_loses_nothing_whatever_its_keys_are() {
    // Sets that include one another and others that do not, more than are sorted by insertion.
    let pairs = "product(interval(0, 12, 1), interval(0, 12, 1))";
    let key = "combine(connect(ORIGIN, astuple(0, first(p))), initset(p))";
    for keys in [key.to_owned(), format!("pair(({key}, {key}), (1, 2))")] {
        let ordered = format!("order({pairs}, lambda p: {keys})");
        let text = format!("O = equality(order({ordered}, identity), order({pairs}, identity))");
        assert_eq!(run(&text), "True", "{text}");
    }
}

#[test]
fn a_program_that_would_run_for_long_ends_at_the_instruction_after_its_cancel() {
    let endless = "f = lambda x: power(increment, TEN)(x)\n\
                   O = power(power(f, TEN), multiply(TEN, multiply(TEN, TEN)))(ZERO)";
    let solver = Solver::compile(endless, Ties::Cpython).unwrap();
    let asked = std::cell::Cell::new(0);
    let is_cancelled = || asked.replace(asked.get() + 1) == 5_000;
    let mut machine = Machine::default();
    assert_eq!(machine.run_unless(solver.code(), sample(), STEPS_DEFAULT, is_cancelled), None);
    assert_eq!((asked.get(), machine.steps), (5_001, 5_000));
}

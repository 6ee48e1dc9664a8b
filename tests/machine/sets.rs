//! Loops whose values weigh too much together, but not as a set: the kernel against the reference.

use gridpool_protocol::limits::STEPS_DEFAULT;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::Solver;
use gridpool_protocol::solver::value::Grid;

use super::{Kernel, Machine, Random, differs};

const TEXTS: [&str; 15] = [
    // Vectors and cells; boards and lists; grids and pairs; tuples and sets of sets.
    "x = sfilter(asindices(I), lambda p: even(first(p)))\nO = prapply(subtract, x, x)",
    "x = sfilter(asindices(I), lambda p: even(last(p)))\n\
     O = prapply(lambda a, b: astuple(7, subtract(a, b)), x, x)",
    "x = ofcolor(I, 2)\nO = apply(size, prapply(connect, x, x))",
    "x = asindices(I)\nO = apply(size, prapply(connect, x, x))",
    "x = ofcolor(I, 3)\nO = size(prapply(lambda a, b: recolor(index(I, a), connect(a, b)), x, x))",
    "f = lambda p: shift(connect((0, 0), (400, 0)), (0, first(p)))\nO = apply(last, apply(f, asindices(I)))",
    "O = apply(lambda p: crop(I, (0, last(p)), (29, 20)), asindices(I))",
    "O = apply(lambda p: (last(p), crop(I, (0, last(p)), (29, 20))), asindices(I))",
    "O = apply(lambda p: (I, insert(p, connect(ORIGIN, (0, 40)))), asindices(I))",
    "O = apply(lambda p: repeat(apply(increment, (last(p), 9, 8)), 60), asindices(I))",
    "O = size(apply(lambda p: partition(crop(I, (first(p), 0), (20, 20))), asindices(I)))",
    "O = apply(lambda p: repeat(I, 1), asindices(I))",
    "f = lambda p: size(merge(prapply(lambda a, b: connect(p, (999, 8)), asindices(I), (1, 2, 3))))\n\
     O = apply(lambda p: divide(9, subtract(f(p), 996)), sfilter(ofcolor(I, 1), matcher(last, 8)))",
    "f = lambda n, m: repeat(m, n)\nx = (0, 65000, 66068, 65000)\nO = apply(size, prapply(f, x, (5, 5, 5)))",
    "f = lambda n, m: repeat(m, n)\nx = (0, 65000, 66069, 65000)\nO = apply(size, prapply(f, x, (5, 5, 5)))",
];

#[test]
fn the_kernel_weighs_equal_values_of_a_set_once_as_the_reference_does() {
    let Some(mut kernel) = Kernel::start() else { return println!("there is no g++") };
    let mut machine = Machine::default();
    let mut random = Random(7);
    let colors = (0..30 * 30).map(|_| i8::try_from(random.below(4)).unwrap()).collect();
    let grid = Grid::new(30, 30, colors).unwrap();
    for text in TEXTS {
        let solver = Solver::compile(text, Ties::Cpython).unwrap();
        let found = differs(&mut kernel, &mut machine, solver.code(), &grid, STEPS_DEFAULT);
        assert_eq!(found, None, "{text}");
    }
}

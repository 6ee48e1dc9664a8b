"""Solvers of the example tasks, and others that tests run."""


def turned(grid):
    return rot90(grid)


def solve_quarter_turn(I):
    O = turned(I)
    return O


def solve_lines(I):
    """Wrong on purpose: it gives the grid back."""
    x1 = partition(I)
    x2 = apply(color, x1)
    O = I
    return O


def solve_left_and_right(I):
    O = vmirror(I)
    return O


def solve_one_becomes_five(I):
    x1 = ofcolor(I, ONE)
    O = fill(I, FIVE, x1)
    return O

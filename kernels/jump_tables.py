"""Puts jump tables into PTX.

The compiler makes a tree of compares of a switch over opcodes, and each branch of it costs a warp as much as a few
instructions. `table_over` of kernels/cuda/team.cuh leaves a mark in the PTX, with the register of a number below 256.
Behind the mark the code is followed for each value of that number, as far as the value alone says where it goes, and a
`brx.idx` goes there at once. What else is computed on the way is computed in front of the place that is jumped to, so
each value runs the same instructions as before but for compares and branches.
"""

import re

MARK = "// table over "
VALUES = 256
# Compares and branches that are followed at most.
STEPS_MAX = 400

REGISTER = r"%(?:r|rs|rd|p)\d+"
WIDTHS = {"16": 16, "32": 32}
COMPARES = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
SUMS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "mov": lambda a: a,
    "cvt": lambda a: a,
}
# What neither writes memory nor waits for other lanes.
PURE = {*SUMS, *"ld setp selp xor not shl shr shf mul mad neg abs min max popc clz brev bfe bfi prmt lop3 cvta".split()}


def as_width(number: int, kind: str, width: int) -> int:
    """The number that these bits are in a type such as u16."""
    number &= (1 << width) - 1
    return number - (1 << width) if kind == "s" and number >> (width - 1) else number


class Walk:
    """Follows the code behind a mark for one value."""

    def __init__(self, lines: list[str], labels: dict[str, int], register: str, value: int) -> None:
        self.lines, self.labels = lines, labels
        self.known: dict[str, int] = {register: value}

    def number(self, operand: str) -> int | None:
        if re.fullmatch(r"-?\d+", operand):
            return int(operand)
        return self.known.get(operand)

    def compute(self, words: list[str], operands: list[str]) -> None:
        """Notes what an instruction makes, if it makes it of known numbers."""
        to, given = operands[0], [self.number(operand) for operand in operands[1:]]
        if words[0] == "ld":
            for register in re.findall(REGISTER, ",".join(operands).split("[")[0]):
                self.known.pop(register, None)
            return
        self.known.pop(to, None)
        kind = re.fullmatch(r"([usb])(16|32)", words[-1])
        if kind is None or None in given:
            return
        width = WIDTHS[kind[2]]
        numbers = [as_width(number, kind[1], width) for number in given]
        if words[0] == "setp" and len(words) == 3 and words[1] in COMPARES:
            self.known[to] = int(COMPARES[words[1]](*numbers))
        elif words[0] in SUMS and len(words) == (3 if words[0] == "cvt" else 2):
            into = re.fullmatch(r"([usb])(16|32)", words[1])
            if into is not None:
                self.known[to] = as_width(SUMS[words[0]](*numbers), "u", WIDTHS[into[2]])

    def run(self, at: int) -> tuple[int, tuple[str, ...]]:
        """The line where the value stops to say the way, and what is computed until then."""
        passed: list[str] = []
        sure = (at, ())
        for _ in range(STEPS_MAX):
            line = self.lines[at].strip()
            jump = re.fullmatch(rf"(?:@(!?)({REGISTER})\s+)?bra(?:\.uni)?\s+(\S+);", line)
            if not line or line.startswith(("//", ".loc")) or line.endswith(":"):
                at += 1
            elif jump:
                condition = 1 if jump[2] is None else self.known.get(jump[2])
                if condition is None:
                    break
                takes = bool(condition) != (jump[1] == "!")
                at = self.labels[jump[3]] if takes else at + 1
                sure = (at, tuple(passed))
            else:
                made = re.fullmatch(r"([a-z0-9.]+)\s+(.*);", line)
                if made is None or made[1].split(".")[0] not in PURE or ".volatile" in made[1]:
                    break
                self.compute(made[1].split("."), [operand.strip() for operand in made[2].split(",")])
                passed.append(line)
                at += 1
        return sure


def with_jump_tables(ptx: str) -> str:
    """The same PTX with a jump table at each mark."""
    lines = ptx.split("\n")
    labels = {line.strip()[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"\$\S+:", line.strip())}
    before: dict[int, str] = {}
    behind: dict[int, list[str]] = {}
    for mark, line in enumerate(lines):
        if MARK not in line:
            continue
        register = line.split(MARK)[1].strip().rstrip(";")
        begins = next(at for at in range(mark, len(lines)) if "end inline asm" in lines[at]) + 1
        pads: dict[tuple[int, tuple[str, ...]], str] = {}
        targets = []
        for value in range(VALUES):
            way = Walk(lines, labels, register, value).run(begins)
            targets.append(pads.setdefault(way, f"$L__way_{mark}_{len(pads)}"))
        if len(pads) < 2:
            raise RuntimeError(f"no way depends on {register} behind line {mark + 1}")
        added = [f"$L__table_{mark}: .branchtargets {', '.join(targets)};", f"brx.idx {register}, $L__table_{mark};"]
        for (to, passed), pad in pads.items():
            label = before.setdefault(to, f"$L__to_{to}")
            added += [f"{pad}:", *passed, f"bra.uni {label};"]
        behind[begins] = added
    out = []
    for at, line in enumerate(lines):
        out += behind.get(at, [])
        out += [f"{before[at]}:"] if at in before else []
        out.append(line)
    return "\n".join(out)

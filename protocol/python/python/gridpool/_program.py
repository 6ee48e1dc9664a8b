"""Programs: their text, checked, and what they take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from . import _native

TIES = "cpython"


@dataclass(frozen=True)
class Program:
    """A program that compiles. `compile` makes it; every call that takes a program takes its text, too."""

    #: The canonical text.
    text: str
    #: How ties are broken: `cpython` or `lowest`.
    ties: str
    #: SHA-256 of text and ties.
    hash: str
    #: Whether its items are pairs.
    pairs: bool
    #: The kind of each result, such as `grid`.
    kind: str
    #: The number of values of a result that is a tuple.
    width: Optional[int]

    def __str__(self) -> str:
        return self.text


def compile(text: str, *, ties: str = TIES) -> Program:
    """Compiles a program; raises `ProgramError` with a caret under the wrong place.

    >>> compile("transpose|p_g").text
    'dmirror | palette'
    """
    canonical, digest, pairs, kind, width = _native._describe(text, ties)
    return Program(canonical, ties, digest, pairs, kind, width)


def text_of(program: Union[str, Program], ties: Optional[str]) -> tuple[str, str]:
    """Text and ties of a program."""
    if isinstance(program, Program):
        return program.text, ties or program.ties
    return program, ties or TIES

"""The results of one job: a sequence that decodes an item when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union, cast, overload

from ._errors import ItemError
from ._receipt import Receipt

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ._native import Outputs

    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[Any]


class Grids(NamedTuple):
    """Grids without padding: grid `i` is `cells[offsets[i]:][:h * w].reshape(h, w)`, with `h, w = shapes[i]`.

    `cells` is a view of the memory that the worker wrote. An item with an error has the shape (0, 0). If each item
    is a tuple, value `v` is element `v % width` of item `v // width`.
    """

    cells: Bytes
    offsets: Numbers
    shapes: Numbers
    width: int = 1

    def grid(self, value: int) -> Bytes:
        """One grid, as a view."""
        h, w = (int(side) for side in self.shapes[value])
        start = int(self.offsets[value])
        return self.cells[start : start + h * w].reshape(h, w)


class Pictures(NamedTuple):
    """Objects or patches: `cells` as in `Grids`, 255 outside of the object; `origins` are their upper left corners."""

    cells: Bytes
    offsets: Numbers
    shapes: Numbers
    origins: Numbers
    width: int = 1


class Labels(NamedTuple):
    """The object of each cell, from 1, or 0: `labels[offsets[i]:][:h * w].reshape(h, w)`; `counts` are the objects."""

    labels: Numbers
    offsets: Numbers
    shapes: Numbers
    counts: Numbers
    width: int = 1

    def map(self, value: int) -> Numbers:
        """The label map of one grid."""
        h, w = (int(side) for side in self.shapes[value])
        start = int(self.offsets[value])
        return self.labels[start : start + h * w].reshape(h, w)


class InferResult(dict[str, Any]):
    """The outputs of a model by name, and the receipt."""

    #: Where and how the request ran.
    receipt: Receipt


class Results(Sequence[Any]):
    """The results of one job, in the order of its items.

    An element is a NumPy array for a grid (a view, read only), an int, a bool, `(row, column)`, a list of colours,
    lists of cells for objects and patches, a tuple of these, or an `ItemError`. Results hold shared memory of the
    pool's; of many that you hold, the later ones are copies.
    """

    __slots__ = ("_arrays", "_errors", "_native", "_receipt")

    def __init__(self, native: Outputs) -> None:
        self._native = native
        self._receipt: Optional[Receipt] = None
        self._errors: Optional[dict[int, ItemError]] = None
        self._arrays: Optional[Grids] = None

    def __len__(self) -> int:
        return len(self._native)

    @property
    def program(self) -> str:
        """The program, in its canonical form."""
        return self._native.program

    @property
    def kind(self) -> str:
        """The kind of every value: grid, objects, object, patch, number, vector, flag or colours."""
        return self._native.kind

    @property
    def receipt(self) -> Receipt:
        """Where and how the job ran."""
        if self._receipt is None:
            self._receipt = Receipt.from_dict(json.loads(self._native.receipt()))
        return self._receipt

    @property
    def errors(self) -> dict[int, ItemError]:
        """The error of each item that has one."""
        if self._errors is None:
            rows = self._native.errors() if self._native.item_errors else []
            self._errors = {item: ItemError(code, op, message) for item, code, op, message in rows}
        return self._errors

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            return [self._item(item) for item in range(*index.indices(len(self)))]
        item = index + len(self) if index < 0 else index
        if not 0 <= item < len(self):
            raise IndexError(f"there are {len(self)} results")
        return self._item(item)

    def __iter__(self) -> Iterator[Any]:
        return (self._item(item) for item in range(len(self)))

    def _item(self, item: int) -> Any:
        if self._native.kind == "grid" and self._native.width is None and item not in self.errors:
            if self._arrays is None:
                self._arrays = cast(Grids, self.to_numpy())
            return self._arrays.grid(item)
        return self._native.lists(item, item + 1)[0]

    def _part(self, name: str) -> Bytes:
        import numpy as np

        part = self._native.part(name)
        return np.zeros(0, np.uint8) if part is None else np.asarray(part)

    def to_numpy(self) -> Any:
        """The results as arrays.

        `Grids` for grids, `Labels` for objects, `Pictures` for an object or a patch, int32 for numbers, bool for flags,
        int16 `[N, 2]` for vectors, `(colours [N, 10], counts [N])` for colours. A result that is a tuple has its
        elements one after the other. Values with an error are 0.
        """
        import numpy as np

        kind, width = self._native.kind, self._native.width or 1
        status = self._part("status").reshape(-1, 2)[:, 0]
        bad = status != 0 if self._native.item_errors else None
        if kind in ("number", "flag", "vector"):
            raw = self._part("numbers")
            if kind == "vector":
                vectors = raw.view("<i2").reshape(-1, 2)
                return vectors if bad is None else np.where(bad[:, None], 0, vectors).astype("<i2")
            numbers = raw.view("<i4")
            numbers = numbers if bad is None else np.where(bad, 0, numbers).astype("<i4")
            return numbers != 0 if kind == "flag" else numbers
        if kind == "colours":
            palettes = self._part("palettes").reshape(-1, 12)
            if bad is not None:
                palettes = np.where(bad[:, None], 0, palettes).astype(np.uint8)
            return palettes[:, 1:11], palettes[:, 0]
        shapes = self._part("shapes").reshape(-1, 2)
        if bad is not None:
            shapes = np.where(bad[:, None], 0, shapes).astype(np.uint8)
        offsets = self._part("starts").view("<u4")[: len(shapes)]
        if kind == "grid":
            return Grids(self._part("cells"), offsets, shapes, width)
        if kind == "objects":
            counts = self._part("counts").view("<u2")
            counts = counts if bad is None else np.where(bad, 0, counts).astype("<u2")
            labels = self._part("labels_low").astype(np.uint16)
            for value in np.flatnonzero(counts > 255):
                # The high bytes count only here.
                start = int(offsets[value])
                end = start + int(shapes[value, 0]) * int(shapes[value, 1])
                labels[start:end] |= self._part("labels_high")[start:end].astype(np.uint16) << 8
            return Labels(labels, offsets, shapes, counts, width)
        origins = self._part("origins").view("<i2").reshape(-1, 2)
        return Pictures(self._part("cells"), offsets, shapes, origins, width)

    def stack(self) -> Bytes:
        """Grids of one shape as an array `[N, H, W]`: a view of the results' memory if they lie there side by side."""
        import numpy as np

        if self._native.kind != "grid" or self._native.width is not None:
            raise TypeError(f"the program gives no grid for each item, but {self._native.kind}")
        if self.errors:
            raise ValueError(f"{len(self.errors)} items have an error: see errors")
        grids = cast(Grids, self.to_numpy())
        shapes, n = grids.shapes, len(self)
        both = shapes.view("<u2")
        if not (both == both[0]).all():
            raise ValueError("the grids have several shapes: use to_numpy()")
        h, w = int(shapes[0, 0]), int(shapes[0, 1])
        area = h * w
        if area == 0:
            return np.zeros((n, h, w), np.uint8)
        starts = grids.offsets
        if (starts[1:] - starts[:-1] == area).all():
            first = int(starts[0])
            return grids.cells[first : first + n * area].reshape(n, h, w)
        gathered: Bytes = grids.cells[starts.astype(np.int64)[:, None] + np.arange(area)]
        return gathered.reshape(n, h, w)

    def to_lists(self) -> list[Any]:
        """All items as nested lists of ints; an item with an error is an `ItemError`.

        A cell of an object is `(colour, row, column)`, a place of a patch `(row, column)`.
        """
        return self._native.lists(0, len(self))

    def to_dsl(self) -> list[Any]:
        """All items as arc-dsl returns them: grids are tuples of tuples, objects and patches frozensets."""
        return self._native.dsl(0, len(self))

    def __repr__(self) -> str:
        errors = f", {self._native.item_errors} with an error" if self._native.item_errors else ""
        return f"<Results of {self._native.program!r}: {len(self)} x {self._native.kind}{errors}>"

    def _repr_html_(self) -> str:
        from ._html import results

        return results(self)

    def __reduce__(self) -> Any:
        raise TypeError("results lie in the pool's shared memory: send to_lists(), to_dsl() or an array instead")

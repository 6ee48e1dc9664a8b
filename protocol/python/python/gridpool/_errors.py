"""The exceptions, each with the data of its error, and the error of one item, which is a value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from ._native import Outputs
    from ._receipt import Receipt
    from ._results import Results


class Error(Exception):
    """What every exception of gridpool is."""

    def __reduce__(self) -> tuple[Callable[..., Error], tuple[Any, ...]]:
        # What is in shared memory stays in its process.
        state = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        return _rebuild, (type(self), self.args, state)


def _rebuild(cls: type[Error], args: tuple[Any, ...], state: dict[str, Any]) -> Error:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ProgramError(Error, ValueError):
    """A program does not compile. The text has a caret under the place."""

    def __init__(self, text: str, message: str, program: str, start: int, end: int) -> None:
        super().__init__(text)
        #: The sentence without the marked program.
        self.message = message
        #: The program.
        self.program = program
        #: The first wrong character, counted from 0.
        self.start = start
        #: The character after the last wrong one.
        self.end = end


class BadInput(Error, ValueError):
    """A batch that is no batch of grids. Grids, rows and columns count from 0."""

    def __init__(
        self,
        text: str,
        grid: Optional[int] = None,
        row: Optional[int] = None,
        column: Optional[int] = None,
    ) -> None:
        super().__init__(text)
        #: The grid; of pairs, the input of pair `i` is `2 * i` and its output `2 * i + 1`.
        self.grid = grid
        self.row = row
        self.column = column
        #: Of `submit_many`, the batch.
        self.batch: Optional[int] = None

    def _of_batch(self, batch: int) -> None:
        self.batch = batch
        self.args = (f"batch {batch}: {self}",)


class JobError(Error):
    """A job whose verdict is not OK."""

    def __init__(
        self, text: str, receipt: Optional[str] = None, partial: Optional[Outputs] = None
    ) -> None:
        super().__init__(text)
        self._partial = partial
        #: Verdict, reason and every attempt; `None` if the pool refused the job.
        self.receipt: Optional[Receipt] = None
        if receipt is not None:
            from ._receipt import Receipt as cls

            self.receipt = cls.from_dict(json.loads(receipt))

    @property
    def partial(self) -> Optional[Results]:
        """The results of the shards that were done, if there are any."""
        from ._results import Results as cls

        partial = getattr(self, "_partial", None)
        return None if partial is None else cls(partial)


class Deadline(JobError, TimeoutError):
    """The job's deadline passed."""


class Poison(JobError):
    """The job killed its workers while it ran alone, now or before."""


class DeviceLost(JobError):
    """No device was left to run the job."""


class Cancelled(JobError):
    """The job was cancelled."""


class Failed(JobError):
    """The job failed; the receipt has the reason."""


class Refused(Error):
    """The pool did not accept the request."""


class Busy(Refused):
    """The pool is full, or drains."""

    def __init__(self, text: str, again_in: Optional[float] = None) -> None:
        super().__init__(text)
        #: Seconds after which the pool accepts the job, if it can tell.
        self.again_in = again_in


class LoadCancelled(Error):
    """The load of a model was cancelled. If the pool had just finished it, it serves it: `Pool.models` says."""


class NoPool(Error, ConnectionError):
    """No pool answers at the socket."""


class NotAllowed(Error, PermissionError):
    """This user may not use the pool."""


class ConnectionLost(Error, ConnectionError):
    """The connection is lost, and no pool came back in time. Whether the job ran is unknown."""


class Silent(Error, TimeoutError):
    """The pool does not answer, although it is connected."""


class StartError(Error):
    """A pool of one's own did not start."""


@dataclass(frozen=True)
class ItemError:
    """Why one item has no result. It is a value among the results, and false in a condition."""

    #: The kind of error, such as `EmptyArg`.
    code: str
    #: The op that failed, or `input`.
    op: str
    #: One sentence.
    message: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.op}: {self.message}"

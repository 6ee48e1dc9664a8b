from collections.abc import Sequence
from os import PathLike
from typing import Any, Callable, Optional, Union, final

__all__ = [
    "PROTOCOL_VERSION",
    "Canceller",
    "Client",
    "Completions",
    "Loaded",
    "ModelLoad",
    "Outputs",
    "Search",
    "View",
    "_after_fork_in_child",
    "_before_exit",
    "_describe",
    "_time_calls",
]

PROTOCOL_VERSION: int

def _after_fork_in_child() -> None: ...
def _before_exit() -> None: ...
def _describe(text: str, ties: str) -> tuple[str, str, bool, str, Optional[int]]: ...
def _time_calls(client: Client, program: str, grids: object, calls: int) -> list[float]: ...

@final
class Loaded:
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def pairs(self) -> bool: ...

@final
class ModelLoad:
    def wait(self, span: float) -> Optional[str]: ...
    def cancel(self) -> None: ...

@final
class View:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

@final
class Outputs:
    def __len__(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def width(self) -> Optional[int]: ...
    @property
    def program(self) -> str: ...
    @property
    def item_errors(self) -> int: ...
    def receipt(self) -> str: ...
    def has(self, item: int) -> bool: ...
    def errors(self) -> list[tuple[int, str, str, str]]: ...
    def lists(self, start: int, stop: int) -> list[Any]: ...
    def dsl(self, start: int, stop: int) -> list[Any]: ...
    def part(self, name: str) -> Optional[View]: ...

@final
class Search:
    def feed(self, programs: list[tuple[str, Union[str, bytes]]]) -> int: ...
    def end(self) -> None: ...
    def stop(self) -> None: ...
    def take(
        self, wait: bool
    ) -> Optional[list[tuple[str, Optional[str], Optional[bytes], Optional[bytes]]]]: ...
    def summary(self) -> str: ...

@final
class Canceller:
    def cancel(self) -> None: ...

@final
class Completions:
    def __new__(cls) -> Completions: ...
    def take(
        self,
    ) -> Optional[list[tuple[Callable[[Any, Any], None], Optional[Outputs], Optional[BaseException]]]]: ...
    def under_way(self) -> int: ...
    def close(self) -> None: ...

@final
class Client:
    def __new__(
        cls,
        socket: Optional[Union[str, PathLike[str]]] = None,
        reconnect_for: float = 10.0,
        wait_for_pool: Optional[float] = None,
        prefix: Optional[str] = None,
        files: Sequence[Optional[Union[str, PathLike[str]]]] = ...,
    ) -> Client: ...
    @property
    def socket(self) -> PathLike[str]: ...
    def run(
        self,
        program: str,
        grids: object,
        ties: str,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        trace: Optional[tuple[str, str]] = None,
    ) -> Outputs: ...
    def start(
        self,
        completions: Completions,
        callback: Callable[[Any, Any], None],
        program: str,
        grids: object,
        ties: str,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        trace: Optional[tuple[str, str]] = None,
    ) -> Canceller: ...
    def start_many(
        self,
        completions: Completions,
        callbacks: Sequence[Callable[[Any, Any], None]],
        program: str,
        batches: Sequence[Any],
        ties: str,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        trace: Optional[tuple[str, str]] = None,
    ) -> list[Canceller]: ...
    def load(self, grids: object, pairs: bool) -> Loaded: ...
    def search(
        self,
        pairs: object,
        score: str,
        steps: int,
        ties: str,
        deadline: Optional[float] = None,
        threads: Optional[int] = None,
        trace: Optional[tuple[str, str]] = None,
        only_solving: bool = False,
        sharing: bool = True,
    ) -> Search: ...
    def status(self) -> str: ...
    def models(self) -> str: ...
    def kill(self, worker: str, signal: int) -> str: ...
    def release(self, what: str) -> str: ...
    def drain(self) -> str: ...
    def start_load(self, name: str, path: Union[str, PathLike[str]], options: str) -> ModelLoad: ...
    def set_contexts(self, name: str, contexts: int) -> str: ...
    def unload_model(self, name: str) -> str: ...
    def infer(
        self,
        model: str,
        inputs: list[tuple[str, str, list[int], bytes]],
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        at_most_once: bool = False,
        output_bytes: Optional[int] = None,
        trace: Optional[tuple[str, str]] = None,
    ) -> tuple[list[tuple[str, str, list[int], bytes]], str]: ...

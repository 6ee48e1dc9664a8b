"""The receipt of a job: where and how it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass(frozen=True)
class Device:
    """A worker's device, as the worker found it."""

    kind: str
    index: int
    name: str
    uuid: str
    driver: str


@dataclass(frozen=True)
class KernelUse:
    """The use of one kernel, reference function or model in an attempt."""

    name: str
    launches: int
    #: Microseconds.
    device_us: float


@dataclass(frozen=True)
class Attempt:
    """One try at one shard on one worker."""

    worker: str
    outcome: str
    detail: str
    device: Device
    #: Its items: the first, and one past the last.
    part: tuple[int, int]
    #: Microseconds from the job's acceptance.
    begun_us: int
    ended_us: int
    module_hash: str
    joined_items: int
    kernels: tuple[KernelUse, ...]
    h2d_bytes: int
    d2h_bytes: int
    service_us: int
    allocations: int
    infer: Optional[dict[str, Any]] = None
    #: What a search did.
    search: Optional[dict[str, Any]] = None
    #: The capsule of its worker's death, if the pool keeps one: `gridpool replay`.
    capsule: str = ""


@dataclass(frozen=True)
class Receipt:
    """The record of where and how a job ran. Times are microseconds."""

    job: str
    key: str
    program_hash: str
    #: The trace that it is a part of; empty if there is none.
    trace_id: str
    host: str
    items: int
    item_errors: int
    verdict: str
    reason: str
    queue_us: int
    total_us: int
    attempts: tuple[Attempt, ...] = field(default_factory=tuple)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Receipt:
        """The receipt of its JSON."""
        attempts: list[Attempt] = []
        for attempt in data["attempts"]:
            parts: dict[str, Any] = {
                "device": Device(**attempt["device"]),
                "part": (attempt["part"]["start"], attempt["part"]["end"]),
                "kernels": tuple(KernelUse(**kernel) for kernel in attempt["kernels"]),
            }
            attempts.append(Attempt(**{**attempt, **parts}))
        fields: dict[str, Any] = {**data, "attempts": tuple(attempts)}
        return cls(**fields)

    def _repr_html_(self) -> str:
        from ._html import receipt

        return receipt(self)

"""Data-dependent shapes: buffers allocated for the maximum length, with the actual length in device memory."""

from __future__ import annotations

from collections.abc import Callable

from ...base.dataclass import dataclass
from ...plan.kernel_api import Buffer


@dataclass(frozen=True, eq=False)
class Sized:
    """An array whose shape follows from a count that the host reads after the launches before it.

    Attributes:
        buffer: memory for the most elements.
        count: i64, one number.
        shape: the shape for such a number.
    """

    buffer: Buffer
    count: Buffer
    shape: Callable[[int], tuple[int, ...]]


def parts(location: object) -> list[Buffer]:
    """The device buffers of a value location."""
    if isinstance(location, Sized):
        return [location.buffer, location.count]
    return [location] if isinstance(location, Buffer) else []

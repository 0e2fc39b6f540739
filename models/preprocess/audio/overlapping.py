"""Windows that overlap: samples that arrive in blocks, in windows of one length with context on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ....runtime.base.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Window:
    """A window of a recording.

    Attributes:
        samples: f32 [count].
        start: of the first sample, in the recording.
        before, behind: how many of the samples at both ends are context, which belongs to the neighbours.
    """

    samples: np.ndarray
    start: int
    before: int
    behind: int


def overlapping(blocks: Iterable[np.ndarray], length: int, context: int) -> Iterator[Window]:
    """Windows of `length` samples, of which `context` at each end belong to the neighbours; the last may be shorter.
    Only the samples of one window and one block are kept.

    Args:
        blocks: samples f32 [count] each.
        length: more than twice `context`.
    """
    held, start, before = np.zeros(0, np.float32), 0, 0
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) > length:
            yield Window(held[:length], start, before, context)
            step = length - 2 * context
            held, start, before = held[step:], start + step, context
    if len(held) > before:
        yield Window(held, start, before, 0)

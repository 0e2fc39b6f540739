"""Framing: samples in windows of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


def frames_of(samples: np.ndarray, length: int, hop: int) -> np.ndarray:
    """[frames, length]: views of `length` samples every `hop` samples; none reaches past the end."""
    return np.lib.stride_tricks.sliding_window_view(samples, length)[::hop]


def windows_of(blocks: Iterable[np.ndarray], length: int) -> Iterator[np.ndarray]:
    """Blocks of samples f32 [count] as windows of `length` samples, one after the other; the last may be shorter."""
    held, have = [], 0
    for block in blocks:
        held.append(block)
        have += len(block)
        if have >= length:
            joined = np.concatenate(held)
            whole = have // length * length
            yield from joined[:whole].reshape(-1, length)
            held, have = [joined[whole:]], have - whole
    if have:
        yield np.concatenate(held)

"""Functions of `keras.utils`: one-hot classes, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.conversion import array_of
from ..loop.random_state import seed_everything
from .core.layer import clear_session

__all__ = ["clear_session", "normalize", "pad_sequences", "set_random_seed", "to_categorical"]


def to_categorical(x: object, num_classes: int | None = None) -> np.ndarray:
    """Numbers of classes [...] as one-hot rows f64 [..., classes].

    Args:
        num_classes: the largest number and one more, if it is None.

    Raises UsageError for numbers that are not classes.
    """
    given = np.asarray(x if isinstance(x, list | tuple | int) else array_of(x)).astype(np.int64)
    if given.ndim > 1 and given.shape[-1] == 1:
        given = given.reshape(given.shape[:-1])
    count = int(given.max(initial=-1)) + 1 if num_classes is None else num_classes
    if given.size and not 0 <= given.min() <= given.max() < count:
        why = f"the classes are {given.min()} to {given.max()}"
        raise UsageError("E-OPTION", None, why, expected=f"0 to {count - 1}")
    return np.eye(count)[given]


def normalize(x: object, axis: int = -1, order: int = 2) -> np.ndarray:
    """An array over its norms along an axis."""
    array = array_of(x)
    norms = np.atleast_1d(np.linalg.norm(array, order, axis))
    norms[norms == 0] = 1
    found: np.ndarray = array / np.expand_dims(norms, axis)
    return found


def pad_sequences(
    sequences: Sequence[Any], maxlen: int | None = None, dtype: Any = "int32", padding: str = "pre",
    truncating: str = "pre", value: Any = 0.0,
) -> np.ndarray:  # fmt: skip
    """Sequences of different lengths as one array [sequences, maxlen, ...].

    Args:
        maxlen: the length of the longest sequence, if it is None.
        padding, truncating: "pre" or "post": the end at which values are added or removed.

    Raises UsageError for other ends.
    """
    for name, end in (("padding", padding), ("truncating", truncating)):
        if end not in ("pre", "post"):
            raise UsageError("E-OPTION", None, f"{name} is {end!r}", expected="pre or post")
    items = [np.asarray(each) for each in sequences]
    length = max(map(len, items), default=0) if maxlen is None else maxlen
    inner = next((each.shape[1:] for each in items if len(each)), ())
    found = np.full((len(items), length, *inner), value, dtype)
    for row, each in zip(found, items, strict=True):
        kept = each[len(each) - min(length, len(each)) :] if truncating == "pre" else each[:length]
        if len(kept):
            row[length - len(kept) if padding == "pre" else 0 :][: len(kept)] = kept
    return found


def set_random_seed(seed: int) -> None:
    """Start all random numbers from a seed: Python's, NumPy's and ours."""
    seed_everything(seed)


def __dir__() -> list[str]:
    return list(__all__)

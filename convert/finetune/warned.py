"""Warnings of modules as notes of a command."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from ...runtime.ir.graph import Note


@contextlib.contextmanager
def warned_notes() -> Iterator[list[Note]]:
    """Notes of what is warned of in the block; they are complete after it."""
    notes: list[Note] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield notes
    notes += [Note("W-TRAIN", None, str(each.message)) for each in caught if issubclass(each.category, UserWarning)]

"""Warnings of the models and of training as notes of a command."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from ...runtime.ir.graph import Note


@contextlib.contextmanager
def warned(category: type[Warning], code: str) -> Iterator[list[Note]]:
    """Notes of the warnings of a category in the block, each message once; they are complete after it. Warnings of
    other categories are left to those around it."""
    notes: list[Note] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield notes
    messages = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, category))
    notes += [Note(code, None, message) for message in messages]
    for each in caught:
        if not issubclass(each.category, category):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

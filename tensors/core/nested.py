"""Nested lists, tuples, named tuples and dictionaries of tensors: arguments and results of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .expression import leaf
from .tensor import Tensor

TENSOR = object()
"""Stands for a tensor in a structure."""


def mapped(item: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting with `change` of everything that is not a list, tuple or dictionary."""
    if isinstance(item, dict):
        return {name: mapped(each, change) for name, each in item.items()}
    if isinstance(item, list | tuple):
        return _made(type(item), [mapped(each, change) for each in item])
    return change(item)


def flattened(item: Any, tensors: list[Tensor]) -> Any:
    """The structure, which is hashable if all that are not tensors are; tensors, and arrays as such, are added to
    `tensors`."""
    if isinstance(item, Tensor | np.ndarray):
        tensors.append(item if isinstance(item, Tensor) else Tensor(leaf(item)))
        return TENSOR
    if isinstance(item, dict):
        return dict, tuple([(name, flattened(each, tensors)) for name, each in item.items()])
    if isinstance(item, list | tuple):
        return type(item), tuple([flattened(each, tensors) for each in item])
    return None, (type(item), item)


def restored(structure: Any, tensors: Iterator[Tensor]) -> Any:
    """Undo `flattened`, with these tensors."""
    if structure is TENSOR:
        return next(tensors)
    kind, items = structure
    if kind is None:
        return items[1]
    if kind is dict:
        return {name: restored(each, tensors) for name, each in items}
    return _made(kind, [restored(item, tensors) for item in items])


def count(structure: Any) -> int:
    """The number of tensors in a structure."""
    if structure is TENSOR:
        return 1
    kind, items = structure
    if kind is None:
        return 0
    return sum(count(item[1] if kind is dict else item) for item in items)


def _made(kind: type, items: Sequence[Any]) -> Any:
    """A list or tuple of a kind."""
    return kind(*items) if hasattr(kind, "_fields") else kind(items)

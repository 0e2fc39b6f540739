"""Collation: items of a dataset become a batch, by torch's rules; and batches of other libraries become tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.conversion import array_of
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import made


def default_collate(batch: Sequence[Any]) -> Any:
    """Items stacked along a new first dim: tensors, arrays (torch's too), numbers; the members of tuples, lists and
    dictionaries each; strings stay a list. Python's floats become f64 and integers i64, as in torch.

    Raises UsageError for items of different shapes, lengths or other types.
    """
    first = batch[0]
    if isinstance(first, Mapping):
        return {name: default_collate([each[name] for each in batch]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[default_collate(members) for members in _transposed(batch)])
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, list | tuple):
        return [default_collate(members) for members in _transposed(batch)]
    if isinstance(first, bool | int | float | complex):
        return made(np.array(batch))
    if isinstance(first, Tensor | np.ndarray | np.generic) or is_foreign_tensor(first):
        return made(_stacked([_as_array(each) for each in batch]))
    why = f"items of type {type(first).__name__} cannot be stacked into a batch"
    raise UsageError("E-DATA-COLLATE", None, why, hint="Let the dataset give arrays, or pass collate_fn")


def _transposed(batch: Sequence[Any]) -> list[tuple[Any, ...]]:
    if len({len(each) for each in batch}) > 1:
        why = f"items of a batch have {sorted({len(each) for each in batch})} members"
        raise UsageError("E-DATA-COLLATE", None, why, hint="Pad them, or pass collate_fn")
    return list(zip(*batch, strict=True))


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        why = f"items of a batch have shapes {' and '.join(str(list(shape)) for shape in sorted(shapes)[:3])}"
        raise UsageError("E-DATA-COLLATE", None, why, hint="Pad or resize them, or pass collate_fn")
    if arrays[0].dtype.kind in "OSU":
        raise UsageError("E-DATA-COLLATE", None, f"arrays of {arrays[0].dtype} cannot be stacked into a batch")
    return np.stack(arrays)


def is_foreign_tensor(item: Any) -> bool:
    """Whether an object is a tensor of another library."""
    return not isinstance(item, Tensor | np.ndarray | np.generic) and (
        hasattr(item, "detach") or hasattr(item, "__dlpack__")
    )


def _as_array(item: Any) -> np.ndarray:
    if isinstance(item, Tensor):
        return item.array()
    return np.asarray(item if isinstance(item, np.ndarray | np.generic) else array_of(item))


def as_tensors(batch: Any) -> Any:
    """A batch whose arrays and other libraries' tensors are tensors, which share memory with them."""
    if isinstance(batch, np.ndarray | np.generic) and batch.dtype.kind not in "OSU":
        return made(np.asarray(batch))
    if is_foreign_tensor(batch):
        return made(array_of(batch))
    if isinstance(batch, Mapping):
        return {name: as_tensors(each) for name, each in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[as_tensors(each) for each in batch])
    if isinstance(batch, list | tuple):
        return type(batch)([as_tensors(each) for each in batch])
    return batch


default_convert = as_tensors
"""PyTorch's name."""


def rows_of(batch: Any) -> int:
    """The number of items of a batch: the length of its first tensor."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.shape else 1
    members = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    for member in members:
        count = rows_of(member)
        if count:
            return count
    return 0

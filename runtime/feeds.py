"""Input feeds: checks what a caller passes to a run and converts it to arrays that fit the graph's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base.errors import UsageError
from .ir.graph import Value
from .tensor.dtype import STRING
from .tensor.stored_tensor import StoredTensor

HINT = "get_inputs() lists names, dtypes and shapes"


def checked(inputs: Sequence[Value], feeds: Mapping[str, Any]) -> list[Any]:
    """Feeds in the order of inputs; UsageError where one is missing, unknown, or has another dtype, rank or length."""
    names = {value.name for value in inputs}
    unknown = [name for name in feeds if name not in names]
    if unknown:
        raise UsageError(
            "E-RUN-INPUT",
            None,
            f"no input named {unknown[0]!r}",
            expected=", ".join(repr(value.name) for value in inputs),
            hint=HINT,
        )
    for value in inputs:
        if value.name not in feeds:
            raise UsageError(
                "E-RUN-INPUT", None, f"input {value.name!r} is missing", hint="Name every input that get_inputs() lists"
            )
    return [fitting(value, feeds[value.name]) for value in inputs]


def array_of(fed: Any) -> Any:
    """An array of what was fed: numpy's, a tensor of ours or torch's, or anything that speaks DLPack; lists, maps and
    None as they are.

    What lies on a card and speaks ``__cuda_array_interface__`` stays there, as a `DeviceArray`.
    """
    if isinstance(fed, np.ndarray) or fed is None or isinstance(fed, list | dict):
        return fed
    if isinstance(fed, StoredTensor):
        return fed.numpy()
    if hasattr(fed, "detach"):
        fed = fed.detach()
    if getattr(fed, "on_device", False):
        return fed
    if hasattr(fed, "__cuda_array_interface__"):
        from .cuda.memory.device_array import DeviceArray

        return DeviceArray.wrap(fed)
    if hasattr(fed, "__dlpack__") and not isinstance(fed, np.generic):
        return np.from_dlpack(fed)
    return np.asarray(fed)


def fitting(value: Value, fed: Any) -> Any:
    """The array of a feed, when it is one that `value` may have."""
    array = array_of(fed)
    if not hasattr(array, "dtype") or value.container:
        return array
    if array.dtype.kind in "UT":
        array = array.astype(object)
    wanted = value.dtype
    if wanted is not None:
        is_string = array.dtype.kind in "OUT"
        if (wanted is STRING) != is_string or (not is_string and array.dtype != wanted.as_numpy()):
            why = f"input {value.name!r} has another dtype"
            raise UsageError("E-RUN-DTYPE", None, why, expected=wanted.name, found=str(array.dtype), hint=HINT)
    shape = value.shape
    if shape is not None and (
        len(shape) != array.ndim
        or any(isinstance(dim, int) and dim != length for dim, length in zip(shape, array.shape, strict=True))
    ):
        why = f"input {value.name!r} has another shape"
        raise UsageError("E-RUN-SHAPE", None, why, expected=str(list(shape)), found=str(list(array.shape)), hint=HINT)
    return array

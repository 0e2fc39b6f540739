"""Values of saved states, checked against those that their owner has before they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.conversion import array_of
from ...tensors.core.tensor import Tensor

MOST = 1 << 53
"""Of a count; floats hold all integers up to it."""


def checked(name: str, given: Any, own: Any) -> Any:
    """A saved value in the type of its owner's.

    Numbers may be integers or floats; lists and tuples have the owner's length, dictionaries its keys, but for tables
    by integers. Instead of None any plain value fits: the owner does not know it yet.

    Args:
        name: of the value, for messages.
        own: the value that the owner has.

    Raises UsageError for a value of another kind, length or shape.
    """
    if isinstance(own, Tensor | np.ndarray):
        array = _of_numbers(name, given, "biufcV" if _is_complex(own) else "biufV")
        if array.shape != own.shape:
            raise mismatch(name, f"an array of shape {list(own.shape)}", f"an array of shape {list(array.shape)}")
        return given
    if getattr(given, "ndim", None) == 0:
        given = _of_numbers(name, given).item()
    if own is None:
        fits = given is None or isinstance(given, bool | str) or is_number(given)
    elif isinstance(own, bool | str):
        fits = isinstance(given, type(own))
    elif isinstance(own, Real):
        fits = is_number(given)
    elif isinstance(own, Mapping):
        return _table(name, given, own)
    elif isinstance(own, list | tuple):
        return _sequence(name, given, own)
    else:
        fits = True
    if not fits:
        raise mismatch(name, _kind(own), _kind(given))
    return given


def count(name: str, given: Any, least: int = 0) -> int:
    """A saved count; UsageError unless it is an integer of at least `least`."""
    value = _of_numbers(name, given).item() if getattr(given, "size", 0) == 1 else given
    whole = is_number(value) and math.isfinite(value) and value == int(value)
    if not whole or not least <= value <= MOST:
        raise mismatch(name, f"an integer of at least {least}", repr(value) if is_number(value) else _kind(value))
    return int(value)


def arrays(name: str, given: Any) -> dict[str, np.ndarray]:
    """Saved arrays of numbers by name; UsageError for anything else."""
    if not isinstance(given, Mapping):
        raise mismatch(name, "a dictionary", _kind(given))
    return {key: _of_numbers(f"{name}.{key}", each) for key, each in given.items()}


def mismatch(name: str, expected: str, found: str) -> UsageError:
    """The error for a saved value that does not fit."""
    return UsageError("E-OPTIM-STATE", None, f"{name} of the saved state does not fit", expected=expected, found=found)


def _is_complex(array: Tensor | np.ndarray) -> bool:
    """Whether an array's numbers are complex."""
    return array.dtype.is_complex if isinstance(array, Tensor) else array.dtype.kind == "c"


def _of_numbers(name: str, given: Any, kinds: str = "biufV") -> np.ndarray:
    array = array_of(given) if hasattr(given, "ndim") else None
    if array is None or array.dtype.kind not in kinds:
        raise mismatch(name, "an array of numbers", _kind(given))
    return array


def _table(name: str, given: Any, own: Mapping[Any, Any]) -> Any:
    if not isinstance(given, Mapping):
        raise mismatch(name, "a dictionary", _kind(given))
    if not any(isinstance(key, str) for key in own):
        return type(own)({count(f"a key of {name}", key): count(f"{name}.{key}", each) for key, each in given.items()})  # type: ignore[call-arg]
    missing = [key for key in own if key not in given]
    if missing:
        raise mismatch(name, f"the key {missing[0]}", ", ".join(map(str, given)))
    return {key: checked(f"{name}.{key}", each, own[key]) if key in own else each for key, each in given.items()}


def _sequence(name: str, given: Any, own: Any) -> Any:
    fields = hasattr(own, "_fields")
    if fields and isinstance(given, Mapping):  # PyTorch has dictionaries in place of named tuples
        given = list(given.values())
    if not isinstance(given, list | tuple):
        raise mismatch(name, f"a list of {len(own)}", _kind(given))
    if len(given) != len(own):
        raise mismatch(name, f"a list of {len(own)}", f"a list of {len(given)}")
    found = [checked(f"{name}[{index}]", *pair) for index, pair in enumerate(zip(given, own, strict=True))]
    if fields and any(isinstance(each, str) and each != theirs for each, theirs in zip(own, found, strict=True)):
        raise mismatch(name, str(own), str(found))
    return type(own)(*found) if fields else type(own)(found)


def is_number(given: Any) -> bool:
    """Whether a value is a float, or an integer that a float holds."""
    is_large = isinstance(given, int) and abs(given) > MOST
    return isinstance(given, Real) and not isinstance(given, bool) and not is_large


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, Real):
        return "a number" if math.isfinite(value) else repr(value)
    kinds: dict[type, str] = {str: "a string", dict: "a dictionary", list: "a list", tuple: "a list"}
    return kinds.get(type(value), type(value).__name__)

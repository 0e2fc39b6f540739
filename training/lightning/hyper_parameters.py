"""Hyper-parameters of a module: the arguments of its ``__init__``, kept in checkpoints."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FrameType
from typing import Any


class HyperParameters(dict[str, Any]):
    """A dictionary whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no hyper-parameter {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def arguments_of(frame: FrameType | None, names: Sequence[str], ignore: Sequence[str]) -> dict[str, Any]:
    """The arguments of the ``__init__`` of a frame, and of those of subclasses that called it.

    Args:
        names: of the arguments; none for all but `ignore`.
    """
    found: dict[str, Any] = {}
    owner = None
    while frame is not None and frame.f_code.co_name == "__init__":
        named, _, keywords, values = inspect.getargvalues(frame)
        if owner is not None and values[named[0]] is not owner:
            break
        owner = values[named[0]]
        found |= {name: values[name] for name in named[1:]}
        found |= values[keywords] if keywords else {}
        frame = frame.f_back
    return {name: value for name, value in found.items() if (name in names if names else name not in ignore)}


def taken_by(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that a class takes by name; a checkpoint also has those of its base classes."""
    parameters = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}


def storable(values: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that a checkpoint can hold: numbers, strings, None, and lists, tuples and dictionaries of
    them."""
    return {name: value for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str | int) and _is_plain(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)

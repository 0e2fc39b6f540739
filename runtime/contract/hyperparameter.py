"""Hyper-parameter types: which values of config.json or GGUF metadata each accepts, and their range.

A kind is called with a plain Python value and returns it in the type of the parameter. It raises ValueError with the
reason: ``-1 is less than 1``. A kind never allocates memory in proportion to the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..base.dataclass import dataclass
from ..base.units import counted

Kind = Callable[[Any], Any]
MAX_INTEGER = 2**31 - 1
"""Largest integer parameter: every format and library stores int32 or wider."""
MAX_REAL = 3.4028234663852886e38
"""Largest finite f32; graphs store real parameters as f32."""
MIN_REAL = 1.401298464324817e-45
"""Smallest f32 above zero."""
MAX_ITEMS = 1 << 16
"""Elements of a list among the parameters: one for each layer, or for each pair of a head."""
SHOWN = 60
"""Characters of a value that a message repeats."""


class ParameterError(ValueError):
    """A value that its kind does not accept. `key` is the key in the file."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def checked(key: str, value: Any, kind: Kind) -> Any:
    """`value` of the file's `key` in the type of `kind`. ParameterError where it is not accepted."""
    try:
        return kind(value)
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(key, str(error)) from error


def shown(value: Any) -> str:
    """A value as JSON writes it, cut to `SHOWN` characters."""
    if isinstance(value, str):
        text = json.dumps(value[:SHOWN], ensure_ascii=False)
        return text if len(value) <= SHOWN else f'{text[:-1]}…"'
    if isinstance(value, Mapping | bytes):
        return "an object" if isinstance(value, Mapping) else "a string that is not UTF-8"
    if isinstance(value, Sequence):
        return f"a list of {len(value):,}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if value.bit_length() < 128 else f"an integer of {counted(value.bit_length(), 'bit')}"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)[:SHOWN]


@dataclass(frozen=True)
class Integer:
    """An integer in a range, which JSON may also write as ``4096.0``; `multiple` is what it has to be divisible by."""

    low: int = 0
    high: int = MAX_INTEGER
    multiple: int = 1

    def __call__(self, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{shown(value)} is not an integer")
        if value < self.low:
            raise ValueError(f"{shown(value)} is less than {self.low:,}")
        if value > self.high:
            raise ValueError(f"{shown(value)} is more than {self.high:,}")
        if value % self.multiple:
            raise ValueError(f"{shown(value)} is not a multiple of {self.multiple}")
        return value


@dataclass(frozen=True)
class Real:
    """A finite number from `low` to `high`; `above` is whether `low` itself is left out."""

    low: float = -MAX_REAL
    high: float = MAX_REAL
    above: bool = False

    def __call__(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{shown(value)} is not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        if self.above and 0 < value < MIN_REAL:
            raise ValueError(f"{shown(value)} is zero in float32")
        if value < self.low or (self.above and value == self.low):
            raise ValueError(f"{shown(value)} is not {'above' if self.above else 'at least'} {self.low:g}")
        if value > self.high:
            raise ValueError(f"{shown(value)} is more than {self.high:g}")
        return float(value)


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(f"{shown(value)} is not one of {', '.join(self.words)}")
        return value


@dataclass(frozen=True)
class Only:
    """The value that all supported models have."""

    value: Any

    def __call__(self, value: Any) -> Any:
        if value != self.value:
            raise ValueError(f"{shown(value)} is not {shown(self.value)}, the only supported value")
        return value


@dataclass(frozen=True)
class Listed:
    """A list of `least` to `most` values of one kind."""

    kind: Kind
    least: int = 0
    most: int = MAX_ITEMS

    def __call__(self, value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise ValueError(f"{shown(value)} is not a list")
        if not self.least <= len(value) <= self.most:
            raise ValueError(
                f"a list of {len(value):,}, where {self.least:,} to {counted(self.most, 'element')} are expected"
            )
        return [self.kind(plain(item)) for item in value]


def flag(value: Any) -> bool:
    """A switch: true or false, or 1 or 0."""
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{shown(value)} is not true or false")


def word(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a string")
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{shown(value)} is not an object")
    return value


SIZE = Integer()
"""A length or count; 0 if the model lacks the feature."""
COUNT = Integer(1)
"""A positive length or count."""
EVEN = Integer(2, multiple=2)
"""An even number of elements, rotated in pairs."""
REAL, POSITIVE, NOT_NEGATIVE = Real(), Real(0, above=True), Real(0)


def plain(value: Any) -> Any:
    """A NumPy scalar or array as plain Python values; other values unchanged."""
    return value.tolist() if hasattr(value, "dtype") else value


class StatedValues(Mapping[str, Any]):
    """The parameters of a file as plain Python values.

    Args:
        prefix: the architecture's prefix of GGUF keys; keys are found with and without it.
    """

    def __init__(self, source: Mapping[str, Any], prefix: str = "") -> None:
        self._keys = {key.removeprefix(prefix): key for key in source}
        self._source = source

    def __getitem__(self, key: str) -> Any:
        return plain(self._source[self._keys[key]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

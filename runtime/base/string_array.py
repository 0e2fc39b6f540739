"""String array: strings decoded on access, in a tenth of the memory of a list of `str`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import numpy as np

PADDING = 8
"""Zeros after the last text, so that eight bytes can be read from the position of any."""


class StringArray(Sequence[str]):
    """Equal to a list of the same strings.

    Args:
        data: the strings in UTF-8, concatenated.
        ends: i64, where each of them ends.

    Attributes:
        data: as given, with `PADDING` zeros after.
        ends: as given.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: bytes, ends: np.ndarray) -> None:
        self.data = data + bytes(PADDING)
        self.ends = ends

    @property
    def starts(self) -> np.ndarray:
        """i64, where each text begins."""
        import numpy

        return numpy.concatenate([numpy.zeros(min(1, len(self.ends)), numpy.int64), self.ends[:-1]])

    def raw(self, index: int) -> bytes:
        """The bytes of one text, counted from 0."""
        return self.data[self.ends[index - 1] if index else 0 : self.ends[index]]

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]
        return self.raw(places).decode() if isinstance(places, int) else [self.raw(place).decode() for place in places]

    def __iter__(self) -> Iterator[str]:
        start, data = 0, self.data
        for end in self.ends.tolist():
            yield data[start:end].decode()
            start = end

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, StringArray):
            return len(self) == len(other) and self.data == other.data and bool((self.ends == other.ends).all())
        return self.tolist() == other if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.tolist())

    def tolist(self) -> list[str]:
        """The strings as a list."""
        return list(self)

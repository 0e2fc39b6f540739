"""Fields of multipart forms, whose values are texts and files."""

from __future__ import annotations

from typing import Any

from ....runtime.base.dataclass import dataclass
from .http_error import bad_request
from .request_fields import Number, Text


@dataclass(frozen=True)
class File:
    """The content of a file."""

    def read(self, value: Any, name: str) -> bytes:
        """The bytes."""
        if not isinstance(value, bytes) or not value:
            raise bad_request(f"{name} is not a file with content", name)
        return value

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "string", "format": "binary"}


@dataclass(frozen=True)
class Decimal:
    """The text of a number of `low` to `high`."""

    low: float
    high: float

    def read(self, value: Any, name: str) -> float:
        """The number."""
        text = Text(longest=40).read(value, name)
        try:
            number = float(text)
        except ValueError as error:
            raise bad_request(f"{name} is {text!r}, expected a number", name) from error
        return Number(self.low, self.high).read(number, name)

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return Number(self.low, self.high).schema()


@dataclass(frozen=True)
class Texts:
    """Several texts, each one of `choices`."""

    choices: tuple[str, ...]

    def read(self, value: Any, name: str) -> list[str]:
        """The texts."""
        return [Text(self.choices).read(each, name) for each in value]

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "array", "items": Text(self.choices).schema()}

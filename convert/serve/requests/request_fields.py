"""Fields of requests: each kind reads a JSON value, refusing others by the field's name, and describes itself as JSON
schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ....runtime.base.dataclass import dataclass
from ....runtime.base.units import counted
from .http_error import HTTPError, bad_request

KINDS = {
    type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list",
    dict: "an object",
}  # fmt: skip
"""Types of JSON values."""


class Kind(Protocol):
    """The type of a field."""

    def read(self, value: Any, name: str) -> Any:
        """The value as handlers take it. HTTPError 400 that names the field for others."""
        ...

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        ...


def _refused(name: str, expected: str, value: Any) -> HTTPError:
    found = KINDS.get(type(value), type(value).__name__)
    return bad_request(f"{name} is {found}, expected {expected}", name)


@dataclass(frozen=True)
class Text:
    """A string, one of `choices` if there are any."""

    choices: tuple[str, ...] = ()
    longest: int | None = None

    def read(self, value: Any, name: str) -> str:
        """The string."""
        if not isinstance(value, str):
            raise _refused(name, "a string", value)
        if self.choices and value not in self.choices:
            raise bad_request(f"{name} is {value[:80]!r}, expected one of {', '.join(self.choices)}", name)
        if self.longest is not None and len(value) > self.longest:
            raise bad_request(
                f"{name} has {counted(len(value), 'character')}, at most {self.longest:,} are taken", name
            )
        return value

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {
            "type": "string",
            **({"enum": list(self.choices)} if self.choices else {}),
            **({} if self.longest is None else {"maxLength": self.longest}),
        }


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def read(self, value: Any, name: str) -> bool:
        """The boolean."""
        if not isinstance(value, bool):
            raise _refused(name, "true or false", value)
        return value

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "boolean"}


@dataclass(frozen=True)
class Number:
    """A finite number of `low` to `high`; `integer`: without a fraction."""

    low: float
    high: float
    integer: bool = False

    def read(self, value: Any, name: str) -> float:
        """The number."""
        kinds = int if self.integer else int | float
        what = "an integer" if self.integer else "a number"
        if isinstance(value, bool) or not isinstance(value, kinds) or (isinstance(value, float) and math.isnan(value)):
            raise _refused(name, what, value)
        if not self.low <= value <= self.high:
            shown = value if isinstance(value, float) or abs(value) < 1e18 else "out of range"
            raise bad_request(f"{name} is {shown}, expected {self.low:,} to {self.high:,}", name)
        return value

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "integer" if self.integer else "number", "minimum": self.low, "maximum": self.high}


def integer(low: int, high: int = 2**63 - 1) -> Number:
    """An integer of `low` to `high`."""
    return Number(low, high, integer=True)


@dataclass(frozen=True)
class Many:
    """A list of `least` to `most` items."""

    item: Kind
    least: int = 0
    most: int = 2048

    def read(self, value: Any, name: str) -> list[Any]:
        """The list."""
        if not isinstance(value, list):
            raise _refused(name, "a list", value)
        if not self.least <= len(value) <= self.most:
            raise bad_request(
                f"{name} has {counted(len(value), 'item')}, expected {self.least:,} to {self.most:,}", name
            )
        return [self.item.read(item, f"{name}[{number}]") for number, item in enumerate(value)]

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "array", "items": self.item.schema(), "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True)
class Either:
    """One of several kinds, the first that the JSON type fits."""

    kinds: tuple[Kind, ...]

    def read(self, value: Any, name: str) -> Any:
        """The value."""
        errors = []
        for kind in self.kinds:
            try:
                return kind.read(value, name)
            except HTTPError as error:
                errors.append(error)
        deepest = max(errors, key=lambda error: len(error.param or ""))
        if deepest.param != name:
            raise deepest
        expected = " or ".join(dict.fromkeys(error.message.partition("expected ")[2] for error in errors))
        raise bad_request(f"{errors[0].message.partition(', expected')[0]}, expected {expected}", name)

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"anyOf": [kind.schema() for kind in self.kinds]}


@dataclass(frozen=True)
class Anything:
    """An object, as it is: a JSON schema, a message."""

    def read(self, value: Any, name: str) -> dict[str, Any]:
        """The object."""
        if not isinstance(value, dict):
            raise _refused(name, "an object", value)
        return value

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        return {"type": "object"}


@dataclass(frozen=True)
class Field:
    """A field of an object.

    Attributes:
        kind: what it holds.
        default: of requests without it, and with null; None for fields that handlers check for.
        required: whether requests without it are refused.
        help: one sentence for the page of the interface.
    """

    kind: Kind
    default: Any = None
    required: bool = False
    help: str = ""


@dataclass(frozen=True)
class Record:
    """An object with named fields.

    Attributes:
        fields: by name.
        unused: fields of clients that nothing depends on here.
        check: refuses combinations of fields.
    """

    fields: Mapping[str, Field]
    unused: tuple[str, ...] = ()
    check: Callable[[dict[str, Any]], None] | None = None

    def read(self, value: Any, name: str = "") -> dict[str, Any]:
        """Every field, defaults included. HTTPError 400 for missing and for unknown ones."""
        if not isinstance(value, dict):
            raise _refused(name or "the body", "an object", value)
        before = f"{name}." if name else ""
        for key in value:
            if key not in self.fields and key not in self.unused:
                raise bad_request(f"unknown field {before}{key[:80]}", f"{before}{key[:80]}", "unknown_parameter")
        found = {}
        for key, field in self.fields.items():
            given = value.get(key)
            if given is None and field.required:
                raise bad_request(f"missing field {before}{key}", f"{before}{key}", "missing_required_parameter")
            found[key] = field.default if given is None else field.kind.read(given, f"{before}{key}")
        if self.check is not None:
            self.check(found)
        return found

    def schema(self) -> dict[str, Any]:
        """JSON schema."""
        properties = {}
        for name, field in self.fields.items():
            described = field.kind.schema()
            if field.help:
                described["description"] = field.help
            if field.default is not None:
                described["default"] = field.default
            properties[name] = described
        required = [name for name, field in self.fields.items() if field.required]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

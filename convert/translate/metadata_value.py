"""Metadata values: types by name, JSON form, and parsing from text."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.string_array import StringArray
from ...runtime.ir.graph import Meta
from ...runtime.tensor.dtype import DTYPES, of_numpy

SCALARS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64")
TYPES = (*SCALARS, "bool", "str", "json")
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def readable(value: Meta) -> Any:
    """A value as JSON for people and programs that know its type: numbers and lists, whole.

    Non-finite numbers are text, complex ones pairs, bytes base64.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, complex):
        return [readable(value.real), readable(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list | tuple) else value


def kind_of(value: Meta) -> str:
    """The name of a value's type, such as ``u32``, ``str`` or ``i32[]``."""
    import numpy

    if isinstance(value, numpy.ndarray | numpy.generic):
        name = of_numpy(value.dtype).name if value.dtype.kind in "biuf" else str(value.dtype)
        return name + "[]" * isinstance(value, numpy.ndarray)
    if isinstance(value, StringArray) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return "str[]"
    plain = {str: "str", bool: "bool", int: "int", float: "float", bytes: "bytes", type(None): "none"}
    return plain.get(type(value), "json")


def typed(text: str, kind: str | None, old: Meta = None) -> Meta:
    """The value that `text` says, as the type `kind`, or as that of the `old` value, which it replaces.

    Args:
        kind: one of `TYPES`, with ``[]`` after it for a JSON list of such values; None takes that of `old`, or str.
    """
    kind = kind or {"int": "i64", "float": "f64", "none": "str", "bytes": "str"}.get(kind_of(old), kind_of(old))
    base = kind.removesuffix("[]")
    if base not in TYPES or kind == "json[]":
        why = f"unknown metadata type {kind!r}"
        raise UsageError("E-META-TYPE", None, why, hint=f"Types: {', '.join(TYPES)}, and lists such as i32[]")
    try:
        if kind == "json":
            return json.loads(text, parse_constant=_no_constant)
        if base == kind:
            return _scalar(text, kind)
        items = json.loads(text, parse_constant=_no_constant)
        return _array(items, base)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        why = f"{text[:60]!r} is not a valid {kind}: {error}"
        raise UsageError("E-META-VALUE", None, why, hint="Choose another type with --type") from error


def _scalar(text: str, kind: str) -> Meta:
    if kind == "str":
        return text
    if kind == "bool":
        if text.lower() not in TRUTH:
            raise ValueError(f"one of {', '.join(TRUTH)} is needed")
        return TRUTH[text.lower()]
    value = float(text) if kind.startswith("f") else int(text, 0)
    return DTYPES[kind].as_numpy().type(value)


def _array(items: Any, base: str) -> Meta:
    import numpy

    wanted = {"str": str, "bool": bool}.get(base, (int, float) if base.startswith("f") else int)
    if not isinstance(items, list) or not all(
        isinstance(item, wanted) and (base == "bool") == isinstance(item, bool) for item in items
    ):
        raise ValueError(f"a JSON list of {base} is needed")
    return items if base == "str" else numpy.array(items, DTYPES[base].as_numpy())


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")

"""Lossless conversion of typed metadata (GGUF, pickles) to and from string-only metadata (safetensors).

A string stays unchanged. Other values and attached files are stored as JSON under two reserved keys, so that they
cannot be confused with the user's strings.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING, Any

from ..base.string_array import StringArray
from ..tensor.storage import Held

if TYPE_CHECKING:
    from ..ir.graph import Graph, Meta

TYPED_KEY = "candle_convert.metadata"
FILES_KEY = "candle_convert.files"
CONTAINERS = 1 << 17
"""Maximum number of lists and objects in a decoded JSON string."""
STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
SCALARS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)")


def to_strings(graph: Graph) -> dict[str, str]:
    """Metadata and attachments of a graph, as strings."""
    strings = {key: value for key, value in graph.metadata.items() if isinstance(value, str)}
    typed = {key: to_json(value) for key, value in graph.metadata.items() if not isinstance(value, str)}
    files = {name: _text(bytes(storage.read(0, storage.nbytes))) for name, storage in graph.attachments.items()}
    for key, value in ((TYPED_KEY, typed), (FILES_KEY, files)):
        if value:
            strings[key] = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return strings


def from_strings(strings: dict[str, str], graph: Graph) -> None:
    """Set a graph's metadata and attachments from the strings of `to_strings`; other strings stay strings."""
    graph.metadata.update((key, value) for key, value in strings.items() if key not in (TYPED_KEY, FILES_KEY))
    for key, accept in ((TYPED_KEY, _accept_typed), (FILES_KEY, _accept_files)):
        if key in strings and not accept(strings[key], graph):
            graph.metadata[key] = strings[key]


def _accept_typed(text: str, graph: Graph) -> bool:
    try:
        graph.metadata.update({key: from_json(value) for key, value in _loaded(text).items()})
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return False
    return True


def _accept_files(text: str, graph: Graph) -> bool:
    try:
        files = {name: Held(_bytes(value)) for name, value in _loaded(text).items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return False
    if any(set(name) & set("\\\0") or {"", ".", ".."} & set(name.split("/")) for name in files):
        return False
    graph.attachments.update(files)
    return True


def _loaded(text: str) -> Any:
    """Decode JSON; ValueError if the value would need many times the string's size in memory."""
    bare = STRINGS.sub("", text)
    if bare.count("[") + bare.count("{") > CONTAINERS:
        raise ValueError("too many lists and objects")
    return json.loads(text)


def to_json(value: Meta) -> Any:
    """A metadata value as JSON; numpy types, bytes and non-finite floats keep their type in a small object."""
    import numpy

    if isinstance(value, (numpy.generic, numpy.ndarray)):
        array = numpy.asarray(value)
        suffix = "" if isinstance(value, numpy.generic) else "[]"
        return {
            "type": array.dtype.name + suffix,
            "base64": base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode(),
        }
    if isinstance(value, bytes):
        return {"type": "bytes", "base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return to_json(numpy.float64(value))
    if isinstance(value, dict):
        return {"type": "dict", "items": [[to_json(key), to_json(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple, StringArray)):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Meta:
    """The inverse of `to_json` (tuples come back as lists); ValueError for an object of another kind."""
    import numpy

    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value["type"]
    if kind == "dict":
        return {from_json(key): from_json(item) for key, item in value["items"]}
    data = base64.b64decode(value["base64"], validate=True)
    if kind == "bytes":
        return data
    name = kind.removesuffix("[]")
    if not SCALARS.fullmatch(name):
        raise ValueError(kind)
    array = numpy.frombuffer(data, numpy.dtype(name).newbyteorder("<")).astype(name)
    return array if kind.endswith("[]") else array.reshape(())[()]


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return to_json(data)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(from_json(value))

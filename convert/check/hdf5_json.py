"""JSON embedded in a binary file, such as the Keras configuration in the attributes of an HDF5 file."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from ...runtime.base.errors import LimitError
from ...runtime.contract.format import Finding
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage_search import windows

WINDOW, OVERLAP = 1 << 20, 256
FIRST, LONGEST = 1 << 16, 1 << 22
"""Bytes of one JSON text that are parsed at first, and at the most."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BEGINNING = re.compile(rb'\{\s{0,8}"(?:[^"\\\x00-\x1f]|\\.){1,40}"\s{0,8}:\s{0,8}["{\[tfn0-9-]')
_HEAP = re.compile(rb"FRHP\x00..(?P<filters>..)", re.DOTALL)
"""The header of an HDF5 heap, in which attributes may lie compressed."""


def is_hdf5(source: Source) -> bool:
    """Whether a file is HDF5, with or without bytes of a user before it."""
    places = [0, *(512 << power for power in range(20))]
    return any(source.read(at, len(SIGNATURE)) == SIGNATURE for at in places if at + len(SIGNATURE) <= source.size)


def findings(source: Source, look: Callable[[Any], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings of `look` in the JSON objects of an HDF5 file, and the parts of the file that could not be scanned."""
    stop = 0
    for at, what in _places(source):
        if what == "heap":
            yield Finding(
                "E-SCAN-HDF5",
                "error",
                "attributes of the HDF5 file are compressed; compressed attributes are not scanned",
                at,
            )
        elif at >= stop:
            try:
                value, stop = _parsed(source, at)
            except (LimitError, RecursionError):
                yield Finding(
                    "E-SCAN-JSON", "error", "a configuration is too long or too deeply nested to be scanned", at
                )
                return
            except ValueError:
                continue
            yield from (dataclasses.replace(found, offset=at) for found in look(value))


def _parsed(source: Source, at: int) -> tuple[Any, int]:
    """The JSON value that begins at an offset, and its end; ValueError without one."""
    size = FIRST
    while True:
        size = min(size, source.size - at)
        source.budget.entry(1 + size // 4096, "JSON texts")
        text = source.read(at, size).decode("utf-8", "surrogateescape")
        try:
            value, length = json.JSONDecoder().raw_decode(text)
        except json.JSONDecodeError as error:
            if size == source.size - at or (error.pos < len(text) - 16 and "Unterminated" not in error.msg):
                raise
            if size >= LONGEST:
                raise LimitError("E-SCAN-JSON", source.path, "a JSON text is too long", at=at) from error
            size *= 8
        else:
            return value, at + len(text[:length].encode("utf-8", "surrogateescape"))


def _places(source: Source) -> Iterator[tuple[int, str]]:
    """Offsets and kinds (json, heap) of JSON objects and compressed heaps, in order."""
    last = -1
    for start, data in windows(source, source.budget, WINDOW, OVERLAP):
        found = [(match.start(), "json") for match in _BEGINNING.finditer(data)]
        found += [(match.start(), "heap") for match in _HEAP.finditer(data) if match["filters"] != b"\0\0"]
        for at, kind in sorted(found):
            if start + at > last:
                last = start + at
                yield last, kind

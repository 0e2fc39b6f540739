"""Importance matrix files: mean squared inputs per column of a weight, as llama-imatrix writes them.

Two formats: GGUF with a tensor ``NAME.in_sum2`` of sums of squares and a tensor ``NAME.counts``, both f32, with one row
or count for each expert; and the older one, all numbers little-endian: i32 entries, then for each i32 length, name, i32
calls, i32 values, f32 values (the mean times the calls); at the end, if there, i32 chunks, i32 length, name of the data
set. Source: imatrix-loader.cpp of llama.cpp.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.string_array import StringArray
from ....runtime.base.units import counted
from ....runtime.contract.format import ReadOptions
from ....runtime.ir.graph import Graph, Note
from ....runtime.tensor.dtype import F32
from ....runtime.tensor.file import Source
from ...open.open_model import read_file
from ...translate.model_facts import Weight
from .mix import EMBEDDING

if TYPE_CHECKING:
    import numpy as np

SUMS, COUNTS = ".in_sum2", ".counts"
SMALLEST_ENTRY = 12 + 4
EMPTY = "candle-convert imatrix makes an importance matrix from a text"


@dataclass
class Importance:
    """The content of an importance matrix.

    Attributes:
        path: as the user named it.
        values: float32, flat, by tensor name.
        datasets: names of what it was computed from; chunks: how much of that.
        notes: what the user should know about it.
        file: the absolute path, which a worker in another folder has too.
    """

    path: str
    values: dict[str, np.ndarray] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    chunks: int = 0
    notes: list[Note] = field(default_factory=list)
    file: str = field(init=False)

    def __post_init__(self) -> None:
        self.file = os.path.abspath(self.path)

    def limited(self, include: Iterable[str], exclude: Iterable[str]) -> Importance:
        """Only the entries whose name holds one of `include` (all without any), and none of `exclude`."""
        wanted, unwanted = tuple(include), tuple(exclude)
        if wanted and unwanted:
            raise UsageError("E-OPTION", None, "--include-weights and --exclude-weights exclude each other")
        kept = {
            name: values
            for name, values in self.values.items()
            if (not wanted or any(part in name for part in wanted)) and not any(part in name for part in unwanted)
        }
        return Importance(self.path, kept, self.datasets, self.chunks, self.notes)

    def of(self, weight: Weight, name: str) -> np.ndarray | None:
        """The importance of a tensor that is called `name` here, float32 ``[matrices, columns]``; None where nothing is
        known.

        Raises FormatError where the lengths differ, except for embeddings, whose inputs are ids.
        """
        values = self.values.get(name)
        if values is None:
            return None
        wanted = weight.matrices * weight.columns
        if values.size == wanted:
            return values.reshape(weight.matrices, weight.columns)
        if re.search(EMBEDDING, weight.name):
            return None
        raise FormatError(
            "E-IMATRIX-SHAPE",
            self.path,
            f"the importance of {name!r} does not fit the tensor",
            expected=f"{counted(wanted, 'value')}",
            found=f"{values.size:,}",
            hint="Was it made with this model, and with the same llama.cpp conventions for experts?",
        )


@dataclass
class Sums:
    """The sums that an importance matrix is computed from.

    Attributes:
        datasets: names of the texts.
        sums: float64 [matrices, columns], the squares of what columns were multiplied with, by tensor name.
        counts: float64 [matrices], the rows that they are sums of.
    """

    datasets: list[str] = field(default_factory=list)
    sums: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)


def read(path: str) -> Importance:
    """The importance matrix in a file of either format."""
    source = Source(path)
    importance = _read_gguf(path) if source.head(4) == b"GGUF" else _read_old(source, path)[0]
    if not importance.values:
        raise FormatError("E-IMATRIX-EMPTY", path, "holds no importance matrix", hint=EMPTY)
    _check(importance)
    return importance


def read_sums(path: str, context: int) -> Sums:
    """The sums of a file of either format, to be added to.

    Args:
        context: tokens of a piece of the text that an older file counts as one.
    """
    source = Source(path)
    if source.head(4) != b"GGUF":
        old, calls = _read_old(source, path)
        found = Sums(old.datasets)
        for name, values in old.values.items():
            count = max(1, calls[name]) * context
            found.sums[name], found.counts[name] = _one_each(values * float(count)), _one_each(count)
    else:
        graph = read_file(Path(path), ReadOptions(), "gguf")
        found = Sums(_datasets(graph))
        for name, sums, counts in _pairs(graph, path):
            found.counts[name] = counts.astype("f8")
            found.sums[name] = sums.astype("f8").reshape(counts.size, -1)
    if not found.sums:
        raise FormatError("E-IMATRIX-EMPTY", path, "holds no importance matrix", hint=EMPTY)
    for name, sums in found.sums.items():
        _check_values(name, sums.reshape(-1), path)
        _check_values(name, found.counts[name], path)
    return found


def _one_each(values: Any) -> np.ndarray:
    import numpy

    return numpy.asarray(values, numpy.float64).reshape(1, -1) if numpy.ndim(values) else numpy.array([float(values)])


def _datasets(graph: Graph) -> list[str]:
    said = graph.metadata.get("imatrix.datasets", [])
    return [text for text in said if isinstance(text, str)] if isinstance(said, list | StringArray) else []


def _pairs(graph: Graph, path: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Sums and counts of each tensor, both flat."""
    for name in sorted({_owner(name) for name in graph.weights} - {""}):
        sums, counts = (_numbers(graph, name + suffix, path) for suffix in (SUMS, COUNTS))
        if not counts.size or sums.size % counts.size:
            why = f"{counted(sums.size, 'sum')} and {counted(counts.size, 'count')} of {name!r} do not match"
            raise FormatError("E-IMATRIX-COUNTS", path, why, hint=EMPTY)
        yield name, sums, counts


def _read_gguf(path: str) -> Importance:
    import numpy

    graph = read_file(Path(path), ReadOptions(), "gguf")
    chunks = graph.metadata.get("imatrix.chunk_count", 0)
    importance = Importance(path, datasets=_datasets(graph))
    importance.chunks = int(chunks) if isinstance(chunks, int | numpy.integer) else 0
    for name, sums, counts in _pairs(graph, path):
        rounded = (
            numpy.trunc(counts + numpy.copysign(0.5, counts.astype(numpy.float64))).astype(numpy.float32).reshape(-1, 1)
        )
        with numpy.errstate(all="ignore"):
            values = numpy.where(rounded > 0, sums.reshape(counts.size, -1) / rounded, numpy.float32(1))
        importance.values[name] = numpy.ascontiguousarray(values, numpy.float32).reshape(-1)
        unseen = int((rounded <= 0).sum())
        if unseen:
            what = f"{unseen} of {counted(counts.size, 'expert')} were" if counts.size > 1 else "the tensor was"
            importance.notes.append(
                Note(
                    "W-IMATRIX-ZERO",
                    name,
                    f"{what} not used when the importance matrix was made; all columns count the same",
                )
            )
    return importance


def _owner(name: str) -> str:
    """The tensor that an entry is about, "" for other tensors."""
    return next((name.removesuffix(suffix) for suffix in (SUMS, COUNTS) if name.endswith(suffix)), "")


def _numbers(graph: Graph, name: str, path: str) -> np.ndarray:
    tensor = graph.weights.get(name)
    if tensor is None:
        raise FormatError(
            "E-IMATRIX-COUNTS", path, f"no tensor named {name!r}", hint="The file is damaged, or no importance matrix"
        )
    if tensor.dtype != F32:
        raise FormatError("E-IMATRIX-DTYPE", path, f"tensor {name!r} is {tensor.dtype}", expected="f32", hint=EMPTY)
    return tensor.numpy().reshape(-1)


def _read_old(source: Source, path: str) -> tuple[Importance, dict[str, int]]:
    """The content of a file in the old format, and how often each tensor was used."""
    import numpy

    reader = _Reader(source)
    count = reader.number("the number of entries", 1)
    if count > (source.size - 4) // SMALLEST_ENTRY:
        why = f"claims {counted(count, 'entry', 'entries')}"
        raise FormatError(
            "E-IMATRIX-COUNT", path, why, at=0, expected=f"at most {(source.size - 4) // SMALLEST_ENTRY:,}", hint=EMPTY
        )
    source.budget.entry(count, "entries")
    found, used = Importance(path), {}
    for _ in range(count):
        name = reader.text("a name")
        used[name] = calls = reader.number("a number of calls")
        values = numpy.frombuffer(reader.bytes(4 * reader.number("a number of values", 1), "values"), "<f4").astype(
            numpy.float32
        )
        with numpy.errstate(all="ignore"):
            found.values[name] = values / numpy.float32(calls) if calls > 0 else values
    if reader.left:
        found.chunks = reader.number("the number of chunks")
        if reader.left:
            found.datasets = [reader.text("a data set's name")]
    return found, used


class _Reader:
    """A position in a file, every length checked against what is left of it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.position = 0

    @property
    def left(self) -> int:
        return self.source.size - self.position

    def bytes(self, nbytes: int, what: str) -> bytes:
        if nbytes > self.left:
            why = f"{what} of {counted(nbytes, 'byte')} go beyond the end"
            hint = "Is this an importance matrix? If so, it is cut short"
            raise FormatError(
                "E-IMATRIX-TRUNCATED",
                self.source.path,
                why,
                at=self.position,
                expected=nbytes,
                found=self.left,
                hint=hint,
            )
        data = self.source.read(self.position, nbytes)
        self.position += nbytes
        return data

    def number(self, what: str, least: int | None = None) -> int:
        at = self.position
        (value,) = struct.unpack("<i", self.bytes(4, what))
        if least is not None and value < least:
            why = f"{what} is {value:,}"
            raise FormatError("E-IMATRIX-COUNT", self.source.path, why, at=at, expected=f"at least {least}", hint=EMPTY)
        return int(value)

    def text(self, what: str) -> str:
        at = self.position
        length = self.number(f"the length of {what}", 0)
        if length <= self.left:
            self.source.budget.charge(length, what, at=at)
        return self.bytes(length, what).decode(errors="replace")


def _check_values(name: str, values: np.ndarray, path: str) -> None:
    import numpy

    wrong = ~(numpy.isfinite(values) & (values >= 0))
    if wrong.any():
        index = int(wrong.argmax())
        why = f"the importance of {name!r} is {values[index]} at column {index:,}"
        hint = "Make the importance matrix again"
        raise FormatError("E-IMATRIX-VALUE", path, why, expected="a number that is not negative", hint=hint)


def _check(importance: Importance) -> None:
    import numpy

    for name, values in importance.values.items():
        _check_values(name, values, importance.path)
        if not values.any():
            importance.values[name] = numpy.ones_like(values)
            importance.notes.append(
                Note("W-IMATRIX-ZERO", name, "has only zeros in the importance matrix; all columns count the same")
            )

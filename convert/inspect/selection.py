"""Tensor selection: a tensor name with a NumPy slice, such as ``layers.0.weight[0:3, ..., -1]``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import LimitError, UnsupportedError, UsageError
from ...runtime.base.limits import current
from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from . import tensor_values

if TYPE_CHECKING:
    import numpy as np

_SLICED = re.compile(r"(?P<name>.*)\[(?P<index>[-+\d:,.\s]*)\]", re.DOTALL)
_INTEGER = re.compile(r"[-+]?\d{1,19}")


@dataclass(frozen=True)
class Selection:
    """A part of a tensor.

    Attributes:
        name: of the tensor.
        tensor: the whole of it, as it is stored.
        axes: selected indices of each dimension.
        kept: the dimensions that remain; an index without a colon removes its dimension.
    """

    name: str
    tensor: StoredTensor
    axes: tuple[range, ...]
    kept: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(self.axes[axis]) for axis in self.kept)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def plain(self) -> StoredTensor:
        """The tensor as numbers; UnsupportedError where nothing decodes its type."""
        plain = tensor_values.plain(self.tensor)
        if plain is None:
            why = f"values of {self.tensor.dtype} cannot be shown"
            raise UnsupportedError("E-DTYPE-VALUES", None, why, hint="inspect shows its shape and size")
        return plain

    def values(self, axes: Sequence[range | Sequence[int]] | None = None) -> np.ndarray:
        """The selected values, or those at the given indices (ascending or descending) of each dimension, in memory."""
        import numpy

        plain, chosen = self.plain(), self.axes if axes is None else tuple(axes)
        shape = tuple(len(axis) for axis in chosen)
        need, most = math.prod(shape) * plain.dtype.as_numpy().itemsize, current().memory
        if need > most:
            why = f"{counted(need, 'byte', verb='is')} selected"
            raise LimitError("E-LIMIT-MEMORY", None, why, expected=f"at most {most:,}", hint="Select fewer rows")
        out = numpy.empty(shape, plain.dtype.as_numpy())
        runs = [_runs(axis) for axis in chosen]
        for places in _product(runs):
            data = list(tensor_values.parts(plain, [axis for _, axis in places]))
            if data:
                region = tuple(slice(at, at + len(axis)) for at, axis in places)
                out[region] = numpy.concatenate(data).reshape([len(axis) for _, axis in places])
        return out.reshape([shape[axis] for axis in self.kept])

    def edges(self, most: int, edge: int = 3) -> np.ndarray:
        """The values if there are at most `most`, else those at the edges with one between, where numpy prints an
        ellipsis."""
        if self.count <= most:
            return self.values()
        return self.values(
            [axis if len(axis) <= 2 * edge else [*axis[:edge], axis[edge], *axis[-edge:]] for axis in self.axes]
        )


def select(graph: Graph, text: str) -> Selection:
    """The selection of `text` in a graph; a tensor whose whole name is `text` comes first.

    Raises:
        UsageError: no such tensor, or an index that does not fit its shape.
    """
    if text in graph.weights:
        tensor = graph.weights[text]
        return Selection(text, tensor, tuple(map(range, tensor.shape)), tuple(range(len(tensor.shape))))
    match = _SLICED.fullmatch(text)
    name = match["name"] if match else text
    if name not in graph.weights:
        import difflib

        near = difflib.get_close_matches(name, list(graph.weights), 3, 0.5)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "List them with candle-convert inspect"
        raise UsageError(
            "E-TENSOR-NAME", graph.files[0] if graph.files else None, f"no tensor named {name!r}", hint=hint
        )
    assert match is not None
    return _indexed(name, graph.weights[name], match["index"])


def _indexed(name: str, tensor: StoredTensor, index: str) -> Selection:
    def refuse(why: str) -> UsageError:
        hint = "Examples: [0], [:3], [0:3,:5], [..., -1], [::2]"
        return UsageError("E-SLICE", None, f"[{index}] {why} of {name!r}, {list(tensor.shape)}", hint=hint)

    words = [word.strip() for word in index.split(",")] if index.strip() else []
    if words.count("...") > 1:
        raise refuse("has more than one ellipsis for the shape")
    rank = len(tensor.shape)
    missing = rank - len([word for word in words if word != "..."])
    if missing < 0:
        raise refuse("has too many indices for the shape")
    at = words.index("...") if "..." in words else len(words)
    words = [*words[:at], *[":"] * missing, *words[at + 1 :]]
    axes = []
    for word, length in zip(words, tensor.shape, strict=True):
        bounds = [part.strip() for part in word.split(":")]
        if len(bounds) > 3 or not all(_INTEGER.fullmatch(part) or (not part and len(bounds) > 1) for part in bounds):
            raise refuse("is not an index for the shape")
        numbers = [int(part) if part else None for part in bounds]
        if len(numbers) == 3 and numbers[2] == 0:
            raise refuse("has a step of 0 for the shape")
        if len(numbers) > 1:
            axes.append(range(length)[slice(*numbers)])
        elif -length <= int(bounds[0]) < length:
            position = int(bounds[0]) % length
            axes.append(range(position, position + 1))
        else:
            raise refuse("is outside the shape")
    return Selection(name, tensor, tuple(axes), tuple(axis for axis, word in enumerate(words) if ":" in word))


def _runs(axis: range | Sequence[int]) -> list[tuple[int, range]]:
    """The indices as ranges, each with the position where it goes."""
    if isinstance(axis, range):
        return [(0, axis)]
    runs: list[tuple[int, range]] = []
    for position, index in enumerate(axis):
        start, last = runs[-1] if runs else (0, range(0))
        if last and index == last.stop:
            runs[-1] = (start, range(last.start, index + 1))
        else:
            runs.append((position, range(index, index + 1)))
    return runs


def _product(runs: list[list[tuple[int, range]]]) -> list[list[tuple[int, range]]]:
    """One run of every dimension, in all combinations, first dimension slowest."""
    combined: list[list[tuple[int, range]]] = [[]]
    for axis in runs:
        combined = [[*places, place] for places in combined for place in axis]
    return combined

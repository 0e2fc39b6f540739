"""Lengths of symbolic dimensions for random inputs: by name and layout, accepted by shape inference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...runtime.base.errors import Error
from ...runtime.ir.clone import copied_graph
from ...runtime.ir.graph import Dim, Graph, Value
from ...runtime.ir.shape_inference import infer
from ...runtime.passes.pattern.replace_nodes import graphs
from ...runtime.passes.simplification import PASSES, Simplify
from ...runtime.tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

Symbol = str | tuple[str, int]
"""A dimension by its name, or by its input and axis where it has no name."""
SIDES = ((224, 224), (48, 320), (256, 256), (640, 640), (512, 512), (299, 299), (64, 64), (32, 32), (96, 96), (28, 28))
"""Heights and widths of pictures, and of lines of text."""
LATENTS = ((64, 64), (32, 32))
"""Heights and widths of latents and feature maps, which have other channels than pictures."""
PICTURE_CHANNELS = (1, 3)
SPANS = (1, 512, 64, 128, 256, 576, 32, 16, 1024, 100, 300, 3000, 16000, 8, 4, 2)
"""Lengths of sequences and signals."""
CHANNELS = (3, 1, 4, 64, 32, 128, 80)
BATCHES = (1, 2)
MAX_TRIES = 48
PICTURE_RANK = 4
BATCH = re.compile(r"batch|^(n|b|bs)$", re.IGNORECASE)
HEIGHT = re.compile(r"height|^h$|_h$|rows", re.IGNORECASE)
WIDTH = re.compile(r"width|^w$|_w$|col", re.IGNORECASE)
CHANNEL = re.compile(r"channel|^c$", re.IGNORECASE)
PAST = re.compile(r"past", re.IGNORECASE)
TOTAL = re.compile(r"total|\+", re.IGNORECASE)
STATE = re.compile(r"^past|cache|state|hidden|^[hc]\d?$|^[hc]_?0$", re.IGNORECASE)
"""Inputs that hold what an earlier run gave: [layers, batch, size], or keys and values [batch, heads, past, size]."""
FOLDING = frozenset(PASSES) - {"inline", "fold", "identities", "dead"}


def symbol(value: Value, axis: int) -> Symbol | None:
    """The symbol of the length of an axis of an input; None for one that is known."""
    dim = value.shape[axis] if value.shape is not None else None
    return None if isinstance(dim, int) else dim if dim else (value.name, axis)


def bound(inputs: Iterable[Value], shapes: Mapping[str, Sequence[int]]) -> dict[Symbol, int]:
    """The lengths of symbols that inputs of known shapes have."""
    found: dict[Symbol, int] = {}
    for value in inputs:
        if value.name in shapes and value.shape is not None and len(value.shape) == len(shapes[value.name]):
            marks = [symbol(value, axis) for axis in range(len(value.shape))]
            found |= {mark: length for mark, length in zip(marks, shapes[value.name], strict=True) if mark is not None}
    return found


def chosen(
    graph: Graph, known: Mapping[Symbol, int], shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, np.ndarray]
) -> dict[Symbol, int] | None:
    """Lengths of the symbols of a graph's inputs with which shape inference finds no contradiction.

    Args:
        known: lengths that are given.
        shapes: of inputs that are given.
        scalars: values of inputs on which the control flow may depend.

    Returns None where none of those that are tried fits.
    """
    inputs = [value for value in graph.inputs if value.name not in graph.weights and value.shape is not None]
    free = list(dict.fromkeys(mark for value in inputs for axis in range(len(value.shape or ()))
                              if (mark := symbol(value, axis)) is not None and mark not in known))  # fmt: skip
    if not free:
        return dict(known)
    for lengths in itertools.islice(_candidates(inputs, free, known), MAX_TRIES):
        made = _summed({**lengths, **known}, free)
        full = {value.name: [length(value, axis, made) for axis in range(len(value.shape or ()))] for value in inputs}
        if _fits(graph, {**full, **shapes}, scalars):
            return made
    return None


def length(value: Value, axis: int, lengths: Mapping[Symbol, int]) -> int:
    """The length of an axis of an input; 1 where nothing says it."""
    dim = value.shape[axis] if value.shape is not None else None
    mark = symbol(value, axis)
    return dim if isinstance(dim, int) else lengths.get(mark, 1) if mark is not None else 1


def _candidates(
    inputs: Sequence[Value], free: Sequence[Symbol], known: Mapping[Symbol, int]
) -> Iterator[dict[Symbol, int]]:
    """Assignments, the likeliest first. Dimensions of one role get the same length, heights and widths go together."""
    every = {mark: _role(value, axis) for value in reversed(inputs) for axis in range(len(value.shape or ()))
             if (mark := symbol(value, axis)) is not None}  # fmt: skip
    roles = {mark: every[mark] for mark in free}
    present = set(roles.values())
    given = {role: known[mark] for mark, role in every.items() if mark in known}
    tables: list[tuple[tuple[str, ...], Sequence[tuple[int, ...]]]] = [
        (("height", "width"), _sides(inputs)), (("span",), [(length,) for length in SPANS]), (("past",), ((0,), (1,))),
        (("channel",), [(length,) for length in CHANNELS]), (("batch",), [(length,) for length in BATCHES]),
    ]  # fmt: skip
    used = [(names, [*_given(names, rows, given), *rows]) for names, rows in tables if present & set(names)]
    orders = itertools.product(*(range(len(rows)) for _, rows in used))
    for order in sorted(orders, key=sum):
        lengths = {
            name: length
            for (names, rows), at in zip(used, order, strict=True)
            for name, length in zip(names, rows[at], strict=True)
        }
        yield {mark: lengths[role] for mark, role in roles.items()}


def _sides(inputs: Sequence[Value]) -> Sequence[tuple[int, int]]:
    """Heights and widths to try: those of latents first where an input has channels of latents."""
    return (*LATENTS, *SIDES) if any(_is_latent(value.shape) for value in inputs) else SIDES


def _is_latent(shape: Sequence[Dim] | None) -> bool:
    """Whether an input of open height and width has other channels than pictures."""
    if shape is None or len(shape) != PICTURE_RANK or any(isinstance(shape[axis], int) for axis in _spatial(shape)):
        return False
    return any(isinstance(shape[axis], int) and shape[axis] not in PICTURE_CHANNELS for axis in (1, 3))


def _given(names: Sequence[str], rows: Sequence[tuple[int, ...]], given: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The given lengths, and those of further dimensions of the same role."""
    if not any(name in given for name in names):
        return []
    return [tuple(given.get(name, usual) for name, usual in zip(names, rows[0], strict=True))]


def _role(value: Value, axis: int) -> str:
    """The role of a dimension, by its name, else by its position."""
    assert value.shape is not None
    dim, rank = value.shape[axis], len(value.shape)
    named = next((role for role, pattern in ROLES if isinstance(dim, str) and pattern.search(dim)), None)
    if named is not None:
        return named
    if STATE.search(value.name):
        return "past" if rank == PICTURE_RANK and axis == 2 else "batch"
    spatial = _spatial(value.shape) if rank == PICTURE_RANK else ()
    if axis in spatial:
        return ("height", "width")[spatial.index(axis)]
    return "batch" if axis == 0 and rank > 1 else "channel" if spatial else "span"


def _spatial(shape: Sequence[Dim]) -> tuple[int, ...]:
    """The axes of height and width of a batch of pictures: the last two, or the middle ones where channels are last."""
    last = isinstance(shape[-1], int) and shape[-1] in (1, 3, 4) and not isinstance(shape[1], int)
    return (1, 2) if last else (2, 3)


ROLES = (("past", PAST), ("batch", BATCH), ("height", HEIGHT), ("width", WIDTH), ("channel", CHANNEL))


def _summed(lengths: dict[Symbol, int], free: Iterable[Symbol]) -> dict[Symbol, int]:
    """Sums by name, such as ``past_sequence_length + sequence_length``: lengths of the past and of this run
    together."""
    for mark in free:
        if isinstance(mark, str) and TOTAL.search(mark):
            terms = (
                [part.strip() for part in mark.split("+")]
                if "+" in mark
                else [mark.replace("total", "past"), mark.replace("total_", "")]
            )
            if all(term in lengths or term.isdecimal() for term in terms):
                lengths[mark] = sum(lengths.get(term, 0) if not term.isdecimal() else int(term) for term in terms)
    return lengths


def _fits(graph: Graph, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, np.ndarray]) -> bool:
    """Whether inference meets no contradiction; where control flow may hide one, constants are folded first."""
    try:
        trial = copied_graph(graph, {})
        _set_shapes(trial, shapes)
        infer(trial)
        if any(node.subgraphs for node in trial.nodes):
            folded = copied_graph(graph, {})
            _set_shapes(folded, shapes)
            _freeze(folded, scalars)
            Simplify(skip=FOLDING).run(folded)
            infer(folded)
            trial = folded
    except (Error, AssertionError):
        return False
    return not any(_is_negative(value) for inner in graphs(trial) for node in inner.nodes for value in node.outputs)


def _is_negative(value: Value) -> bool:
    return value.shape is not None and any(isinstance(dim, int) and dim < 0 for dim in value.shape)


def _set_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    for value in graph.inputs:
        if value.name in shapes:
            value.shape = tuple(shapes[value.name])


def _freeze(graph: Graph, scalars: Mapping[str, np.ndarray]) -> None:
    """Take the values of some inputs for constants."""
    for value in list(graph.inputs):
        if value.name in scalars:
            graph.inputs.remove(value)
            graph.weights[value.name] = StoredTensor.of(scalars[value.name])

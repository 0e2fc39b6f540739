"""Inputs of a run from the command line: files, shapes, and random values of valid lengths."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ops.rules.output_limit import allowed
from ...runtime.base.errors import Error, UsageError
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Trait
from ...runtime.ir.registry import onnx
from ...runtime.passes.pattern.replace_nodes import constant
from ...runtime.tensor.dtype import STRING
from ..api import convert
from ..cli import shared_options
from . import symbolic_sizes as choosing

if TYPE_CHECKING:
    import numpy as np

FORM = "NAME=FILE.npy, NAME=1x3x224x224, NAME=random, NAME=zeros, or FILE.npz"
SHAPE = re.compile(r"\d+(x\d+)*|scalar")
KINDS = ("random", "zeros", "ones")
VOCABULARY = 2
"""Made-up integers that are not known to be rows of a table are 0 or 1: indices, which are always in range then."""
RATE = 16000
MASK = re.compile(r"mask", re.IGNORECASE)
SAMPLE_RATE = re.compile(r"^(sr|fs|(sample|sampling)_?rate)$", re.IGNORECASE)
POSITIONS = re.compile(r"position", re.IGNORECASE)
LENGTHS = re.compile(r"len(gth)?s?$", re.IGNORECASE)
SHAPE_CODES = frozenset({"E-OP-SHAPE", "E-RUN-SHAPE", "E-ONNX-NODE", "E-ONNX-SHAPE"})
EXAMPLES = {4: "1x3x48x320", 3: "1x80x100", 2: "1x512", 1: "16000"}
"""Shapes of a rank, for hints."""


def feeds(
    graph: Graph, texts: Sequence[str], seed: int = 0, lengths: dict[str, int] | None = None,
    known: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """An array for every input that needs one, and what was made up, a line each.

    Args:
        texts: values of ``--input``.
        seed: of random values; the same values on every run and machine.
        lengths: of symbolic dimensions; the others get lengths that the model takes (see `lengths`).
        known: arrays that are there already.

    Raises UsageError for an unknown input or dimension, a value of another rank, an input that cannot be made up, and
    where no lengths that fit are found.
    """
    import numpy

    check_dims(graph, lengths or {})
    needed = {value.name: value for value in graph.inputs if value.name not in graph.weights}
    values = {value.name: value for value in graph.inputs}
    found: dict[str, Any] = dict(known or {})
    asked: dict[str, str] = {}
    for name, text in _pairs(texts, values):
        if name not in values:
            raise UsageError("E-RUN-INPUT", None, f"no input named {name!r}", hint=f"Inputs: {', '.join(values)}")
        if SHAPE.fullmatch(text) or text in KINDS:
            asked[name] = text
        else:
            found[name] = _loaded(text, name, values[name])
    wanted = {**needed, **{name: values[name] for name in asked}}
    made = {name: value for name, value in wanted.items() if name not in found}
    for value in made.values():
        _check_possible(value)
    shapes = _shapes(graph, made, asked, found, dict(lengths or {}))
    generated = []
    generator = numpy.random.default_rng(seed)
    for name, value in made.items():
        found[name], how = _made(value, asked.get(name, "random"), shapes, generator, graph)
        generated.append(f"{name}: {found[name].dtype}{list(found[name].shape)} {how}")
    return found, generated


@contextlib.contextmanager
def hint_at_shapes(graph: Graph, generated: Sequence[str]) -> Iterator[None]:
    """Let an error about shapes say how to give the inputs that were made up."""
    try:
        yield
    except Error as error:
        if generated and error.code in SHAPE_CODES:
            error.hint = f"The inputs are random: pass shapes that the model accepts, such as {example(graph)}"
        raise


def example(graph: Graph) -> str:
    """How the first input of open lengths could be given: ``--input x=1x3x48x320``."""
    inputs = [value for value in graph.inputs if value.name not in graph.weights]
    free = [value for value in inputs if value.shape is None or not all(isinstance(dim, int) for dim in value.shape)]
    value = (free or inputs)[0]
    dims = value.shape if value.shape is not None else (None,) * 4
    usual = EXAMPLES.get(len(dims), "x".join(["1"] * len(dims)) or "scalar").split("x")
    shape = "x".join(str(dim) if isinstance(dim, int) else usual[at] for at, dim in enumerate(dims))
    return f"--input {value.name}={shape or 'scalar'}"


def _shapes(
    graph: Graph, made: Mapping[str, Value], asked: Mapping[str, str], found: Mapping[str, Any],
    named: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The shape of every input that is made up."""
    given = {name: _given(made[name], text) for name, text in asked.items() if SHAPE.fullmatch(text)}
    whole = {**given, **{name: tuple(array.shape) for name, array in found.items() if hasattr(array, "shape")}}
    known: dict[choosing.Symbol, int] = {**choosing.bound(graph.inputs, whole)}
    known.update(named)
    rates = [value for value in made.values() if value.shape == () and SAMPLE_RATE.match(value.name)]
    scalars = {value.name: _rate(value) for value in rates}
    scalars |= {name: array for name, array in found.items() if getattr(array, "ndim", None) == 0}
    chosen = choosing.chosen(graph, known, whole, scalars)
    if chosen is None:
        why = "no tried length of its symbolic dimensions is valid for the model"
        raise UsageError("E-RUN-SHAPE", None, why, hint=f"Pass the shape of each input: {example(graph)}")
    shapes = {}
    for name, value in made.items():
        usual = tuple(choosing.length(value, axis, chosen) for axis in range(len(value.shape or ())))
        shapes[name] = given.get(name, usual)
    return shapes


def _given(value: Value, text: str) -> tuple[int, ...]:
    """The shape that an option names."""
    shape = () if text == "scalar" else tuple(map(int, text.split("x")))
    if value.shape is not None and len(value.shape) != len(shape):
        why = f"input {value.name!r} has another rank"
        raise UsageError("E-RUN-SHAPE", None, why, expected=len(value.shape), found=len(shape))
    return shape


def dims(texts: Iterable[str]) -> dict[str, int]:
    """Lengths of symbolic dimensions from ``NAME=N``."""
    found = {}
    for text in texts:
        name, number = shared_options.pair(text, "--dim NAME=N")
        if not number.isdecimal():
            raise UsageError("E-OPTION", None, f"--dim {text!r} is not of the form NAME=N")
        found[name] = int(number)
    return found


def check_dims(graph: Graph, lengths: Mapping[str, int]) -> None:
    """Raise UsageError for a length of a dimension that no input has."""
    known = dict.fromkeys(dim for value in graph.inputs for dim in value.shape or () if isinstance(dim, str))
    for name in lengths:
        if name not in known:
            hint = f"Dimensions of inputs: {', '.join(known)}" if known else "The inputs have fixed shapes"
            raise UsageError("E-GRAPH-DIM", None, f"no dimension named {name!r}", hint=hint)


def _pairs(texts: Iterable[str], known: dict[str, Value]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals:
            yield name, value
        elif text.endswith(".npz"):
            yield from ((name, f"{text}:{name}") for name in convert.open(text) if name in known)
        else:
            raise UsageError("E-OPTION", None, f"--input {text!r} is not of the form {FORM}")


def _loaded(text: str, name: str, value: Value) -> np.ndarray:
    path, colon, member = text.rpartition(":")
    tensors = convert.open(path if colon and path.endswith(".npz") else text)
    if not (colon and path.endswith(".npz")):
        member = name if name in tensors else next(iter(tensors))
    array = tensors[member].numpy()
    if value.dtype is not None and value.dtype is not STRING and array.dtype != value.dtype.as_numpy():
        hint = f"Convert it first: candle-convert convert {Path(text).name} x.npz --dtype {value.dtype.name}"
        why = f"is not of input {name!r}'s dtype"
        raise UsageError("E-RUN-DTYPE", text, why, expected=value.dtype.name, found=str(array.dtype), hint=hint)
    return array


def _check_possible(value: Value) -> None:
    if value.container or value.dtype is None or value.dtype is STRING:
        raise UsageError(
            "E-RUN-INPUT", None, f"input {value.name!r} cannot be generated", hint=f"Pass it: --input {FORM}"
        )


def _made(
    value: Value, how: str, shapes: Mapping[str, tuple[int, ...]], generator: np.random.Generator, graph: Graph
) -> tuple[np.ndarray, str]:
    """A made-up array, and how it was made."""
    import numpy

    assert value.dtype is not None
    if value.shape is None and not SHAPE.fullmatch(how):
        hint = f"Pass a shape: {example(graph)}"
        raise UsageError("E-RUN-SHAPE", None, f"the model does not state the rank of {value.name!r}", hint=hint)
    shape, dtype = allowed(shapes[value.name], 8, f"input {value.name!r}"), value.dtype.as_numpy()
    whole = value.dtype.kind in ("int", "uint", "bool")
    if how in ("zeros", "ones"):
        return numpy.full(shape, how == "ones", dtype), how
    if how == "random" and MASK.search(value.name):
        return numpy.ones(shape, dtype), "ones"
    if how == "random" and not whole and choosing.STATE.search(value.name):
        return numpy.zeros(shape, dtype), "zeros"
    if whole and value.dtype.kind != "bool":
        if SAMPLE_RATE.match(value.name):
            return numpy.full(shape, RATE).astype(dtype), str(RATE)
        if POSITIONS.search(value.name) and shape:
            return numpy.broadcast_to(numpy.arange(shape[-1]), shape).astype(dtype), "counted"
        if LENGTHS.search(value.name) and len(shape) < 2:
            length = max((other[1] for other in shapes.values() if len(other) > 1), default=1)
            return numpy.full(shape, length).astype(dtype), str(length)
    if whole:
        return generator.integers(0, _rows(graph, value), shape).astype(dtype), how
    return generator.normal(size=shape).astype(dtype), how


def _rate(value: Value) -> np.ndarray:
    import numpy

    assert value.dtype is not None
    return numpy.array(RATE).astype(value.dtype.as_numpy())


def _rows(graph: Graph, value: Value) -> int:
    """Integers of an input are below this: the fewest rows of the tables in which they are looked up."""
    found, pending, seen = [], [value], {value}
    if value.dtype is not None and value.dtype.kind == "bool":
        return VOCABULARY
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for read in node.inputs:
            if read is not None:
                readers.setdefault(read, []).append(node)
    while pending:
        last = pending.pop()
        for node in readers.get(last, ()):
            if Trait.LOOKUP in node.op.traits and node.inputs[1] is last:
                table = constant(graph, node.inputs[0])
                if table is not None and table.shape:
                    found.append(table.shape[node.attributes.get("axis", 0)])
            elif (
                (Trait.RESHAPES in node.op.traits or node.op is onnx.Cast)
                and node.inputs[0] is last
                and node.outputs[0] not in seen
            ):
                seen.add(node.outputs[0])
                pending.append(node.outputs[0])
    return max(1, min(found)) if found else VOCABULARY

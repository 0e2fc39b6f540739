"""Inputs of a run from the command line: files, shapes, made-up values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ops.allocation import allowed
from ...runtime.dtype import STRING
from ...runtime.errors import UsageError
from ...runtime.graph import Graph, Value
from .. import api, arguments

if TYPE_CHECKING:
    import numpy as np

FORM = "NAME=FILE.npy, NAME=1x3x224x224, NAME=random, NAME=zeros, or FILE.npz"
SHAPE = re.compile(r"\d+(x\d+)*|scalar")
KINDS = ("random", "zeros", "ones")
VOCABULARY = 2
"""Made-up integers are 0 or 1: they are mostly indices, masks and lengths, for which these are always in range."""


def feeds(
    graph: Graph, texts: Sequence[str], seed: int = 0, lengths: dict[str, int] | None = None, known: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """An array for every input that needs one, and what was made up, a line each.

    Args:
        texts: values of ``--input``.
        seed: of random values; the same values on every run and machine.
        lengths: of symbolic dimensions; those not named are 1.
        known: arrays that are there already.

    Raises UsageError for an unknown input, a value of another rank, or an input that cannot be made up.
    """
    import numpy

    needed = {value.name: value for value in graph.inputs if value.name not in graph.weights}
    values = {value.name: value for value in graph.inputs}
    found: dict[str, Any] = dict(known or {})
    asked: dict[str, str] = {}
    for name, text in _pairs(texts, values):
        if name not in values:
            raise UsageError("E-RUN-INPUT", None, f"the model has no input {name!r}", hint=f"Inputs: {', '.join(values)}")
        if SHAPE.fullmatch(text) or text in KINDS:
            asked[name] = text
        else:
            found[name] = _loaded(text, name, values[name])
    told = []
    generator = numpy.random.default_rng(seed)
    for name, value in {**needed, **{name: values[name] for name in asked}}.items():
        if name not in found:
            found[name] = _made(value, asked.get(name, "random"), generator, lengths or {})
            told.append(f"{name}: {found[name].dtype}{list(found[name].shape)} {asked.get(name, 'random')}")
    return found, told


def dims(texts: Iterable[str]) -> dict[str, int]:
    """Lengths of symbolic dimensions from ``NAME=N``."""
    found = {}
    for text in texts:
        name, number = arguments.pair(text, "--dim NAME=N")
        if not number.isdecimal():
            raise UsageError("E-OPTION", None, f"--dim {text!r} is not of the form NAME=N")
        found[name] = int(number)
    return found


def _pairs(texts: Iterable[str], known: dict[str, Value]) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals:
            yield name, value
        elif text.endswith(".npz"):
            yield from ((name, f"{text}:{name}") for name in api.open(text) if name in known)
        else:
            raise UsageError("E-OPTION", None, f"--input {text!r} is not of the form {FORM}")


def _loaded(text: str, name: str, value: Value) -> np.ndarray:
    path, colon, member = text.rpartition(":")
    tensors = api.open(path if colon and path.endswith(".npz") else text)
    if not (colon and path.endswith(".npz")):
        member = name if name in tensors else next(iter(tensors))
    array = tensors[member].numpy()
    if value.dtype is not None and value.dtype is not STRING and array.dtype != value.dtype.as_numpy():
        hint = f"Convert it first: candle-convert convert {Path(text).name} x.npz --dtype {value.dtype.name}"
        raise UsageError("E-RUN-DTYPE", text, f"is not of input {name!r}'s dtype", expected=value.dtype.name, found=str(array.dtype), hint=hint)
    return array


def _made(value: Value, how: str, generator: np.random.Generator, named: dict[str, int]) -> np.ndarray:
    import numpy

    if value.container or value.dtype is None or value.dtype is STRING:
        raise UsageError("E-RUN-INPUT", None, f"input {value.name!r} cannot be made up", hint=f"Give it: --input {FORM}")
    shape = allowed(_shape(value, how, named), 8, f"input {value.name!r}")
    dtype = value.dtype.as_numpy()
    if how in ("zeros", "ones"):
        return numpy.full(shape, how == "ones", dtype)
    if value.dtype.kind in ("int", "uint", "bool"):
        return generator.integers(0, VOCABULARY, shape).astype(dtype)
    return generator.normal(size=shape).astype(dtype)


def _shape(value: Value, how: str, named: dict[str, int]) -> tuple[int, ...]:
    if SHAPE.fullmatch(how):
        given = () if how == "scalar" else tuple(map(int, how.split("x")))
        if value.shape is not None and len(value.shape) != len(given):
            raise UsageError("E-RUN-SHAPE", None, f"input {value.name!r} has another rank", expected=len(value.shape), found=len(given))
        return given
    if value.shape is None:
        hint = f"Give a shape: --input {value.name}=1x3x224x224"
        raise UsageError("E-RUN-SHAPE", None, f"the model does not say the rank of {value.name!r}", hint=hint)
    return tuple(dim if isinstance(dim, int) else named.get(str(dim), 1) for dim in value.shape)

"""Encoding on the device, one block a thread, with the bytes of the CPU: its encoders of a block in each lane, and those of `plain`."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from ....runtime import simd
from ....runtime.cuda import generated, lane
from ....runtime.cuda.bits import inlined
from ....runtime.cuda.kernel import DeviceKernel
from ....runtime.cuda.machine import SIMULATED, number_of
from ....runtime.cuda.operand import Writer
from ....runtime.cuda.zip import THREADS, blocks_for
from ....runtime.quant import Codec, block_type
from .. import codec_of
from ..encoders import tries as vectors
from . import digest
from .plain import PLAIN
from .tries import best_try

ELEMENTS: dict[str, Any] = {}
LATTICE = ("places", "starts", "stops", "neighbours")
"""What a kernel of a type with a lattice takes in the end, see `layout.lattices`."""


@dataclass(frozen=True)
class LaneEncoder:
    """An encoder of transposed blocks, as `encoders/lanes.py` takes them.

    Attributes:
        encode: ``(x, importance, means, lattice, y)``.
        weighted: whether it takes importance; means: whether it takes the mean square of the row beside it; lattice: whether it searches in one.
    """

    encode: Callable[..., None]
    weighted: bool = False
    means: bool = False
    lattice: bool = False


@functools.cache
def lane_encoder(codec: Codec, weighted: bool) -> LaneEncoder:
    """The encoder of a type with importance or without; types without importance leave it out."""
    name = codec.dtype.name
    assert codec.encoder is not None, f"{name} is only decoded"
    if name == "q8_0" or (name in PLAIN and not weighted):
        return LaneEncoder(PLAIN[name])
    stored = codec.encoder.kernels[weighted]
    kernel = getattr(importlib.import_module(f"....{stored.module}", __package__), stored.name)
    found = inspect.getclosurevars(kernel.function).nonlocals
    weighted = weighted and found["weighted"]
    return LaneEncoder(found["encode"], weighted, weighted and found["row_means"], found["arrays"].__name__ == "_lattice")


@functools.cache
def laned(function: FunctionType) -> Any:
    """A function over vectors as a device function over one lane, with all that it calls."""
    names: dict[str, Any] = {"__name__": function.__module__, "__builtins__": __builtins__}
    for name in function.__code__.co_names:
        if name not in function.__globals__:
            continue
        found = function.__globals__[name]
        if found is getattr(simd, name, None):
            found = getattr(lane, name)
        elif isinstance(found, FunctionType):
            found = laned(best_try if found is vectors.best_try else found)
        elif found is np and not SIMULATED:
            found = lane.numbers
        elif isinstance(found, np.float32) and not SIMULATED:
            found = float(found)
        names[name] = found
    return inlined(FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__))


def function_of(name: str, weighted: bool, digest: str) -> Any:
    """The device function of a type's encoder; generated modules name the sources that it comes from."""
    return laned(lane_encoder(codec_of(block_type(name)), weighted).encode)


def kernel_of(codec: Codec, weighted: bool) -> DeviceKernel:
    """The kernel ``(blocks, columns, source, importance, means, out)``, float32 and bytes flat, and the arrays of a lattice where it has one."""
    found = lane_encoder(codec, weighted)
    length, nbytes = codec.dtype.block, codec.dtype.block_nbytes
    lattice = LATTICE if found.lattice else ()
    writer = Writer()
    writer.head += [f"from {__name__} import function_of", f"encode = function_of({codec.dtype.name!r}, {weighted}, {digest()!r})"]
    writer.names += ["blocks", "columns", "source", "importance", "means", "out", *lattice]
    held = length if found.weighted else 1
    writer.add(
        1, f"x, y = cuda.local.array({length}, np.float32), cuda.local.array({nbytes}, np.uint8)",
        f"weights, mean = cuda.local.array({held}, np.float32), cuda.local.array(1, np.float32)",
        f"some = weights[: {held if found.weighted else 0}]",
        "mean[0] = np.float32(0)", "for block in range(np.int64(cuda.grid(1)), blocks, cuda.gridsize(1)):", f"    first = block * {length}",
        f"    for i in range({length}):", "        x[i] = source[first + i]",
    )
    if found.weighted:
        writer.add(3, "weights[i] = importance[(first + i) % columns]")
    if found.means:
        writer.add(2, "mean[0] = means[first // columns]")
    writer.add(2, f"encode(x, some, mean, ({', '.join(lattice)}), y)", f"for i in range({nbytes}):", f"    out[block * {nbytes} + i] = y[i]")
    return generated.made(f"encoder of {codec.dtype.name}", writer.text(), (THREADS,))


MEANS = """
from {package} import add, div, mul
def compute(rows, columns, source, means):
    for row in range(np.int64(cuda.grid(1)), rows, cuda.gridsize(1)):
        total = np.float32(0)
        for i in range(row * columns, (row + 1) * columns):
            total = add(total, mul(source[i], source[i]))
        means[row] = div(total, np.float32(columns))
"""
"""The mean square of each row, summed in order."""


def encoded(codec: Codec, rows: np.ndarray, importance: np.ndarray | None = None, device: str = "cuda") -> np.ndarray:
    """The blocks of finite float32 ``[n, columns]`` as uint8 ``[n, bytes of a row]``; `importance` is one weight for each column.

    Raises UnsupportedError where there is no device.
    """
    from numba import cuda

    number = number_of(device)
    count, columns = rows.shape
    size = codec.dtype.nbytes(columns)
    assert size is not None, "rows are whole blocks"
    kernel = kernel_of(codec, importance is not None)
    blocks = rows.size // codec.dtype.block
    with cuda.gpus[number]:
        source = cuda.to_device(np.ascontiguousarray(rows, np.float32).reshape(-1))
        weights = cuda.to_device(np.zeros(1, np.float32) if importance is None else np.ascontiguousarray(importance, np.float32))
        means, out = cuda.device_array(count, np.float32), cuda.device_array(count * size, np.uint8)
        if importance is not None:
            mean_squares().launch(blocks_for(count), (count, columns, source, means))
        kernel.launch(blocks_for(blocks), (blocks, columns, source, weights, means, out, *_lattice(codec, number)))
        made: np.ndarray = out.copy_to_host()
    return made.reshape(count, size)


@functools.cache
def _lattice(codec: Codec, number: int) -> tuple[Any, ...]:
    """The arrays of a type's lattice on a device, kept there."""
    from numba import cuda

    assert codec.encoder is not None, f"{codec.dtype.name} is only decoded"
    with cuda.gpus[number]:
        return tuple(cuda.to_device(array) for array in codec.encoder.lattice())


def mean_squares() -> DeviceKernel:
    """The kernel ``(rows, columns, source, means)``."""
    return generated.made("mean squares of rows", MEANS.format(package=f"{lane.__package__}.exact"), (THREADS,))

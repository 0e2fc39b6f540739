"""Block encoders on the device, one block per thread, byte-identical to the CPU's: they reuse the CPU encoders of
one block per lane."""

from __future__ import annotations

import importlib
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import process_cache
from ....runtime.cuda.device.device import SIMULATED
from ....runtime.cuda.element import scalar_simd as lane
from ....runtime.cuda.element.bits import inlined
from ....runtime.cuda.element.kernel_text import PACKAGE
from ....runtime.cuda.kernel import source_module
from ....runtime.cuda.kernel.elementwise import THREADS, blocks_for
from ....runtime.cuda.kernel.kernel import DeviceKernel
from ....runtime.cuda.kernel.operand import Writer
from ....runtime.cuda.memory.transfer import flat
from ....runtime.simd import vector
from ....runtime.tensor.block_codec import KINDS, Codec, block_type, codec_of
from ..encoders.simd import lattice_scale_search as vectors
from . import digest
from .encode_q4_q5_q8_0 import PLAIN
from .lattice_scale_search import best_try
from .stream_lanes import Lane, aligned

LATTICE = ("places", "starts", "stops", "neighbours")
"""Kernel arguments of a type with a lattice, see `lattice_of` in `encoders/iq_lattices.py`."""


@dataclass(frozen=True)
class LaneEncoder:
    """An encoder of transposed blocks, see `encoders/simd/block_per_lane.py`.

    Attributes:
        encode: ``(x, importance, means, lattice, y)``.
        weighted: whether it takes importance; means: whether it takes the mean square of the row alongside; lattice:
            whether it searches in one.
    """

    encode: Callable[..., None]
    weighted: bool = False
    means: bool = False
    lattice: bool = False


@process_cache
def lane_encoder(codec: Codec, weighted: bool) -> LaneEncoder:
    """The encoder of a type with importance or without; types without importance leave it out."""
    name = codec.dtype.name
    assert codec.encoder is not None, f"{name} is only decoded"
    if name == "q8_0" or (name in PLAIN and not weighted):
        return LaneEncoder(PLAIN[name])
    stored = codec.encoder.kernels[weighted]
    kernel = getattr(importlib.import_module(stored.module), stored.name)
    found = inspect.getclosurevars(kernel.function).nonlocals
    weighted = weighted and found["weighted"]
    return LaneEncoder(
        found["encode"], weighted, weighted and found["row_means"], found["arrays"].__name__ == "_lattice"
    )


@process_cache
def laned(function: FunctionType) -> Any:
    """A function over vectors as a device function over one lane, with all that it calls."""
    names: dict[str, Any] = {"__name__": function.__module__, "__builtins__": __builtins__}
    for name in function.__code__.co_names:
        if name not in function.__globals__:
            continue
        found = function.__globals__[name]
        if found is getattr(vector, name, None):
            found = getattr(lane, name)
        elif isinstance(found, FunctionType):
            found = laned(best_try if found is vectors.best_try else found)
        elif found is np and not SIMULATED:
            found = lane.numbers
        elif isinstance(found, np.float32) and not SIMULATED:
            found = float(found)
        names[name] = found
    return inlined(
        FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    )


def function_of(name: str, weighted: bool, digest: str) -> Any:
    """The device function of a type's encoder; generated modules name the sources that it comes from."""
    return laned(lane_encoder(codec_of(block_type(name)), weighted).encode)


def kernel_of(codec: Codec, weighted: bool) -> DeviceKernel:
    """The kernel ``(blocks, columns, source, importance, means, out)``, float32 and bytes flat, and the arrays of a
    lattice where it has one."""
    found = lane_encoder(codec, weighted)
    length, nbytes = codec.dtype.block, codec.dtype.block_nbytes
    lattice = LATTICE if found.lattice else ()
    writer = Writer()
    writer.head += [
        f"from {__name__} import function_of",
        f"encode = function_of({codec.dtype.name!r}, {weighted}, {digest()!r})",
    ]
    writer.names += ["blocks", "columns", "source", "importance", "means", "out", *lattice]
    held = length if found.weighted else 1
    writer.add(
        1,
        f"x, y = cuda.local.array({length}, np.float32), cuda.local.array({nbytes}, np.uint8)",
        f"weights, mean = cuda.local.array({held}, np.float32), cuda.local.array(1, np.float32)",
        f"some = weights[: {held if found.weighted else 0}]",
        "mean[0] = np.float32(0)",
        "for block in range(np.int64(cuda.grid(1)), blocks, cuda.gridsize(1)):",
        f"    first = block * {length}",
        f"    for i in range({length}):",
        "        x[i] = source[first + i]",
    )
    if found.weighted:
        writer.add(3, "weights[i] = importance[(first + i) % columns]")
    if found.means:
        writer.add(2, "mean[0] = means[first // columns]")
    writer.add(
        2,
        f"encode(x, some, mean, ({', '.join(lattice)}), y)",
        f"for i in range({nbytes}):",
        f"    out[block * {nbytes} + i] = y[i]",
    )
    return source_module.compile_source(f"encoder of {codec.dtype.name}", writer.text(), (THREADS,))


MEANS = """
from {package}.device.unfused_arithmetic import add, div, mul
def compute(rows, columns, source, means):
    for row in range(np.int64(cuda.grid(1)), rows, cuda.gridsize(1)):
        total = np.float32(0)
        for i in range(row * columns, (row + 1) * columns):
            total = add(total, mul(source[i], source[i]))
        means[row] = div(total, np.float32(columns))
"""
"""The mean square of each row, summed in order."""


WIDENED = """
from {package}.element.bits import bits
def compute(count, source, values, largest):
    most = np.int32(0)
    for i in range(np.int64(cuda.grid(1)), count, cuda.gridsize(1)):
        value = {read}
        pattern = np.int32(bits(value) & np.int32(0x7FFFFFFF))
        most = max(most, pattern)
        values[i] = value if pattern < np.int32(0x7F800000) else np.float32(0)
    cuda.atomic.max(largest, 0, most)
"""
"""Values as f32, zero if they are not finite, and the bits of the largest magnitude: bit patterns without the sign
are ordered, NaN last."""
READS: dict[int, tuple[np.dtype[Any], str]] = {
    KINDS["f32"]: (np.dtype(np.float32), "source[i]"), KINDS["f16"]: (np.dtype(np.uint16), "half(source[i])"),
    KINDS["bf16"]: (np.dtype(np.uint16), "from_bf16(source[i])"),
}  # fmt: skip
"""Storage of each element type, and how a kernel reads an element."""
_launching = threading.Lock()


def encode(
    codec: Codec, lane: Lane, kind: int, rows: np.ndarray, weights: np.ndarray | None, blocks: np.ndarray
) -> float:
    """Encode one slice in a lane; the largest magnitude, infinite or NaN where not all values are finite, for which
    zeros were encoded.

    Args:
        kind: of the values, from `KINDS`.
        rows: ``[n, columns]`` of what they are stored as; weights: float32 for each column, None for no importance.
        blocks: uint8 ``[n, bytes of a row]``, to be filled.
    """
    count, columns = rows.shape
    wide = kind == KINDS["f32"]
    largest = np.zeros(1, np.float32)
    importance = np.zeros(1, np.float32) if weights is None else weights

    def work(sent: list[Any], between: Any, back: list[Any], stream: Any) -> None:
        source, given, zero = (
            array.view(dtype) for array, dtype in zip(sent, (rows.dtype, importance.dtype, largest.dtype), strict=True)
        )
        means, most = flat(between, 0, count, importance.dtype), back[1].view(np.dtype(np.int32))
        values = source if wide else flat(between, aligned(4 * count), rows.size, importance.dtype)
        number, out = rows.size // codec.dtype.block, back[0]
        with _launching:
            most.copy_to_device(zero.view(most.dtype), stream=stream)
            widened(kind).launch(blocks_for(rows.size), (rows.size, source, values, most), stream)
            if weights is not None:
                mean_squares().launch(blocks_for(count), (count, columns, values, means), stream)
            arguments = (number, columns, values, given, means, out, *_lattice(codec, lane.share.number))
            kernel_of(codec, weights is not None).launch(blocks_for(number), arguments, stream)

    sent = [array.reshape(-1).view(np.uint8) for array in (rows, importance, largest)]
    lane.run(
        sent, aligned(4 * count) + (0 if wide else 4 * rows.size), [blocks.reshape(-1), largest.view(np.uint8)], work
    )
    return float(largest[0])


def widened(kind: int) -> DeviceKernel:
    """The kernel ``(count, source, values, largest)`` for values of a kind; `values` may be `source`."""
    return source_module.compile_source(
        "values as float32", WIDENED.format(package=PACKAGE, read=READS[kind][1]), (THREADS,)
    )


@process_cache
def _lattice(codec: Codec, number: int) -> tuple[Any, ...]:
    """The arrays of a type's lattice on a device, kept there."""
    from numba import cuda

    assert codec.encoder is not None, f"{codec.dtype.name} is only decoded"
    with cuda.gpus[number]:
        return tuple(cuda.to_device(array) for array in codec.encoder.lattice())


def mean_squares() -> DeviceKernel:
    """The kernel ``(rows, columns, source, means)``."""
    return source_module.compile_source("mean squares of rows", MEANS.format(package=PACKAGE), (THREADS,))

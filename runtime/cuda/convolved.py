"""Launches of cuDNN's convolutions. What a plan needs of the library is asked while it is made: an algorithm, by a fixed rule, and its memory.

Convolutions of f32 are exact f32 unless the environment has CANDLE_TF32=1; those of 16 bits are summed in f32. Where a Relu is computed along,
it makes 0 of what is not a number.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

from ..launch import Buffer
from ..record import dataclass
from . import blas, cudnn
from .convolution import Convolution
from .kernel import Launch
from .machine import capability
from .memory import WORKED, address, worked, workspace

WORKSPACE = 256 << 20
"""The most bytes that an algorithm may work in."""
BRAIN_FROM = (8, 0)
"""The compute capability from which there are convolutions of bfloat16."""


def chosen(offers: Sequence[cudnn.Performance], algorithms: Sequence[int], exact: bool) -> cudnn.Performance | None:
    """The first of the library's offers that gives the same bits every time in the memory that there is, by an algorithm that may be taken.

    Args:
        exact: whether numbers must not be rounded before they are multiplied.
    """
    fitting = (
        offer for offer in offers
        if not offer.status and offer.determinism == cudnn.DETERMINISTIC and offer.memory <= WORKSPACE and offer.algorithm in algorithms
        and (offer.math == cudnn.FMA_MATH or not exact)
    )
    return next(fitting, None)


@dataclass(frozen=True, eq=False)
class Handle:
    """What the library keeps for a card; its calls come one after another.

    Attributes:
        lock: held from setting the stream to the call on it.
    """

    pointer: ctypes.c_void_p
    lock: threading.Lock


@functools.cache
def handle(number: int) -> Handle:
    """The handle of a card."""
    from numba import cuda

    made = ctypes.c_void_p()
    blas.library()  # which some of its algorithms look for by name
    with cuda.gpus[number]:
        cuda.current_context()
        cudnn.call("cudnnCreate", ctypes.byref(made))
    return Handle(made, threading.Lock())


def offers(description: cudnn.Description, way: cudnn.Direction, number: int) -> Sequence[cudnn.Performance]:
    """What the library says of its algorithms on a card, best first; none where it does not know the convolution."""
    from numba import cuda

    found, count, held = (cudnn.Performance * 16)(), ctypes.c_int(), handle(number)
    with cuda.gpus[number], held.lock:
        given = (*description.ordered(way), len(found), ctypes.byref(count), found)
        known = cudnn.call(way.choices(), held.pointer, *given, unless=cudnn.NOT_SUPPORTED)
    return found[: count.value if known else 0]


def room_of(description: cudnn.Description, way: cudnn.Direction, algorithm: int, number: int) -> int:
    """Bytes that an algorithm works in on a card."""
    from numba import cuda

    size, held = ctypes.c_size_t(), handle(number)
    with cuda.gpus[number], held.lock:
        cudnn.call(way.room(), held.pointer, *description.ordered(way), algorithm, ctypes.byref(size))
    return size.value


class Convolved:
    """The library in the place of a kernel: arguments are two arrays and the result, memory to work in, then a bias and an array that is added.

    Attributes:
        title: for listings.
        least: the compute capability from which it runs.
    """

    least = (0, 0)

    def __init__(self, description: cudnn.Description, way: cudnn.Direction, algorithm: int, number: int, relu: bool, title: str) -> None:
        self.description, self.way, self.algorithm, self.number, self.relu, self.title = description, way, algorithm, number, relu, title

    def launch(self, blocks: Any, arguments: Any, stream: Any = 0) -> None:
        """Ask for the convolution on a stream, where it may be captured; returns before it is done."""
        first, second, result, _, *rest = (ctypes.c_void_p(address(item)) for item in arguments)
        bias, more = rest[:1], rest[1:]
        one, zero, known = ctypes.c_float(1), ctypes.c_float(0), self.description
        one_at, two_at, convolution, result_at = known.ordered(self.way)
        held = handle(self.number)
        room = ctypes.c_void_p(worked(arguments[3])), ctypes.c_size_t(arguments[3].nbytes - WORKED)
        work = (convolution, self.algorithm, *room)
        operands, target = (ctypes.byref(one), one_at, first, two_at, second, *work), (result_at, result)
        with held.lock:
            cudnn.call("cudnnSetStream", held.pointer, ctypes.c_void_p(int(stream)))
            added = (ctypes.byref(one), result_at, *more) if more else (ctypes.byref(zero), *target)
            fused = (*operands, *added, known.bias, *bias, known.activation, *target)
            if bias and cudnn.call(cudnn.FUSED, held.pointer, *fused, unless=cudnn.NOT_SUPPORTED):
                return
            cudnn.call(self.way.run(), held.pointer, *operands, ctypes.byref(zero), *target)
            for shape, array in zip((known.bias, result_at), rest, strict=False):
                cudnn.call(cudnn.ADD, held.pointer, ctypes.byref(one), shape, array, ctypes.byref(one), *target)
            if self.relu:
                cudnn.call(cudnn.ACTIVATE, held.pointer, known.activation, ctypes.byref(one), *target, ctypes.byref(zero), *target)

    def __repr__(self) -> str:
        return self.title


def launched(
    asked: Convolution, given: Buffer, w: Buffer, result: Buffer, number: int, bias: Buffer | None = None, more: Buffer | None = None,
    relu: bool = False,
) -> Launch | None:
    """The library's launch on a card, None where it has no algorithm for it.

    Args:
        given: x, or y where the convolution is turned; `result` is the other one.
        bias: is added to each channel; more: to the result, where there is a bias; relu: whether then a Relu follows.
    """
    way = cudnn.BACKWARD if asked.turned else cudnn.FORWARD
    if asked.dtype == "bfloat16" and capability() < BRAIN_FROM:
        return None
    description = cudnn.Description(asked, relu)
    exact = cudnn.arithmetic(asked.dtype) == cudnn.FMA_MATH
    found = chosen(offers(description, way, number), way.algorithms if bias is None else (cudnn.FUSED_ALGORITHM,), exact)
    if found is None:
        return None
    description.take(found.math)
    nbytes = max(1, room_of(description, way, found.algorithm, number))
    parts = ["transposed convolution" if asked.turned else "convolution", *["bias"] * (bias is not None), *["sum"] * (more is not None)]
    title = f"cuDNN {' + '.join([*parts, *['Relu'] * relu])} of {asked.dtype}"
    kernel: Any = Convolved(description, way, found.algorithm, number, relu, title)
    operands = (w, given) if asked.turned else (given, w)
    return Launch(kernel, [*operands, result, workspace(nbytes), *(item for item in (bias, more) if item is not None)], 1)

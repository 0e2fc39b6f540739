"""cuDNN convolution launches. Algorithm and workspace are chosen by a fixed rule during planning.

Convolutions of f32 are exact f32 unless CANDLE_TF32=1 is set; those of 16 bits accumulate in f32. A fused Relu maps
NaN to 0.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from ...base.dataclass import dataclass
from ...base.process_cache import PROCESS, process_cache
from ...plan.kernel_api import Buffer
from ..device.device import capability
from ..kernel.kernel import Launch
from ..memory.transfer import WORKSPACE_ALIGNMENT, address, aligned_address, workspace
from . import cublaslt, cudnn
from .conv_problem import Convolution

WORKSPACE = 256 << 20
"""Largest workspace of an algorithm, in bytes."""
BF16_CAPABILITY = (8, 0)
"""The compute capability from which there are convolutions of bfloat16."""


def choose_algorithm(
    offers: Sequence[cudnn.Performance], algorithms: Sequence[int], exact: bool
) -> cudnn.Performance | None:
    """The library's first deterministic algorithm that fits the workspace, among the allowed ones.

    Args:
        exact: whether numbers must not be rounded before they are multiplied.
    """
    fitting = (
        offer
        for offer in offers
        if not offer.status
        and offer.determinism == cudnn.DETERMINISTIC
        and offer.memory <= WORKSPACE
        and offer.algorithm in algorithms
        and (offer.math == cudnn.FMA_MATH or not exact)
    )
    return next(fitting, None)


@dataclass(frozen=True, eq=False)
class Handle:
    """The library's handle of a device; calls are serialized.

    Attributes:
        lock: held from setting the stream to the call on it.
    """

    pointer: ctypes.c_void_p
    lock: threading.Lock


@process_cache(kept=PROCESS)
def handle(number: int) -> Handle:
    """The handle of a device."""
    from numba import cuda

    made = ctypes.c_void_p()
    cublaslt.library()  # which some of its algorithms look for by name
    with cuda.gpus[number]:
        cuda.current_context()
        cudnn.call("cudnnCreate", ctypes.byref(made))
    return Handle(made, threading.Lock())


def offers(description: cudnn.Description, way: cudnn.Direction, number: int) -> Sequence[cudnn.Performance]:
    """The library's algorithms on a device, best first; empty if it does not support the convolution."""
    from numba import cuda

    found, count, held = (cudnn.Performance * 16)(), ctypes.c_int(), handle(number)
    with cuda.gpus[number], held.lock:
        given = (*description.ordered(way), len(found), ctypes.byref(count), found)
        known = cudnn.call(way.choices(), held.pointer, *given, unless=cudnn.NOT_SUPPORTED)
    return found[: count.value if known else 0]


def workspace_bytes(description: cudnn.Description, way: cudnn.Direction, algorithm: int, number: int) -> int:
    """Workspace bytes of an algorithm on a device."""
    from numba import cuda

    size, held = ctypes.c_size_t(), handle(number)
    with cuda.gpus[number], held.lock:
        cudnn.call(way.workspace_size(), held.pointer, *description.ordered(way), algorithm, ctypes.byref(size))
    return size.value


class CudnnConvolution:
    """A cuDNN call with the interface of a kernel: arguments are two arrays, the result, the workspace, then a bias and
    a residual.

    Attributes:
        title: for listings.
        least: the compute capability from which it runs.
    """

    least = (0, 0)

    def __init__(
        self, description: cudnn.Description, way: cudnn.Direction, algorithm: int, number: int, relu: bool, title: str
    ) -> None:
        self.description, self.way, self.algorithm, self.number, self.relu, self.title = (
            description,
            way,
            algorithm,
            number,
            relu,
            title,
        )

    def launch(self, blocks: Any, arguments: Any, stream: Any = 0) -> None:
        """Launch the convolution on a stream, asynchronously; may be captured."""
        first, second, result, _, *rest = (ctypes.c_void_p(address(item)) for item in arguments)
        bias, more = rest[:1], rest[1:]
        one, zero, known = ctypes.c_float(1), ctypes.c_float(0), self.description
        one_at, two_at, convolution, result_at = known.ordered(self.way)
        held = handle(self.number)
        workspace = (
            ctypes.c_void_p(aligned_address(arguments[3])),
            ctypes.c_size_t(arguments[3].nbytes - WORKSPACE_ALIGNMENT),
        )
        work = (convolution, self.algorithm, *workspace)
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
                cudnn.call(
                    cudnn.ACTIVATE,
                    held.pointer,
                    known.activation,
                    ctypes.byref(one),
                    *target,
                    ctypes.byref(zero),
                    *target,
                )

    def __repr__(self) -> str:
        return self.title


def launched(
    asked: Convolution,
    given: Buffer,
    w: Buffer,
    result: Buffer,
    number: int,
    bias: Buffer | None = None,
    more: Buffer | None = None,
    relu: bool = False,
) -> Launch | None:
    """The library's launch on a device, None without a suitable algorithm.

    Args:
        given: x, or y where the convolution is transposed; `result` is the other one.
        bias: is added to each channel; more: to the result, where there is a bias; relu: whether then a Relu follows.
    """
    way = cudnn.BACKWARD if asked.transposed else cudnn.FORWARD
    if asked.dtype == "bfloat16" and capability() < BF16_CAPABILITY:
        return None
    description = cudnn.Description(asked, relu)
    exact = cudnn.arithmetic(asked.dtype) == cudnn.FMA_MATH
    found = choose_algorithm(
        offers(description, way, number), way.algorithms if bias is None else (cudnn.FUSED_ALGORITHM,), exact
    )
    if found is None:
        return None
    description.take(found.math)
    nbytes = max(1, workspace_bytes(description, way, found.algorithm, number))
    parts = [
        "transposed convolution" if asked.transposed else "convolution",
        *["bias"] * (bias is not None),
        *["sum"] * (more is not None),
    ]
    title = f"cuDNN {' + '.join([*parts, *['Relu'] * relu])} of {asked.dtype}"
    kernel: Any = CudnnConvolution(description, way, found.algorithm, number, relu, title)
    operands = (w, given) if asked.transposed else (given, w)
    return Launch(
        kernel, [*operands, result, workspace(nbytes), *(item for item in (bias, more) if item is not None)], 1
    )

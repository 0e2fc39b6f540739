"""cuDNN: convolutions by NVIDIA's library where it is installed (``nvidia-cudnn-cu13``, in the extra ``[cuda]``), called through its C interface.

Source: the API of cuDNN 9, ``cudnn_graph.h``, ``cudnn_ops.h`` and ``cudnn_cnn.h``, whose numbers stand here. What a plan needs of the library is
asked while it is made: the algorithm, by a fixed rule, and the memory that this works in. Convolutions of f32 are exact f32 unless the
environment has CANDLE_TF32=1; those of 16 bits are summed in f32. Where a Relu is computed along, it makes 0 of what is not a number.
CANDLE_CUDNN=0 leaves all convolutions to our own kernels.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..launch import Buffer, Room
from . import blas
from .convolution import Convolution
from .kernel import Launch
from .machine import SIMULATED, capability, state

SONAME = "libcudnn.so.9"
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
BRAIN_FROM = (8, 0)
"""The compute capability from which there are convolutions of bfloat16."""
PLAIN_LAYOUT, CROSS_CORRELATION = 0, 1
DEFAULT_MATH, TENSOR_MATH, FMA_MATH = 0, 1, 3
RELU, IDENTITY, NOT_A_NUMBER_IS_ZERO = 1, 5, 0
DETERMINISTIC = 1
NOT_SUPPORTED = range(3000, 4000)
WORKSPACE = 256 << 20
"""The most bytes that an algorithm may work in."""


@dataclass(frozen=True)
class Direction:
    """Calls that compute one array of a convolution, and in which order they take the descriptors of all three.

    Attributes:
        name: within those of the calls.
        algorithms: those that may be taken. Transforms of Fourier are left out: their errors go with the largest element.
    """

    name: str
    order: tuple[str, str, str]
    algorithms: tuple[int, ...]

    def choices(self) -> str:
        """The call that lists algorithms, best first."""
        return f"cudnnGetConvolution{self.name}Algorithm_v7"

    def room(self) -> str:
        """The call that says what memory one works in."""
        return f"cudnnGetConvolution{self.name}WorkspaceSize"

    def run(self) -> str:
        """The call that computes."""
        return f"cudnnConvolution{self.name}"


IMPLICIT, IMPLICIT_AHEAD, EXPLICIT, WINOGRAD = 0, 1, 2, 6
IMPLICIT_BACK, WINOGRAD_BACK = 1, 4
FORWARD = Direction("Forward", ("x", "w", "y"), (IMPLICIT, IMPLICIT_AHEAD, EXPLICIT, WINOGRAD))
BACKWARD = Direction("BackwardData", ("w", "y", "x"), (IMPLICIT_BACK, WINOGRAD_BACK))
FUSED, FUSED_ALGORITHM = "cudnnConvolutionBiasActivationForward", IMPLICIT_AHEAD
"""The call that adds a bias and may apply Relu, and the one algorithm that it takes without a Relu too."""
KINDS = {"Tensor": "cudnnSetTensorNdDescriptor", "Filter": "cudnnSetFilterNdDescriptor", "Convolution": "cudnnSetConvolutionNdDescriptor",
         "Activation": "cudnnSetActivationDescriptor"}
"""Descriptors, and the calls that fill them."""
SYMBOLS = (
    "cudnnCreate", "cudnnGetVersion", "cudnnGetErrorString", "cudnnSetStream", "cudnnSetConvolutionMathType", "cudnnSetConvolutionGroupCount", FUSED,
    *(f"cudnn{what}{kind}Descriptor" for kind in KINDS for what in ("Create", "Destroy")), *KINDS.values(),
    *(call for way in (FORWARD, BACKWARD) for call in (way.choices(), way.room(), way.run())),
)
"""All that is called; a library that lacks one of these is not used."""


class Performance(ctypes.Structure):
    """What the library says of an algorithm for a convolution."""

    _fields_ = (
        ("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("milliseconds", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("math", ctypes.c_int), ("reserved", ctypes.c_int * 3),
    )


@functools.cache
def library() -> Any:
    """The library, None where it is not installed: the wheel's, otherwise the system's."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found is not None and found.submodule_search_locations else ()
    wheels = [str(path) for path in (Path(folder) / "cudnn" / "lib" / SONAME for folder in folders) if path.exists()]
    blas.library()  # which some of its algorithms look for by name
    for name in (*wheels, SONAME):
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            continue
        if all(hasattr(loaded, symbol) for symbol in SYMBOLS):
            loaded.cudnnGetErrorString.restype, loaded.cudnnGetVersion.restype = ctypes.c_char_p, ctypes.c_size_t
            return loaded
    return None


def version() -> str | None:
    """The library's version, None where it is not installed."""
    number = 0 if library() is None else int(library().cudnnGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else None


def available() -> bool:
    """Whether convolutions go to the library: there is a card, the library is installed, and nobody said otherwise."""
    return not SIMULATED and os.environ.get("CANDLE_CUDNN") != "0" and bool(state().devices) and library() is not None


def _failed(call: str, status: int) -> UnsupportedError:
    name = library().cudnnGetErrorString(status).decode(errors="replace")
    return UnsupportedError("E-DEVICE-LIBRARY", None, f"{call} of cuDNN failed: {name}", hint="Update the driver, or set CANDLE_CUDNN=0 to do without")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(library(), name)(*arguments)
    if status:
        raise _failed(name, status)


def _descriptor(kind: str, *values: Any) -> ctypes.c_void_p:
    """A descriptor that is filled with values, and given back when nobody has it."""
    made = ctypes.c_void_p()
    _call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
    weakref.finalize(made, getattr(library(), f"cudnnDestroy{kind}Descriptor"), ctypes.c_void_p(made.value))
    _call(KINDS[kind], made, *values)
    return made


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _array(dtype: int, shape: Sequence[int]) -> ctypes.c_void_p:
    """A descriptor of a contiguous array."""
    strides = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
    return _descriptor("Tensor", dtype, len(shape), _ints(shape), _ints(strides))


class Description:
    """A convolution in the library's own terms, for which it needs no card.

    Attributes:
        arrays: descriptors of x, w and y; bias: of one number for each channel of the result; activation: for the call that adds the bias.
    """

    def __init__(self, asked: Convolution, relu: bool = False) -> None:
        dtype, spatial = TYPES[asked.dtype], len(asked.strides)
        self.arrays = {
            "x": _array(dtype, asked.x), "y": _array(dtype, asked.y),
            "w": _descriptor("Filter", dtype, PLAIN_LAYOUT, len(asked.w), _ints(asked.w)),
        }
        numbers = (_ints(asked.pads), _ints(asked.strides), _ints(asked.dilations))
        self.convolution = _descriptor("Convolution", spatial, *numbers, CROSS_CORRELATION, TYPES["float32"])
        _call("cudnnSetConvolutionGroupCount", self.convolution, asked.groups)
        self.take(math_of(asked.dtype))
        self.bias = _array(dtype, (1, asked.y[1], *(1,) * spatial))
        self.activation = _descriptor("Activation", RELU if relu else IDENTITY, NOT_A_NUMBER_IS_ZERO, ctypes.c_double(0))

    def take(self, math: int) -> None:
        """Compute in this kind of arithmetic."""
        _call("cudnnSetConvolutionMathType", self.convolution, math)

    def ordered(self, way: Direction) -> list[ctypes.c_void_p]:
        """The descriptors as calls of a direction take them, the convolution's before that of the result."""
        first, second, third = (self.arrays[name] for name in way.order)
        return [first, second, self.convolution, third]


def math_of(dtype: str) -> int:
    """The arithmetic that is asked for."""
    if dtype == "float32":
        return DEFAULT_MATH if os.environ.get("CANDLE_TF32") == "1" else FMA_MATH
    return TENSOR_MATH


def chosen(offers: Sequence[Performance], algorithms: Sequence[int], exact: bool) -> Performance | None:
    """The first of the library's offers that gives the same bits every time in the memory that there is, by an algorithm that may be taken.

    Args:
        exact: whether numbers must not be rounded before they are multiplied.
    """
    fitting = (
        offer for offer in offers
        if not offer.status and offer.determinism == DETERMINISTIC and offer.memory <= WORKSPACE and offer.algorithm in algorithms
        and (offer.math == FMA_MATH or not exact)
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
    with cuda.gpus[number]:
        cuda.current_context()
        _call("cudnnCreate", ctypes.byref(made))
    return Handle(made, threading.Lock())


def offers(description: Description, way: Direction, number: int) -> Sequence[Performance]:
    """What the library says of its algorithms on a card, best first; none where it does not know the convolution."""
    from numba import cuda

    found, count, name = (Performance * 16)(), ctypes.c_int(), way.choices()
    held = handle(number)
    with cuda.gpus[number], held.lock:
        status = getattr(library(), name)(held.pointer, *description.ordered(way), len(found), ctypes.byref(count), found)
    if status and status not in NOT_SUPPORTED:
        raise _failed(name, status)
    return found[: 0 if status else count.value]


def workspace(description: Description, way: Direction, algorithm: int, number: int) -> int:
    """Bytes that an algorithm works in on a card."""
    from numba import cuda

    size, held = ctypes.c_size_t(), handle(number)
    with cuda.gpus[number], held.lock:
        _call(way.room(), held.pointer, *description.ordered(way), algorithm, ctypes.byref(size))
    return size.value


class Convolved:
    """The library in the place of a kernel: arguments are two arrays and the result, memory to work in, then the bias where there is one.

    Attributes:
        title: for listings.
        least: the compute capability from which it runs.
    """

    least = (0, 0)

    def __init__(self, description: Description, way: Direction, algorithm: int, asked: Convolution, bias: bool, relu: bool) -> None:
        self.description, self.way, self.algorithm, self.asked, self.bias, self.relu = description, way, algorithm, asked, bias, relu
        self.title = f"cuDNN convolution of {asked.dtype}"

    def launch(self, blocks: Any, arguments: Any, stream: Any = 0) -> None:
        """Ask for the convolution on a stream, where it may be captured; returns before it is done."""
        from numba import cuda

        first, second, result, room, *bias = (ctypes.c_void_p(int(item.__cuda_array_interface__["data"][0])) for item in arguments)
        one, zero, known = ctypes.c_float(1), ctypes.c_float(0), self.description
        one_at, two_at, convolution, result_at = known.ordered(self.way)
        held = handle(cuda.current_context().device.id)
        work = (convolution, self.algorithm, room, ctypes.c_size_t(arguments[3].nbytes))
        operands = (ctypes.byref(one), one_at, first, two_at, second, *work, ctypes.byref(zero))
        with held.lock:
            _call("cudnnSetStream", held.pointer, ctypes.c_void_p(int(stream)))
            if bias:
                _call(FUSED, held.pointer, *operands, result_at, result, known.bias, bias[0], known.activation, result_at, result)
            else:
                _call(self.way.run(), held.pointer, *operands, result_at, result)

    def __repr__(self) -> str:
        return self.title


def launched(asked: Convolution, given: Buffer, w: Buffer, result: Buffer, number: int, bias: Buffer | None = None, relu: bool = False) -> Launch | None:
    """The library's launch on a card, with a `bias` for each channel and then Relu where they are wanted; None where it has no algorithm for it.

    Args:
        given: x, or y where the convolution is turned; `result` is the other one.
    """
    way = BACKWARD if asked.turned else FORWARD
    if asked.dtype == "bfloat16" and capability() < BRAIN_FROM:
        return None
    description = Description(asked, relu)
    exact = math_of(asked.dtype) == FMA_MATH
    found = chosen(offers(description, way, number), way.algorithms if bias is None else (FUSED_ALGORITHM,), exact)
    if found is None:
        return None
    description.take(found.math)
    nbytes = max(1, workspace(description, way, found.algorithm, number))
    kernel: Any = Convolved(description, way, found.algorithm, asked, bias is not None, relu)
    operands = (w, given) if asked.turned else (given, w)
    room = Buffer(np.dtype(np.uint8), (nbytes,), Room(nbytes))
    return Launch(kernel, [*operands, result, room, *([] if bias is None else [bias])], 1)

"""cuDNN bindings: convolution calls and descriptors, if installed (``nvidia-cudnn-cu13``, in the extra ``[cuda]``).

Source: the API of cuDNN 9, ``cudnn_graph.h``, ``cudnn_ops.h`` and ``cudnn_cnn.h``, which define the constants here.
CANDLE_CUDNN=0 disables the library. This module needs no device.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.dataclass import dataclass
from ...base.errors import UnsupportedError
from ...base.process_cache import PROCESS, process_cache
from ..device.device import SIMULATED, cuda_support
from .conv_problem import Convolution

SONAME = "libcudnn.so.9"
TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}
PLAIN_LAYOUT, CROSS_CORRELATION = 0, 1
DEFAULT_MATH, TENSOR_MATH, FMA_MATH = 0, 1, 3
RELU, IDENTITY, NOT_A_NUMBER_IS_ZERO = 1, 5, 0
DETERMINISTIC = 1
NOT_SUPPORTED = range(3000, 4000)
"""Statuses."""


@dataclass(frozen=True)
class Direction:
    """A convolution direction: its calls, and the order of the three descriptors in them.

    Attributes:
        name: within those of the calls.
        algorithms: those that may be taken. Transforms of Fourier are left out: their errors go with the largest
            element.
    """

    name: str
    order: tuple[str, str, str]
    algorithms: tuple[int, ...]

    def choices(self) -> str:
        """The call that lists algorithms, best first."""
        return f"cudnnGetConvolution{self.name}Algorithm_v7"

    def workspace_size(self) -> str:
        """The call that returns the workspace size."""
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
ADD, ACTIVATE = "cudnnAddTensor", "cudnnActivationForward"
"""Calls that do the same where that one does not know a convolution."""
KINDS = {
    "Tensor": "cudnnSetTensorNdDescriptor",
    "Filter": "cudnnSetFilterNdDescriptor",
    "Convolution": "cudnnSetConvolutionNdDescriptor",
    "Activation": "cudnnSetActivationDescriptor",
}
"""Descriptor types, and the calls that fill them."""
SYMBOLS = (
    "cudnnCreate",
    "cudnnGetVersion",
    "cudnnGetErrorString",
    "cudnnSetStream",
    "cudnnSetConvolutionMathType",
    "cudnnSetConvolutionGroupCount",
    FUSED,
    ADD,
    ACTIVATE,
    *(f"cudnn{what}{kind}Descriptor" for kind in KINDS for what in ("Create", "Destroy")),
    *KINDS.values(),
    *(call for way in (FORWARD, BACKWARD) for call in (way.choices(), way.workspace_size(), way.run())),
)
"""Required symbols; a library without one of them is not used."""


class Performance(ctypes.Structure):
    """The library's record of an algorithm for a convolution."""

    _fields_ = (
        ("algorithm", ctypes.c_int),
        ("status", ctypes.c_int),
        ("milliseconds", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("math", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


@process_cache(kept=PROCESS)
def library() -> Any:
    """The library, None if it is not installed: the wheel's, otherwise the system's."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found is not None and found.submodule_search_locations else ()
    wheels = [str(path) for path in (Path(folder) / "cudnn" / "lib" / SONAME for folder in folders) if path.exists()]
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
    """The library's version, None if it is not installed."""
    number = 0 if library() is None else int(library().cudnnGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else None


def available() -> bool:
    """Whether a device and the library are available, and CANDLE_CUDNN is not 0."""
    return (
        not SIMULATED
        and os.environ.get("CANDLE_CUDNN") != "0"
        and bool(cuda_support().devices)
        and library() is not None
    )


def call(name: str, *arguments: Any, unless: range = range(0)) -> bool:
    """Call the library; False for statuses that mean unsupported, UnsupportedError for other failures."""
    status = getattr(library(), name)(*arguments)
    if status and status not in unless:
        why = library().cudnnGetErrorString(status).decode(errors="replace")
        hint = "Update the driver, or set CANDLE_CUDNN=0 to disable cuDNN"
        raise UnsupportedError("E-DEVICE-LIBRARY", None, f"{name} of cuDNN failed: {why}", hint=hint)
    return not status


def _descriptor(kind: str, *values: Any) -> ctypes.c_void_p:
    """A descriptor filled with values, destroyed when unreferenced."""
    made = ctypes.c_void_p()
    call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
    weakref.finalize(made, getattr(library(), f"cudnnDestroy{kind}Descriptor"), ctypes.c_void_p(made.value))
    call(KINDS[kind], made, *values)
    return made


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _array(dtype: int, shape: Sequence[int]) -> ctypes.c_void_p:
    """A descriptor of a contiguous array."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return _descriptor("Tensor", dtype, len(shape), _ints(shape), _ints(strides))


class Description:
    """The library's descriptors of a convolution; needs no device.

    Attributes:
        arrays: descriptors of x, w and y; bias: of one number for each channel of the result; activation: for the call
            that adds the bias.
    """

    def __init__(self, asked: Convolution, relu: bool = False) -> None:
        dtype, spatial = TYPES[asked.dtype], len(asked.strides)
        self.arrays = {
            "x": _array(dtype, asked.x),
            "y": _array(dtype, asked.y),
            "w": _descriptor("Filter", dtype, PLAIN_LAYOUT, len(asked.w), _ints(asked.w)),
        }
        numbers = (_ints(asked.pads), _ints(asked.strides), _ints(asked.dilations))
        self.convolution = _descriptor("Convolution", spatial, *numbers, CROSS_CORRELATION, TYPES["float32"])
        call("cudnnSetConvolutionGroupCount", self.convolution, asked.groups)
        self.take(arithmetic(asked.dtype))
        self.bias = _array(dtype, (1, asked.y[1], *(1,) * spatial))
        self.activation = _descriptor(
            "Activation", RELU if relu else IDENTITY, NOT_A_NUMBER_IS_ZERO, ctypes.c_double(0)
        )

    def take(self, kind: int) -> None:
        """Set the math type."""
        call("cudnnSetConvolutionMathType", self.convolution, kind)

    def ordered(self, way: Direction) -> list[ctypes.c_void_p]:
        """The descriptors in the order of a direction's calls."""
        first, second, third = (self.arrays[name] for name in way.order)
        return [first, second, self.convolution, third]


def arithmetic(dtype: str) -> int:
    """The math type for a dtype."""
    if dtype == "float32":
        return DEFAULT_MATH if os.environ.get("CANDLE_TF32") == "1" else FMA_MATH
    return TENSOR_MATH

"""cuBLASLt matrix products through its C interface, if installed (``nvidia-cublas``, in the extra ``[cuda]``).

Source: the cuBLASLt API, ``cublasLt.h``, whose numbers stand here. Which algorithm the library takes is asked once for
each problem. Products of f32 are exact f32 unless the environment has CANDLE_TF32=1; those of 16 bits are summed in
f32.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

from ...base.errors import UnsupportedError
from ...base.process_cache import PROCESS, process_cache
from ...plan.kernel_api import Buffer
from ..device.device import SIMULATED, cuda_support
from ..kernel.kernel import Launch
from ..memory.transfer import address, aligned_address, workspace
from .blas_operand import BlasProblem, Matrix

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
F32, F32_AS_TF32, F64 = 68, 77, 70
"""Kinds of computation."""
TRANSPOSE_FIRST, TRANSPOSE_SECOND, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
BATCH_COUNT, BATCH_OFFSET = 5, 6
WORKSPACE_BYTES, ALIGNMENTS = 1, (5, 6, 7, 8)
WITH_BIAS = 4
INVALID, NOT_SUPPORTED = 7, 15
"""Statuses of the library where it does not know a problem."""
WORKSPACE = 32 << 20
ALIGNED = 16


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@process_cache(kept=PROCESS)
def library() -> Any:
    """The library, None if it is not installed."""
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    try:
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path)
    except (pathfinder.DynamicLibNotFoundError, OSError):
        return None


@process_cache(kept=PROCESS)
def available() -> bool:
    """Whether a device and the library are available."""
    return not SIMULATED and bool(cuda_support().devices) and library() is not None


def _call(name: str, *arguments: Any, unless: tuple[int, ...] = ()) -> bool:
    """Call the library; False for statuses that mean unsupported, UnsupportedError for other failures."""
    status = getattr(library(), name)(*arguments)
    if status and status not in unless:
        why = f"{name} of cuBLASLt failed with status {status}"
        raise UnsupportedError("E-DEVICE-LIBRARY", None, why, hint="Update the driver or uninstall nvidia-cublas")
    return not status


def _set(call: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
    _call(call, target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


def _layout(matrix: Matrix, dtype: str, count: int) -> ctypes.c_void_p:
    made, rows, columns = ctypes.c_void_p(), ctypes.c_uint64(matrix.rows), ctypes.c_uint64(matrix.columns)
    _call("cublasLtMatrixLayoutCreate", ctypes.byref(made), TYPES[dtype], rows, columns, ctypes.c_int64(matrix.leading))
    if count > 1:
        _set("cublasLtMatrixLayoutSetAttribute", made, BATCH_COUNT, ctypes.c_int32(count))
        _set("cublasLtMatrixLayoutSetAttribute", made, BATCH_OFFSET, ctypes.c_int64(matrix.apart))
    return made


class Description:
    """The library's descriptors of a problem.

    Attributes:
        product: what is computed; layouts: of the three matrices; scalar: the type of alpha and beta.
    """

    def __init__(self, problem: BlasProblem, dtype: str, result: str, bias: bool) -> None:
        wide = dtype == "float64"
        self.scalar: Any = ctypes.c_double if wide else ctypes.c_float
        compute = F64 if wide else F32_AS_TF32 if dtype == "float32" and os.environ.get("CANDLE_TF32") == "1" else F32
        self.product = ctypes.c_void_p()
        _call("cublasLtMatmulDescCreate", ctypes.byref(self.product), compute, TYPES["float64" if wide else "float32"])
        for attribute, matrix in ((TRANSPOSE_FIRST, problem.first), (TRANSPOSE_SECOND, problem.second)):
            _set("cublasLtMatmulDescSetAttribute", self.product, attribute, ctypes.c_int32(matrix.transposed))
        if bias:
            _set("cublasLtMatmulDescSetAttribute", self.product, EPILOGUE, ctypes.c_int32(WITH_BIAS))
            self.bias(ctypes.c_void_p(ALIGNED))  # the library looks at how it is aligned when it chooses
        kinds = zip((problem.first, problem.second, problem.third), (dtype, dtype, result), strict=True)
        self.layouts = [_layout(matrix, kind, problem.count) for matrix, kind in kinds]

    def bias(self, pointer: ctypes.c_void_p) -> None:
        """Set the address of the bias."""
        _set("cublasLtMatmulDescSetAttribute", self.product, BIAS_POINTER, pointer)

    def algorithm(self, handle: ctypes.c_void_p, alignment: int) -> Any:
        """The heuristic's first algorithm, None if it finds none."""
        preference, found, count = ctypes.c_void_p(), _Heuristic(), ctypes.c_int()
        _call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        _set("cublasLtMatmulPreferenceSetAttribute", preference, WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE))
        for attribute in ALIGNMENTS:
            _set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, ctypes.c_uint32(alignment))
        first, second, third = self.layouts
        results = (1, ctypes.byref(found), ctypes.byref(count))
        asked = (handle, self.product, first, second, third, third, preference, *results)
        known = _call("cublasLtMatmulAlgoGetHeuristic", *asked, unless=(INVALID, NOT_SUPPORTED))
        _call("cublasLtMatmulPreferenceDestroy", preference)
        return found if known and count.value and not found.state else None


class Product:
    """A cuBLASLt call with the interface of a kernel: arguments are our operands, the result, the workspace, and the
    bias if there is one.

    Attributes:
        title: for listings.
        least: the compute capability from which it runs.
    """

    least = (0, 0)

    def __init__(self, problem: BlasProblem, dtype: str, result: str, alignment: int, bias: bool) -> None:
        self.problem, self.dtype, self.result, self.alignment, self.bias = problem, dtype, result, alignment, bias
        self.title = f"cublasLt product of {dtype}"
        self._made: dict[int, tuple[Description, Any]] = {}
        self._lock = threading.Lock()

    def known(self) -> bool:
        """Whether the library has an algorithm on the current device."""
        with self._lock:
            return self._ready(_device())[1] is not None

    def _ready(self, device: int) -> tuple[Description, Any]:
        if device not in self._made:
            description = Description(self.problem, self.dtype, self.result, self.bias)
            self._made[device] = description, description.algorithm(_handle(device), self.alignment)
        return self._made[device]

    def launch(self, blocks: Any, arguments: Any, stream: Any = 0) -> None:
        """Launch the product, asynchronously."""
        device = _device()
        a, b, c, _, *bias = (ctypes.c_void_p(address(item)) for item in arguments)
        with self._lock:
            description, found = self._ready(device)
            if bias:
                description.bias(bias[0])
            one, zero = description.scalar(1), description.scalar(0)
            first, second, third = description.layouts
            workspace = (
                ctypes.c_void_p(aligned_address(arguments[3])),
                ctypes.c_size_t(WORKSPACE),
                ctypes.c_void_p(int(stream)),
            )
            operands = (ctypes.byref(one), b, first, a, second, ctypes.byref(zero), c, third, c, third)
            _call("cublasLtMatmul", _handle(device), description.product, *operands, ctypes.byref(found), *workspace)

    def __repr__(self) -> str:
        return self.title


def _device() -> int:
    from numba import cuda

    return int(cuda.current_context().device.id)


@process_cache(kept=PROCESS)
def _handle(device: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _call("cublasLtCreate", ctypes.byref(made))
    return made


made: Callable[..., Product] = process_cache(Product)
"""The product of a problem, the same for all who ask: its algorithm is chosen once."""


def launched(problem: BlasProblem, a: Buffer, b: Buffer, c: Buffer, bias: Buffer | None = None) -> Launch | None:
    """The library's launch, None if it does not support the dtypes or has no algorithm."""
    given, result = a.dtype.name, c.dtype.name
    unfit = bias is not None and (bias.dtype != c.dtype or bias.offset % ALIGNED != 0)
    if a.dtype != b.dtype or given not in TYPES or result not in (given, "float32") or unfit:
        return None
    aligned = all(buffer.offset % ALIGNED == 0 for buffer in (a, b, c))
    kernel: Any = made(problem, given, result, ALIGNED if aligned else a.dtype.itemsize, bias is not None)
    if not kernel.known():
        return None
    return Launch(kernel, [a, b, c, workspace(WORKSPACE), *([] if bias is None else [bias])], 1)

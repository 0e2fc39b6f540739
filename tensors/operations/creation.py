"""Creation of tensors from Python numbers, arrays and rules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...runtime.base.errors import UsageError, UsageTypeError
from ...runtime.tensor.dtype import F32, I64, DType
from ..core.conversion import AS_COMPLEX, array_of
from ..core.device import Device
from ..core.expression import Expression, cast, leaf
from ..core.promotion import DEFAULT, category, dtype_of_scalar, named
from ..core.registry import function, method
from ..core.tensor import Tensor
from .operands import lengths_of

F = TypeVar("F", bound=Callable[..., Any])
DEVICES = ("cpu", "cpu:0")
function("device", "Device")(Device)


def check_device(device: Any) -> None:
    """UsageError for a device that tensors cannot be on."""
    if device is not None and str(device) not in DEVICES:
        why = f"tensors cannot be on the device {str(device)[:40]!r}"
        raise UsageError("E-TENSOR-DEVICE", None, why, expected="cpu")


WITHOUT_EFFECT = ("layout", "memory_format", "names", "pin_memory")
"""PyTorch's settings of memory."""


CREATOR = "_makes_tensors"
"""The attribute of functions that take these settings."""


def creator(*names: str) -> Callable[[F], F]:
    """Register a function that makes tensors, which takes PyTorch's settings of devices, gradients and memory."""

    def registered(make: F) -> F:
        code = make.__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(make)
        def called(*arguments: Any, **options: Any) -> Any:
            requires_grad = False
            if options:
                options = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT}
                if "device" not in own:
                    check_device(options.pop("device", None))
                if "requires_grad" not in own:
                    requires_grad = options.pop("requires_grad", False)
            found = make(*arguments, **options)
            return found.requires_grad_() if requires_grad else found

        vars(called)[CREATOR] = True
        function(*(names or (make.__name__,)))(called)
        return make

    return registered


def is_creator(made: Any) -> bool:
    """Whether a function was registered by `creator`."""
    return CREATOR in vars(made)


def made(array: np.ndarray, requires_grad: bool = False) -> Tensor:
    """A tensor of an array, which it shares."""
    found = Tensor(leaf(array))
    return found.requires_grad_() if requires_grad else found


@creator()
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of numbers, nested lists, arrays or tensors.

    Floats are of the default dtype, integers i64, unless they are an array's or `dtype` is given.
    """
    check_device(device)
    found = as_tensor(data, dtype).detach() if isinstance(data, Tensor) else made(array_of(data, dtype, copy=True))
    return found.requires_grad_() if requires_grad else found


@creator("as_tensor", "asarray")
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """As `tensor`, without a copy where the dtype stays; a tensor stays itself."""
    check_device(device)
    if isinstance(data, Tensor):
        wanted = data.dtype if dtype is None else named(dtype)
        return data if wanted is data.dtype else Tensor(cast(data.expression, wanted))
    return made(array_of(data, dtype))


@method("_constructed")
def constructed(self: Tensor, data: Any, lengths: tuple[int, ...]) -> Expression:
    """The tensor that PyTorch's class constructor creates: numbers as f32, or zeros of a shape."""
    if isinstance(data, DType):
        why = "Tensor(dtype, shape, storage) is a tensor of files"
        raise UsageTypeError("E-TENSOR-TYPE", None, why, hint="Use StoredTensor(dtype, shape, storage)")
    if isinstance(data, int):
        return leaf(np.zeros((data, *lengths), np.float32))
    return as_tensor(data, F32).expression


@method("__dlpack__")
def dlpack(self: Tensor, **options: Any) -> Any:
    return self.numpy().__dlpack__(**options)


@method("__dlpack_device__")
def dlpack_device(self: Tensor) -> tuple[int, int]:
    return 1, 0


def _filled(value: float) -> Callable[..., Tensor]:
    def make(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """A tensor of a shape, given as one sequence or as lengths one by one."""
        check_device(device)
        wanted = DEFAULT.dtype if dtype is None else named(dtype)
        return made(np.full(lengths_of(size), value, wanted.as_numpy()), requires_grad)

    return make


zeros = creator("zeros", "empty")(_filled(0))
ones = creator("ones")(_filled(1))


@creator()
def full(size: Any, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor full of one number."""
    check_device(device)
    wanted = dtype_of_scalar(type(fill_value)) if dtype is None else named(dtype)
    if isinstance(fill_value, complex | np.complexfloating) and not wanted.is_complex:
        if fill_value.imag:
            raise UsageError("E-TENSOR-VALUE", None, f"a tensor of {wanted} cannot hold {fill_value}", hint=AS_COMPLEX)
        fill_value = fill_value.real
    return made(np.full(lengths_of([size]), fill_value, wanted.as_numpy()), requires_grad)


def _like(value: float) -> Callable[..., Tensor]:
    def make(input: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """A tensor of the shape and dtype of another one."""
        check_device(device)
        wanted = input.dtype if dtype is None else named(dtype)
        return made(np.full(input.shape, value, wanted.as_numpy()), requires_grad)

    return make


zeros_like = creator("zeros_like", "empty_like")(_like(0))
ones_like = creator("ones_like")(_like(1))


@creator()
def full_like(input: Tensor, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of the shape and dtype of another one, full of one number."""
    return full(input.shape, fill_value, input.dtype if dtype is None else dtype, device)


@creator()
def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from `start` (0 if it is the only argument) up to `end`, which is left out.

    As in torch, `start` and `step` lose their fractions if `dtype` is an integer, and `end` does if it is i64.
    """
    check_device(device)
    if end is None:
        start, end = 0, start
    whole = all(isinstance(item, int | np.integer) for item in (start, end, step))
    wanted = named(dtype) if dtype is not None else dtype_of_scalar(int if whole else float)
    if wanted is I64:
        start, end, step, whole = int(start), int(end), int(step), True
    if step == 0:
        raise UsageError("E-TENSOR-VALUE", None, "arange with a step of 0")
    if (end - start) * step < 0:
        why = f"arange from {start} to {end} in steps of {step}"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="Change the sign of the step")
    count = max(0, -(-(end - start) // step) if whole else int(np.ceil((end - start) / step)))
    if category(wanted) < 2:
        start, step, whole = int(start), int(step), True
    positions = np.arange(count, dtype=np.int64 if whole else np.float64)
    return made((start + positions * step).astype(wanted.as_numpy()))


@creator()
def linspace(start: complex, end: complex, steps: int, dtype: Any = None, device: Any = None) -> Tensor:
    """Evenly spaced numbers, both ends included; as in torch, integers are between ends without their fractions."""
    check_device(device)
    wanted = dtype_between(start, end, dtype)
    return made(spaced(start, end, steps, wanted).astype(wanted.as_numpy()))


def dtype_between(start: Any, end: Any, dtype: Any) -> DType:
    """The dtype of evenly spaced numbers: by default floats, complex ones if an end is complex.

    Raises UsageError for complex ends in a real dtype.
    """
    is_complex = any(isinstance(each, complex | np.complexfloating) for each in (start, end))
    if dtype is None:
        return dtype_of_scalar(complex) if is_complex else DEFAULT.dtype
    wanted = named(dtype)
    if is_complex and not wanted.is_complex:
        why = f"numbers from {start} to {end} in a tensor of {wanted}"
        raise UsageError("E-TENSOR-VALUE", None, why, hint=AS_COMPLEX)
    return wanted


def spaced(start: Any, end: Any, steps: int, dtype: DType) -> np.ndarray:
    """Evenly spaced numbers as f64 or c128, from the nearer end, for a tensor of a dtype."""
    if category(dtype) < 2:
        start, end = int(start), int(end)
    step = (end - start) / max(steps - 1, 1)
    positions = np.arange(steps)
    return np.where(positions < steps / 2, start + step * positions, end - step * (steps - 1 - positions))


@creator()
def eye(n: int, m: int | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    check_device(device)
    wanted = DEFAULT.dtype if dtype is None else named(dtype)
    return made(np.eye(n, m, dtype=wanted.as_numpy()))


@creator()
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Row and column of each element on and below a diagonal."""
    return _indices(np.tril_indices(row, offset, col), dtype)


@creator()
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Row and column of each element on and above a diagonal."""
    return _indices(np.triu_indices(row, offset, col), dtype)


def _indices(places: Any, dtype: Any) -> Tensor:
    return made(np.stack(places).astype((I64 if dtype is None else named(dtype)).as_numpy()))

"""`cc.fft`: discrete Fourier transforms by PyTorch's names, with gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError, UsageTypeError
from ...runtime.base.units import counted
from ..core.expression import apply, cast, op_named
from ..core.promotion import DEFAULT, as_complex, named
from ..core.tensor import Tensor
from ..operations.creation import check_device, made
from ..operations.operands import default_float, dim_of, expression_of, integers
from ..operations.shape import roll
from .numbers import applied, conj, is_complex

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
Lengths = int | Sequence[int] | None
LAST_TWO = (-2, -1)


def _operand(input: Any, what: str, *, real: bool = False) -> Tensor:
    """A tensor of f32, f64 or complex numbers; integers become floats.

    Raises UsageError for 16-bit floats, and for complex numbers where the transform takes real ones.
    """
    x = Tensor(default_float(expression_of(input)))
    if real and is_complex(x):
        why = f"{what} of a tensor of {x.dtype}"
        hint = f"Use {what.replace('rfft', 'fft').replace('ihfft', 'ifft')}(), or take .real"
        raise UsageTypeError("E-TENSOR-DTYPE", None, why, expected="real elements", hint=hint)
    if x.dtype.bits < 32:
        raise UsageTypeError("E-TENSOR-DTYPE", None, f"{what} of a tensor of {x.dtype}", hint="Convert it with float()")
    return x


def _complex(x: Tensor) -> Tensor:
    return Tensor(cast(x.expression, as_complex(x.dtype)))


def _scale(norm: str | None, lengths: Sequence[int], *, inverse: bool) -> float:
    """The factor of a transform along dims of these lengths."""
    if norm not in (None, "backward", "forward", "ortho"):
        why = f"{norm!r} is not a normalization"
        raise UsageError("E-TENSOR-VALUE", None, why, expected="'backward', 'ortho' or 'forward'")
    count = math.prod(lengths)
    if norm == "ortho":
        return 1 / math.sqrt(count)
    return 1 / count if (norm == "forward") != inverse else 1.0


def _axes(x: Tensor, s: Lengths, dim: Lengths, what: str) -> tuple[list[int], list[int]]:
    """The transformed dims, and the lengths that they have to have, -1 where they keep theirs."""
    lengths = None if s is None else [s] if isinstance(s, int | np.integer) else list(s)
    if dim is None:
        rank = x.ndim if lengths is None else len(lengths)
        if rank > x.ndim:
            raise UsageError("E-TENSOR-SHAPE", None, f"{what}: {rank} lengths for a tensor of shape {list(x.shape)}")
        dims = list(range(x.ndim - rank, x.ndim))
    else:
        dims = [dim_of(each, x.ndim) for each in ([dim] if isinstance(dim, int | np.integer) else dim)]
    if not x.ndim and dims:
        raise UsageError("E-TENSOR-SHAPE", None, f"{what} of a tensor without dims", hint="Reshape it to (1,)")
    if len(set(dims)) < len(dims):
        raise UsageError("E-TENSOR-DIM", None, f"{what}: dims {dim} name one dim twice")
    if lengths is not None and len(lengths) != len(dims):
        why = f"{what}: {counted(len(lengths), 'length')} for {counted(len(dims), 'dim')}"
        raise UsageError("E-TENSOR-SHAPE", None, why)
    return dims, [-1] * len(dims) if lengths is None else [int(length) for length in lengths]


def _resized(x: Tensor, dims: Sequence[int], lengths: Sequence[int], what: str) -> Tensor:
    """The tensor cut, or with zeros at the end, to lengths of dims.

    Raises UsageError for a length below 1.
    """
    index, widths = [slice(None)] * x.ndim, [0] * (2 * x.ndim)
    for dim, length in zip(dims, lengths, strict=True):
        wanted = x.shape[dim] if length == -1 else length
        if wanted < 1:
            why = f"{what}: a transform of {wanted} elements along dim {dim}"
            raise UsageError("E-TENSOR-VALUE", None, why, expected="at least 1")
        if wanted < x.shape[dim]:
            index[dim] = slice(0, wanted)
        widths[x.ndim + dim] = max(0, wanted - x.shape[dim])
    if any(each.stop is not None for each in index):
        x = x[tuple(index)]
    return padded(x, widths) if any(widths) else x


def padded(x: Tensor, widths: Sequence[int]) -> Tensor:
    """The tensor with so many zeros before and after each dim: first all numbers before, then all after."""
    return Tensor(apply(op_named("Pad"), [x.expression, integers(list(widths))]))


def _transformed(x: Tensor, dims: Sequence[int], *, inverse: bool, scale: float) -> Tensor:
    if not dims:
        return x
    return applied("FFT", x.expression, axes=list(dims), inverse=int(inverse), scale=scale)


def _lengths(x: Tensor, dims: Sequence[int]) -> list[int]:
    return [x.shape[dim] for dim in dims]


def _some_axes(x: Tensor, s: Lengths, dim: Lengths, what: str) -> tuple[Sequence[int], Sequence[int]]:
    """As `_axes`; UsageError for no dims."""
    dims, lengths = _axes(x, s, dim, what)
    if not dims:
        raise UsageError("E-TENSOR-DIM", None, f"{what} transforms at least one dim")
    return dims, lengths


def _full(what: str, input: Any, s: Lengths, dim: Lengths, norm: str | None, *, inverse: bool) -> Tensor:
    """The transform of complex numbers to as many."""
    x = _operand(input, what)
    dims, lengths = _axes(x, s, dim, what)
    x = _complex(_resized(x, dims, lengths, what))
    return _transformed(x, dims, inverse=inverse, scale=_scale(norm, _lengths(x, dims), inverse=inverse))


def _to_half(what: str, input: Any, s: Lengths, dim: Lengths, norm: str | None, *, inverse: bool) -> Tensor:
    """The transform of real numbers: the last dim is transformed first, and half of it kept."""
    x = _operand(input, what, real=True)
    dims, lengths = _some_axes(x, s, dim, what)
    x = _resized(x, dims, lengths, what)
    scale = _scale(norm, _lengths(x, dims), inverse=inverse)
    found = applied("RFFT", x.expression, axis=dims[-1], scale=scale)
    return _transformed(conj(found) if inverse else found, dims[:-1], inverse=inverse, scale=1.0)


def _from_half(what: str, input: Any, s: Lengths, dim: Lengths, norm: str | None, *, inverse: bool) -> Tensor:
    """The transform of half of the numbers, whose other half are their conjugates, to real ones."""
    x = _operand(input, what)
    dims, lengths = _some_axes(x, s, dim, what)
    length = 2 * (x.shape[dims[-1]] - 1) if lengths[-1] == -1 else lengths[-1]
    if length < 1:
        why = f"{what}: a transform to {length} elements along dim {dims[-1]}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected="at least 1")
    x = _complex(_resized(x, dims, [*lengths[:-1], length // 2 + 1], what))
    scale = _scale(norm, [*_lengths(x, dims[:-1]), length], inverse=inverse)
    x = _transformed(x, dims[:-1], inverse=inverse, scale=1.0)
    half = x if inverse else conj(x)
    return applied("IRFFT", half.expression, axis=dims[-1], length=length, scale=scale)


KINDS: tuple[tuple[str, Callable[..., Tensor], bool, str], ...] = (
    ("fft", _full, False, "The Fourier transform"),
    ("ifft", _full, True, "The inverse Fourier transform"),
    ("rfft", _to_half, False, "The first half of the Fourier transform of real numbers"),
    ("irfft", _from_half, True, "The real numbers of whose Fourier transform the input is the first half"),
    ("hfft", _from_half, False, "The real Fourier transform of numbers of which the input is the first half"),
    ("ihfft", _to_half, True, "The first half of the inverse Fourier transform of real numbers"),
)
"""Transforms: names, what computes them, whether they are inverse, and what they are."""


def _along_one(name: str, compute: Callable[..., Tensor], inverse: bool, what: str) -> Callable[..., Tensor]:
    def transform(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        return compute(name, input, n, dim, norm, inverse=inverse)

    return _named(transform, name, f"{what} along a dim, of its first `n` elements or with zeros after them.")


def _along_two(name: str, compute: Callable[..., Tensor], inverse: bool, what: str) -> Callable[..., Tensor]:
    def transform(input: Any, s: Lengths = None, dim: Lengths = LAST_TWO, norm: str | None = None) -> Tensor:
        return compute(name, input, s, dim, norm, inverse=inverse)

    return _named(transform, name, f"{what} along two dims, which are cut or filled with zeros to lengths `s`.")


def _along_any(name: str, compute: Callable[..., Tensor], inverse: bool, what: str) -> Callable[..., Tensor]:
    def transform(input: Any, s: Lengths = None, dim: Lengths = None, norm: str | None = None) -> Tensor:
        return compute(name, input, s, dim, norm, inverse=inverse)

    return _named(transform, name, f"{what} along dims, all or as many as `s` has lengths, to which they are cut.")


def _named(transform: Callable[..., Tensor], name: str, document: str) -> Callable[..., Tensor]:
    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"""{document}

    Args:
        norm: "backward" divides inverse transforms by the number of elements, "forward" the others, "ortho" both by
            its root.
    """
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = (_along_one(*row) for row in KINDS)
fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = (_along_two(f"{row[0]}2", *row[1:]) for row in KINDS)
fftn, ifftn, rfftn, irfftn, hfftn, ihfftn = (_along_any(f"{row[0]}n", *row[1:]) for row in KINDS)


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of the elements of `fft` of `n` samples at a distance of `d`, in cycles per unit of `d`."""
    return _frequencies(n, d, [*range((n + 1) // 2), *range(-(n // 2), 0)], dtype, device, requires_grad)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of the elements of `rfft` of `n` samples at a distance of `d`, in cycles per unit of `d`."""
    return _frequencies(n, d, range(n // 2 + 1), dtype, device, requires_grad)


def _frequencies(n: int, d: float, numbers: Iterable[int], dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    check_device(device)
    if n < 0:
        raise UsageError("E-TENSOR-VALUE", None, f"frequencies of {n} samples", expected="at least 0")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.array([*numbers], np.float64) * (1 / np.float64(n * d))
    wanted = DEFAULT.dtype if dtype is None else named(dtype)
    return made(found.astype(wanted.as_numpy()), requires_grad)


def fftshift(input: Any, dim: Lengths = None) -> Tensor:
    """Dims, all by default, with the element of frequency 0 moved to the middle."""
    return _shifted(input, dim, lambda length: length // 2)


def ifftshift(input: Any, dim: Lengths = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, lambda length: -(length // 2))


def _shifted(input: Any, dim: Lengths, by: Callable[[int], int]) -> Tensor:
    x = Tensor(expression_of(input))
    dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int | np.integer) else list(dim)
    dims = [dim_of(each, x.ndim) for each in dims]
    return roll(x, [by(x.shape[each]) for each in dims], dims)


def __dir__() -> list[str]:
    return list(__all__)

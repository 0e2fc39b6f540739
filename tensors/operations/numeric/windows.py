"""Windows of signals: those of torch with periods, and the symmetric ones of torch.signal.windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.promotion import DEFAULT, named
from ...core.tensor import Tensor
from ..creation import check_device, creator, made

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip
HANN, HAMMING, BLACKMAN = (0.5, 0.5), (0.54, 0.46), (0.42, 0.5, 0.08)
NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
"""Coefficients of sums of cosines."""


def _window(M: int, sym: bool, options: dict[str, Any], values: Callable[[np.ndarray, float], Any]) -> Tensor:  # noqa: N803
    """A window by what its elements are as a function of their numbers and of the last number of a period."""
    unknown = options.keys() - {"dtype", "layout", "device", "requires_grad"}
    if unknown:
        raise TypeError(f"a window got an unexpected keyword argument {min(unknown)!r}")
    check_device(options.get("device"))
    wanted = DEFAULT.dtype if options.get("dtype") is None else named(options["dtype"])
    positions = np.arange(M, dtype=np.float64)
    found = np.ones(M) if M < 2 else values(positions, M - 1.0 if sym else float(M))
    return made(np.asarray(found).astype(wanted.as_numpy()), bool(options.get("requires_grad")))


def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, **options: Any) -> Tensor:  # noqa: N803 (torch's names)
    """A sum of cosines of multiples of the period, with alternating signs."""

    def values(places: np.ndarray, end: float) -> Any:
        angles = 2 * math.pi * places / end
        return sum((-1) ** n * share * np.cos(n * angles) for n, share in enumerate(a))

    return _window(M, sym, options, values)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """alpha - (1 - alpha) * cos."""
    return general_cosine(M, a=(alpha, 1 - alpha), sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Hann's window."""
    return general_cosine(M, a=HANN, sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Hamming's window."""
    return general_cosine(M, a=HAMMING, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Blackman's window."""
    return general_cosine(M, a=BLACKMAN, sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Nuttall's window of the least side lobes of four terms."""
    return general_cosine(M, a=NUTTALL, sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """A triangle."""
    return _window(M, sym, options, lambda places, end: 1 - np.abs(2 * places / end - 1))


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Half a period of a sine."""
    return _window(M, sym, options, lambda places, end: np.sin(math.pi * (places + 0.5) / (end + 1)))


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any  # noqa: N803
) -> Tensor:  # fmt: skip
    """exp(-|n - center| / tau)."""

    def values(places: np.ndarray, end: float) -> Any:
        return np.exp(-np.abs(places - (end / 2 if center is None else center)) / tau)

    return _window(M, sym, options, values)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Gauss' bell of this standard deviation."""
    return _window(M, sym, options, lambda places, end: np.exp(-(((places - end / 2) / std) ** 2) / 2))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:  # noqa: N803
    """Kaiser's window: Bessel functions of the roots of a parabola."""

    def values(places: np.ndarray, end: float) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * places / end - 1) ** 2, 0))) / np.i0(beta)

    return _window(M, sym, options, values)


def _periodic(name: str, window: Callable[..., Tensor], document: str) -> None:
    def made_window(window_length: int, periodic: bool = True, dtype: Any = None) -> Tensor:
        return window(window_length, sym=not periodic, dtype=dtype)

    made_window.__name__ = made_window.__qualname__ = name
    made_window.__doc__ = document
    creator(name)(made_window)


for _name, _made, _whose in (
    ("hann_window", hann, "Hann's window"), ("blackman_window", blackman, "Blackman's window"),
    ("bartlett_window", bartlett, "A triangle"),
):  # fmt: skip
    _periodic(_name, _made, f"{_whose}; of a period without its last element if it is periodic.")


@creator()
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: Any = None
) -> Tensor:
    """Hamming's window, alpha - beta * cos; of a period without its last element if it is periodic."""
    return general_cosine(window_length, a=(alpha, beta), sym=not periodic, dtype=dtype)


@creator()
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, dtype: Any = None) -> Tensor:
    """Kaiser's window; of a period without its last element if it is periodic."""
    return kaiser(window_length, beta=beta, sym=not periodic, dtype=dtype)


def __dir__() -> list[str]:
    return list(__all__)

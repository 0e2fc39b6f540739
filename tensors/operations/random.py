"""Random tensors. The generator is the Mersenne Twister (MT19937), and elements are made of its output as in PyTorch on
the CPU: equal seeds give PyTorch's numbers."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import I64, DType
from ..core.promotion import DEFAULT, category, named
from ..core.registry import function, method
from ..core.tensor import Tensor
from ..core.trace import TRACE
from .creation import check_device, creator, made
from .operands import lengths_of

DEFAULT_SEED = 67280421310721
"""PyTorch's."""
VECTORIZED = 16
"""Elements from which normal numbers are made in blocks of this many."""


class Generator:
    """A stream of random numbers; one for all functions without `generator` starts from PyTorch's default seed."""

    def __init__(self, device: Any = None) -> None:
        check_device(device)
        self._lock = threading.Lock()
        self.manual_seed(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed, of which the lower 32 bits count."""
        self._seed = int(seed)
        vars(self).pop("_state", None)
        self._next_normal: float | None = None
        return self

    @functools.cached_property
    def _state(self) -> np.random.RandomState:
        """NumPy's stream, which is imported when the first number is drawn."""
        return np.random.RandomState(self._seed & 0xFFFFFFFF)

    def initial_seed(self) -> int:
        """The last seed."""
        return self._seed

    def get_state(self) -> Any:
        """The state of the stream, for `set_state`."""
        return self._state.get_state(), self._next_normal

    def set_state(self, state: Any) -> None:
        """Continue the stream from a state."""
        self._state.set_state(state[0])
        self._next_normal = state[1]

    def bits(self, count: int) -> np.ndarray:
        """Integers of 32 random bits."""
        return self._state.randint(0, 1 << 32, count, np.uint32)

    def wide_bits(self, count: int) -> np.ndarray:
        """Integers of 64 random bits."""
        pairs = self.bits(2 * count).astype(np.uint64)
        return (pairs[0::2] << np.uint64(32)) | pairs[1::2]

    def uniform(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Numbers from 0 on and below 1, of as many bits as f64 or f32 has; 16-bit floats are rounded f32."""
        if dtype == np.float64:
            return (self.wide_bits(count) & np.uint64((1 << 53) - 1)) * 2.0**-53
        return ((self.bits(count) & np.uint32((1 << 24) - 1)) * np.float32(2.0**-24)).astype(dtype)

    def normal(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Numbers of the standard normal distribution."""
        if count < VECTORIZED:
            return np.array([self._one_normal() for _ in range(count)], np.float64).astype(dtype)
        wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        found = self.uniform(count, wide)
        whole = count // VECTORIZED * VECTORIZED
        found[:whole] = _box_muller(found[:whole])
        if whole < count:
            found[-VECTORIZED:] = _box_muller(self.uniform(VECTORIZED, wide))
        return found.astype(dtype, copy=False)

    def _one_normal(self) -> float:
        if self._next_normal is not None:
            found, self._next_normal = self._next_normal, None
            return found
        first, second = self.uniform(2, np.dtype(np.float64))
        radius, angle = np.sqrt(-2 * np.log1p(-second)), 2 * np.pi * first
        self._next_normal = float(radius * np.sin(angle))
        return float(radius * np.cos(angle))

    def lock(self) -> threading.Lock:
        """Held while a tensor is drawn."""
        return self._lock


def _box_muller(uniform: np.ndarray) -> np.ndarray:
    """Normal numbers from uniform ones, the first and the second half of each block together."""
    blocks = uniform.reshape(-1, 2, VECTORIZED // 2)
    kind = uniform.dtype.type
    radius = np.sqrt(kind(-2) * np.log(kind(1) - blocks[:, 0]))
    angle = kind(2 * np.pi) * blocks[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


GENERATOR = Generator()


@function()
def manual_seed(seed: int) -> Generator:
    """Start the default generator again from a seed."""
    return GENERATOR.manual_seed(seed)


function("Generator")(Generator)


def _tensor(draw: Callable[[], np.ndarray]) -> Tensor:
    """A tensor of what a function draws; under `jit` each call draws again."""
    found = made(draw())
    if TRACE.changes is not None:
        TRACE.changes.draws[found.expression] = draw
    return found


def _drawn(
    kind: str, shape: tuple[int, ...], dtype: Any, generator: Generator | None,
    change: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Tensor:  # fmt: skip
    """Uniform or normal numbers, or what a function makes of them."""
    source = GENERATOR if generator is None else generator
    wanted = DEFAULT.dtype if dtype is None else named(dtype)
    if category(wanted) < 2:
        why = f"random numbers of {wanted} are not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Use randint()")
    is_complex = wanted.kind == "complex"
    count, drawn = int(np.prod(shape)) * (2 if is_complex else 1), wanted.to_real().as_numpy()

    def draw() -> np.ndarray:
        with source.lock():
            found = (source.uniform if kind == "uniform" else source.normal)(count, drawn)
        if is_complex and kind == "normal":  # each part has half of the variance
            found = found * drawn.type(math.sqrt(0.5))
        return (found if change is None else change(found)).view(wanted.as_numpy()).reshape(shape)

    return _tensor(draw)


@creator()
def rand(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, generator: Generator | None = None
) -> Tensor:
    """Numbers from 0 on and below 1; both parts of complex ones."""
    check_device(device)
    return _drawn("uniform", lengths_of(size), dtype, generator).requires_grad_(requires_grad)


@creator()
def randn(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, generator: Generator | None = None
) -> Tensor:
    """Numbers of the standard normal distribution; both parts of complex ones have a variance of 1/2."""
    check_device(device)
    return _drawn("normal", lengths_of(size), dtype, generator).requires_grad_(requires_grad)


@creator()
def rand_like(input: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers from 0 on and below 1, in the shape and dtype of a tensor."""
    wanted = input.dtype if dtype is None else dtype
    return rand(input.shape, dtype=wanted, device=device, requires_grad=requires_grad)


@creator()
def randn_like(input: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers of the standard normal distribution, in the shape and dtype of a tensor."""
    wanted = input.dtype if dtype is None else dtype
    return randn(input.shape, dtype=wanted, device=device, requires_grad=requires_grad)


@creator()
def randint(
    *bounds: Any, low: int | None = None, high: int | None = None, size: Any = None, dtype: Any = None,
    device: Any = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Integers: ``randint(high, size)`` or ``randint(low, high, size)``; `high` is left out."""
    check_device(device)
    given = [*bounds, *[each for each in (low, high, size) if each is not None]]
    if len(given) not in (2, 3):
        why = f"randint takes high and size, or low, high and size, not {counted(len(given), 'argument')}"
        raise UsageError("E-TENSOR-VALUE", None, why, hint="randint(0, 10, (2, 3))")
    *ends, size = given
    low, high = ends if len(ends) == 2 else (0, *ends)
    if high <= low:
        raise UsageError("E-TENSOR-VALUE", None, f"randint from {low} to below {high}")
    source = GENERATOR if generator is None else generator
    shape = lengths_of([size])
    count, span = int(np.prod(shape)), int(high) - int(low)
    wanted = I64 if dtype is None else named(dtype)

    def draw() -> np.ndarray:
        with source.lock():
            drawn = source.wide_bits(count) if span >= 1 << 28 else source.bits(count)
        found = (drawn % drawn.dtype.type(span)).astype(np.int64) + low
        return found.astype(wanted.as_numpy()).reshape(shape)

    return _tensor(draw)


@creator()
def randint_like(input: Tensor, *bounds: int, dtype: Any = None) -> Tensor:
    """As `randint`, in the shape and dtype of a tensor."""
    return randint(*bounds, input.shape, dtype=input.dtype if dtype is None else dtype)


@creator()
def randperm(n: int, dtype: Any = None, device: Any = None, generator: Generator | None = None) -> Tensor:
    """The integers below n in random order."""
    check_device(device)
    source = GENERATOR if generator is None else generator
    wanted = I64 if dtype is None else named(dtype)

    def draw() -> np.ndarray:
        with source.lock():
            drawn = source.bits(max(0, n - 1)).tolist()
        found = list(range(n))
        for index, bits in enumerate(drawn):
            other = index + bits % (n - index)
            found[index], found[other] = found[other], found[index]
        return np.array(found, np.int64).astype(wanted.as_numpy())

    return _tensor(draw)


@creator()
def bernoulli(input: Tensor, generator: Generator | None = None) -> Tensor:
    """1 with the probability that each element is, and 0 otherwise."""
    drawn = _drawn("uniform", input.shape, "f64" if input.dtype.bits == 64 else "f32", generator)
    return (drawn < input).to(input.dtype)


def exponential(
    shape: tuple[int, ...], dtype: Any = None, rate: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Numbers of an exponential distribution, computed in f64 and rounded to a dtype."""
    found = _drawn("uniform", shape, "f64", generator, lambda drawn: -np.log1p(-drawn) / rate)
    return found.to(DEFAULT.dtype if dtype is None else named(dtype))


@method()
def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Write numbers from `low` on and below `high`. Products and sums are rounded once, as PyTorch's are."""
    kind = (np.float64 if self.dtype.to_real().bits == 64 else np.float32)(low)
    begin, span = float(kind), float(kind.dtype.type(high) - kind)

    def moved(drawn: np.ndarray) -> np.ndarray:
        return (drawn.astype(np.float64) * span + begin).astype(drawn.dtype)

    return self.become(_drawn("uniform", self.shape, self.dtype, generator, moved))


@method()
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Write numbers of a normal distribution."""
    return self.become(_drawn("normal", self.shape, self.dtype, generator) * std + _center(mean, self.dtype))


def _center(mean: Any, dtype: DType) -> Any:
    """The mean that is added to normal numbers; of complex ones to both parts, as in PyTorch."""
    return mean * (1 + 1j) if dtype.is_complex and not isinstance(mean, complex | Tensor) else mean


@creator()
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, generator: Generator | None = None, dtype: Any = None
) -> Tensor:
    """Normal numbers of a mean and a standard deviation, which are numbers, with a `size`, or tensors."""
    like = next((each for each in (mean, std) if isinstance(each, Tensor)), None)
    if like is None and size is None:
        raise UsageError("E-TENSOR-VALUE", None, "normal of two numbers needs a size", hint="Pass size=(2, 3)")
    if not isinstance(std, Tensor) and std < 0:
        raise UsageError(
            "E-TENSOR-VALUE", None, f"normal numbers of a standard deviation of {std}", expected="at least 0"
        )
    shape = lengths_of([size]) if like is None else (mean + std * 0).shape
    kind = DEFAULT.dtype if dtype is None else named(dtype)
    kind = kind if like is None else like.dtype
    return _drawn("normal", shape, kind, generator) * std + _center(mean, kind)

"""Weight casts to other dtypes, with counts of NaNs, overflows and underflows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import FormatError
from ...base.process_cache import process_cache
from ...ir.graph import Graph
from ...tensor.dtype import BF16, F16, DType, dtype_named
from ...tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

    from ...base.untrusted.regex import Pattern

AUTO = "auto"
NAN_POLICIES = ("error", "warn", "keep")
SATURATING = ("float4", "float6")
"""Dtypes without infinity and NaN, which saturate at their largest value."""


@dataclass
class Audit:
    """Losses of one tensor's cast: NaNs in the source, finite values beyond the range of the new dtype, others that
    became zero.

    Integers out of range are an error. Chunks may be read more than once and from several threads; counts are kept by
    chunk.

    Attributes:
        tensor: its name.
        nan: what a NaN does, one of `NAN_POLICIES`.
        count: elements of the tensor.
        dtype: name of the new dtype.
        noted: how often counts were noted, repeated ones included.
    """

    tensor: str
    nan: str
    count: int = 0
    dtype: str = ""
    noted: int = 0
    _seen: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, first: int, before: np.ndarray, after: np.ndarray) -> None:
        """Audit a chunk that begins with element `first`."""
        import numpy

        if after.dtype.kind in "iu":
            self._check_range(first, before, after)
            return
        flushed = _flushed(before, after)
        if before.size and magnitude(before) <= largest(after.dtype):
            if flushed:
                self._note(first, 0, 0, flushed)
            return
        with numpy.errstate(all="ignore"):
            nans = numpy.isnan(before)
            beyond = ~numpy.isfinite(after.astype(numpy.float32, copy=False))
            if after.dtype.name.startswith(SATURATING):
                beyond |= numpy.abs(before.astype(numpy.float32, copy=False)) > largest(after.dtype)
            lost = beyond & numpy.isfinite(before)
        if self.nan == "error" and nans.any():
            index = first + int(nans.argmax())
            why = f"tensor {self.tensor!r} holds NaN at element {index:,}"
            raise FormatError("E-NAN", None, why, hint="pass --nan warn or --nan keep to allow it")
        self._note(first, int(nans.sum()), int(lost.sum()), flushed)

    def _note(self, first: int, *counts: int) -> None:
        with self._lock:
            self._seen[first] = counts  # type: ignore[assignment]
            self.noted += 1

    def state(self) -> list[list[int]]:
        """Counts, for `restore`."""
        with self._lock:
            return [[first, *counts] for first, counts in sorted(self._seen.items())]

    def restore(self, state: Iterable[Sequence[int]]) -> None:
        """Restore counts of an earlier run."""
        for first, nans, lost, flushed in state:
            self._note(first, nans, lost, flushed)

    def _check_range(self, first: int, before: np.ndarray, after: np.ndarray) -> None:
        wrong = after.astype(before.dtype) != before
        if wrong.any():
            index = int(wrong.argmax())
            why = (
                f"tensor {self.tensor!r} holds {before[index]} at element {first + index:,}, "
                f"which {after.dtype} cannot hold"
            )
            raise FormatError("E-CAST-RANGE", None, why, hint="Choose a wider type")

    @property
    def nans(self) -> int:
        return sum(nans for nans, _, _ in self._seen.values())

    @property
    def overflows(self) -> int:
        """Finite values that overflow to infinity, NaN or the largest value."""
        return sum(lost for _, lost, _ in self._seen.values())

    @property
    def underflows(self) -> int:
        """Nonzero values that became zero."""
        return sum(flushed for _, _, flushed in self._seen.values())


@dataclass
class Cast:
    """Dtypes that weights are cast to.

    Attributes:
        dtype: name of the dtype for all floating-point weights; ``auto`` is f16 when all of them are f16 and bf16
            otherwise, for weights of two and more dimensions that are wider; None keeps them.
        rules: pairs of pattern and dtype name, the first that matches a weight's name winning over `dtype`, for any
            weight.
        nan: what a NaN in a weight that is cast does: error, warn or keep.
        dequantize: gives the f32 values of a quantized weight.
        audits: filled while the weights are read.
    """

    dtype: str | None = None
    rules: tuple[tuple[str, str], ...] = ()
    nan: str = "error"
    dequantize: Callable[[StoredTensor], StoredTensor] | None = None
    audits: list[Audit] = field(default_factory=list)

    def run(self, graph: Graph) -> bool:
        """Change the dtypes of `graph.weights`; return whether any changed."""
        from ...base.untrusted.regex import compiled

        rules = [(compiled(pattern), dtype_named(dtype)) for pattern, dtype in self.rules]
        auto = self._auto(graph)
        changed = False
        for name, tensor in graph.weights.items():
            wanted = self._wanted(name, tensor, rules, auto)
            if wanted is not None and wanted != tensor.dtype:
                graph.weights[name] = self.change(name, tensor, wanted)
                changed = True
        return changed

    def change(self, name: str, tensor: StoredTensor, dtype: DType) -> StoredTensor:
        """A weight cast to `dtype`, audited while it is read."""
        audit = Audit(name, self.nan, tensor.count, dtype.name)
        self.audits.append(audit)
        if tensor.qtype is not None and self.dequantize is not None:
            tensor = self.dequantize(tensor)
        return tensor.cast(dtype, audit)

    def ruled(self, name: str) -> DType | None:
        """The dtype that the first matching rule gives a weight, None without a match."""
        from ...base.untrusted.regex import compiled

        return next((dtype_named(dtype) for pattern, dtype in self.rules if compiled(pattern).search(name)), None)

    def of_all(self, graph: Graph) -> DType | None:
        """The dtype that `dtype` means for a graph."""
        return None if self.dtype is None else self._auto(graph) if self.dtype == AUTO else dtype_named(self.dtype)

    def _wanted(self, name: str, tensor: StoredTensor, rules: list[tuple[Pattern, DType]], auto: DType) -> DType | None:
        for pattern, dtype in rules:
            if pattern.search(name):
                return dtype
        if self.dtype is None or not tensor.dtype.is_float:
            return None
        if self.dtype == AUTO:
            return auto if tensor.dtype.bits > 16 and len(tensor.shape) > 1 else None
        return dtype_named(self.dtype)

    @staticmethod
    def _auto(graph: Graph) -> DType:
        floats = {
            tensor.dtype for tensor in graph.weights.values() if tensor.dtype.kind == "float" and len(tensor.shape) > 1
        }
        return F16 if floats and BF16 not in floats and F16 in floats else BF16


def magnitude(values: np.ndarray) -> float:
    """The largest absolute value of floats of 16 bits and more; NaN if any is NaN, and for other dtypes."""
    import numpy

    if values.dtype.name in ("float16", "bfloat16"):  # their bits are in the order of their magnitudes
        return float((values.view(numpy.uint16) & numpy.uint16(0x7FFF)).max().view(values.dtype))
    if values.dtype.name in ("float32", "float64"):
        return max(-float(values.min()), float(values.max()))
    return float("nan")


def _flushed(before: np.ndarray, after: np.ndarray) -> int:
    """Number of nonzero values that became zero."""
    if not before.size or before.dtype.kind == "c" or smallest(after.dtype) <= smallest(before.dtype):
        return 0
    zeros = _zeros(after)
    return zeros - _zeros(before) if zeros else 0


def _zeros(values: np.ndarray) -> int:
    import numpy

    bits = {2: numpy.uint16, 4: numpy.uint32, 8: numpy.uint64}.get(values.dtype.itemsize)
    if bits is None:
        return int(numpy.count_nonzero(values.astype(numpy.float32) == 0))
    plain = values.view(bits)
    return values.size - int(numpy.count_nonzero(plain << bits(1)))


@process_cache
def smallest(dtype: np.dtype) -> float:
    """The smallest positive value of a floating-point dtype of numpy or ml_dtypes; 0 for other dtypes."""
    import ml_dtypes

    if dtype.kind in "ciub":
        return 0.0
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


@process_cache
def largest(dtype: np.dtype) -> float:
    """The largest finite value of a floating-point dtype of numpy or ml_dtypes."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max) if dtype.kind != "c" else float("inf")  # type: ignore[no-untyped-call]

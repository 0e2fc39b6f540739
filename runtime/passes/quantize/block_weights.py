"""Weight quantization to ggml block types: rows are encoded when they are read, with importance per column if known."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import FormatError, UnsupportedError
from ...base.units import signal_to_noise
from ...ir.graph import Graph
from ...tensor.block_codec import KINDS, Codec, Encoder, decoded
from ...tensor.checksum import checksum
from ...tensor.dtype import F32, BlockType, DType
from ...tensor.element_packing import nbytes, unpack
from ...tensor.storage import SPAN, Costly, Held, read_briefly
from ...tensor.stored_tensor import StoredTensor
from ..precision.cast_weights import Audit

if TYPE_CHECKING:
    import numpy as np

MAX_SAFE_MAGNITUDE = 4096.0
"""Magnitude up to which no scale of a block overflows half precision, if importance is given everywhere."""
SCALE_OFFSET = {
    **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q1_0", "q2_0", "q4_k", "q5_k"), 0),
    **dict.fromkeys(("iq1_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"), 0),
    "q2_k": 80,
    "q3_k": 108,
    "q6_k": 208,
    "tq1_0": 52,
    "tq2_0": 64,
}
"""Byte offset in a block of the half-precision scale that multiplies every element."""
HALF_NAN = (0x00, 0x7E)
FINITE = "NaN and infinity have no place in blocks; --nan keep makes the whole block NaN"


@dataclass
class ErrorStatistics:
    """Squared error, squared values and largest error of a set of elements."""

    error: float = 0.0
    value: float = 0.0
    largest: float = 0.0
    count: int = 0

    def add(self, before: np.ndarray, after: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add float32 rows ``[n, columns]``; `weights` ``[columns]`` weigh the squares."""
        import numpy

        with numpy.errstate(all="ignore"):
            difference = before - after
            squares, values = (numpy.square(each, dtype=numpy.float64).sum(axis=0) for each in (difference, before))
        if weights is not None:
            squares, values = squares * weights, values * weights
        self.error += float(squares.sum())
        self.value += float(values.sum())
        self.largest = max(self.largest, float(numpy.abs(difference).max(initial=0.0)))
        self.count += before.size

    def merge(self, other: ErrorStatistics) -> None:
        """Add the totals of another object."""
        self.error += other.error
        self.value += other.value
        self.largest = max(self.largest, other.largest)
        self.count += other.count

    @property
    def rmse(self) -> float:
        return math.sqrt(self.error / self.count) if self.count else 0.0

    @property
    def snr(self) -> float:
        """Signal-to-noise ratio in decibels; infinite without error."""
        return signal_to_noise(self.value, self.error)


@dataclass
class BlockAudit:
    """Audit of one encoded tensor: non-finite values, overflowed scales and, on request, errors.

    Rows may be encoded more than once and by several threads; counts are kept by first element.

    Attributes:
        noted: how often counts were noted, repeated ones included.
    """

    tensor: str
    nan: str
    measure: bool = False
    noted: int = 0
    _bad: dict[int, int] = field(default_factory=dict)
    _errors: dict[int, ErrorStatistics] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bad(self, first: int, wrong: np.ndarray, why: str, hint: str) -> None:
        """Flags of elements that cannot be encoded, starting at element `first`; raises unless NaNs are allowed."""
        if self.nan == "error":
            index = first + int(wrong.reshape(-1).argmax())
            raise FormatError("E-NAN", None, f"tensor {self.tensor!r} {why} at element {index:,}", hint=hint)
        with self._lock:
            self._bad[first] = int(wrong.sum())
            self.noted += 1

    def measured(self, first: int, errors: ErrorStatistics) -> None:
        with self._lock:
            self._errors[first] = errors
            self.noted += 1

    def state(self) -> list[list[float]]:
        """Counts, for `restore`: first element and wrong elements, or first element and the fields of its errors."""
        with self._lock:
            bad: list[list[float]] = [[first, count] for first, count in sorted(self._bad.items())]
            errors = sorted(self._errors.items())
        return [*bad, *([first, each.error, each.value, each.largest, each.count] for first, each in errors)]

    def restore(self, state: Iterable[Sequence[float]]) -> None:
        """Restore counts of an earlier run, or of another process."""
        with self._lock:
            for first, *counts in state:
                if len(counts) == 1:
                    self._bad[int(first)] = int(counts[0])
                else:
                    error, value, largest, count = counts
                    self._errors[int(first)] = ErrorStatistics(error, value, largest, int(count))

    @property
    def nans(self) -> int:
        """Number of values that could not be encoded."""
        return sum(self._bad.values())

    @property
    def errors(self) -> ErrorStatistics | None:
        """Errors of all elements, None if they were not measured."""
        if not self._errors:
            return None
        total = ErrorStatistics()
        for first in sorted(self._errors):
            total.merge(self._errors[first])
        return total


@dataclass
class Quantize:
    """Quantize weights by name.

    Attributes:
        types: dtype by name, block type or plain; other weights stay as they are.
        codec: gives the codec of a block type.
        importance: by name, float32 ``[matrices, columns]``, one weight for each column of each matrix that is stacked
            in the tensor.
        nan: what values that are not finite do: error, or warn and keep, which make their block NaN.
        measure: whether errors are counted while the weights are read.
        audits, blocks: filled while the weights are read.
    """

    types: Mapping[str, DType]
    codec: Callable[[BlockType], Codec]
    importance: Mapping[str, np.ndarray] = field(default_factory=dict)
    nan: str = "error"
    measure: bool = False
    audits: list[Audit] = field(default_factory=list)
    blocks: list[BlockAudit] = field(default_factory=list)

    def run(self, graph: Graph) -> bool:
        """Change the dtypes of `graph.weights`; return whether any changed."""
        changed = False
        for name, dtype in self.types.items():
            tensor = graph.weights[name]
            if dtype == tensor.dtype:
                continue
            plain = tensor if tensor.qtype is None else tensor.dequantize()
            if isinstance(dtype, BlockType):
                audit = BlockAudit(name, self.nan, self.measure)
                self.blocks.append(audit)
                graph.weights[name] = quantized(plain, self.codec(dtype), self.importance.get(name), audit)
            else:
                self.audits.append(Audit(name, self.nan, tensor.count, dtype.name))
                graph.weights[name] = plain.cast(dtype, self.audits[-1])
            changed = True
        return changed


def quantized(tensor: StoredTensor, codec: Codec, importance: np.ndarray | None, audit: BlockAudit) -> StoredTensor:
    """`tensor`, of unquantized elements, as blocks that are encoded when they are read; rows use their matrix's
    importance.

    Raises UnsupportedError for a type that cannot be encoded, or that needs importance, and FormatError for rows
    that are not a multiple of the block length and for importance of the wrong shape.
    """
    import numpy

    dtype = codec.dtype
    size = nbytes(dtype, tensor.shape)
    if size is None:
        raise FormatError(
            "E-QUANT-SHAPE",
            None,
            f"tensor {audit.tensor!r} of shape {list(tensor.shape)} cannot be quantized to {dtype.name}: "
            "its rows are not a multiple of the block length",
        )
    encoder = _encoder(codec, importance, audit)
    columns = tensor.shape[-1]
    matrices = math.prod(tensor.shape[:-2])
    if importance is not None and importance.shape != (matrices, columns):
        raise FormatError(
            "E-IMATRIX-SHAPE",
            None,
            f"the importance matrix of tensor {audit.tensor!r} has the wrong shape",
            expected=[matrices, columns],
            found=list(importance.shape),
            hint="Was the importance matrix made with this model?",
        )
    if size == 0:
        return StoredTensor(dtype, tensor.shape, Held(b""))
    source = tensor if tensor.dtype.name in KINDS else tensor.cast(F32)
    importance = None if importance is None else numpy.ascontiguousarray(importance, numpy.float32)
    rows = _Rows(source, encoder, codec, importance, audit)
    together = math.lcm(rows.read_nbytes, source.storage.step) // rows.read_nbytes
    step = together * rows.nbytes
    span = max(SPAN, encoder.slice // dtype.block * dtype.block_nbytes)

    def read(start: int, stop: int) -> memoryview:
        return rows.encode(start // rows.nbytes, stop // rows.nbytes, together)

    return StoredTensor(
        dtype,
        tensor.shape,
        Costly(size, step, read, sequential=source.storage.sequential, checksum=checksum, span=span),
    )


def _encoder(codec: Codec, importance: np.ndarray | None, audit: BlockAudit) -> Encoder:
    name = codec.dtype.name
    if codec.encoder is None:
        raise UnsupportedError(
            "E-QUANT-ENCODE", None, f"type {name} can be decoded, but not encoded", hint="See candle-convert types"
        )
    if importance is None and codec.needs_importance:
        why = f"tensor {audit.tensor!r} cannot be {name} without an importance matrix"
        raise UnsupportedError(
            "E-QUANT-IMPORTANCE", None, why, hint="Pass an importance matrix with --imatrix, or choose a wider type"
        )
    return codec.encoder


@dataclass(frozen=True)
class _Rows:
    """The rows of one tensor while they are encoded."""

    source: StoredTensor
    encoder: Encoder
    codec: Codec
    importance: np.ndarray | None
    audit: BlockAudit

    @property
    def columns(self) -> int:
        return self.source.shape[-1]

    @property
    def read_nbytes(self) -> int:
        """Bytes of a source row."""
        return self.columns * self.source.dtype.block_nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of an encoded row."""
        return self.columns // self.codec.dtype.block * self.codec.dtype.block_nbytes

    def encode(self, start: int, stop: int, together: int) -> memoryview:
        """The blocks of the rows ``[start, stop)``, encoded in slices of a multiple of `together` rows."""
        import numpy

        out = numpy.empty((stop - start, self.nbytes), dtype=numpy.uint8)
        step = max(1, self.encoder.slice // self.columns // together) * together
        for first in range(start, stop, step):
            last = min(stop, first + step)
            self._slice(self._read(first, last), out[first - start : last - start], first)
        return out.reshape(-1).data

    def _read(self, first: int, last: int) -> np.ndarray:
        """The bytes of rows; the buffer is reused by the next call on this thread."""
        import numpy

        return numpy.frombuffer(
            read_briefly(self.source.storage, first * self.read_nbytes, last * self.read_nbytes), numpy.uint8
        )

    def _slice(self, data: np.ndarray, out: np.ndarray, first: int) -> None:
        """Encode rows that may belong to several matrices; `first` is the index of the first row."""
        largest = self._encode(data, self.source.dtype, out, first)
        if largest <= MAX_SAFE_MAGNITUDE and not self._has_zeros() and not self.audit.measure:
            return
        values = self._values(data)
        wrong = None if math.isfinite(largest) else self._without_wrong(values, out, first)
        self._look(
            values, out, first, careful=not largest <= MAX_SAFE_MAGNITUDE or self._has_zeros(), spoilt=wrong is not None
        )

    def _encode(self, data: np.ndarray, dtype: DType, out: np.ndarray, first: int) -> float:
        """Encode without checks; return the largest magnitude."""
        done, largest, height = 0, 0.0, self.source.shape[-2] if len(self.source.shape) > 1 else 1
        while done < len(out):
            matrix = (first + done) // height
            count = min(len(out) - done, (matrix + 1) * height - first - done)
            weights = 0 if self.importance is None else self.importance[matrix].ctypes.data
            source = data.ctypes.data + done * self.columns * dtype.block_nbytes
            found = self.encoder.run(
                source, KINDS[dtype.name], (count, self.columns), weights, out.ctypes.data + done * self.nbytes
            )
            largest = max(largest, found) if math.isfinite(found) else math.inf
            done += count
        return largest

    def _values(self, data: np.ndarray) -> np.ndarray:
        """Rows as writable float32 ``[n, columns]``."""
        import numpy

        return (
            unpack(data.data, self.source.dtype, data.nbytes // self.source.dtype.block_nbytes)
            .astype(numpy.float32)
            .reshape(-1, self.columns)
        )

    def _without_wrong(self, values: np.ndarray, out: np.ndarray, first: int) -> np.ndarray:
        """Encode again with zeros in place of non-finite values, if allowed, and set their blocks to NaN; return
        flags of such elements."""
        import numpy

        wrong: np.ndarray = ~numpy.isfinite(values)
        self.audit.bad(first * self.columns, wrong, "holds NaN or infinity", FINITE)
        values[wrong] = 0
        self._encode(values.reshape(-1).view(numpy.uint8), F32, out, first)
        self._spoil(wrong, out)
        return wrong

    def _has_zeros(self) -> bool:
        return self.importance is not None and not self.importance.all()

    def _spoil(self, wrong: np.ndarray, out: np.ndarray) -> None:
        """Set the blocks that hold a flagged element to NaN."""
        dtype = self.codec.dtype
        at = SCALE_OFFSET.get(dtype.name)
        if at is None:
            why = f"tensor {self.audit.tensor!r} holds NaN or infinity, which {dtype.name} cannot hold"
            raise FormatError("E-NAN", None, why, hint="Clean the weights, or choose another type for this tensor")
        blocks = out.reshape(-1, dtype.block_nbytes)
        blocks[wrong.reshape(-1, dtype.block).any(axis=1), at : at + 2] = HALF_NAN

    def _look(self, values: np.ndarray, out: np.ndarray, first: int, *, careful: bool, spoilt: bool) -> None:
        """Decode the result where scales may have overflowed, or errors are measured."""
        import numpy

        if not (careful or self.audit.measure):
            return
        after = decoded(self.codec, out.reshape(-1).data).reshape(values.shape)
        if careful and not spoilt:
            lost = ~numpy.isfinite(after)
            if lost.any():
                why = f"is too large for the scales of {self.codec.dtype.name}, or has no importance,"
                self.audit.bad(
                    first * self.columns,
                    lost,
                    why,
                    "Choose bf16 or f32 for this tensor, or look at the importance matrix",
                )
        if self.audit.measure:
            errors = ErrorStatistics()
            errors.add(values, after)
            self.audit.measured(first, errors)

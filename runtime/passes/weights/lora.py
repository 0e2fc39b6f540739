"""Low-rank adapters (LoRA, DoRA), added to weights when their rows are read.

Sources: Hu et al. 2021 (arXiv 2106.09685); Liu et al. 2024 (DoRA, arXiv 2402.09353).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import FormatError
from ...contract.quantization_scheme import computed
from ...tensor.stored_tensor import StoredTensor

if TYPE_CHECKING:
    import numpy as np

MAX_CACHED = 8
"""Updates whose factors are cached: as many as threads read weights at once."""


@dataclass(frozen=True, eq=False)
class LowRank:
    """One update of a weight [out, in, ...]: ``scale * up @ down``.

    Attributes:
        up: [out, rank]; down: [rank, in]; dimensions of length 1 and those of a convolution's kernel may follow.
        transposed: whether the weight is stored [in, out].
        magnitude: the lengths [out] that rows have afterwards (DoRA), None where they have what they come to.
    """

    up: StoredTensor
    down: StoredTensor
    scale: float
    transposed: bool = False
    magnitude: StoredTensor | None = None

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """float64 [rows, rank] and [rank, columns], for the weight as it is stored."""
        rank = self.down.shape[0]
        up, down = _numbers(self.up).reshape(-1, rank), _numbers(self.down).reshape(rank, -1)
        return (down.T, up.T) if self.transposed else (up, down)


class _Factors:
    """Cache of the factors of recent updates."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[LowRank, tuple[np.ndarray, np.ndarray]]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, update: LowRank) -> tuple[np.ndarray, np.ndarray]:
        with self._lock:
            if id(update) in self._kept:
                self._kept.move_to_end(id(update))
                return self._kept[id(update)][1]
        found = update.factors()
        with self._lock:
            self._kept[id(update)] = (update, found)
            while len(self._kept) > MAX_CACHED:
                self._kept.popitem(last=False)
        return found


_FACTORS = _Factors()


def apply_updates(weight: StoredTensor, updates: Sequence[LowRank]) -> StoredTensor:
    """`weight` with its updates applied in order, in its own dtype (f32 for quantized weights), rounded once.

    Products of float32 factors are exact in float64, so that sums do not depend on a machine's matrix product.
    """
    import numpy

    plain = weight.dequantize() if weight.qtype is not None else weight
    rows = weight.shape[0]
    flat = StoredTensor(plain.dtype, (rows, max(1, math.prod(weight.shape[1:]))), plain.storage)

    def read(first: int, last: int) -> np.ndarray:
        own = flat[first:last].numpy().astype(numpy.float64)
        values = own.copy()
        with numpy.errstate(over="ignore", invalid="ignore"):
            for update in updates:
                left, right = _FACTORS.of(update)
                values += (left[first:last] @ right) * update.scale
                if update.magnitude is not None:
                    lengths = numpy.sqrt((values * values).sum(axis=1))
                    values *= (_numbers(update.magnitude).reshape(-1)[first:last] / lengths)[:, None]
            merged: np.ndarray = StoredTensor.of(values.astype(numpy.float32)).cast(plain.dtype).numpy()
            merged = merged.astype(numpy.float32)
        if not numpy.isfinite(merged).all() and numpy.isfinite(own).all():
            scales = ", ".join(f"{update.scale:.3g}" for update in updates)
            why = f"weights with an update scaled by {scales} exceed the range of {plain.dtype}"
            raise FormatError("E-LORA-RANGE", None, why, hint="Check lora_alpha and r in adapter_config.json")
        return merged

    made = computed(flat.shape, read, (plain, *(part for update in updates for part in (update.up, update.down))))
    return StoredTensor(made.dtype, weight.shape, made.storage).cast(plain.dtype)


def _numbers(tensor: StoredTensor) -> np.ndarray:
    import numpy

    found: np.ndarray = tensor.numpy().astype(numpy.float64)
    return found

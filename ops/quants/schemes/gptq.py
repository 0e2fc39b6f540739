"""GPTQ: codes packed along the inputs of a layer, with a scale and a zero point for each group of inputs.

Sources: Frantar et al. 2022 (arXiv 2210.17323); the checkpoint formats of AutoGPTQ and GPTQModel.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import numpy.typing as npt

from ....runtime.contract.quantization_scheme import Checkpoint, Scheme, Unpacked, computed, rounding_of
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout.packed_integers import numbers, scaled
from ..layout.transposed_columns import Columns

BITS = (2, 3, 4, 8)
ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}
"""Offset of stored zero points by `checkpoint_format`: the first format stores them minus one."""

RUN = 32
"""Codes that always fill whole words."""


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``qweight`` [in * bits / 32, out], ``qzeros`` [groups, out * bits / 32], ``scales`` [groups, out] and ``g_idx``
    [in] to weights [out, in]."""
    bits = checkpoint.setting("bits", 4, among=BITS)
    offset = ZERO_OFFSETS[checkpoint.setting("checkpoint_format", "gptq", str, ZERO_OFFSETS)]
    group = checkpoint.setting("group_size", -1)
    ordered = ", act-order" if checkpoint.setting("desc_act", False, bool) else ""
    found = Unpacked(f"gptq {bits}-bit, " + (f"group {group}" if group > 0 else "one group a row") + ordered)
    for stem in checkpoint.stems(".qweight"):
        names = [
            f"{stem}.{part}"
            for part in ("qweight", "qzeros", "scales", "g_idx")
            if part != "g_idx" or f"{stem}.g_idx" in checkpoint.tensors
        ]
        found.add(f"{stem}.weight", Matrix(checkpoint, stem, bits, group, offset).tensor(), names)
    return found


class Matrix:
    """The tensors of one layer."""

    def __init__(self, checkpoint: Checkpoint, stem: str, bits: int, group: int, offset: int) -> None:
        self.checkpoint, self.stem, self.bits, self.offset = checkpoint, stem, bits, offset
        packed = checkpoint.matrix(f"{stem}.qweight", ("i32", "u32"))
        words, self.outputs = packed.shape
        self.inputs = words * 32 // bits
        if words * 32 % bits or self.outputs * bits % 32:
            why = f"tensor {stem + '.qweight'!r} does not hold whole {bits}-bit codes"
            raise checkpoint.error("E-PACKED-SHAPE", why, found=list(packed.shape))
        self.group = checkpoint.group_size(self.inputs, group, stem)
        self.groups = math.ceil(self.inputs / self.group)
        self.codes = Columns(packed)
        self.scales = Columns(
            checkpoint.part(f"{stem}.scales", ("f16", "bf16", "f32"), (self.groups, self.outputs), stem)
        )
        self.zeros = Columns(
            checkpoint.part(f"{stem}.qzeros", ("i32", "u32"), (self.groups, self.outputs * bits // 32), stem)
        )
        order = f"{stem}.g_idx"
        self.order = checkpoint.part(order, ("i32", "i64"), (self.inputs,)) if order in checkpoint.tensors else None
        self._of_inputs: npt.NDArray[np.intp] | None = None
        self._in_order = False
        self._lock = threading.Lock()

    def tensor(self) -> StoredTensor:
        """The weight [out, in]."""
        parts = [part.tensor for part in (self.codes, self.scales, self.zeros)]
        return computed((self.outputs, self.inputs), self.rows, parts, rounding=rounding_of(self.bits))

    def rows(self, first: int, last: int) -> np.ndarray:
        """``(code - zero) * scale`` for outputs ``[first, last)``, as float32."""
        begin = first // RUN * RUN
        words = self.zeros[begin * self.bits // 32 : min(self.outputs, -(-last // RUN) * RUN) * self.bits // 32]
        whole = numbers(np.ascontiguousarray(words.T), self.bits)
        zeros = whole[:, first - begin : last - begin].T.astype(np.float32) + np.float32(self.offset)
        scales = self.scales[first:last].astype(np.float32)
        return scaled(numbers(self.codes[first:last], self.bits), zeros, scales, self.of_inputs())

    def of_inputs(self) -> npt.NDArray[np.intp] | int:
        """The group of each input, or the group length if groups are in order."""
        if self.order is None:
            return self.group
        with self._lock:
            if self._of_inputs is None:
                given = self.order.numpy().astype(np.intp)
                if given.size and not 0 <= int(given.min()) <= int(given.max()) < self.groups:
                    raise self.checkpoint.error(
                        "E-PACKED-INDEX",
                        f"tensor {self.stem + '.g_idx'!r} names groups that there are not",
                        expected=f"0 to {self.groups - 1}",
                        found=f"{given.min()} to {given.max()}",
                    )
                self._of_inputs = given
                self._in_order = np.array_equal(given, np.arange(self.inputs) // self.group)
            return self.group if self._in_order else self._of_inputs


SCHEME = Scheme(("gptq",), unpack)

"""AWQ: 4-bit codes with a scale and a zero point for each group of inputs, eight to a word.

Sources: Lin et al. 2023 (arXiv 2306.00978); the GEMM and GEMV formats of AutoAWQ.
"""

from __future__ import annotations

import math

import numpy as np

from ....runtime.contract.quantization_scheme import Checkpoint, Scheme, Unpacked, computed, rounding_of
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout.packed_integers import numbers, scaled
from ..layout.transposed_columns import Columns

BITS = (4,)
VERSIONS = ("gemm", "gemv")
PER_WORD = 8
MIDDLE = np.float32(8)
"""The zero point of files that store no zero points."""
PLACES = np.array((0, 4, 1, 5, 2, 6, 3, 7))
"""Positions of eight neighbouring outputs in a word, in the GEMM format."""


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``qweight``, ``qzeros`` and ``scales`` to weights [out, in]."""
    bits = checkpoint.setting("bits", checkpoint.setting("w_bit", 4), among=BITS)
    group = checkpoint.setting("group_size", checkpoint.setting("q_group_size", 128))
    version = checkpoint.setting("version", "gemm", str)
    if version.lower() not in VERSIONS:
        raise checkpoint.unsupported(f"quantization_config has version {version[:80]!r}", VERSIONS)
    make = outputs_packed if version.lower() == "gemm" else inputs_packed
    found = Unpacked(f"awq {bits}-bit, " + (f"group {group}" if group > 0 else "one group a row"))
    for stem in checkpoint.stems(".qweight"):
        parts = [
            f"{stem}.{part}"
            for part in ("qweight", "scales") + (("qzeros",) if f"{stem}.qzeros" in checkpoint.tensors else ())
        ]
        found.add(f"{stem}.weight", make(checkpoint, stem, group), parts)
    return found


def outputs_packed(checkpoint: Checkpoint, stem: str, group: int) -> StoredTensor:
    """GEMM: ``qweight`` [in, out / 8], ``qzeros`` [groups, out / 8], ``scales`` [groups, out]; the zero point is 8
    without ``qzeros``."""
    packed = checkpoint.matrix(f"{stem}.qweight", ("i32", "u32"))
    inputs, words = packed.shape
    outputs = words * PER_WORD
    size = checkpoint.group_size(inputs, group, stem)
    groups = math.ceil(inputs / size)
    codes = Columns(packed)
    scales = Columns(checkpoint.part(f"{stem}.scales", ("f16", "bf16", "f32"), (groups, outputs), stem))
    middle = _zeros(checkpoint, stem, (groups, words))
    zeros = None if middle is None else Columns(middle)

    def spread(words_of_outputs: Columns, first: int, last: int) -> np.ndarray:
        """Codes of outputs ``[first, last)``, [outputs, in or groups], from words of eight outputs."""
        low, high = first // PER_WORD, -(-last // PER_WORD)
        found = numbers(words_of_outputs[low:high], 4).reshape(high - low, -1, PER_WORD)
        ordered = found[:, :, PLACES].transpose(0, 2, 1).reshape((high - low) * PER_WORD, -1)
        return ordered[first - low * PER_WORD : last - low * PER_WORD]

    def rows(first: int, last: int) -> np.ndarray:
        factors = scales[first:last].astype(np.float32)
        middles = np.full_like(factors, MIDDLE) if zeros is None else spread(zeros, first, last).astype(np.float32)
        return scaled(spread(codes, first, last), middles, factors, size)

    return computed((outputs, inputs), rows, [packed], rounding=rounding_of(4))


def inputs_packed(checkpoint: Checkpoint, stem: str, group: int) -> StoredTensor:
    """GEMV: ``qweight`` [out, in / 8] in order, ``qzeros`` [out, words], ``scales`` [out, 8 * words], whose last
    columns are unused."""
    packed = checkpoint.matrix(f"{stem}.qweight", ("i32", "u32"))
    outputs, inputs = packed.shape[0], packed.shape[1] * PER_WORD
    size = checkpoint.group_size(inputs, group, stem)
    scales = checkpoint.matrix(f"{stem}.scales", ("f16", "bf16", "f32"))
    width = scales.shape[1]
    if scales.shape[0] != outputs or width % PER_WORD or width * size < inputs:
        want = f"[{outputs}, {math.ceil(inputs / size)} or more, by eights]"
        raise checkpoint.error(
            "E-PACKED-SHAPE", f"tensor {stem + '.scales'!r} has another shape", expected=want, found=list(scales.shape)
        )
    zeros = _zeros(checkpoint, stem, (outputs, width // PER_WORD))
    groups = math.ceil(inputs / size)

    def rows(first: int, last: int) -> np.ndarray:
        factors = scales[first:last].numpy().astype(np.float32)[:, :groups]
        middles = (
            np.full_like(factors, MIDDLE)
            if zeros is None
            else numbers(zeros[first:last].numpy(), 4).astype(np.float32)[:, :groups]
        )
        return scaled(numbers(packed[first:last].numpy(), 4), middles, factors, size)

    return computed((outputs, inputs), rows, [packed], rounding=rounding_of(4))


def _zeros(checkpoint: Checkpoint, stem: str, shape: tuple[int, int]) -> StoredTensor | None:
    if not checkpoint.setting("zero_point", True, bool) and f"{stem}.qzeros" not in checkpoint.tensors:
        return None
    return checkpoint.part(f"{stem}.qzeros", ("i32", "u32"), shape, stem)


SCHEME = Scheme(("awq",), unpack)

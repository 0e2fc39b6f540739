"""FP8: 8-bit float weights with scales per block of 128 x 128 (DeepSeek), per row (FBGEMM), or per matrix.

Sources: DeepSeek-V3 (arXiv 2412.19437), section 3.3; transformers' names of fine-grained and FBGEMM FP8 checkpoints.
"""

from __future__ import annotations

import numpy as np

from ....runtime.contract.quantization_scheme import E4M3_ROUNDING, Checkpoint, Scheme, Unpacked, computed, rounding_of
from ....runtime.tensor.dtype import I8
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout.scale_grid import Grid

FLOATS = ("f8_e4m3", "f8_e5m2")
ENDINGS = ("_scale_inv", "_scale")
UNUSED = (
    ".activation_scale",
    "_activation_scale",
    ".input_scale",
    ".input_scale_ub",
    ".k_scale",
    ".v_scale",
    ".output_scale",
)


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``NAME`` of 8-bit floats times ``NAME_scale_inv`` or ``NAME_scale``, to ``NAME``."""
    block = blocks(checkpoint, "weight_block_size")
    found = Unpacked("fp8, " + ("one scale a row or matrix" if block is None else f"blocks of {block[0]} x {block[1]}"))
    for name in checkpoint.tensors:
        ending = next((ending for ending in ENDINGS if name.endswith(ending)), None)
        if name.endswith(UNUSED):
            found.unused.append(name)
        elif ending is not None:
            of = name.removesuffix(ending)
            found.add(of, scaled(checkpoint, of, FLOATS, name, block), (of, name))
    return found


def blocks(checkpoint: Checkpoint, key: str) -> tuple[int, int] | None:
    """The lengths of a block in the configuration."""
    given = checkpoint.setting(key, None, list)
    if given is None:
        return None
    if len(given) != 2 or not all(type(length) is int and 0 < length < 1 << 31 for length in given):
        raise checkpoint.error(
            "E-PACKED-CONFIG", f"quantization_config has {key} {str(given)[:80]}", expected="two positive numbers"
        )
    return given[0], given[1]


def scaled(
    checkpoint: Checkpoint,
    name: str,
    dtypes: tuple[str, ...],
    scales: str,
    block: tuple[int, int] | None,
    zeros: str | None = None,
) -> StoredTensor:
    """``(weight - zero) * scale``, with one scale and zero point for each block."""
    weight = checkpoint.part(name, dtypes, of=scales)
    if len(weight.shape) < 2 or not weight.count:
        raise checkpoint.error("E-PACKED-SHAPE", f"tensor {name!r} is not a matrix", found=list(weight.shape))
    grid = Grid(checkpoint, scales, weight.shape, block, name)
    middle = None if zeros is None else Grid(checkpoint, zeros, weight.shape, block, name)
    flat = StoredTensor(weight.dtype, (weight.count // weight.shape[-1], weight.shape[-1]), weight.storage)

    def rows(first: int, last: int) -> np.ndarray:
        values = flat[first:last].numpy().astype(np.float32)
        if middle is not None:
            values -= middle.spread(middle.rows(first, last)).astype(np.float32)
        values *= grid.spread(grid.scales(first, last))
        return values

    rounding = rounding_of(8) if weight.dtype == I8 else E4M3_ROUNDING
    return computed(weight.shape, rows, (weight, grid.tensor), rounding=rounding)


SCHEME = Scheme(("fp8", "fbgemm_fp8"), unpack)

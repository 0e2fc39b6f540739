"""NVIDIA Model Optimizer: FP8 weights with one scale, or NVFP4 with a scale per 16 elements and one per matrix.

Source: checkpoints exported in Hugging Face's layout (`quant_algo` FP8 and NVFP4).
"""

from __future__ import annotations

import numpy as np

from ....runtime.contract.quantization_scheme import E2M1_ROUNDING, Checkpoint, Scheme, Unpacked, computed
from ....runtime.tensor.stored_tensor import StoredTensor
from ..layout.packed_integers import numbers
from ..layout.scale_grid import Grid
from .compressed_tensors import E2M1
from .fp8 import FLOATS, UNUSED, scaled

ALGORITHMS = ("FP8", "NVFP4", "MIXED_PRECISION")
GROUP = 16
SCALE, WHOLE, STACKED_SCALE = ".weight_scale", ".weight_scale_2", "_weight_scale"


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``weight`` and ``weight_scale``, with a ``weight_scale_2`` for 4 bits, to ``weight``."""
    algorithm = checkpoint.setting("quant_algo", "FP8", str, ALGORITHMS)
    found = Unpacked(f"modelopt {algorithm.lower()}")
    for name in checkpoint.tensors:
        stem = name.removesuffix(SCALE)
        weight = checkpoint.tensors.get(f"{stem}.weight")
        if name.endswith(SCALE) and weight is not None:
            four = weight.dtype.name == "u8"
            parts = [f"{stem}.weight", name, *([f"{stem}{WHOLE}"] if four else [])]
            tensor = four_bits(checkpoint, stem) if four else scaled(checkpoint, parts[0], FLOATS, name, None)
            found.add(parts[0], tensor, parts)
        elif name.endswith((*UNUSED, SCALE)):
            found.unused.append(name)
        elif name.endswith(STACKED_SCALE) and name.removesuffix(STACKED_SCALE) in checkpoint.tensors:
            stacked = name.removesuffix(STACKED_SCALE)
            why = (
                f"tensor {stacked!r} {list(checkpoint.tensors[stacked].shape)} stacks experts, with scales of their own"
            )
            raise checkpoint.unsupported(why, ["one matrix for each expert, NAME.weight with NAME.weight_scale"])
    return found


def four_bits(checkpoint: Checkpoint, stem: str) -> StoredTensor:
    """``weight`` [out, in / 2] of E2M1 floats, the first in the low half; both scales multiply."""
    packed = checkpoint.matrix(f"{stem}.weight", ("u8",))
    shape = (packed.shape[0], packed.shape[1] * 2)
    scales = Grid(checkpoint, f"{stem}{SCALE}", shape, (1, GROUP), f"{stem}.weight")
    whole = np.float32(checkpoint.number(f"{stem}{WHOLE}", ("f32",)))

    def rows(first: int, last: int) -> np.ndarray:
        values: np.ndarray = E2M1[numbers(packed[first:last].numpy(), 4)]
        values *= scales.spread(scales.scales(first, last) * whole)
        return values

    return computed(shape, rows, (packed,), rounding=E2M1_ROUNDING)


SCHEME = Scheme(("modelopt",), unpack)

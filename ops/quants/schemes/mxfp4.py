"""MXFP4: 32 4-bit floats (E2M1) with one 8-bit exponent, as in gpt-oss's experts. They stay blocks of ggml's MXFP4.

Sources: OCP Microscaling Formats 1.0; the checkpoints of gpt-oss.
"""

from __future__ import annotations

import math

import numpy as np

from ....runtime.contract.quantization_scheme import Checkpoint, Scheme, Unpacked
from ....runtime.tensor.block_codec import block_type
from ....runtime.tensor.storage import Derived
from ....runtime.tensor.stored_tensor import StoredTensor
from ....runtime.tensor.transposed import transposed

BLOCK = block_type("mxfp4")
HALF = BLOCK.block // 2
EXPONENTS = ("u8", "f8_e8m0")


def unpack(checkpoint: Checkpoint) -> Unpacked:
    """``NAME_blocks`` [experts, out, blocks, 16] and ``NAME_scales`` [experts, out, blocks] to ``NAME`` [experts, in,
    out]."""
    found = Unpacked(f"mxfp4, blocks of {BLOCK.block}")
    for name in checkpoint.stems("_blocks"):
        names = [f"{name}_blocks", f"{name}_scales"]
        codes = checkpoint.part(names[0], ("u8",), of=name)
        if len(codes.shape) < 3 or codes.shape[-1] != HALF or not codes.count:
            want = f"[..., rows, blocks, {HALF}]"
            raise checkpoint.error(
                "E-PACKED-SHAPE", f"tensor {names[0]!r} has another shape", expected=want, found=list(codes.shape)
            )
        scales = checkpoint.part(names[1], EXPONENTS, codes.shape[:-1], name)
        found.add(name, transposed(blocks(codes, scales)), names)
    return found


def blocks(codes: StoredTensor, scales: StoredTensor) -> StoredTensor:
    """Convert to ggml's blocks, [..., columns]: the exponent first, then elements i and i + 16 in a byte instead of 2 i
    and 2 i + 1.

    Args:
        codes: [..., blocks of a row, 16], two in a byte.
        scales: [..., blocks of a row], exponents.
    """
    shape = (*codes.shape[:-2], codes.shape[-2] * BLOCK.block)
    size = BLOCK.block_nbytes

    def read(start: int, stop: int) -> memoryview:
        first, last = start // size, stop // size
        pairs = np.frombuffer(codes.storage.read(first * HALF, last * HALF), np.uint8).reshape(-1, HALF)
        plain = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(-1, BLOCK.block)
        out = np.empty((last - first, size), np.uint8)
        out[:, 0] = np.frombuffer(scales.storage.read(first, last), np.uint8)
        out[:, 1:] = plain[:, :HALF] | plain[:, HALF:] << 4
        return out.reshape(-1).data

    storage = Derived(math.prod(codes.shape[:-1]) * size, size, read, sequential=codes.storage.sequential)
    return StoredTensor(BLOCK, shape, storage)


SCHEME = Scheme(("mxfp4",), unpack)

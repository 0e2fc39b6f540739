"""MatMulBnb4: product with a 4-bit float weight of bitsandbytes (QLoRA, Dettmers et al. 2023, arXiv:2305.14314)."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...quants.layout.value_tables import NF4
from ...rules.output_limit import allowed
from ...rules.precision import widened
from ...rules.shape_rules import shape_error
from .matmul_nbits import fits, last_length

FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
TABLES = (np.array([*FP4, *(-value for value in FP4)], np.float32), NF4)


def _infer(node: Inference) -> None:
    last_length(node, node.attributes["N"] if node.attributes["transB"] else node.attributes["K"])


@op(
    "MatMulBnb4",
    MICROSOFT,
    types="T=real u8 T",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-4),
    examples=[
        case("f32[2,3,32]", "u8[64]", "f32[8]", K=32, N=4, block_size=16, quant_type=1),
        case("f32[3,48]", "u8[72]", "f32[9]", K=48, N=3, block_size=16, quant_type=0),
    ],
)
@widened
def matmul_bnb4(
    a: np.ndarray,
    b: np.ndarray,
    absmax: np.ndarray,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,  # noqa: N803
) -> np.ndarray:
    """``a @ W.T`` (``a @ W`` without `transB`) for W [N, K], two elements in a byte, the first in its high half; a
    scale for each block."""
    if quant_type not in (0, 1) or min(K, N, block_size) < 1 or a.shape[-1:] != ((K if transB else N),):
        raise shape_error(
            "MatMulBnb4", f"an input of shape {a.shape}, K={K}, N={N}, block_size={block_size}, quant_type={quant_type}"
        )
    allowed((N, K), 4, "MatMulBnb4")
    codes = fits("MatMulBnb4", "the weight", b, ((N * K + 1) // 2,))
    scales = fits("MatMulBnb4", "absmax", absmax, (-(-N * K // block_size),)).astype(np.float32)
    values = TABLES[quant_type][np.stack([codes >> 4, codes & 15], -1)].reshape(-1)[: N * K]
    weight = (values * np.repeat(scales, block_size)[: N * K]).reshape(N, K).astype(a.dtype)
    made: np.ndarray = a @ (weight.T if transB else weight)
    return made

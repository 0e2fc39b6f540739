"""MoE and QMoE: each token is computed by the experts with the highest router scores (Shazeer et al. 2017,
arXiv:1701.06538)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UnsupportedError
from ....runtime.base.units import counted
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ...elementwise.exponential_activation import gelu, sigmoid_of
from ...nn.softmax import softmax
from ...rules.bit_packing import row_nbytes, unpacked
from ...rules.precision import widened
from ...rules.shape_rules import same_as_input, shape_error

Weight = Callable[[int], np.ndarray]
"""The weight [out, in] of an expert."""


def _gelu(x: np.ndarray) -> np.ndarray:
    assert gelu.compute is not None
    made: np.ndarray = gelu.compute(x, approximate="tanh")
    return made


PLAIN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x: x * sigmoid_of(x),
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class Gate:
    """The activation between the two layers of an expert.

    Attributes:
        fusion: where both parts of a SwiGLU are: in layers of their own (0), in turn (1), or one after the other (2).
    """

    name: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None

    def __call__(self, x: np.ndarray, other: np.ndarray | None) -> np.ndarray:
        """Activations of the first layer's outputs [tokens, size], multiplied with those of the third where there is
        one."""
        if self.name != "swiglu":
            if self.name not in PLAIN:
                raise shape_error("MoE", f"activation {self.name!r} is not known")
            y = PLAIN[self.name](x)
            return y if other is None else y * other
        if self.fusion:
            x, other = (x[:, ::2], x[:, 1::2]) if self.fusion == 1 else np.split(x, 2, axis=1)
        if other is None:
            raise shape_error("MoE", "a SwiGLU that is not fused needs a third layer")
        if self.limit is not None:
            x, other = np.minimum(x, self.limit), np.clip(other, -self.limit, self.limit)
        return x * sigmoid_of(x.dtype.type(self.alpha) * x) * (other + x.dtype.type(self.beta))


def mixed(
    x: np.ndarray,
    scores: np.ndarray,
    mixing: np.ndarray | None,
    layers: tuple[Weight, Weight, Weight | None],
    biases: tuple[np.ndarray | None, ...],
    gate: Gate,
    k: int,
    normalize: bool,
) -> np.ndarray:
    """Tokens [..., size] through the `k` experts of the highest scores [tokens, experts], weighted with their softmax
    or with `mixing`."""
    tokens = x.reshape(-1, x.shape[-1])
    if scores.ndim != 2 or len(scores) != len(tokens) or not 1 <= k <= scores.shape[1]:
        why = f"router scores of shape {scores.shape} for {counted(len(tokens), 'token')} and {k} experts each"
        raise shape_error("MoE", why)
    assert softmax.compute is not None
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    shares = np.take_along_axis(softmax.compute(scores, axis=1) if mixing is None else mixing, chosen, 1)
    if normalize:
        total = shares.sum(1, keepdims=True)
        shares = shares / np.where(total == 0, 1, total)
    y = np.zeros_like(tokens)
    first, second, third = layers
    for expert in np.unique(chosen):
        rows, place = np.nonzero(chosen == expert)
        part = tokens[rows]

        def through(layer: Weight, bias: np.ndarray | None, part: np.ndarray, expert: int = int(expert)) -> np.ndarray:
            made: np.ndarray = part @ layer(expert).astype(part.dtype, copy=False).T
            return made if bias is None else made + bias[expert]

        inner = gate(through(first, biases[0], part), None if third is None else through(third, biases[2], part))
        y[rows] += through(second, biases[1], inner) * shares[rows, place][:, None]
    return y.reshape(x.shape)


@op(
    "MoE",
    MICROSOFT,
    types="T=real T T T T T T T",
    infer=same_as_input,
    tolerance=Tolerance(1e-3, 1e-4),
    examples=[
        case(
            "f32[2,3,8]",
            "f32[6,4]",
            "f32[4,10,8]",
            "f32[4,10]",
            "f32[4,8,10]",
            "f32[4,8]",
            k=2,
            activation_type="silu",
            normalize_routing_weights=1,
        ),
        case(
            "f32[5,8]",
            "f32[5,4]",
            "f32[4,12,8]",
            "f32[4,12]",
            "f32[4,8,6]",
            k=1,
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.7,
            activation_beta=1.0,
            swiglu_limit=1.5,
        ),
    ],
)
@widened
def moe(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1: np.ndarray,
    fc1_bias: np.ndarray | None,
    fc2: np.ndarray,
    fc2_bias: np.ndarray | None = None,
    fc3: np.ndarray | None = None,
    fc3_bias: np.ndarray | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> np.ndarray:
    """Tokens [..., size] through experts whose layers are [experts, inner, size], [experts, size, inner] and, to
    multiply with, the third."""
    _no_sparse_mixer(use_sparse_mixer)
    gate = Gate(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    layers = (fc1.__getitem__, fc2.__getitem__, None if fc3 is None else fc3.__getitem__)
    return mixed(
        x, router_probs, None, layers, (fc1_bias, fc2_bias, fc3_bias), gate, k, bool(normalize_routing_weights)
    )


def _no_sparse_mixer(wanted: int) -> None:
    if wanted:
        why = "MoE with use_sparse_mixer, which no runtime runs on the CPU"
        raise UnsupportedError("E-OP-MIXER", None, why, hint="Export the model without it")


@op(
    "QMoE",
    MICROSOFT,
    types="T=real T U=f8_e4m3+u8 V=real+f8_e4m3+f8_e8m0 T U V T U V T U U U T f32 f32 f32 f32 V V",
    infer=same_as_input,
    tolerance=Tolerance(2e-2, 2e-2),
    examples=[
        case(
            "f32[3,32]",
            "f32[3,4]",
            "u8[4,16,16]",
            np.full((4, 16), 0.02, np.float32),
            None,
            "u8[4,32,8]",
            np.full((4, 32), 0.03, np.float32),
            k=2,
            activation_type="relu",
            normalize_routing_weights=1,
        )
    ],
)
@widened
def qmoe(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1: np.ndarray,
    fc1_scales: np.ndarray | None,
    fc1_bias: np.ndarray | None,
    fc2: np.ndarray,
    fc2_scales: np.ndarray | None = None,
    fc2_bias: np.ndarray | None = None,
    fc3: np.ndarray | None = None,
    fc3_scales: np.ndarray | None = None,
    fc3_bias: np.ndarray | None = None,
    fc1_zeros: np.ndarray | None = None,
    fc2_zeros: np.ndarray | None = None,
    fc3_zeros: np.ndarray | None = None,
    router_weights: np.ndarray | None = None,
    *others: np.ndarray | None,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> np.ndarray:
    """MoE whose layers are integers of 2, 4 or 8 bits, [experts, out, bytes], with scales [experts, out] or [experts,
    out, blocks].

    Weights prepacked for a device and floats of 4 and 8 bits raise UnsupportedError.
    """
    _no_sparse_mixer(use_sparse_mixer)
    if quant_type != "int" or weights_prepacked == 1:
        what = f"QMoE of type {quant_type!r}, prepacked {weights_prepacked}"
        raise UnsupportedError("E-OP-QMOE", None, what, hint="Export it with integer weights")

    def layer(data: np.ndarray, scales: np.ndarray | None, zeros: np.ndarray | None, bits: int) -> Weight:
        if scales is None:
            raise shape_error("QMoE", "weights without scales")
        return _dequantized(data, scales, zeros, bits or expert_weight_bits)

    layers = (
        layer(fc1, fc1_scales, fc1_zeros, fc1_expert_weight_bits),
        layer(fc2, fc2_scales, fc2_zeros, fc2_expert_weight_bits),
        None if fc3 is None else layer(fc3, fc3_scales, fc3_zeros, fc3_expert_weight_bits),
    )
    gate = Gate(activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit)
    return mixed(
        x,
        router_probs,
        router_weights,
        layers,
        (fc1_bias, fc2_bias, fc3_bias),
        gate,
        k,
        bool(normalize_routing_weights),
    )


def _dequantized(data: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int) -> Weight:
    """A function that dequantizes the weight of one expert."""
    count = data.shape[2] * 8 // bits
    blocks = 1 if scales.ndim == 2 else scales.shape[2]
    if scales.shape[:2] != data.shape[:2] or bits not in (2, 4, 8) or not blocks or count % blocks:
        raise shape_error(
            "QMoE", f"weights of shape {data.shape}, {bits} bits and scales of shape {scales.shape} do not fit together"
        )

    def weight(expert: int) -> np.ndarray:
        codes = unpacked(data[expert], bits, count).astype(np.float32).reshape(data.shape[1], blocks, -1)
        spread = scales[expert].astype(np.float32).reshape(-1, blocks)
        if zeros is None:
            zero = np.full(spread.shape, 1 << (bits - 1), np.float32)
        elif scales.ndim == 2:
            zero = unpacked(zeros[expert].reshape(1, -1), bits, data.shape[1]).reshape(-1, 1).astype(np.float32)
        else:
            zero = unpacked(zeros[expert].reshape(data.shape[1], row_nbytes(blocks, bits)), bits, blocks).astype(
                np.float32
            )
        made: np.ndarray = ((codes - zero[..., None]) * spread[..., None]).reshape(data.shape[1], count)
        return made

    return weight

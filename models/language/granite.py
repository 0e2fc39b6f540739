"""Granite 3 (IBM), dense and mixture of experts: a Llama with scaled embeddings, scores, residuals and logits."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, EVEN, POSITIVE, REAL
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import gated_experts, top
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, HEAD, MLP_NORM, NORM, attention
from ..schema.hyperparameters import DECODER, EXPERTS_USED, INTERMEDIATE, KV_HEADS, RMS_EPS, THETA, TOKENS, act, matrix
from ..schema.weight_layout import Chunk

KEYS = (
    *DECODER, KV_HEADS, INTERMEDIATE, RMS_EPS, THETA, Scaling(), act("silu"),
    Key("head_dim", (), "rope.dimension_count", lambda config: config.hidden // config.heads, EVEN),
    Key("scores", "attention_multiplier", "attention.scale", 1.0, REAL),
    Key("embeddings", "embedding_multiplier", "embedding_scale", 1.0, REAL),
    Key("residual", "residual_multiplier", "residual_scale", 1.0, REAL),
    Key("logits", "logits_scaling", "logit_scale", 1.0, POSITIVE),
    TOKENS,
)  # fmt: skip
MOE_KEYS = (*KEYS, Key("experts", "num_local_experts", "expert_count", kind=COUNT), EXPERTS_USED)
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *GATED, *NORM, *HEAD)
MIXTURE, EXPERTS = "model.layers.{i}.block_sparse_moe.", "layers.{i}.mlp.experts."
INNER = ("experts", "intermediate", "hidden")
MOE_WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *attention(pairs=True),
    *MLP_NORM,
    *matrix("layers.{i}.mlp.router", f"{MIXTURE}router.layer", "blk.{i}.ffn_gate_inp", shape=("experts", "hidden")),
    Weight(
        f"{EXPERTS}gate.weight",
        Stored((f"{MIXTURE}input_linear.weight",), Chunk(0, axis=1)),
        "blk.{i}.ffn_gate_exps.weight",
        shape=INNER,
    ),
    Weight(
        f"{EXPERTS}up.weight",
        Stored((f"{MIXTURE}input_linear.weight",), Chunk(1, axis=1)),
        "blk.{i}.ffn_up_exps.weight",
        shape=INNER,
    ),
    Weight(
        f"{EXPERTS}down.weight",
        f"{MIXTURE}output_linear.weight",
        "blk.{i}.ffn_down_exps.weight",
        shape=("experts", "hidden", "intermediate"),
    ),
    *NORM,
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then a gated network or a mixture of experts; residual branches
    are scaled."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)

    def route(logits: Value) -> tuple[Value, Value]:
        values, ids = top(net, logits, config.experts_used)
        return net.Softmax(values, axis=-1), ids

    x = net.begin(scale=config.embeddings)
    for i in range(config.layers):
        name = f"layers.{i}.mlp"
        y = self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary, scores=Scores(scale=config.scores))
        x = net.Add(x, net.Mul(y, config.residual))
        h = norm(net, x, f"{name}_norm")
        mixed = net.has(f"{name}.router.weight")
        y = (
            gated_experts(net, h, name, route, hidden=config.hidden, act=config.act)
            if mixed
            else gated(net, h, name, config.act)
        )
        x = net.Add(x, net.Mul(y, config.residual))
    net.end(x, norm, change=lambda logits: net.Div(logits, config.logits))


ARCHITECTURES = (
    Architecture("granite", "Granite 3", ("granite",), ("granite",), KEYS, WEIGHTS, decoder_tasks(build)),
    Architecture(
        "granitemoe",
        "Granite 3 with experts",
        ("granitemoe",),
        ("granitemoe",),
        MOE_KEYS,
        MOE_WEIGHTS,
        decoder_tasks(build),
    ),
)

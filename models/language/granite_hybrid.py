"""Granite 4 hybrid (IBM 2025): Granite's scaled branches around Mamba 2 layers and attention in a few layers, with a
shared expert next to the mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, REAL, SIZE, Choice, checked
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import Scores, self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import gated
from ..layers.moe import gated_experts, top
from ..layers.norm import norm
from ..layers.recurrent.mamba import GROUPS, STEP_LIMITS, head_mixer, head_weights, quotient
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, attention
from ..schema.gguf.deviations import RECURRENT_BIAS, Unread
from ..schema.gguf.required import CONVOLUTION_BIAS
from ..schema.hyperparameters import DECODER, HF_HEAD_DIM, RMS_EPS, THETA, TOKENS, Fixed, act, matrix
from ..schema.layer_kinds import AttentionLayers, HybridKVHeads, attends, recurs
from ..schema.weight_layout import Chunk


@dataclass(frozen=True)
class Rotates:
    """Hyper-parameter: whether attention layers have rotary embedding; a GGUF flag says so."""

    name: str = "rotates"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> bool:
        if names != HF:
            return bool(source.get("rope.scaling.finetuned", True))
        key = "position_embedding_type"
        return bool(checked(key, source.get(key) or "nope", Choice(("nope", "rope"))) == "rope")

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {"rope.scaling.finetuned": config.rotates}
        return {"position_embedding_type": "rope" if config.rotates else "nope"}


KEYS = (
    *DECODER, AttentionLayers("mamba", "attention"), HybridKVHeads(), HF_HEAD_DIM, RMS_EPS, THETA, Scaling(),
    act("silu"), Rotates(),
    Key("scores", "attention_multiplier", "attention.scale", 1.0, REAL),
    Key("embeddings", "embedding_multiplier", "embedding_scale", 1.0, REAL),
    Key("residual", "residual_multiplier", "residual_scale", 1.0, REAL),
    Key("logits", "logits_scaling", "logit_scale", 1.0, POSITIVE), TOKENS,
    Key("experts", "num_local_experts", "expert_count", 0, SIZE),
    Key("experts_used", "num_experts_per_tok", "expert_used_count", 0, SIZE, at_most=("experts",)),
    Key("intermediate", "intermediate_size", "feed_forward_length", kind=COUNT),
    Key("shared_intermediate", "shared_intermediate_size", "expert_shared_feed_forward_length",
        lambda config: config.intermediate, COUNT),
    Key("taps", "mamba_d_conv", "ssm.conv_kernel", 4, COUNT),
    Key("state", "mamba_d_state", "ssm.state_size", 256, COUNT),
    Key("groups", "mamba_n_groups", "ssm.group_count", 1, COUNT),
    Key("mixers", "mamba_n_heads", "ssm.time_step_rank", 128, COUNT),
    Key("expand", "mamba_expand", (), None, COUNT),
    Key("inner", (), "ssm.inner_size", lambda config: (config.expand or 2) * config.hidden, COUNT),
    Key("expand", "mamba_expand", (), lambda config: config.inner // config.hidden, COUNT),
    Key("mixer_dim", (), (), quotient("inner", "mixers"), COUNT), *GROUPS,
    Fixed("widths", "time_step_limit", [0.0, float("inf")], STEP_LIMITS),
)  # fmt: skip


def mixes(config: Config, i: int) -> bool:
    """Whether layers have a mixture of experts."""
    return bool(config.experts)


def plain(config: Config, i: int) -> bool:
    """Whether layers have one dense network."""
    return not config.experts


LAYER, GGUF, OURS = "model.layers.{i}.", "blk.{i}.ffn_", "layers.{i}.mlp."
MIXTURE = f"{LAYER}block_sparse_moe."
INNER = ("experts", "intermediate", "hidden")
SHARED = ("shared_intermediate", "hidden")


def _network(ending: str, when: Any) -> tuple[Weight, ...]:
    """Bindings of the dense or shared network, whose GGUF names end in `ending`."""
    fused = f"{LAYER}shared_mlp.input_linear.weight"
    return (
        *(
            Weight(f"{OURS}{part}.weight", Stored((fused,), Chunk(index)), f"{GGUF}{part}{ending}.weight", shape=SHARED,
                   when=when)
            for index, part in enumerate(("gate", "up"))
        ),
        *matrix(f"{OURS}down", f"{LAYER}shared_mlp.output_linear", f"{GGUF}down{ending}", shape=SHARED[::-1],
                when=when),
    )  # fmt: skip


WEIGHTS = (
    *EMBED,
    *ATTN_NORM,
    *head_weights(f"{LAYER}mamba.", recurs),
    *attention(pairs=True, when=attends),
    *MLP_NORM,
    *matrix(f"{OURS}router", f"{MIXTURE}router.layer", f"{GGUF}gate_inp", shape=("experts", "hidden"), when=mixes),
    *(
        Weight(f"{OURS}experts.{part}.weight", Stored((f"{MIXTURE}input_linear.weight",), Chunk(index, axis=1)),
               f"{GGUF}{part}_exps.weight", shape=INNER, when=mixes)
        for index, part in enumerate(("gate", "up"))
    ),
    Weight(f"{OURS}experts.down.weight", f"{MIXTURE}output_linear.weight", f"{GGUF}down_exps.weight",
           shape=("experts", "hidden", "intermediate"), when=mixes),
    *_network("_shexp", mixes),
    *_network("", plain),
    *NORM,
    *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: a Mamba 2 mixer or attention, then a gated network, next to a mixture of experts; residual
    branches are scaled."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context) if config.rotates else None

    def route(logits: Value) -> tuple[Value, Value]:
        values, ids = top(net, logits, config.experts_used)
        return net.Softmax(values, axis=-1), ids

    x = net.begin(scale=config.embeddings)
    for i in range(config.layers):
        y, name = norm(net, x, f"layers.{i}.attn_norm"), f"layers.{i}.mlp"
        y = (
            self_attention(net, y, i, rotary, scores=Scores(scale=config.scores))
            if attends(config, i)
            else head_mixer(net, y, i)
        )
        x = net.Add(x, net.Mul(y, config.residual))
        h = norm(net, x, f"{name}_norm")
        y = gated(net, h, name, config.act)
        if config.experts:
            y = net.Add(y, gated_experts(net, h, name, route, hidden=config.hidden, act=config.act))
        x = net.Add(x, net.Mul(y, config.residual))
    net.end(x, norm, change=lambda logits: net.Div(logits, config.logits))


ARCHITECTURES = (
    Architecture(
        "granitemoehybrid",
        "Granite 4 hybrid",
        ("granitemoehybrid",),
        ("granitehybrid",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required=CONVOLUTION_BIAS,
        deviations=(Unread(RECURRENT_BIAS),),
        defaults={
            "granitemoehybrid": {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024}
        },
    ),
)

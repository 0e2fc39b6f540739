"""Nemotron 3 and 4, Minitron (Muralidharan et al. 2024, arXiv:2407.14679): layer norms with weight + 1, partial rotary
embedding, ungated feed-forward networks with squared ReLU."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key, Stored, Weight
from ...runtime.contract.hyperparameter import NOT_NEGATIVE
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import bias_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import EMBED, HEAD, UNGATED, attention
from ..schema.gguf.deviations import fixed_head_size
from ..schema.gguf.required import OWN_HEAD
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, ROTARY, THETA, TOKENS, act, partial
from ..schema.weight_layout import Plus

KEYS = (
    *DECODER, *HEADS, INTERMEDIATE, THETA, Scaling(), act("relu2"), partial(0.5), ROTARY,
    Key("eps", "norm_eps", "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE), TOKENS,
)  # fmt: skip


def _norm(name: str, hf: str, gguf: str) -> tuple[Weight, Weight]:
    """Bindings of a norm, whose weight Hugging Face stores less 1."""
    weight = Stored((f"{hf}.weight",), Plus(1))
    return (
        Weight(f"{name}.weight", weight, f"{gguf}.weight", shape=("hidden",)),
        Weight(f"{name}.bias", f"{hf}.bias", f"{gguf}.bias", shape=("hidden",), optional=True),
    )


WEIGHTS = (
    *EMBED,
    *_norm("layers.{i}.attn_norm", "model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    *attention(),
    *_norm("layers.{i}.mlp_norm", "model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    *UNGATED,
    *_norm("norm", "model.norm", "output_norm"),
    *HEAD,
)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then an ungated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, bias_norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, plain(net, bias_norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, bias_norm)


ARCHITECTURES = (
    Architecture(
        "nemotron",
        "Nemotron",
        ("nemotron",),
        ("nemotron",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        gguf_required=OWN_HEAD,
        deviations=(fixed_head_size,),
        defaults={"nemotron": {"max_position_embeddings": 4096}},
    ),
)

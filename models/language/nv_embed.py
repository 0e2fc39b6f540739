"""NV-Embed v1 and v2 (Lee et al. 2024, arXiv:2405.17428): Mistral without a causal mask, whose hidden states attend to
trained latents before they are averaged."""

from __future__ import annotations

from ...runtime.contract.architecture import FEATURE_EXTRACTION, Architecture, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, flag, word
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import layer_norm, norm
from ..layers.rope import Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, GATED, MLP_NORM, NORM, attention
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, RMS_EPS, THETA, WHOLE_ROTARY, act, matrix
from .llama import build as build_llama

EPS = 1e-5
"""Epsilon of the norms around the attention to latents."""
LATENT = "latent_attention_config"
KEYS = (
    Key("task", (), (), FEATURE_EXTRACTION, word), *DECODER[1:], *HEADS, INTERMEDIATE, RMS_EPS,
    THETA, Scaling(), act("silu"), WHOLE_ROTARY,
    Key("causal", "is_causal", (), False, flag),
    Key("windows", (), (), lambda config: [None] * config.layers, list),
    Key("latents", f"{LATENT}.num_latents_value", (), 512, COUNT),
    Key("latent_heads", f"{LATENT}.num_cross_heads", (), 8, COUNT),
    Key("latent_dim", f"{LATENT}.latent_dim", (), lambda config: config.hidden, COUNT),
    Key("latent_head_dim", f"{LATENT}.cross_dim_head", (), lambda config: config.hidden, COUNT),
    Key("normalized", f"{LATENT}.output_normalize", (), True, flag),
    Key("skips_prompt", "is_mask_instruction", (), True, flag),
    Key("closed", (), (), True, flag),
)  # fmt: skip
"""`normalized`: whether vectors have length 1; `skips_prompt`: whether the tokens of a prompt are left out of the mean;
`closed`: whether the end token closes every text."""
BLOCKS = "latent_attention_model.cross_attend_blocks"
WEIGHTS = (
    *EMBED, *ATTN_NORM, *attention(), *MLP_NORM, *GATED, *NORM,
    Weight("latents", "latent_attention_model.latents", shape=("latents", "latent_dim")),
    *matrix("latent.attn_norm", f"{BLOCKS}.0.norm", None, shape=("hidden",)),
    *matrix("latent.context_norm", f"{BLOCKS}.0.norm_context", None, shape=("latent_dim",)),
    *matrix("latent.attn.q", f"{BLOCKS}.0.fn.to_q", None, shape=("latent_heads*latent_head_dim", "hidden")),
    *matrix("latent.attn.kv", f"{BLOCKS}.0.fn.to_kv", None, shape=("2*latent_heads*latent_head_dim", "latent_dim")),
    *matrix("latent.attn.o", f"{BLOCKS}.0.fn.to_out", None, shape=("hidden", "latent_heads*latent_head_dim")),
    *matrix("latent.mlp_norm", f"{BLOCKS}.1.norm", None, shape=("hidden",)),
    *matrix("latent.mlp.both", f"{BLOCKS}.1.fn.net.0", None, shape=("8*hidden", "hidden")),
    *matrix("latent.mlp.down", f"{BLOCKS}.1.fn.net.2", None, shape=("hidden", "4*hidden")),
)  # fmt: skip


def build(net: Decoder) -> None:
    """Llama's layers, then attention to the latents and a gated feed-forward network."""
    build_llama(net, lambda net, x, name: attend_to_latents(net, norm(net, x, name)))


def attend_to_latents(net: Net, x: Value) -> Value:
    """Hidden states [batch, length, hidden] after a block whose keys and values are the latents'."""
    config = net.config
    inner = config.latent_heads * config.latent_head_dim
    queries = linear(net, layer_norm(net, x, "latent.attn_norm", EPS), "latent.attn.q")
    latents = layer_norm(net, net.vector("latents"), "latent.context_norm", EPS)
    keys, values = net.split(linear(net, latents, "latent.attn.kv"), [inner, inner])
    shape = [1, -1, config.latent_heads, config.latent_head_dim]
    heads = (net.Transpose(net.Reshape(each, shape), perm=[0, 2, 1, 3]) for each in (queries, keys, values))
    y = net.Reshape(net.Transpose(net.Attention(*heads), perm=[0, 2, 1, 3]), net.Shape(queries))
    x = net.Add(x, linear(net, y, "latent.attn.o"))
    y = linear(net, layer_norm(net, x, "latent.mlp_norm", EPS), "latent.mlp.both")
    up, gate = net.split(y, [4 * config.hidden, 4 * config.hidden])
    value: Value = net.Add(x, linear(net, net.Mul(up, net.Gelu(gate)), "latent.mlp.down"))
    return value


ARCHITECTURES = (
    Architecture(
        "nv_embed",
        "NV-Embed",
        ("bidir_mistral",),
        (),
        KEYS,
        WEIGHTS,
        tuple(task for task in decoder_tasks(build) if task.name == FEATURE_EXTRACTION),
    ),
)

"""DeepSeek V2, V2 Lite (arXiv:2405.04434), V3 and R1 (arXiv:2412.19437), Kimi K2: multi-head latent attention (MLA) and
grouped experts.

The KV cache holds latent vectors. Queries are projected into the latent space and attention outputs back to values by
one matrix per head, so full keys and values are never materialized. GGUF files store the two matrices separately; older
ones store them fused, as Hugging Face does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF, Architecture, Config, Key, Row, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, EVEN, Choice, Integer, checked, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.deepseek_moe import MIXTURE, Gating, feed_forward, mixture_keys
from ..layers.linear import linear
from ..layers.norm import norm, rms_norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM
from ..schema.fused_weight_layout import Latent
from ..schema.gguf.deviations import Unread
from ..schema.gguf.rope_scaling import LatentScaling
from ..schema.hyperparameters import DECODER, INTERMEDIATE, RMS_EPS, THETA, TOKENS, act, matrix
from ..schema.rope.yarn import score_magnitude

LATENT_EPS = 1e-6
"""Epsilon of the norms of latent vectors, independent of the model's other norms."""
METHODS = ("greedy", "group_limited_greedy", "noaux_tc")


@dataclass(frozen=True)
class KeySize:
    """Hyper-parameter: elements of each head without rotary embedding. GGUF files store the length of full keys and of
    the cached latent."""

    name: str = "nope"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        if names == HF:
            return int(checked("qk_nope_head_dim", source["qk_nope_head_dim"], COUNT))
        key = "attention.key_length_mla" if source.get("attention.key_length_mla") else "attention.key_length"
        return int(checked(key, source[key], Integer(config.rope_dim + 1))) - int(config.rope_dim)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"qk_nope_head_dim": config.nope}
        return {
            "attention.key_length": config.rank + config.rope_dim,
            "attention.value_length": config.rank,
            "attention.key_length_mla": config.nope + config.rope_dim,
            "attention.value_length_mla": config.value_dim,
        }


@dataclass(frozen=True)
class Interleaved:
    """Hyper-parameter: whether rotary embedding pairs neighbours (all GGUF files) or the two halves of a head."""

    name: str = "interleaved"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> bool:
        said = source.get("rope_interleave") if names == HF else None
        return True if said is None else bool(checked("rope_interleave", said, flag))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"rope_interleave": config.interleaved}
        if not config.interleaved:
            raise UnsupportedError("E-ARCH-ROPE", None, "GGUF files of this architecture support interleaved RoPE only")
        return {}


KEYS: tuple[Row, ...] = (
    *DECODER,
    Key("kv_heads", "num_key_value_heads", (), lambda config: config.heads, COUNT),
    Key("cached_heads", (), "attention.head_count_kv", 1),
    INTERMEDIATE,
    RMS_EPS,
    THETA,
    Scaling(gguf_keys=LatentScaling()),
    act("silu"),
    Key("q_rank", "q_lora_rank", "attention.q_lora_rank", None, COUNT),
    Key("rank", "kv_lora_rank", "attention.kv_lora_rank", kind=COUNT),
    Key("rope_dim", "qk_rope_head_dim", "rope.dimension_count", kind=EVEN),
    Key("value_dim", "v_head_dim", ("attention.value_length_mla", "attention.value_length"), kind=COUNT),
    KeySize(),
    Interleaved(),
    Key("key_dim", (), (), lambda config: config.nope + config.rope_dim),
    Key("latent", (), (), lambda config: config.rank + config.rope_dim),
    TOKENS,
)
V2_KEYS: tuple[Row, ...] = (
    *KEYS,
    Gating("softmax"),
    *mixture_keys(False),
    Key("method", "topk_method", (), lambda config: METHODS[config.groups > 1], Choice(METHODS)),
)
V3_KEYS: tuple[Row, ...] = (
    *KEYS,
    Gating("sigmoid"),
    *mixture_keys(True),
    Key("method", "topk_method", (), "noaux_tc", Choice(METHODS)),
)


LITE_LAYERS = (26, 27)
"""Numbers of layers by which llama.cpp knows models whose queries have no low rank."""


def _full_rank_q(config: Config, i: int) -> bool:
    return config.q_rank is None


def _lora_q(config: Config, i: int) -> bool:
    return config.q_rank is not None


ATTENTION, GGUF_NAMES, OURS = "model.layers.{i}.self_attn.", "blk.{i}.attn_", "layers.{i}.attn."


def _latent(part: str, keys: bool, shape: tuple[str, ...]) -> Weight:
    return Weight(
        f"{OURS}{part}.weight",
        Stored((f"{ATTENTION}kv_b_proj.weight",), Latent(keys)),
        (Stored((f"{GGUF_NAMES}{part}.weight",)), Stored((f"{GGUF_NAMES}kv_b.weight",), Latent(keys))),
        shape=shape,
    )


WEIGHTS = (
    *EMBED, *ATTN_NORM,
    *matrix(f"{OURS}q", f"{ATTENTION}q_proj", f"{GGUF_NAMES}q", shape=("heads*key_dim", "hidden"), when=_full_rank_q),
    *matrix(f"{OURS}q_a", f"{ATTENTION}q_a_proj", f"{GGUF_NAMES}q_a", shape=("q_rank", "hidden"), when=_lora_q),
    *matrix(f"{OURS}q_a_norm", f"{ATTENTION}q_a_layernorm", f"{GGUF_NAMES}q_a_norm", shape=("q_rank",), when=_lora_q),
    *matrix(f"{OURS}q_b", f"{ATTENTION}q_b_proj", f"{GGUF_NAMES}q_b", shape=("heads*key_dim", "q_rank"), when=_lora_q),
    *matrix(f"{OURS}kv_a", f"{ATTENTION}kv_a_proj_with_mqa", f"{GGUF_NAMES}kv_a_mqa", shape=("latent", "hidden")),
    *matrix(f"{OURS}kv_a_norm", f"{ATTENTION}kv_a_layernorm", f"{GGUF_NAMES}kv_a_norm", shape=("rank",)),
    _latent("k_b", True, ("heads", "rank", "nope")), _latent("v_b", False, ("heads", "value_dim", "rank")),
    *matrix(f"{OURS}o", f"{ATTENTION}o_proj", f"{GGUF_NAMES}output", shape=("hidden", "heads*value_dim")),
    *MLP_NORM, *MIXTURE, *NORM, *HEAD,
)  # fmt: skip


def build(net: Decoder) -> None:
    """Pre-norm layers: multi-head latent attention, then a mixture of experts."""
    config = net.config
    rotary = Rotary(config.rope_dim, config.theta, config.scaling, config.context, interleaved=config.interleaved)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, _attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, feed_forward(net, norm(net, x, f"layers.{i}.mlp_norm"), i))
    net.end(x, norm)


def _attention(net: Decoder, x: Value, i: int, rotary: Rotary) -> Value:
    config, name = net.config, f"layers.{i}.attn"
    heads = config.heads
    if config.q_rank is None:
        q = linear(net, x, f"{name}.q")
    else:
        q = linear(net, rms_norm(net, linear(net, x, f"{name}.q_a"), f"{name}.q_a_norm", LATENT_EPS), f"{name}.q_b")
    still, rotated = net.split(net.split_heads(q, heads, config.key_dim), [config.nope, config.rope_dim])
    rotated = net.split_heads(
        rotary.rotate(net, net.merge_heads(rotated), heads, net.positions), heads, config.rope_dim
    )
    queries = net.Concat(_by_head(net, still, f"{name}.k_b"), rotated, axis=-1)
    latent, rotary_keys = net.split(linear(net, x, f"{name}.kv_a"), [config.rank, config.rope_dim])
    latent = rms_norm(net, latent, f"{name}.kv_a_norm", LATENT_EPS)
    keys = net.Concat(latent, rotary.rotate(net, rotary_keys, 1, net.positions), axis=-1)
    seen = net.cached(f"key_values.{i}.key", keys, 1, config.latent)
    y = net.Attention(net.Transpose(queries, perm=[0, 2, 1, 3]), seen, seen, net.visible(), scale=_scale(config))
    latents, _ = net.split(net.Transpose(y, perm=[0, 2, 1, 3]), [config.rank, config.rope_dim])
    return linear(net, net.merge_heads(_by_head(net, latents, f"{name}.v_b")), f"{name}.o")


def _by_head(net: Decoder, x: Value, name: str) -> Value:
    """[batch, length, heads, out] from [batch, length, heads, in]: each head's row times its matrix in ``NAME.weight``
    [heads, out, in]."""

    def head_indices() -> Value:
        shape = net.Concat(net.Shape(net.tokens, end=2), [net.config.heads], axis=0)
        return net.Expand(net.constant([list(range(net.config.heads))], "int64"), shape)

    y: Value = net.MatMulExperts(
        x, net.matrix(f"{name}.weight"), net.once("heads", head_indices), domain="candle", each=1
    )
    return y


def _scale(config: Config) -> float:
    """Scale of attention scores, including the magnitude of YaRN scaling."""
    return float(config.key_dim**-0.5 * score_magnitude(config.scaling) ** 2)


def _latent_epsilon(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models whose other norms have a large epsilon."""
    why = f"computes the norms of latent vectors with epsilon {config.eps:g} in place of {LATENT_EPS:g}"
    return None if config.eps <= 1e-5 else why


def _layers_without_ranks(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models of other sizes: llama.cpp knows by the number of layers whether queries have a low rank."""
    if (config.q_rank is None) == (config.layers in LITE_LAYERS):
        return None
    lite = " or ".join(map(str, LITE_LAYERS))
    if config.q_rank is None:
        return f"does not load models of this architecture without q_lora_rank, except those of {lite} layers"
    return f"does not load models of this architecture with q_lora_rank and {config.layers} layers"


def _chosen_groups(config: Config, names: Collection[str]) -> str | None:
    """Deviation of models that choose groups of experts by the best expert of each."""
    if config.method != METHODS[True] or config.groups < 2:
        return None
    return f"chooses groups of experts otherwise than topk_method {METHODS[True]} and computes other logits"


IGNORED = (*Architecture.ignored, r"layers\.{layers}\.", r"^blk\.{layers}\.")
ARCHITECTURES = (
    Architecture(
        "deepseek_v2",
        "DeepSeek V2",
        ("deepseek_v2",),
        ("deepseek2",),
        V2_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        ignored=IGNORED,
        accepts=lambda source: source.get("deepseek2.expert_gating_func") != 2,
        deviations=(Unread(r"\.attn_\w+\.bias$"), _latent_epsilon, _layers_without_ranks, _chosen_groups),
        defaults={
            "deepseek_v2": {
                "q_lora_rank": 1536,
                "n_routed_experts": 64,
                "n_shared_experts": 2,
                "moe_intermediate_size": 1407,
            }
        },
    ),
    Architecture(
        "deepseek_v3",
        "DeepSeek V3, R1, Kimi K2",
        ("deepseek_v3", "kimi_k2"),
        ("deepseek2",),
        V3_KEYS,
        WEIGHTS,
        decoder_tasks(build),
        ignored=IGNORED,
        deviations=(Unread(r"\.attn_\w+\.bias$"), _latent_epsilon, _layers_without_ranks),
        defaults={
            "deepseek_v3": {
                "moe_intermediate_size": 2048,
                "n_shared_experts": 1,
                "n_routed_experts": 256,
                "routed_scaling_factor": 2.5,
                "q_lora_rank": 1536,
                "n_group": 8,
                "topk_group": 4,
                "num_experts_per_tok": 8,
                "first_k_dense_replace": 3,
                "max_position_embeddings": 4096,
            }
        },
    ),
)

"""Mimi (Défossez et al. 2024, arXiv:2410.00037): SEANet and transformers with a sliding window, and a residual vector
quantizer whose first codebooks are quantized apart from the others: they tell what is said."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Architecture, Config, Key, Row, Whole
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, POSITIVE, SIZE, Integer, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.conv1d import kernel, pointwise1d
from ..layers.audio.residual_quantizer import codebook_sum, residual_codes
from ..layers.audio.seanet import padded_conv, seanet_down, seanet_first, seanet_latents, seanet_up, trimmed_conv
from ..layers.audio.seanet_rows import conv_modules, seanet_keys
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..layers.rope import Rotary, Scaling
from ..pipelines.audio.codec.codec_parts import Codec, LocalPart
from ..pipelines.audio.codec.codec_task import codec_task
from ..schema.codec_hyperparameters import CODEBOOK_DIM, CODEBOOK_SIZE, MAX_HOP, QUANTIZERS, rate_key
from ..schema.computed_weights import f32
from ..schema.hyperparameters import HEAD_DIM, KV_HEADS, LAYERS, THETA, act
from ..schema.network_hyperparameters import Stated, count_of
from ..schema.weight_layout import changed

SEMANTIC, ACOUSTIC = "quantizer.semantic", "quantizer.acoustic"
"""Our names of both quantizers, and what follows in transformers."""
RVQ = "_residual_vector_quantizer"
LAYER = {
    "attn_norm": "input_layernorm",
    "attn": "self_attn",
    "attn_scale": "self_attn_layer_scale",
    "mlp_norm": "post_attention_layernorm",
    "mlp": "mlp",
    "mlp_scale": "mlp_layer_scale",
}
"""Our names of the modules of a layer of a transformer, and those of transformers."""
LEAST_USE = 1e-5
"""Least number by which the sums of a codebook are divided."""


@dataclass(frozen=True)
class Usage(Whole):
    """A codebook [vectors, channels] in f32 that files store as sums of what was coded [vectors, channels], and how
    often each vector was used [vectors]."""

    @property
    def computed(self) -> bool:
        return True

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        sums, counts = parts
        if len(sums.shape) != 2 or counts.shape != sums.shape[:1]:
            raise ValueError(f"{list(counts.shape)} uses of a codebook {list(sums.shape)}")

        def mean(x: np.ndarray) -> np.ndarray:
            divided: np.ndarray = x / np.maximum(f32(counts).numpy(), np.float32(LEAST_USE))[:, None]
            return divided

        return changed(sums, sums.shape, mean, "f32")

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return [f32(whole), StoredTensor.of(np.ones(whole.shape[0], np.float32))]


def _stride(config: Config) -> int:
    """Frames of the convolutions for each frame of codes."""
    frames = math.ceil(config.rate / _frame(config))
    return int(frames / config.frame_rate)


def _frame_rate(config: Config) -> float:
    """Frames a second where the file does not tell: half as many as the convolutions make."""
    return float(config.rate / (2 * _frame(config)))


KEYS: tuple[Row, ...] = (
    Stated("architectures", ["MimiModel"]),
    rate_key("sampling_rate", 24000),
    *seanet_keys(hidden=512, filters=64, ratios=[8, 6, 5, 4], last_width=3, pad_mode="constant", shortcut=False),
    Key("lstm_layers", (), (), 0, SIZE),
    Key("frame_rate", ("frame_rate", "_frame_rate"), "frame_rate", _frame_rate, POSITIVE),
    Key("stride", (), (), _stride, Integer(1, 64)),
    Key("hop", (), (), lambda config: config.stride * _frame(config), Integer(1, MAX_HOP)),
    CODEBOOK_SIZE,
    CODEBOOK_DIM,
    Key("quantizers", "num_quantizers", "quantizers", 32, QUANTIZERS),
    Key("semantic", "num_semantic_quantizers", "semantic_quantizers", 1, QUANTIZERS),
    Key("quantizer_width", "vector_quantization_hidden_dimension", "quantizer_width", 256, COUNT),
    Key("groups", "upsample_groups", "upsample_groups", 512, COUNT),
    Key("layers", "num_hidden_layers", "block_count", 8, LAYERS),
    Key("heads", "num_attention_heads", "attention.head_count", 8, COUNT),
    KV_HEADS,
    HEAD_DIM,
    Key("attention_bias", "attention_bias", "attention.bias", False, flag),
    Key("intermediate", "intermediate_size", "feed_forward_length", 2048, COUNT),
    act("gelu"),
    Key("eps", "norm_eps", "attention.layer_norm_epsilon", 1e-5, NOT_NEGATIVE),
    THETA,
    Scaling(),
    Key("context", "max_position_embeddings", "context_length", 8000, COUNT),
    Key("window", "sliding_window", "attention.sliding_window", 250, COUNT),
)


def parts(names: str, weights: Collection[str]) -> tuple[Module, ...]:
    """The modules, under the names of transformers but for quantizers."""
    return (
        *conv_modules(Module, weights),
        *(
            Module(f"{layer}.{own}", f"{layer}.{theirs}")
            for layer in (f"{side}_transformer.layers.{{i}}" for side in ("encoder", "decoder"))
            for own, theirs in LAYER.items()
        ),
        Module("downsample.conv"),
        Module("upsample.conv"),
        *(row for name in (SEMANTIC, ACOUSTIC) for row in _quantizer(name)),
    )


def _quantizer(name: str) -> tuple[Module, ...]:
    codebook = f"{name}{RVQ}.layers.{{i}}.codebook"
    return (
        Module(
            f"{name}.layers.{{i}}.codebook.embed",
            (f"{codebook}.embed_sum", f"{codebook}.cluster_usage"),
            layout=Usage(),
        ),
        Module(f"{name}.input_proj", f"{name}{RVQ}.input_proj"),
        Module(f"{name}.output_proj", f"{name}{RVQ}.output_proj"),
    )


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for heads that do not fit."""
    counts = [count_of(weights, f"{name}.layers.{{i}}.codebook.embed") for name in (SEMANTIC, ACOUSTIC)]
    table = weights[f"{SEMANTIC}.layers.0.codebook.embed"].shape
    config.values |= {
        "semantic": counts[0],
        "quantizers": sum(counts),
        "codebook_size": table[0],
        "codebook_dim": table[1],
        "hidden": weights["encoder_transformer.layers.0.attn.q_proj.weight"].shape[1],
        "channels": weights["encoder.layers.0.conv.weight"].shape[1],
        "filters": weights["encoder.layers.0.conv.weight"].shape[0],
        "attention_bias": "encoder_transformer.layers.0.attn.q_proj.bias" in weights,
        "layers": count_of(weights, "encoder_transformer.layers.{i}.mlp.fc1.weight"),
    }
    rows = weights["encoder_transformer.layers.0.attn.q_proj.weight"].shape[0]
    if rows != config.heads * config.head_dim:
        why = f"{config.heads} heads of {config.head_dim} elements do not fit queries of {rows}"
        raise FormatError("E-ARCH-KEY", config.path, why)


def convolved(net: Net, x: Value) -> Value:
    """[batch, hidden, frames] of samples [batch, channels, samples], without the transformer."""
    return seanet_latents(net, seanet_down(net, x))


def encode(net: Net, x: Value) -> Value:
    """[batch, hidden, frames of codes] of what the convolutions make."""
    x = _transformed(net, x, "encoder_transformer")
    if not net.has("downsample.conv.weight"):
        return x
    return padded_conv(net, x, "downsample", stride=net.config.stride, mode="replicate")


def decode(net: Net, x: Value) -> Value:
    """The decoder's transformer, [batch, hidden, frames] of [batch, hidden, frames of codes]."""
    if net.has("upsample.conv.weight"):
        groups = max(1, net.config.hidden // kernel(net, "upsample.conv").shape[1])
        x = trimmed_conv(net, x, "upsample", net.config.stride, groups)
    return _transformed(net, x, "decoder_transformer")


def deconvolved(net: Net, x: Value) -> Value:
    """Samples [batch, channels, samples] of what the transformer makes."""
    return seanet_up(net, seanet_first(net, x))


def _frame(config: Config) -> int:
    """Samples of a frame of the convolutions."""
    return math.prod(config.ratios)


def _attended(config: Config) -> tuple[int, int]:
    """Samples before and after a frame on which it depends through the layers of a transformer."""
    return int(config.layers) * int(config.window) * _frame(config), 0


def _transformed(net: Net, x: Value, name: str) -> Value:
    """Layers of a transformer over [batch, hidden, frames]: each frame attends to itself and earlier ones in the
    window."""
    config = net.config
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    x = net.Transpose(x, perm=[0, 2, 1])
    count = net.Squeeze(net.Shape(x, start=1, end=2))
    places = net.Range(net.Constant(value_int=0), count, net.Constant(value_int=1))
    distance = net.Sub(net.Unsqueeze(places, [1]), net.Unsqueeze(places, [0]))
    seen = net.And(net.GreaterOrEqual(distance, [0]), net.Less(distance, [config.window]))
    mask = net.Unsqueeze(seen, [0, 1])
    positions = net.Expand(net.Unsqueeze(places, [0]), net.Shape(x, start=0, end=2))
    for i in range(config.layers):
        layer = f"{name}.layers.{i}"
        y = _attention(net, layer_norm(net, x, f"{layer}.attn_norm", config.eps), layer, rotary, positions, mask)
        x = net.Add(x, net.Mul(y, net.vector(f"{layer}.attn_scale.scale")))
        y = linear(net, layer_norm(net, x, f"{layer}.mlp_norm", config.eps), f"{layer}.mlp.fc1")
        y = linear(net, ACTIVATIONS[config.act](net, y), f"{layer}.mlp.fc2")
        x = net.Add(x, net.Mul(y, net.vector(f"{layer}.mlp_scale.scale")))
    value: Value = net.Transpose(x, perm=[0, 2, 1])
    return value


def _attention(net: Net, x: Value, layer: str, rotary: Rotary, positions: Value, mask: Value) -> Value:
    config = net.config
    q, k, v = (linear(net, x, f"{layer}.attn.{part}_proj") for part in "qkv")
    q, k = rotary.rotate(net, q, config.heads, positions), rotary.rotate(net, k, config.kv_heads, positions)
    heads = ((q, config.heads), (k, config.kv_heads), (v, config.kv_heads))
    split = (net.Transpose(net.split_heads(y, count, config.head_dim), perm=[0, 2, 1, 3]) for y, count in heads)
    y = net.merge_heads(net.Transpose(net.Attention(*split, mask), perm=[0, 2, 1, 3]))
    return linear(net, y, f"{layer}.attn.o_proj")


def quantize(net: Net, x: Value) -> Sequence[Value]:
    """Codes of each codebook, those of the semantic quantizer first."""
    x = net.Transpose(x, perm=[0, 2, 1])
    return [
        codes
        for name, codebooks in _codebooks(net).items()
        for codes in residual_codes(net, _projected(net, x, f"{name}.input_proj"), codebooks)
    ]


def dequantize(net: Net, codes: Sequence[Value]) -> Value:
    """[batch, hidden, frames]; codes of the semantic quantizer alone are decoded too."""
    first, count = net.config.semantic, net.config.quantizers
    total: Value | None = None
    for (name, codebooks), (start, stop) in zip(_codebooks(net).items(), ((0, first), (first, count)), strict=True):
        vectors = codebook_sum(net, net.Slice(codes[0], [start], [stop], [1]), codebooks)
        vectors = _projected(net, vectors, f"{name}.output_proj")
        total = vectors if total is None else net.Add(total, vectors)
    value: Value = net.Transpose(total, perm=[0, 2, 1])
    return value


def _projected(net: Net, x: Value, name: str) -> Value:
    return pointwise1d(net, x, name) if net.has(f"{name}.weight") else x


def _codebooks(net: Net) -> dict[str, list[str]]:
    """The names of the codebooks of both quantizers."""
    counts = {SEMANTIC: net.config.semantic, ACOUSTIC: net.config.quantizers - net.config.semantic}
    return {
        name: [f"{name}.layers.{i}.codebook.embed" for i in range(count)] for name, count in counts.items() if count
    }


ARCHITECTURES = (
    Architecture(
        "mimi",
        "Mimi",
        ("mimi",),
        ("mimi",),
        KEYS,
        (),
        (
            codec_task(
                Codec(
                    (LocalPart(convolved, _frame), LocalPart(encode, context=_attended)),
                    quantize,
                    dequantize,
                    (LocalPart(decode, _frame, _attended), LocalPart(deconvolved)),
                )
            ),
        ),
        settle=settle,
        prefixes=(),
        ignored=(r"codebook\.initialized$",),
        modules=parts,
        defaults={"mimi": {"codebook_size": 2048}},
    ),
)

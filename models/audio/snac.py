"""SNAC (Siuzdak et al. 2024, arXiv:2410.14411): a codec of convolutions with snakes, whose quantizers code frames of
different lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, ORIGINAL, Architecture, Config, Key, Row
from ...runtime.contract.hyperparameter import COUNT, SIZE, Integer
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.conv1d import conv1d, kernel, transposed_conv1d
from ..layers.audio.residual_quantizer import factorized_codes, factorized_vectors
from ..layers.audio.snake import residual_unit, snake
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..layers.rope import inverse
from ..pipelines.audio.codec.codec_parts import Codec, LocalPart
from ..pipelines.audio.codec.codec_task import codec_task
from ..schema.codec_hyperparameters import CODEBOOK_DIM, CODEBOOK_SIZE, QUANTIZERS, STRIDES, hop_key, rate_key
from ..schema.network_hyperparameters import Stated, count_of
from ..schema.weight_norm import SPELLINGS, NormedModule

DILATIONS = (1, 3, 9)
HEAD_DIM, THETA, EPS = 64, 10000.0, 1e-5
"""Elements of a head of attention, the base of its rotary embedding, and the epsilon of its norm."""
NORMED = (HF, ORIGINAL)
QUANTIZER = "quantizer.quantizers.{i}"
CODEBOOK = f"{QUANTIZER}.codebook.weight"
STATED = {
    "rate": "sampling_rate",
    "ratios": "encoder_rates",
    "up_ratios": "decoder_rates",
    "window": "attn_window_size",
    "strides": "vq_strides",
}
"""Keys of the authors' configuration by our names, where they differ from those of our own."""


def _multiple(config: Config) -> int:
    """Samples that the encoder takes are a multiple of this."""
    return int(config.hop * math.lcm(config.strides[0], config.window or 1))


KEYS: tuple[Row, ...] = (
    Stated("architectures", ["SnacModel"]),
    rate_key("sampling_rate", 44100),
    Key("channels", (), (), 1, COUNT),
    Key("filters", "encoder_dim", "filters", None, COUNT),
    Key("ratios", "encoder_rates", "downsampling_ratios", [3, 3, 7, 7], STRIDES),
    Key("decoder_filters", "decoder_dim", "decoder_filters", None, COUNT),
    Key("up_ratios", "decoder_rates", "upsampling_ratios", lambda config: config.ratios[::-1], STRIDES),
    hop_key("ratios"),
    Key("window", "attn_window_size", "window", 0, Integer(0, 1 << 16), 0),
    CODEBOOK_SIZE,
    CODEBOOK_DIM,
    Key("strides", "vq_strides", "quantizer_strides", [8, 4, 2, 1], STRIDES),
    Key("quantizers", (), (), lambda config: len(config.strides), QUANTIZERS),
    Key("multiple", (), (), _multiple, SIZE),
)
MODULES = (
    *(
        Module(f"{side}.{{i}}.{name}")
        for side in ("encoder.block", "decoder.model")
        for name in ("norm", "to_qkv", "to_out")
    ),
    Module("quantizer.quantizers.{i}.codebook"),
    *(
        NormedModule(side, original=side, normed=NORMED, spellings=SPELLINGS[::-1])
        for side in ("encoder", "decoder", "quantizer")
    ),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for windows without attention, and strides that do not fit."""
    first, last = weights["encoder.block.0.weight"].shape, weights["decoder.model.0.weight"].shape
    table = weights[CODEBOOK.format(i=0)].shape
    config.values |= {
        "channels": first[1],
        "filters": first[0],
        "decoder_filters": last[0],
        "codebook_size": table[0],
        "codebook_dim": table[1],
    }
    if count_of(weights, CODEBOOK) != len(config.strides):
        books = counted(count_of(weights, CODEBOOK), "codebook")
        why = f"{counted(len(config.strides), 'stride')} of quantizers for {books}"
        raise FormatError("E-ARCH-KEY", config.path, why)
    if any(config.strides[0] % stride for stride in config.strides):
        why = f"the strides of quantizers, {config.strides}, do not divide the first one"
        raise FormatError("E-ARCH-KEY", config.path, why)


def encode(net: Net, x: Value) -> Value:
    """[batch, hidden, frames] of samples [batch, channels, samples]."""
    x = _same(net, x, "encoder.block.0")
    for i, stride in enumerate(net.config.ratios):
        name, pad = f"encoder.block.{i + 1}.block", math.ceil(stride / 2)
        x = snake(net, _residual_units(net, x, name, 0), f"{name}.3")
        x = conv1d(net, x, f"{name}.4", stride=stride, pads=(pad, pad))
    place = len(net.config.ratios) + 1
    if net.config.window:
        x, place = _attention(net, x, f"encoder.block.{place}"), place + 1
    return _same(net, x, f"encoder.block.{place}")


def decode(net: Net, x: Value) -> Value:
    """Samples [batch, channels, samples] of [batch, hidden, frames]."""
    x, place = _same(net, x, "decoder.model.0"), 1
    if net.has("decoder.model.1.weight"):
        x, place = conv1d(net, x, "decoder.model.1"), 2
    if net.config.window:
        x, place = _attention(net, x, f"decoder.model.{place}"), place + 1
    for i, stride in enumerate(net.config.up_ratios, place):
        name, pad = f"decoder.model.{i}.block", math.ceil(stride / 2)
        x = transposed_conv1d(
            net, snake(net, x, f"{name}.0"), f"{name}.1", stride=stride, pads=(pad, pad), output_padding=stride % 2
        )
        noisy = net.has(f"{name}.2.linear.weight")
        x = _with_noise(net, x, f"{name}.2.linear", i) if noisy else x
        x = _residual_units(net, x, name, 3 if noisy else 2)
    place += len(net.config.up_ratios)
    value: Value = net.Tanh(_same(net, snake(net, x, f"decoder.model.{place}"), f"decoder.model.{place + 1}"))
    return value


def _same(net: Net, x: Value, name: str) -> Value:
    """A convolution that keeps the number of samples; of each channel alone if its kernel has one channel."""
    out, inner, width = kernel(net, name).shape
    alone = inner == 1 and name != "encoder.block.0"
    return conv1d(net, x, name, groups=out if alone else 1, pads=(width // 2, width // 2))


def _residual_units(net: Net, x: Value, name: str, first: int) -> Value:
    for i, dilation in enumerate(DILATIONS, first):
        snakes, convs = (f"{name}.{i}.block.0", f"{name}.{i}.block.2"), (f"{name}.{i}.block.1", f"{name}.{i}.block.3")
        out, inner, _ = kernel(net, convs[0]).shape
        x = residual_unit(net, x, snakes, convs, dilation, groups=max(1, out // inner))
    return x


def _with_noise(net: Net, x: Value, name: str, seed: int) -> Value:
    """Normal noise, as loud as a linear layer says, added to the samples; always the same noise."""
    shape = net.Slice(x, [0], [1], [1])
    noise = net.RandomNormalLike(shape, seed=float(seed))
    value: Value = net.Add(x, net.Mul(noise, conv1d(net, x, name)))
    return value


def _attention(net: Net, x: Value, name: str) -> Value:
    """Attention of the frames of a window to each other, added to the frames."""
    window = net.config.window
    width = net.tensor(f"{name}.to_out.weight").shape[0]
    heads = max(1, width // HEAD_DIM)
    size = width // heads
    if width % (2 * heads):
        raise FormatError("E-ARCH-SHAPE", None, f"{name}: heads do not divide a width of {width}")
    y = layer_norm(net, net.Transpose(x, perm=[0, 2, 1]), f"{name}.norm", EPS)
    parts = net.split(net.Reshape(linear(net, y, f"{name}.to_qkv"), [-1, window, 3 * width]), [width] * 3)
    q, k, v = (net.Transpose(net.split_heads(part, heads, size), perm=[0, 2, 1, 3]) for part in parts)
    y = net.Attention(_rotated(net, q, window, size), _rotated(net, k, window, size), v)
    y = net.merge_heads(net.Transpose(y, perm=[0, 2, 1, 3]))
    shape = net.Concat(net.Shape(x, start=0, end=1), [-1, width], axis=0)
    y = linear(net, net.Reshape(y, shape), f"{name}.to_out")
    value: Value = net.Add(x, net.Transpose(y, perm=[0, 2, 1]))
    return value


def _rotated(net: Net, x: Value, window: int, size: int) -> Value:
    """[..., window, size] rotated by the positions in the window."""
    angles = np.arange(window, dtype=np.float32)[:, None] * np.tile(inverse(size, THETA), 2)
    cosines, sines = net.once(("window", size), lambda: (net.constant(np.cos(angles)), net.constant(np.sin(angles))))
    first, second = net.split(x, [size // 2, size // 2])
    value: Value = net.Add(net.Mul(x, cosines), net.Mul(net.Concat(net.Neg(second), first, axis=-1), sines))
    return value


def _attended(config: Config) -> tuple[int, int]:
    """Samples before and after a frame that are in its window of attention."""
    return (int(config.hop) * int(config.window),) * 2


def quantize(net: Net, x: Value) -> Sequence[Value]:
    """Codes of each codebook, [batch, frames / stride]."""
    names = [QUANTIZER.format(i=i) for i in range(net.config.quantizers)]
    return factorized_codes(net, net.Transpose(x, perm=[0, 2, 1]), names, net.config.strides)


def dequantize(net: Net, codes: Sequence[Value]) -> Value:
    """[batch, hidden, frames]."""
    total: Value | None = None
    for i, (level, stride) in enumerate(zip(codes, net.config.strides, strict=True)):
        vectors = factorized_vectors(net, level, QUANTIZER.format(i=i), stride)
        total = vectors if total is None else net.Add(total, vectors)
    value: Value = net.Transpose(total, perm=[0, 2, 1])
    return value


class OriginalNames:
    """Detects the authors' checkpoints by their configuration."""

    conventions = frozenset({ORIGINAL})

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        """The convention, and the configuration in our names; None for other models."""
        if "vq_strides" not in source or "encoder_rates" not in source:
            return None
        said = {ours: source[theirs] for ours, theirs in STATED.items() if source.get(theirs) is not None}
        return ORIGINAL, {"general.architecture": "snac", **said}


ARCHITECTURES = (
    Architecture(
        "snac",
        "SNAC",
        ("snac",),
        ("snac",),
        KEYS,
        (),
        (
            codec_task(
                Codec(
                    (LocalPart(encode, context=_attended),),
                    quantize,
                    dequantize,
                    (LocalPart(decode, context=_attended),),
                    multiscale=True,
                )
            ),
        ),
        implied=OriginalNames(),
        settle=settle,
        prefixes=(),
        ignored=(r"rel_pos\.inv_freq$",),
        modules=MODULES,
    ),
)

"""Descript Audio Codec (DAC; Kumar et al. 2023, arXiv:2306.06546): convolutions with snakes, factorized residual vector
quantization."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...runtime.contract.architecture import ORIGINAL, Architecture, Config, Key, Row
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.conv1d import conv1d, kernel, transposed_conv1d
from ..layers.audio.residual_quantizer import factorized_codes, factorized_sum
from ..layers.audio.snake import residual_unit, snake
from ..layers.net import Net
from ..pipelines.audio.codec.codec_parts import Codec, LocalPart
from ..pipelines.audio.codec.codec_task import codec_task
from ..schema.codec_hyperparameters import CODEBOOK_DIM, CODEBOOK_SIZE, QUANTIZERS, STRIDES, hop_key, rate_key
from ..schema.network_hyperparameters import Stated, count_of
from ..schema.weight_norm import SPELLINGS, NormedModule

DILATIONS = (1, 3, 9)
UNIT = ("snake1", "conv1", "snake2", "conv2")
"""Modules of a residual unit, in their order."""
QUANTIZER = "quantizer.quantizers.{i}"
CODEBOOK = f"{QUANTIZER}.codebook.weight"
RATES = {9: 44100, 12: 16000, 32: 24000}
"""Sampling rates of the published models, by their number of codebooks."""
STATED = {
    "ratios": "encoder_rates",
    "up_ratios": "decoder_rates",
    "rate": "sample_rate",
    "quantizers": "n_codebooks",
    "codebook_size": "codebook_size",
    "codebook_dim": "codebook_dim",
}
"""Keys of the authors' configuration by our names."""
MARKS = ("quantizer.quantizers.0.in_proj.weight_v", "decoder.model.0.weight_v", "decoder.model.1.block.1.weight_v")
"""Weights of the authors' checkpoints."""
KEYS: tuple[Row, ...] = (
    Stated("architectures", ["DacModel"]),
    rate_key("sampling_rate", 16000),
    Key("channels", (), (), 1, COUNT),
    Key("ratios", "downsampling_ratios", "downsampling_ratios", [2, 4, 8, 8], STRIDES),
    Key("up_ratios", "upsampling_ratios", "upsampling_ratios", lambda config: config.ratios[::-1], STRIDES),
    hop_key("ratios"),
    Key("multiple", "hop_length", (), lambda config: config.hop, COUNT),
    Key("filters", "encoder_hidden_size", "filters", 64, COUNT),
    Key("decoder_filters", "decoder_hidden_size", "decoder_filters", 1536, COUNT),
    Key("hidden", "hidden_size", "embedding_length", None, COUNT),
    CODEBOOK_SIZE,
    CODEBOOK_DIM,
    Key("quantizers", "n_codebooks", "quantizers", None, QUANTIZERS),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    table = weights[CODEBOOK.format(i=0)].shape
    first = weights["encoder.conv1.weight"].shape
    config.values |= {
        "quantizers": count_of(weights, CODEBOOK),
        "codebook_size": table[0],
        "codebook_dim": table[1],
        "channels": first[1],
        "filters": first[0],
        "hidden": weights["encoder.conv2.weight"].shape[0],
        "decoder_filters": weights["decoder.conv1.weight"].shape[0],
        "multiple": math.prod(config.ratios),
    }


def parts(names: str, weights: Collection[str]) -> tuple[Module, ...]:
    """The modules. The authors' code numbers layers through, so that the names after the blocks depend on their
    number."""
    within = r"block\." if names == ORIGINAL else ""
    down, up = (
        _blocks(weights, rf"(?:^|\.){side}\.{blocks if names == ORIGINAL else 'block'}\.(\d{{1,4}})\.{within}")
        + (names != ORIGINAL)
        for side, blocks in (("encoder", "block"), ("decoder", "model"))
    )
    return (
        *_convs("encoder", {"conv1": "block.0", "conv2": f"block.{down + 2}"}),
        Module("encoder.snake1", original=f"encoder.block.{down + 1}"),
        *_units("encoder.block.{i}", "encoder.block.{i+1}.block", 0),
        Module("encoder.block.{i}.snake1", original="encoder.block.{i+1}.block.3"),
        *_convs("encoder", {"block.{i}.conv1": "block.{i+1}.block.4"}),
        *_convs("decoder", {"conv1": "model.0", "conv2": f"model.{up + 2}"}),
        Module("decoder.snake1", original=f"decoder.model.{up + 1}"),
        *_units("decoder.block.{i}", "decoder.model.{i+1}.block", 2),
        Module("decoder.block.{i}.snake1", original="decoder.model.{i+1}.block.0"),
        *_convs("decoder", {"block.{i}.conv_t1": "model.{i+1}.block.1"}),
        *_convs(
            "quantizer", {f"quantizers.{{i}}.{name}": f"quantizers.{{i}}.{name}" for name in ("in_proj", "out_proj")}
        ),
        Module("quantizer.quantizers.{i}.codebook"),
    )


def _blocks(weights: Collection[str], pattern: str) -> int:
    """The largest number that a pattern finds in the names of weights, -1 if it finds none."""
    found = (re.search(pattern, name) for name in weights)
    return max((int(match[1]) for match in found if match is not None), default=-1)


def _convs(side: str, names: Mapping[str, str]) -> tuple[Module, ...]:
    return tuple(
        NormedModule(f"{side}.{own}", original=f"{side}.{theirs}", normed=(ORIGINAL,)) for own, theirs in names.items()
    )


def _units(own: str, theirs: str, first: int) -> tuple[Module, ...]:
    """The residual units of a block, whose numbers in the authors' code begin with `first`."""
    return tuple(
        NormedModule(f"{own}.res_unit{i + 1}.{module}", original=f"{theirs}.{first + i}.block.{k}", normed=(ORIGINAL,))
        for i in range(len(DILATIONS))
        for k, module in enumerate(UNIT)
    )


def encode(net: Net, x: Value) -> Value:
    """[batch, hidden, frames] of samples [batch, channels, samples]."""
    x = _same(net, x, "encoder.conv1")
    for i, stride in enumerate(net.config.ratios):
        name, pad = f"encoder.block.{i}", math.ceil(stride / 2)
        x = snake(net, _residual_units(net, x, name), f"{name}.snake1")
        x = conv1d(net, x, f"{name}.conv1", stride=stride, pads=(pad, pad))
    return _same(net, snake(net, x, "encoder.snake1"), "encoder.conv2")


def decode(net: Net, x: Value) -> Value:
    """Samples [batch, channels, samples] of [batch, hidden, frames]."""
    x = _same(net, x, "decoder.conv1")
    for i, stride in enumerate(net.config.up_ratios):
        name, pad = f"decoder.block.{i}", math.ceil(stride / 2)
        x = transposed_conv1d(net, snake(net, x, f"{name}.snake1"), f"{name}.conv_t1", stride=stride, pads=(pad, pad))
        x = _residual_units(net, x, name)
    value: Value = net.Tanh(_same(net, snake(net, x, "decoder.snake1"), "decoder.conv2"))
    return value


def _same(net: Net, x: Value, name: str) -> Value:
    """A convolution that keeps the number of samples."""
    pad = kernel(net, name).shape[2] // 2
    return conv1d(net, x, name, pads=(pad, pad))


def _residual_units(net: Net, x: Value, name: str) -> Value:
    for i, dilation in enumerate(DILATIONS):
        first, wide, second, narrow = (f"{name}.res_unit{i + 1}.{module}" for module in UNIT)
        x = residual_unit(net, x, (first, second), (wide, narrow), dilation)
    return x


def quantize(net: Net, x: Value) -> Sequence[Value]:
    """Codes of each codebook."""
    names = _quantizers(net)
    return factorized_codes(net, net.Transpose(x, perm=[0, 2, 1]), names, [1] * len(names))


def dequantize(net: Net, codes: Sequence[Value]) -> Value:
    """[batch, hidden, frames]."""
    value: Value = net.Transpose(factorized_sum(net, codes[0], _quantizers(net)), perm=[0, 2, 1])
    return value


def _quantizers(net: Net) -> list[str]:
    return [QUANTIZER.format(i=i) for i in range(net.config.quantizers)]


class OriginalNames:
    """Detects the authors' checkpoints, by their configuration or the names of weights."""

    conventions = frozenset({ORIGINAL})

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        """The convention, and the configuration in our names; None for other models."""
        stated = "encoder_rates" in source and "sample_rate" in source
        if not stated and any(name not in graph.weights for name in MARKS):
            return None
        said = {ours: source[theirs] for ours, theirs in STATED.items() if source.get(theirs) is not None}
        count = _blocks(graph.weights, r"^quantizer\.quantizers\.(\d{1,4})\.codebook") + 1
        found = {"ratios": _widths(graph, "encoder.block.{i}.block.4"), "rate": RATES.get(count)}
        found["up_ratios"] = _widths(graph, "decoder.model.{i}.block.1")
        return ORIGINAL, {"general.architecture": "dac", **{key: each for key, each in found.items() if each}, **said}


def _widths(graph: Graph, module: str) -> list[int]:
    """The strides of the blocks of an encoder or decoder, which are half the widths of their kernels."""
    found = []
    for i in range(1, 17):
        ends = ("weight", *(pair[1] for pair in SPELLINGS))
        names = (f"{module.format(i=i)}.{end.removeprefix('.')}" for end in ends)
        tensor = next((graph.weights[name] for name in names if name in graph.weights), None)
        if tensor is None or len(tensor.shape) != 3:
            break
        found.append(tensor.shape[2] // 2)
    return found


ARCHITECTURES = (
    Architecture(
        "dac",
        "DAC",
        ("dac",),
        ("dac",),
        KEYS,
        (),
        (codec_task(Codec((LocalPart(encode),), quantize, dequantize, (LocalPart(decode),))),),
        implied=OriginalNames(),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=parts,
    ),
)

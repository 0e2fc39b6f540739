"""EnCodec (Défossez et al. 2022, arXiv:2210.13438): SEANet, an LSTM, and residual vector quantization.

The model of 24 kHz is causal, and its convolutions have weight normalization. That of 48 kHz is stereo, has group
norms, and codes chunks of a second, each scaled to the same loudness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, ORIGINAL, Architecture, Config, Key, Row
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, Integer, Kind, Listed, Real, checked, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.residual_quantizer import codebook_sum, residual_codes
from ..layers.audio.seanet import (
    seanet_decoder_lstm,
    seanet_down,
    seanet_encoder_lstm,
    seanet_first,
    seanet_latents,
    seanet_up,
)
from ..layers.audio.seanet_rows import conv_modules, seanet_keys
from ..layers.net import Net
from ..pipelines.audio.codec.codec_parts import Codec, LocalPart, RecurrentPart
from ..pipelines.audio.codec.codec_task import codec_task
from ..schema.codec_hyperparameters import CODEBOOK_DIM, CODEBOOK_SIZE, QUANTIZERS, hop_key, rate_key
from ..schema.network_hyperparameters import Stated, count_of
from ..schema.weight_norm import NormedModule

WEIGHT_NORM, GROUP_NORM = "weight_norm", "time_group_norm"
CODEBOOK = "quantizer.layers.{i}.codebook.embed"
FIRST = "encoder.model.0.conv.conv."
"""The beginning of the names of the first convolution in the authors' code."""
BANDWIDTHS = {1: [1.5, 3.0, 6.0, 12.0, 24.0], 2: [3.0, 6.0, 12.0, 24.0]}
"""Bandwidths in kbit/s of the published models, by their channels."""
CHUNK_SECONDS, OVERLAP = Real(0, 3600, above=True), Real(0, 0.99)


def keys(norm: str) -> tuple[Row, ...]:
    """The hyper-parameters of models with one kind of norms."""
    return (
        Stated("architectures", ["EncodecModel"]),
        Stated("norm_type", norm),
        rate_key("sampling_rate", 24000),
        *seanet_keys(),
        hop_key("ratios"),
        Key("lstm_layers", "num_lstm_layers", "lstm_layers", 2, Integer(0, 16)),
        CODEBOOK_SIZE,
        CODEBOOK_DIM,
        Key("bandwidths", "target_bandwidths", "bandwidths", BANDWIDTHS[1], Listed(kbits, 1, 64)),
        Key("frame_rate", (), (), lambda config: math.ceil(config.rate / config.hop), COUNT),
        Key("quantizers", (), (), _quantizers, QUANTIZERS),
        Key("normalize", "normalize", "normalize", False, flag),
        Chunk(),
        ChunkStep(),
    )


def kbits(value: Any) -> float:
    """A bandwidth in kbit/s, to the nearest bit."""
    return round(POSITIVE(value), 3)


@dataclass(frozen=True)
class Chunk:
    """Hyper-parameter: samples of a chunk, which config.json states in seconds; None for models without chunks."""

    name: str = "chunk"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        if names != HF:
            return _optional(source, "chunk_length", COUNT)
        seconds = _optional(source, "chunk_length_s", CHUNK_SECONDS)
        return None if seconds is None else max(1, int(seconds * config.rate))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF or config.chunk is None:
            return {} if config.chunk is None else {"chunk_length": config.chunk}
        return {
            "chunk_length_s": _stated(config.chunk, lambda seconds: seconds * config.rate, config.chunk / config.rate)
        }


@dataclass(frozen=True)
class ChunkStep:
    """Hyper-parameter: the hop of chunks in samples, which config.json states as the share of a chunk in which they
    overlap."""

    name: str = "chunk_step"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int | None:
        if names != HF:
            return _optional(source, "chunk_step", COUNT)
        overlap = _optional(source, "overlap", OVERLAP)
        if config.chunk is None or overlap is None:
            return None
        return max(1, int((1.0 - overlap) * config.chunk))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        step, chunk = config.chunk_step, config.chunk
        if names != HF or step is None:
            return {} if step is None else {"chunk_step": step}
        return {"overlap": 1.0 - _stated(step, lambda share: (1.0 - (1.0 - share)) * chunk, step / chunk)}


def _optional(source: Mapping[str, Any], key: str, kind: Kind) -> Any:
    value = source.get(key)
    return None if value is None else checked(key, value, kind)


def _stated(wanted: int, product: Callable[[float], float], share: float) -> float:
    """A share from which a product gives a length again, rounded down."""
    while int(product(share)) < wanted:
        share = math.nextafter(share, math.inf)
    return share


def _quantizers(config: Config) -> int:
    """As many codebooks as the highest bandwidth allows."""
    return int(1000 * config.bandwidths[-1] // (config.frame_rate * math.ceil(math.log2(config.codebook_size))))


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    table = weights[CODEBOOK.format(i=0)].shape
    config.values |= {
        "quantizers": count_of(weights, CODEBOOK),
        "codebook_size": table[0],
        "codebook_dim": table[1],
        "hidden": table[1],
        "channels": weights["encoder.layers.0.conv.weight"].shape[1],
        "filters": weights["encoder.layers.0.conv.weight"].shape[0],
    }


def parts(normed: tuple[str, ...], weights: Collection[str]) -> tuple[Module, ...]:
    """The modules; `normed`: the conventions whose files have weight normalization."""
    return (
        *conv_modules(NormedModule, weights, normed=normed),
        *(Module(f"{side}.layers.{{i}}.lstm", original=f"{side}.model.{{i}}.lstm") for side in ("encoder", "decoder")),
        Module("quantizer.layers.{i}.codebook.embed", original="quantizer.vq.layers.{i}._codebook.embed"),
    )


def quantize(net: Net, x: Value) -> Sequence[Value]:
    """Codes of each codebook."""
    return residual_codes(net, net.Transpose(x, perm=[0, 2, 1]), _codebooks(net))


def dequantize(net: Net, codes: Sequence[Value]) -> Value:
    """[batch, hidden, frames]."""
    value: Value = net.Transpose(codebook_sum(net, codes[0], _codebooks(net)), perm=[0, 2, 1])
    return value


def _codebooks(net: Net) -> list[str]:
    return [CODEBOOK.format(i=i) for i in range(net.config.quantizers)]


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The authors' checkpoints, by the names of weights: those of 24 kHz have one channel, those of 48 kHz two."""
    found = next((graph.weights[FIRST + end] for end in ("weight_v", "weight") if FIRST + end in graph.weights), None)
    if found is None or "quantizer.vq.layers.0._codebook.embed" not in graph.weights or len(found.shape) != 3:
        return None
    channels = found.shape[1]
    stereo = channels == 2
    settings: dict[str, Any] = {"rate": 48000, "normalize": True, "chunk_length": 48000, "chunk_step": 47520}
    normed = FIRST + "weight_v" in graph.weights
    return ORIGINAL, {
        "general.architecture": "encodec" if normed else "encodec_group_norm",
        "channels": channels,
        "causal": not stereo,
        "bandwidths": BANDWIDTHS.get(channels, BANDWIDTHS[1]),
        **(settings if stereo else {}),
    }


class OriginalNames:
    """`implied`, and the conventions that it finds."""

    conventions = frozenset({ORIGINAL})

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        return implied(source, graph)


def _states(config: Config) -> int:
    """States of the LSTM: two of each layer."""
    return 2 * int(config.lstm_layers)


TASKS = (
    codec_task(
        Codec(
            (LocalPart(seanet_down), RecurrentPart(seanet_encoder_lstm, _states), LocalPart(seanet_latents)),
            quantize,
            dequantize,
            (LocalPart(seanet_first), RecurrentPart(seanet_decoder_lstm, _states), LocalPart(seanet_up)),
        )
    ),
)
BUFFERS = (r"codebook\.(cluster_size|embed_avg|inited)$",)
"""Names of codebook statistics that only training uses."""


def architecture(name: str, title: str, norm: str, normed: tuple[str, ...]) -> Architecture:
    """The models with one kind of norms; `normed` as of `parts`."""
    return Architecture(
        name,
        title,
        ("encodec",),
        (name,),
        keys(norm),
        (),
        TASKS,
        accepts=lambda source: source.get("norm_type", norm) == norm,
        implied=OriginalNames(),
        settle=settle,
        prefixes=(),
        ignored=BUFFERS,
        modules=lambda names, weights: parts(normed, weights),
    )


ARCHITECTURES = (
    architecture("encodec", "EnCodec", WEIGHT_NORM, (HF, ORIGINAL)),
    architecture("encodec_group_norm", "EnCodec with group norms", GROUP_NORM, ()),
)

"""MusicGen (Copet et al. 2023, arXiv:2306.05284): music for a text, as codes of EnCodec."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key, Part, Task
from ...runtime.contract.hyperparameter import Integer
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.codebooks import frame_embeddings
from ..layers.decoder import LENGTH
from ..pipelines.audio.synthesis.synthesis_tasks import run_codebook_model
from ..schema.codec_hyperparameters import CODEC, codec_part
from ..schema.network_hyperparameters import Stated
from ..seq2seq.codebook_decoder import (
    DECODER_WEIGHTS,
    PROJECTION_WEIGHTS,
    TEXT,
    TEXT_ENCODER,
    decode,
    decoder_keys,
    text_encoder,
)
from ..seq2seq.decoder import CrossDecoder

PAD = 2048
"""The code of published models before the first one and after the last one."""
DECODER = Architecture(
    "musicgen_decoder",
    "MusicGen decoder",
    ("musicgen_decoder",),
    (),
    (*decoder_keys(PAD, PAD), Key("channels", "audio_channels", (), 1, Integer(1, 2))),
    DECODER_WEIGHTS,
    (),
)
KEYS = (Stated("architectures", ["MusicgenForConditionalGeneration"]), Stated("is_encoder_decoder", True))


def sinusoids(net: CrossDecoder) -> Value:
    """Cosines, then sines, of the positions, f32 [length, hidden]; in a fixed cache [batch, length, hidden]."""
    half = net.config.hidden // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(10000) / (half - 1)))
    angles = net.Mul(net.Unsqueeze(net.Cast(net.token_positions(), to=1), [-1]), rates)
    found: Value = net.Concat(net.Cos(angles), net.Sin(angles), axis=-1)
    return net.Pad(found, [0, 1], None, [-1]) if net.config.hidden % 2 else found


def decoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The decoder's graph; ``input_ids`` is [batch, length, codebooks]."""
    net = CrossDecoder(graph, config, weights, fixed=fixed)
    net.declare(("batch_size", LENGTH, config.codebooks))
    decode(net, net.Add(frame_embeddings(net, net.ids, config.codebooks, config.embed_rows), sinusoids(net)))


ARCHITECTURES = (
    Architecture(
        "musicgen",
        "MusicGen",
        ("musicgen",),
        ("musicgen",),
        KEYS,
        PROJECTION_WEIGHTS,
        (Task("text-to-audio", {TEXT: text_encoder, "decoder": decoder}, run_codebook_model),),
        prefixes=(),
        ignored=(),
        parts={"": Part(DECODER, "decoder"), TEXT: TEXT_ENCODER, CODEC: codec_part("audio_encoder")},
    ),
)

"""Parler-TTS (Lyth and King 2024, arXiv:2402.01912): speech of a text in a voice that another text describes.

The encoder reads the description; the tokens of the text stand before the codes of the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, ORIGINAL, Architecture, Below, Config, Key, Part, Row, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Only, ParameterError, flag
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.codebooks import frame_embeddings
from ..layers.decoder import LENGTH
from ..layers.linear import embedding
from ..layers.rope import PLAIN, Rotary
from ..pipelines.audio.synthesis.synthesis_tasks import run_parler_tts
from ..schema.codec_hyperparameters import CODEC, codec_part
from ..schema.hyperparameters import frequency_base
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

START, PAD = 1025, 1024
"""The codes of published models before the first one and after the last one."""


@dataclass(frozen=True)
class EqualHeads(Key):
    """Hyper-parameter: a number of KV heads, which is that of query heads in the models that are supported."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        found: int = super().read(names, source, config)
        if found != config.heads:
            why = f"{found:,} KV heads of {config.heads:,} query heads are not supported"
            raise ParameterError(next(iter(self.keys(names)), self.name), why)
        return found


def _heads(config: Config) -> int:
    return int(config.heads)


def _positions(config: Config, i: int) -> bool:
    return not config.rotates


DECODER = Architecture(
    "parler_tts_decoder",
    "Parler-TTS decoder",
    ("parler_tts_decoder",),
    (),
    (
        *decoder_keys(START, PAD),
        Key("end", "eos_token_id", (), lambda config: config.pad, SIZE, at_most=("vocab",)),
        EqualHeads("kv_heads", "num_key_value_heads", (), _heads, COUNT),
        EqualHeads("cross_kv_heads", "num_cross_attention_key_value_heads", (), _heads, COUNT, at_most=("heads",)),
        Key("rotates", "rope_embeddings", (), False, flag),
        frequency_base(10000.0),
    ),
    (
        *DECODER_WEIGHTS,
        Weight(
            "positions.weight", "model.decoder.embed_positions.weights", shape=("positions", "hidden"), when=_positions
        ),
    ),
    (),
)
KEYS: tuple[Row, ...] = (
    Stated("architectures", ["ParlerTTSForConditionalGeneration"]),
    Stated("is_encoder_decoder", True),
    Key("prompt_vocab", "vocab_size", "vocab_size", kind=COUNT),
    Key("crosses", "prompt_cross_attention", (), False, Only(False)),
)
PROMPTS = "embed_prompts"
WEIGHTS = (
    Weight(f"{PROMPTS}.weight", f"{PROMPTS}.weight", f"{PROMPTS}.weight", shape=("prompt_vocab", "hidden")),
    *PROJECTION_WEIGHTS,
)


def decoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The decoder's graph; ``input_ids`` is [batch, length, codebooks + 1], its last column the tokens of the text."""
    net = CrossDecoder(graph, config, weights, fixed=fixed)
    net.declare(("batch_size", LENGTH, config.codebooks + 1))
    x = frame_embeddings(net, net.ids, config.codebooks, config.embed_rows, PROMPTS)
    if config.rotates:
        decode(net, x, Rotary(config.head_dim, config.theta, PLAIN, config.positions))
    else:
        decode(net, net.Add(x, embedding(net, net.token_positions(), "positions")))


ARCHITECTURES = (
    Architecture(
        "parler_tts",
        "Parler-TTS",
        ("parler_tts",),
        ("parler_tts",),
        KEYS,
        WEIGHTS,
        (Task("text-to-speech", {TEXT: text_encoder, "decoder": decoder}, run_parler_tts),),
        prefixes=(),
        ignored=(),
        parts={
            "": Part(DECODER, "decoder"),
            TEXT: TEXT_ENCODER,
            CODEC: codec_part(
                "audio_encoder", Below("audio_encoder.", "", HF), Below("audio_encoder.model.", "", ORIGINAL)
            ),
        },
    ),
)

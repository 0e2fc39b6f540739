"""Whisper (Radford et al. 2022, arXiv:2212.04356) and Distil-Whisper (Gandhi et al. 2023, arXiv:2311.00430).

Two convolutions halve the length of a log-mel spectrogram; the rest is the transformer of Vaswani et al. 2017 with
norms in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, RunOptions, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, Integer, Only
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.feature_encoder import FeatureEncoder
from ..pipelines.audio.audio_tasks import run_audio_model
from ..schema.audio_hyperparameters import AUDIO_FEATURES, SPEECH_RECOGNITION, own_keys, own_names
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, act, matrix
from ..seq2seq.alignment_decoder import ALIGNMENT, AlignmentDecoder
from ..seq2seq.decoder import DECODER, ENCODER, WITH_PAST
from ..seq2seq.tasks import decoder_model, encoder_decoder_graphs
from ..seq2seq.transformer import POSITIONS, Family, SameHeads, layer_weights, norm_weights

if TYPE_CHECKING:
    from ..pipelines.audio.speech_model import SpeechModel

BANDS = Integer(1, 1024)


KEYS = own_keys(
    Key("vocab", "vocab_size", kind=COUNT),
    Key("bands", "num_mel_bins", (), 80, BANDS),
    Key("source_positions", "max_source_positions", (), 1500, POSITIONS),
    Key("positions", "max_target_positions", (), 448, POSITIONS),
    Key("hidden", "d_model", (), kind=COUNT),
    Key("layers", "encoder_layers", (), kind=LAYERS),
    Key("decoder_layers", "decoder_layers", (), kind=LAYERS),
    Key("heads", "encoder_attention_heads", (), kind=COUNT),
    OWN_HEAD_DIM,
    SameHeads(),
    Key("intermediate", "encoder_ffn_dim", (), kind=COUNT),
    Key("decoder_intermediate", "decoder_ffn_dim", (), kind=COUNT),
    act("gelu", "activation_function"),
    Key("scaled", "scale_embedding", (), False, Only(False)),
    Key("decoder_start", "decoder_start_token_id", (), 50257, SIZE, at_most=("vocab",)),
    *(Key(role, f"{role}_token_id", (), None, SIZE) for role in ("bos", "eos", "pad")),
)
WEIGHTS = own_names(
    *matrix("encoder.conv1", "model.encoder.conv1", None, shape=("hidden", "bands", 3)),
    *matrix("encoder.conv2", "model.encoder.conv2", None, shape=("hidden", "hidden", 3)),
    Weight("encoder.positions.weight", "model.encoder.embed_positions.weight", shape=("source_positions", "hidden")),
    *layer_weights("encoder", "layers", "intermediate"),
    Weight("embed.weight", "model.decoder.embed_tokens.weight", shape=("vocab", "hidden")),
    Weight("decoder.positions.weight", "model.decoder.embed_positions.weight", shape=("positions", "hidden")),
    *layer_weights("decoder", "decoder_layers", "decoder_intermediate"),
    *norm_weights("layer_norm", "norm"),
    Weight("head.weight", "proj_out.weight", shape=("vocab", "hidden"), optional=True, repeats="embed.weight"),
)


class Whisper(Family):
    """The layers of Whisper."""

    def __init__(self) -> None:
        super().__init__(pre_norm=True)

    def encode(self, net: FeatureEncoder) -> Value:  # type: ignore[override]
        """The encoder's hidden states [batch, frames / 2, hidden]."""
        x = net.begin(net.config.bands)
        x = net.Gelu(net.conv(x, "encoder.conv1"))
        x = net.Transpose(net.Gelu(net.conv(x, "encoder.conv2", stride=2)), perm=[0, 2, 1])
        length = net.Shape(x, start=1, end=2)
        return self.encoded(net, net.Add(x, net.Slice(net.vector("encoder.positions.weight"), [0], length, [0])))


WHISPER = Whisper()


def alignment(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The decoder over a whole text, with its attention to the audio."""
    WHISPER.decode(AlignmentDecoder(graph, config, weights))


def run_speech_model(graphs: Mapping[str, Graph], options: RunOptions) -> SpeechModel:
    """Both graphs as one model."""
    from ..pipelines.audio.speech_model import SpeechModel

    return SpeechModel(graphs[ENCODER], decoder_model(graphs[DECODER], options), options)


def run_exported_speech(graphs: Mapping[str, Graph], options: RunOptions) -> SpeechModel:
    """The graphs of ONNX files as one model; UsageError where one is not what its name says."""
    from ..pipelines.audio.speech_model import SpeechModel
    from ..seq2seq.exported_decoder import ExportedDecoder

    decoder = ExportedDecoder(graphs[DECODER], graphs.get(WITH_PAST), options)
    return SpeechModel(graphs[ENCODER], decoder, replace(options, task=SPEECH_RECOGNITION))


def hidden_states(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``last_hidden_state`` [batch, frames / 2, hidden] of ``input_features``."""
    net = FeatureEncoder(graph, config, weights)
    net.output("last_hidden_state", WHISPER.encode(net))


VOXTRAL_ENCODER = Architecture(
    "voxtral_encoder",
    "Voxtral's audio encoder",
    ("voxtral_encoder",),
    (),
    (
        Key("bands", "num_mel_bins", (), 128, BANDS),
        Key("source_positions", "max_source_positions", (), 1500, POSITIONS),
        Key("hidden", "hidden_size", (), 1280, COUNT),
        Key("layers", "num_hidden_layers", (), 32, LAYERS),
        Key("heads", "num_attention_heads", (), 20, COUNT),
        OWN_HEAD_DIM,
        Key("intermediate", "intermediate_size", (), 5120, COUNT),
        act("gelu", "activation_function"),
        Key("scaled", "scale_embedding", (), False, Only(False)),
    ),
    tuple(row for row in WEIGHTS if row.name.startswith("encoder.")),
    (Task(AUDIO_FEATURES, {MODEL: hidden_states}, run_audio_model),),
    ignored=(),
)

ARCHITECTURES = (
    Architecture(
        "whisper",
        "Whisper",
        ("whisper",),
        ("whisper",),
        KEYS,
        WEIGHTS,
        (
            Task(
                SPEECH_RECOGNITION,
                encoder_decoder_graphs(FeatureEncoder, WHISPER.encode, WHISPER.decode, padded=False),
                run_speech_model,
                aliases=("asr",),
                variants={ALIGNMENT: alignment},
            ),
        ),
        prefixes=("model.",),
        tied=True,
    ),
    VOXTRAL_ENCODER,
)

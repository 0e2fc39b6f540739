"""Speaker encoder (GE2E; Wan et al. 2017, arXiv:1710.10467) of Resemblyzer and MetaVoice: the voice of a speaker as a
vector, by three LSTM layers, with the weights of ``pretrained.pt``."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, ORIGINAL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.recurrent.lstm import lstm
from ..pipelines.audio.audio_tasks import run_audio_model
from ..pipelines.audio.speaker_embedding import MELS, VECTORS
from ..schema.audio_hyperparameters import SPEAKER_EMBEDDING
from ..schema.network_hyperparameters import ClassTask, Implied, count_of

MARKS = ("lstm.weight_ih_l0", "lstm.weight_hh_l2", "linear.weight")


def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``embeds`` [batch, width], of length 1, of spectrograms [batch, frames, bands]."""
    net = Net(graph, config, weights)
    x = net.Transpose(net.input(MELS, "f32", ("batch", "frames", config.bands)), perm=[1, 0, 2])
    for layer in range(config.layers):
        x = lstm(net, x, "lstm", layer=layer)
    y = net.Relu(linear(net, net.Gather(x, net.Constant(value_int=-1), axis=0), "linear"))
    net.output(VECTORS, net.LpNormalization(y, axis=1, p=2))


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    first, last = weights.get("lstm.weight_ih_l0"), weights.get("linear.weight")
    config.values["bands"] = first.shape[1] if first is not None else 0
    config.values["layers"] = count_of((name.replace("_l", "_l.") for name in weights), "lstm.bias_hh_l.{i}")
    config.values["width"] = last.shape[0] if last is not None else 0


ARCHITECTURES = (
    Architecture(
        "speaker_encoder",
        "Speaker encoder",
        ("speaker_encoder",),
        ("speaker-encoder",),
        (
            ClassTask("SpeakerEncoder", (("Model", SPEAKER_EMBEDDING),)),
            Key("bands", "mel_n_channels", (), None, COUNT),
            Key("layers", "model_num_layers", (), None, COUNT),
            Key("width", "model_embedding_size", (), None, COUNT),
        ),
        (),
        (Task(SPEAKER_EMBEDDING, {MODEL: build}, run_audio_model, aliases=("hidden", "feature-extraction")),),
        implied=Implied("speaker_encoder", "", {ORIGINAL: MARKS}, (), task=SPEAKER_EMBEDDING),
        settle=settle,
        prefixes=(),
        ignored=(r"^similarity_(weight|bias)$",),
        modules=(Module("lstm"), Module("linear")),
    ),
)

"""Silero VAD 5 and 6 (Silero Team, github.com/snakers4/silero-vad): the probability of speech in frames of 32 ms, by a
short-time Fourier transform, four convolutions and an LSTM, with the weights of ``silero_vad_16k.safetensors``."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.contract.architecture import MODEL, ORIGINAL, Architecture, Config, Key, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.net import Net
from ..layers.recurrent.lstm import lstm_cell
from ..pipelines.audio.audio_tasks import run_audio_model
from ..pipelines.audio.voice_activity_detection import CELL, CONTEXT, FRAME, HIDDEN, PROBABILITIES, SAMPLES
from ..schema.audio_hyperparameters import VOICE_ACTIVITY
from ..schema.network_hyperparameters import ClassTask, Implied

LAYERS = range(1, 5)
STRIDES = {2: 2, 3: 2}
HOP, MARGIN = 128, 64
"""Samples between the starts of transforms, and samples that are reflected at the end of a frame."""
MARKS = ("stft_conv.weight", "lstm_cell.weight_ih", "final_conv.weight")


def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``speech_probs`` [frames] of consecutive frames [frames, `CONTEXT` + `FRAME`], each of which begins with the end
    of the one before it; from a state of the LSTM, [1, 1, hidden] each, and the state after them."""
    net = Net(graph, config, weights)
    samples = net.input(SAMPLES, "f32", ("frames", CONTEXT + FRAME))
    states = [net.input(name, "f32", (1, 1, config.hidden)) for name in (HIDDEN, CELL)]
    x = net.Unsqueeze(net.Pad(samples, [0, 0, 0, MARGIN], mode="reflect"), [1])
    x = _magnitudes(net, net.Conv(x, net.vector("stft_conv.weight"), strides=[HOP]))
    for i in LAYERS:
        name = f"conv{i}"
        given = [x, net.vector(f"{name}.weight"), net.vector(f"{name}.bias")]
        x = net.Relu(net.Conv(*given, strides=[STRIDES.get(i, 1)], pads=[1, 1]))
    y, *after = lstm_cell(net, net.Transpose(x, perm=[0, 2, 1]), "lstm_cell", *states)
    y = net.Transpose(net.Relu(y), perm=[0, 2, 1])
    y = net.Conv(y, net.vector("final_conv.weight"), net.vector("final_conv.bias"))
    net.output(PROBABILITIES, net.Squeeze(net.Sigmoid(y), [1, 2]))
    for name, state in zip((f"{HIDDEN}n", f"{CELL}n"), after, strict=True):
        net.output(name, state)


def _magnitudes(net: Net, x: Value) -> Value:
    """Lengths of the vectors of a real and an imaginary channel, [frames, channels / 2, transforms]."""
    half = net.tensor("stft_conv.weight").shape[0] // 2
    squares = (net.Mul(part, part) for part in net.split(x, [half, half], axis=1))
    value: Value = net.Sqrt(net.Add(*squares))
    return value


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the width of the state from the weights."""
    name = "lstm_cell.weight_hh"
    config.values["hidden"] = weights[name].shape[-1] if name in weights else 0


ARCHITECTURES = (
    Architecture(
        "silero_vad",
        "Silero VAD",
        ("silero_vad",),
        ("silero-vad",),
        (ClassTask("SileroVad", (("Model", VOICE_ACTIVITY),)), Key("hidden", (), (), None)),
        (),
        (Task(VOICE_ACTIVITY, {MODEL: build}, run_audio_model, aliases=("vad",)),),
        implied=Implied("silero_vad", "", {ORIGINAL: MARKS}, (), task=VOICE_ACTIVITY),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=tuple(Module(name) for name in ("stft_conv", *(f"conv{i}" for i in LAYERS), "lstm_cell", "final_conv")),
    ),
)

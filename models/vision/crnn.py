"""CRNN (Shi et al. 2015, arXiv:1507.05717) as in EasyOCR's second generation: lines of text as characters, by
convolutions and two bidirectional LSTMs."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL, TIMM, Architecture, Config, Task
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, conv_norm
from ..layers.image.image_net import ImageNet
from ..layers.linear import linear
from ..layers.recurrent.lstm import BIDIRECTIONAL, lstm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..pipelines.image.text_recognition import LOGITS
from ..schema.network_hyperparameters import LABELS, TEXT_RECOGNITION, ClassTask, Implied, count_of, settle_labels

CONVOLUTIONS = "FeatureExtraction.ConvNet"
PLAIN, NORMED, LAST = (0, 3, 6, 8), (11, 14), 18
"""Numbers of the convolutions: without and with a batch norm, and the one of 2 x 2 without padding."""
HALVED = {3: (2, 2), 6: (2, 2), 11: (2, 1), 18: (2, 1)}
"""Height and width of the pooling before a convolution."""
ENGLISH = (
    "[blank]",
    *"0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ €ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
)
"""The characters of EasyOCR's ``english_g2``."""
MARKS = (f"{CONVOLUTIONS}.18.weight", "SequenceModeling.0.rnn.weight_ih_l0_reverse", "Prediction.weight")


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of characters from the weights; those of `ENGLISH` unless the file names
    others."""
    settle_labels(config, weights, "Prediction.weight")
    if config.label_names is None and config.labels == len(ENGLISH):
        config.values["label_names"] = list(ENGLISH)


def recognized(net: ImageNet) -> None:
    """``character_logits`` [batch, positions, characters], the first of which stands for none."""
    x = net.pixels(f"{CONVOLUTIONS}.0.weight")
    for i in (*PLAIN, *NORMED, LAST):
        name = f"{CONVOLUTIONS}.{i}"
        if i in HALVED:
            x = net.MaxPool(x, kernel_shape=HALVED[i], strides=HALVED[i])
        if i in NORMED:
            x = conv_norm(net, x, name, f"{CONVOLUTIONS}.{i + 1}")
        else:
            x = conv(net, x, name, padding=0 if i == LAST else None)
        x = net.Relu(x)
    x = net.Transpose(net.ReduceMean(x, [2], keepdims=0), perm=[0, 2, 1])
    for i in range(count_of(net.weights, "SequenceModeling.{i}.linear.weight")):
        x = linear(net, _lstm(net, x, f"SequenceModeling.{i}.rnn"), f"SequenceModeling.{i}.linear")
    net.output(LOGITS, linear(net, x, "Prediction"))


def _lstm(net: ImageNet, x: Value, name: str) -> Value:
    """A bidirectional LSTM over [batch, positions, channels]."""
    found: Value = net.Transpose(lstm(net, net.Transpose(x, perm=[1, 0, 2]), name, BIDIRECTIONAL), perm=[1, 0, 2])
    return found


ARCHITECTURES = (
    Architecture(
        "crnn",
        "CRNN",
        (),
        ("crnn",),
        (ClassTask("Crnn", (("Model", TEXT_RECOGNITION),)), *LABELS),
        (),
        (Task(TEXT_RECOGNITION, {MODEL: image_graph(recognized)}, run_image_model),),
        implied=Implied("crnn", r"crnn\w*", {TIMM: MARKS}, (), task=TEXT_RECOGNITION, prefixes=("module.",)),
        settle=settle,
        prefixes=("module.",),
        ignored=(),
        modules=(Module("FeatureExtraction"), Module("SequenceModeling"), Module("Prediction")),
    ),
)

"""Darknet weights: files written in the order of darknet's loader, with and without a configuration; sizes of published
files as an oracle."""

import math
import random
import struct

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.formats.containers.darknet_cfg import parse, weights_of
from candle_convert.runtime.tensor.file import Source

CFG = """
[net]
# a comment, as in the published files
width = 32
height=32
channels=3

[convolutional]
batch_normalize=1
filters=4
size=3
stride=2
pad=1
activation=leaky

[convolutional]
filters=8 # another
size=1
groups=2
[shortcut]
from=-2
activation=linear
[maxpool]
size=2
stride=2
[upsample]
stride=2
[route]
layers = -1, 1
[reorg]
stride=4
[avgpool]
[dropout]
probability=.5
[connected]
output=5
batch_normalize=1
[softmax]
"""
SHAPES = {
    "layers.0.biases": (4,),
    "layers.0.scales": (4,),
    "layers.0.rolling_mean": (4,),
    "layers.0.rolling_variance": (4,),
    "layers.0.weights": (4, 3, 3, 3),
    "layers.1.biases": (8,),
    "layers.1.weights": (8, 2, 1, 1),
    "layers.9.biases": (5,),
    "layers.9.weights": (5, 256),
    "layers.9.scales": (5,),
    "layers.9.rolling_mean": (5,),
    "layers.9.rolling_variance": (5,),
}
"""The route joins 8 + 8 channels, the reorganisation makes 256 of them, and pooling leaves one of each for the
connected layer."""
COUNT = sum(math.prod(shape) for shape in SHAPES.values())
VALUES = np.arange(COUNT, dtype="<f4")


def head(minor=2, seen=32013312):
    return struct.pack("<3i", 0, minor, 0) + (struct.pack("<q", seen) if minor == 2 else struct.pack("<i", seen))


def saved(folder, data, cfg=CFG, name="tiny.weights"):
    path = folder / name
    path.write_bytes(data)
    if cfg is not None:
        (folder / "tiny.cfg").write_text(cfg)
    return path


@pytest.mark.parametrize("minor", [1, 2])
def test_every_layer_has_its_numbers(minor, tmp_path):
    graph = cc.open(saved(tmp_path, head(minor) + VALUES.tobytes()))
    assert graph.format == "darknet"
    assert graph.metadata == {
        "darknet.major": 0,
        "darknet.minor": minor,
        "darknet.revision": 0,
        "darknet.seen": 32013312,
        "darknet.cfg": CFG,
    }
    assert {name: tensor.shape for name, tensor in graph.weights.items()} == SHAPES
    at = 0
    for name, shape in SHAPES.items():
        assert np.array_equal(graph[name].numpy(), VALUES[at : at + math.prod(shape)].reshape(shape))
        at += math.prod(shape)


def test_labels(tmp_path):
    (tmp_path / "tiny.names").write_text("cat\ndog\n")
    assert cc.open(saved(tmp_path, head() + VALUES.tobytes())).metadata["darknet.names"] == "cat\ndog\n"


def test_without_configuration_the_weights_are_flat(tmp_path):
    graph = cc.open(saved(tmp_path, head() + VALUES.tobytes(), cfg=None))
    assert list(graph.weights) == ["weights"]
    assert np.array_equal(graph["weights"].numpy(), VALUES)
    assert [note.code for note in graph.notes] == ["W-DARKNET-FLAT"]


def test_the_first_layers_alone_are_read_with_a_note(tmp_path):
    first = sum(math.prod(shape) for name, shape in SHAPES.items() if name.startswith("layers.0."))
    graph = cc.open(saved(tmp_path, head() + VALUES[:first].tobytes(), name="tiny.conv.1"))
    assert [name for name in graph.weights if not name.startswith("layers.0.")] == []
    assert [note.code for note in graph.notes] == ["W-DARKNET-PARTIAL"]


def test_pytorch_yolov3_writes_no_version(tmp_path):
    path = saved(tmp_path, bytes(12) + struct.pack("<2i", 64, 0) + VALUES.tobytes())
    graph = cc.open(path)
    assert graph.metadata["darknet.seen"] == 64
    assert np.array_equal(graph["layers.0.biases"].numpy(), VALUES[:4])
    (tmp_path / "tiny.cfg").unlink()
    with pytest.raises(cc.FormatError) as caught:
        cc.open(path)
    assert caught.value.code == "E-DARKNET-VERSION"


YOLO_TINY = [("maxpool", 2, 2)] * 5 + [("maxpool", 2, 1)]


def yolov3_tiny():
    """The published yolov3-tiny network, in our own words."""

    def convolution(filters, size, normalized=1):
        return (
            f"[convolutional]\nbatch_normalize={normalized}\nfilters={filters}\nsize={size}\nstride=1\npad=1\n"
            "activation=leaky\n"
        )

    text = "[net]\nwidth=416\nheight=416\nchannels=3\n"
    for filters, (kind, size, stride) in zip((16, 32, 64, 128, 256, 512), YOLO_TINY, strict=True):
        text += convolution(filters, 3) + f"[{kind}]\nsize={size}\nstride={stride}\n"
    text += (
        convolution(1024, 3)
        + convolution(256, 1)
        + convolution(512, 3)
        + convolution(255, 1, 0)
        + "[yolo]\nmask=3,4,5\n"
    )
    text += "[route]\nlayers = -4\n" + convolution(128, 1) + "[upsample]\nstride=2\n[route]\nlayers = -1, 8\n"
    return text + convolution(256, 3) + convolution(255, 1, 0) + "[yolo]\nmask=0,1,2\n"


def test_a_published_network_has_its_published_size(tmp_path):
    path = tmp_path / "yolov3-tiny.cfg"
    path.write_text(yolov3_tiny())
    layers = weights_of(parse(path.read_text(), Source(path)))
    assert 20 + sum(4 * math.prod(shape) for layer in layers for _, shape in layer) == 35_434_956


GOOD = head() + VALUES.tobytes()
HOSTILE = [
    ("not-whole-floats", GOOD[:-1], CFG, "E-FORMAT-UNKNOWN"),
    ("last-float-missing", GOOD[:-4], CFG, "E-DARKNET-TRUNCATED"),
    ("within-a-layer", GOOD[: 20 + 8 * 4], CFG, "E-DARKNET-TRUNCATED"),
    ("trailing", GOOD + bytes(4), CFG, "E-DARKNET-TRAILING"),
    ("filters-2^31", GOOD, CFG.replace("filters=4", "filters=2147483648"), "E-DARKNET-CFG"),
    ("filters-2^24", GOOD, CFG.replace("filters=4", "filters=16777216"), "E-DARKNET-TRUNCATED"),
    ("filters-negative", GOOD, CFG.replace("filters=4", "filters=-4"), "E-DARKNET-CFG"),
    ("filters-no-number", GOOD, CFG.replace("filters=4", "filters=4.5"), "E-DARKNET-CFG"),
    ("stride-0", GOOD, CFG.replace("stride=2", "stride=0"), "E-DARKNET-CFG"),
    ("groups-3", GOOD, CFG.replace("groups=2", "groups=3"), "E-DARKNET-CFG"),
    ("route-to-itself", GOOD, CFG.replace("layers = -1, 1", "layers = 5"), "E-DARKNET-CFG"),
    ("route-before-the-first", GOOD, CFG.replace("layers = -1, 1", "layers = -9"), "E-DARKNET-CFG"),
    ("route-of-nothing", GOOD, CFG.replace("layers = -1, 1", ""), "E-DARKNET-CFG"),
    (
        "upsampled-1000-times",
        GOOD,
        "[net]\nheight=9\nwidth=9\nchannels=1\n" + "[upsample]\nstride=16777216\n" * 1000,
        "E-DARKNET-CFG",
    ),
    ("no-net", GOOD, CFG.replace("[net]", "[yolo]"), "E-DARKNET-CFG"),
    ("empty-cfg", GOOD, "", "E-DARKNET-CFG"),
    ("no-key", GOOD, CFG + "\nwhat is this", "E-DARKNET-CFG"),
    ("recurrent-layer", GOOD, CFG.replace("[softmax]", "[lstm]"), "E-DARKNET-LAYER"),
    ("flipped", GOOD, CFG.replace("filters=4", "filters=4\nflipped=1"), "E-DARKNET-LAYER"),
    ("large-cfg", GOOD, CFG + "#" * (1 << 18), "E-LIMIT-HEADER"),
    ("36k-layers", GOOD, CFG + "[yolo]\n" * 36_000, ""),
]


@pytest.mark.parametrize(("name", "data", "cfg", "code"), HOSTILE, ids=[row[0] for row in HOSTILE])
def test_hostile(name, data, cfg, code, tmp_path, sandbox):
    outcome = sandbox.outcome(saved(tmp_path, data, cfg, "tiny.weights" if code != "E-FORMAT-UNKNOWN" else "tiny.data"))
    assert (outcome.code, outcome.quick) == (code, True), outcome


def test_flipped_bytes_give_our_errors_only(tmp_path):
    rng = random.Random(3)
    for _ in range(300):
        data, cfg = bytearray(GOOD), bytearray(CFG.encode())
        data[rng.randrange(24)] = rng.randrange(256)
        cfg[rng.randrange(len(cfg))] = rng.randrange(256)
        (tmp_path / "tiny.cfg").write_bytes(cfg)
        try:
            graph = cc.open(saved(tmp_path, bytes(data), None))
        except cc.Error:
            continue
        assert all(len(tensor.raw()) == tensor.nbytes for tensor in graph.weights.values())

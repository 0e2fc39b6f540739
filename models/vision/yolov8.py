"""YOLO v8 (Ultralytics 2023): object detection without anchor boxes, and key points of poses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import CANDLE, MODEL, TIMM, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import Integer, Listed
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, conv_norm
from ..layers.image.grid import places
from ..layers.image.image_net import ImageNet
from ..layers.image.pooling import max_pool
from ..layers.image.resize import enlarged, size_of
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..preprocess.checked_settings import MAX_EDGE
from ..schema.network_hyperparameters import LABELS, OBJECT_DETECTION, ClassTask, Implied, count_of

EPS = 1e-3
HEAD = "model.22"
STRIDES = (8, 16, 32)
"""Strides of the three levels that the head sees, in pixels."""
CANDLE_NAMES = {
    0: "net.b1.0", 1: "net.b1.1", 2: "net.b2.0", 3: "net.b2.1", 4: "net.b2.2", 5: "net.b3.0", 6: "net.b3.1",
    7: "net.b4.0", 8: "net.b4.1", 9: "net.b5.0", 12: "fpn.n1", 15: "fpn.n2", 16: "fpn.n3", 18: "fpn.n4", 19: "fpn.n5",
    21: "fpn.n6", 22: "head",
}  # fmt: skip
"""Names of the modules in candle, by index."""
MODULES = tuple(
    part
    for place, candle in CANDLE_NAMES.items()
    for part in (
        Module(f"model.{place}.m", hf=(), candle=f"{candle}.bottleneck"),
        Module(f"model.{place}", hf=(), candle=candle),
    )
)
KEYS = (
    ClassTask("Yolov8", (("Model", OBJECT_DETECTION),)),
    *LABELS,
    Key("point_size", (), "key_point_size", None, Integer(2, 3)),
    Key("letterbox", (), "image_size", [640, 640], Listed(Integer(1, MAX_EDGE), 2, 2)),
)
"""`point_size`: whether key points have a visibility next to x and y. `letterbox`: height and width of the input."""
LABEL = re.compile(r"names\.(\d{1,5})")
SHAPE = "yaml.kpt_shape"
EDGES = ("args.imgsz", "train_args.imgsz")
"""Keys of ultralytics' checkpoints: the shape of key points, and the size of pictures in training."""


@dataclass(frozen=True)
class ImpliedYolo(Implied):
    """Takes the labels, the size of pictures and what is known of key points from the metadata of a checkpoint."""

    def __call__(self, source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        found = super().__call__(source, graph)
        if found is None:
            return None
        matches = ((LABEL.fullmatch(key), value) for key, value in graph.metadata.items())
        labels = {int(match[1]): value for match, value in matches if match is not None}
        said: dict[str, Any] = {}
        if sorted(labels) == list(range(len(labels))):
            said["label_names"] = [labels[number] for number in range(len(labels))]
        edges = next((graph.metadata[key] for key in EDGES if key in graph.metadata), None)
        if edges is not None:
            said["letterbox"] = edges if isinstance(edges, list) else [edges, edges]
        points = graph.metadata.get(SHAPE)
        if isinstance(points, list) and len(points) == 2:
            said["point_size"] = points[1]
        return found[0], {**said, **found[1]}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of labels, and what is known of a key point, from the weights."""
    config.values["labels"] = weights[f"{HEAD}.cv3.0.2.weight"].shape[0]
    points = weights.get(f"{HEAD}.cv4.0.2.weight")
    if points is not None and config.point_size is None:
        config.values["point_size"] = 2 if points.shape[0] % 3 else 3


def levels(net: ImageNet) -> tuple[Value, Value, Value]:
    """Images of a 8th, 16th and 32nd of the height and width: a backbone, then a pyramid down and up."""
    x = _conv(net, net.pixels("model.0.conv.weight"), "model.0", 2)
    x = _split(net, _conv(net, x, "model.1", 2), "model.2", True)
    fine = _split(net, _conv(net, x, "model.3", 2), "model.4", True)
    middle = _split(net, _conv(net, fine, "model.5", 2), "model.6", True)
    coarse = _pooled(net, _split(net, _conv(net, middle, "model.7", 2), "model.8", True), "model.9")
    middle = _split(net, net.Concat(enlarged(net, coarse, 2), middle, axis=1), "model.12")
    fine = _split(net, net.Concat(enlarged(net, middle, 2), fine, axis=1), "model.15")
    middle = _split(net, net.Concat(_conv(net, fine, "model.16", 2), middle, axis=1), "model.18")
    coarse = _split(net, net.Concat(_conv(net, middle, "model.19", 2), coarse, axis=1), "model.21")
    return fine, middle, coarse


def _conv(net: ImageNet, x: Value, name: str, stride: int = 1) -> Value:
    """Convolution, batch norm and SiLU; the norm may be folded into the convolution already."""
    if net.has(f"{name}.bn.weight"):
        x = conv_norm(net, x, f"{name}.conv", f"{name}.bn", stride=stride, epsilon=EPS)
    else:
        x = conv(net, x, f"{name}.conv", stride=stride)
    return net.activate(x, "silu")


def _split(net: ImageNet, x: Value, name: str, adds: bool = False) -> Value:
    """Half of the channels through blocks of two convolutions, all results side by side (C2f); `adds` is whether
    blocks add their input."""
    x = _conv(net, x, f"{name}.cv1")
    half = net.channels(f"{name}.cv1.conv") // 2
    found = [*net.split(x, [half, half], axis=1)]
    for i in range(count_of(net.weights, f"{name}.m.{{i}}.cv1.conv.weight")):
        y = _conv(net, _conv(net, found[-1], f"{name}.m.{i}.cv1"), f"{name}.m.{i}.cv2")
        found.append(net.Add(found[-1], y) if adds else y)
    return _conv(net, net.Concat(*found, axis=1), f"{name}.cv2")


def _pooled(net: ImageNet, x: Value, name: str) -> Value:
    """The largest elements of windows of three sizes, side by side (SPPF)."""
    found = [_conv(net, x, f"{name}.cv1")]
    for _ in range(3):
        found.append(max_pool(net, found[-1], 5, 1, 2))
    return _conv(net, net.Concat(*found, axis=1), f"{name}.cv2")


def detected(net: ImageNet) -> None:
    """``boxes_xywh`` [batch, 4, positions]: center, size in pixels; ``scores`` [batch, classes, positions] in 0
    to 1; and ``keypoints`` [batch, points x 3, positions] of models that find them."""
    found: dict[str, list[Value]] = {"boxes_xywh": [], "scores": [], "keypoints": []}
    for i, (x, stride) in enumerate(zip(levels(net), STRIDES, strict=True)):
        centers = net.Transpose(places(net, size_of(net, x), 0.5), perm=[1, 0])
        found["boxes_xywh"].append(_boxes(net, _head(net, x, f"{HEAD}.cv2.{i}"), centers, stride))
        found["scores"].append(net.Sigmoid(_head(net, x, f"{HEAD}.cv3.{i}")))
        if net.has(f"{HEAD}.cv4.{i}.2.weight"):
            found["keypoints"].append(_points(net, _head(net, x, f"{HEAD}.cv4.{i}"), centers, stride))
    for name, each in found.items():
        if each:
            net.output(name, net.Concat(*each, axis=2))


def _head(net: ImageNet, x: Value, name: str) -> Value:
    """Two convolutions of 3 x 3 and one of 1 x 1, [batch, channels, positions]."""
    x = conv(net, _conv(net, _conv(net, x, f"{name}.0"), f"{name}.1"), f"{name}.2")
    value: Value = net.Reshape(x, [0, 0, -1])
    return value


def _boxes(net: ImageNet, x: Value, centers: Value, stride: int) -> Value:
    """Boxes from the distributions of the distances of their edges (Li et al. 2020, arXiv:2006.04388)."""
    bins = net.tensor(f"{HEAD}.dfl.conv.weight").shape[1]
    weight = net.Reshape(net.vector(f"{HEAD}.dfl.conv.weight"), [1, bins])
    shares = net.Softmax(net.Reshape(x, net.Concat(net.Shape(x, start=0, end=1), [4, bins, -1], axis=0)), axis=2)
    distances = net.Squeeze(net.MatMul(weight, shares), [2])
    before, behind = net.split(distances, [2, 2], axis=1)
    moved = net.Add(centers, net.Mul(net.Sub(behind, before), 0.5))
    value: Value = net.Mul(net.Concat(moved, net.Add(before, behind), axis=1), float(stride))
    return value


def _points(net: ImageNet, x: Value, centers: Value, stride: int) -> Value:
    """Key points in pixels; how visible they are in 0 to 1."""
    size = net.config.point_size
    points = net.channels(f"{HEAD}.cv4.0.2") // size
    each = net.Reshape(x, net.Concat(net.Shape(x, start=0, end=1), [points, size, -1], axis=0))
    parts = net.split(each, [2, size - 2] if size > 2 else [2], axis=2)
    corners = net.Sub(centers, 0.5)
    moved = net.Mul(net.Add(net.Mul(parts[0], 2.0), corners), float(stride))
    whole = net.Concat(moved, net.Sigmoid(parts[1]), axis=2) if size > 2 else moved
    value: Value = net.Reshape(whole, net.Concat(net.Shape(x, start=0, end=2), [-1], axis=0))
    return value


ARCHITECTURES = (
    Architecture(
        "yolov8",
        "YOLO v8",
        (),
        ("yolov8",),
        KEYS,
        (),
        (Task(OBJECT_DETECTION, {MODEL: image_graph(detected)}, run_image_model),),
        implied=ImpliedYolo(
            "yolov8",
            r"yolov8\w*(-pose)?",
            {
                TIMM: ("model.0.conv.weight", f"{HEAD}.dfl.conv.weight", "model.9.cv1.conv.weight"),
                CANDLE: ("net.b1.0.conv.weight", "head.dfl.conv.weight", "fpn.n1.cv1.conv.weight"),
            },
            (),
            task=OBJECT_DETECTION,
        ),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)

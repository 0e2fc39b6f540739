"""Resize before opset 13, and Upsample, which Resize replaced in opset 10."""

from __future__ import annotations

import numpy as np

from ...runtime.build import Builder
from ...runtime.errors import FormatError
from ...runtime.graph import Node, Value
from ...runtime.infer import CHECK, Inference
from ...runtime.op import op, upgrade
from .resize import resize, scaled

WITHOUT_HALF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


@upgrade(resize, below=11)
def with_coordinates(node: Node, build: Builder) -> None:
    """Opset 10: positions are ``out / scale``; the nearest element is the one before it, the one after it along axes that shrink."""
    x, scales = node.inputs
    mode = node.attributes.get("mode", "nearest")
    known = constant(scales, build)
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest" and (known is None or (known < 1).any()):
        one = build.constant(1.0, "float32")
        x = build.add(resize, [x, None, build.add("Min", [scales, one])], {**attributes, "nearest_mode": "ceil"})
        scales = build.add("Max", [scales, one])
    build.add(resize, [x, None, scales], {**attributes, "nearest_mode": "floor"}, outputs=node.outputs, name=node.name)


@upgrade(resize, below=13)
def without_tensorflow_pixels(node: Node, build: Builder) -> None:
    """Opsets 11 and 12 had a position half an element further; rounding takes it up where that is possible."""
    mode = node.attributes.get("nearest_mode", "round_prefer_floor")
    if node.attributes.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn" and mode in WITHOUT_HALF:
        node.attributes.update(coordinate_transformation_mode="half_pixel", nearest_mode=WITHOUT_HALF[mode])


def constant(value: Value | None, build: Builder) -> np.ndarray | None:
    """The array of a weight or of a Constant node."""
    if value is None:
        return None
    if value.producer is not None and value.producer.op.name == "Constant":
        found = value.producer.attributes.get("value")
        return found if isinstance(found, np.ndarray) else None
    tensor = build.graph.weights.get(value.name)
    return None if tensor is None else tensor.numpy()


def _infer(node: Inference) -> None:
    shape, scales = node.shape(0), node.array(1)
    if shape is not None and scales is not None and len(scales) != len(shape):
        node.refuse(f"{len(scales)} scales are given for {len(shape)} axes")
    known = None if shape is None else [None if scales is None else scaled(dim, float(scales[axis])) for axis, dim in enumerate(shape)]
    node.set(0, node.dtype(0), known)


@op("Upsample", since=9, infer=_infer)
def upsample(x: np.ndarray, scales: np.ndarray, *, mode: str = "nearest") -> np.ndarray:
    """Lengths ``floor(scales * before)``; positions are ``out / scale``."""
    assert resize.compute is not None
    made: np.ndarray = resize.compute(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return made


@upgrade(upsample, below=10)
def as_resize(node: Node, build: Builder) -> None:
    """Upsample is a Resize; its scales were attributes before opset 9, of the two last axes alone before opset 7."""
    attributes = node.attributes
    mode = {"bilinear": "linear"}.get(attributes.get("mode", "nearest"), attributes.get("mode", "nearest"))
    if len(node.inputs) > 1:
        scales = node.inputs[1]
    else:
        given = attributes.get("scales") or [1.0, 1.0, attributes.get("height_scale", 0.0), attributes.get("width_scale", 0.0)]
        if min(given) <= 0:
            raise FormatError("E-ONNX-NODE", None, f"Upsample node {node.name!r} has no scales", hint=CHECK)
        scales = build.constant(np.array(given, np.float32))
    wanted = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    build.add(resize, [node.inputs[0], None, scales], wanted, outputs=node.outputs, name=node.name)

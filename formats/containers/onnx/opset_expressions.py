"""Newer operator definitions expressed by operators that older opsets have, where attributes alone do not suffice."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.ir.builder import Builder
from ....runtime.ir.graph import Node, Value
from ....runtime.passes.pattern.replace_nodes import constant
from ....runtime.tensor.dtype import DTYPES

WIDENED = {"i8": "i32", "i16": "i32", "u8": "i32", "u16": "i32", "f16": "f32"}
"""The type in which operators without one of these types compute, and are cast back."""
CAST = {"i32": 6, "f32": 1, "i8": 3, "i16": 5, "u8": 2, "u16": 4}
"""Numbers of types in the attribute `to` of Cast."""


def expressed(node: Node, build: Builder) -> bool:
    """Whether the node was written in other operators, its outputs included."""
    rule = None if node.op.domain else EXPRESSIONS.get(node.op.name)
    return rule is not None and rule(node, build)


def _pad(node: Node, build: Builder) -> bool:
    """Pad over some axes: pads of all axes."""
    import numpy

    data, pads, value, axes = [*node.inputs, None, None][:4]
    lengths = constant(build.graph, pads)
    chosen = constant(build.graph, axes)
    if data is None or data.shape is None or lengths is None or chosen is None:
        return False
    rank = len(data.shape)
    every = numpy.zeros((2, rank), numpy.int64)
    every[:, chosen.numpy().astype(numpy.int64) % rank] = lengths.numpy().reshape(2, -1)
    inputs = [data, build.constant(every.reshape(-1)), *([] if value is None else [value])]
    build.add("Pad", inputs, dict(node.attributes), outputs=node.outputs, name=node.name)
    return True


def _split(node: Node, build: Builder) -> bool:
    """Split into parts of which the last is shorter: the lengths as an input."""
    data, axis = node.inputs[0], int(node.attributes.get("axis", 0))
    if data is None or data.shape is None or any(value is not None for value in node.inputs[1:]):
        return False
    length, count = data.shape[axis], len(node.outputs)
    if not isinstance(length, int):
        return False
    part = -(-length // count)
    lengths = [max(0, min(part, length - index * part)) for index in range(count)]
    build.add("Split", [data, build.constant(lengths)], {"axis": axis}, outputs=node.outputs, name=node.name)
    return True


def _shape(node: Node, build: Builder) -> bool:
    """Some dimensions of a shape: a slice of all."""
    first, stop = node.attributes.get("start", 0), node.attributes.get("end")
    bounds = [build.constant([first]), build.constant([2**31 - 1 if stop is None else stop])]
    build.add("Slice", [build.add("Shape", [node.inputs[0]]), *bounds], outputs=node.outputs, name=node.name)
    return True


def _widened(node: Node, build: Builder) -> bool:
    """Arithmetic of narrow types: computed in a wider one, whose lowest bits are the result."""
    dtype = next((value.dtype for value in node.inputs if value is not None), None)
    wide = None if dtype is None else WIDENED.get(dtype.name)
    if dtype is None or wide is None:
        return False
    inputs: list[Value | None] = [
        None if value is None else build.add("Cast", [value], {"to": CAST[wide]}) for value in node.inputs
    ]
    if node.outputs[0].dtype is DTYPES["bool"]:
        build.add(node.op.name, inputs, dict(node.attributes), outputs=node.outputs, name=node.name)
        return True
    result = build.add(node.op.name, inputs, dict(node.attributes), name=node.name)
    build.add("Cast", [result], {"to": CAST[dtype.name]}, outputs=node.outputs)
    return True


SCALES = {"QLinearMatMul": (1, 4, 6), "DequantizeLinear": (1,)}
"""Indices of the inputs that are f32 in older definitions."""


def _scaled_in_f32(node: Node, build: Builder) -> bool:
    """Products of integers and 16-bit scales: the same with f32 scales, rounded once."""
    inputs = list(node.inputs)
    narrow = [at for at in SCALES[node.op.name] if at < len(inputs) and _is_16_bit(inputs[at])]
    if not narrow:
        return False
    for at in narrow:
        inputs[at] = build.add("Cast", [inputs[at]], {"to": CAST["f32"]})
    attributes = {name: value for name, value in node.attributes.items() if name != "output_dtype"}
    result, dtype = node.outputs[0], node.outputs[0].dtype
    if dtype is None or not _is_16_bit(result):
        build.add(node.op.name, inputs, attributes, outputs=node.outputs, name=node.name)
        return True
    wide = build.add(node.op.name, inputs, attributes, name=node.name)
    build.add("Cast", [wide], {"to": dtype.onnx}, outputs=node.outputs)
    return True


def _is_16_bit(value: Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.name in ("f16", "bf16")


EXPRESSIONS: dict[str, Callable[[Node, Builder], bool]] = {
    "Pad": _pad,
    "Split": _split,
    "Shape": _shape,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Relu", "IsInf"), _widened),
    **dict.fromkeys(SCALES, _scaled_in_f32),
}
"""Operator -> the function that writes a node whose definition is newer than the opset."""

"""Complex numbers in ONNX graphs: each value becomes its real and its imaginary part, transforms become DFT nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import COMPLEX
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Op
from ...runtime.ir.registry import operator
from ...runtime.passes.pattern.replace_nodes import rewrite
from ...runtime.tensor.dtype import DType

Pair = tuple[Value, Value]
MOVING = (
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
"""Operators of ONNX that move elements, which both parts go through."""
BY_PART = ("Add", "CumSum", "Neg", "ReduceMean", "ReduceSum", "Sub", "Sum")
"""Operators that compute each part by itself, ``Complex`` before their names left out."""


def into_parts(graph: Graph, constants: Mapping[Value, np.ndarray]) -> None:
    """Replace complex nodes by real ones, as far as rules are known; dtypes and shapes of the graph are known.

    Args:
        constants: complex inputs of the graph that have these elements.
    """
    build = Builder(graph)
    lowering = _Lowering()
    for value, array in constants.items():
        real, imaginary = (np.ascontiguousarray(each) for each in (array.real, array.imag))
        lowering.pairs[value] = build.constant(real), build.constant(imaginary)
    rewrite(graph, lowering.replaced)


class _Lowering:
    """The rules by operator, and the parts of the values that were replaced."""

    def __init__(self) -> None:
        self.pairs: dict[Value, Pair] = {}
        self.rules = {_operator(name, COMPLEX): rule for name, rule in RULES.items()}
        self.by_part = {_operator(f"Complex{name}", COMPLEX): _operator(name) for name in BY_PART}
        self.moving = {_operator(name) for name in MOVING}

    def replaced(self, node: Node, build: Builder) -> bool:
        """Build what stands for a node; whether a rule is known."""
        pairs, given = self.pairs, [value for value in node.inputs if value is not None]
        if any(_is_complex(value) and value not in pairs for value in given):
            return False
        moving = node.op in self.moving and any(value in pairs for value in given)
        if moving or node.op in self.by_part:
            op = self.by_part.get(node.op, node.op)
            parts = [
                build.node(op, self._part(node, number), node.attributes, outputs=len(node.outputs)).outputs
                for number in (0, 1)
            ]
            pairs.update(zip(node.outputs, zip(*parts, strict=True), strict=True))
            return True
        rule = self.rules.get(node.op)
        made = None if rule is None else rule(node, build, [pairs.get(each, (each, each)) for each in given])
        if isinstance(made, Value):
            build.add("Identity", [made], outputs=node.outputs)
        elif made is not None:
            pairs[node.outputs[0]] = made
        return made is not None

    def _part(self, node: Node, number: int) -> list[Value | None]:
        """The inputs of a node, complex ones by one of their parts."""
        return [
            value if value is None or value not in self.pairs else self.pairs[value][number] for value in node.inputs
        ]


def _operator(name: str, domain: str = "") -> Op:
    found = operator(name, domain)
    assert found is not None, name
    return found


def _is_complex(value: Value) -> bool:
    return value.dtype is not None and value.dtype.is_complex


# -- rules: nodes by parts of their inputs ----------------------------------------------------------------------------


def _joined(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair | None:
    parts = [each for each, _ in inputs]
    shape = node.outputs[0].shape
    if all(part.shape is not None and part.shape == shape for part in parts):
        return parts[0], parts[1]
    if shape is None or not all(isinstance(length, int) for length in shape):
        return None
    real, imaginary = (build.add("Expand", [part, build.constant(list(shape))]) for part in parts)
    return real, imaginary


def _cast(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair | Value | None:
    target, source = node.outputs[0].dtype, node.inputs[0]
    if target is None or target.kind == "bool" or source is None:
        return None
    to = {"to": (target.to_real() if target.is_complex else target).onnx}
    real = build.add("Cast", [inputs[0][0]], to)
    if not target.is_complex:
        return real
    if _is_complex(source):
        return real, build.add("Cast", [inputs[0][1]], to)
    zeros = build.add("Expand", [_number(build, 0.0, target), build.add("Shape", [real])])
    return real, zeros


def _product(multiply: str, node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = inputs
    first, second = build.add(multiply, [a, c]), build.add(multiply, [b, d])
    third, fourth = build.add(multiply, [a, d]), build.add(multiply, [b, c])
    return build.add("Sub", [first, second]), build.add("Add", [third, fourth])


def _quotient(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair:
    one, (c, d) = inputs
    size = _squared_size(build, (c, d))
    conjugate = build.add("Div", [c, size]), build.add("Neg", [build.add("Div", [d, size])])
    return _product("Mul", node, build, [one, conjugate])


def _squared_size(build: Builder, pair: Pair) -> Value:
    squares = [build.add("Mul", [each, each]) for each in pair]
    return build.add("Add", squares)


def _absolute(node: Node, build: Builder, inputs: Sequence[Pair]) -> Value:
    return build.add("Sqrt", [_squared_size(build, inputs[0])])


def _exponential(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair:
    size, angle = build.add("Exp", [inputs[0][0]]), inputs[0][1]
    real, imaginary = (build.add("Mul", [size, build.add(each, [angle])]) for each in ("Cos", "Sin"))
    return real, imaginary


def _number(build: Builder, value: float, like: DType | None) -> Value:
    """A constant in the dtype of the parts of a dtype."""
    return build.constant(value, "float64" if like is not None and like.name in ("c128", "f64") else "float32")


def _scaled(build: Builder, pair: Pair, factor: float, like: DType | None) -> Pair:
    if factor == 1:
        return pair
    number = _number(build, factor, like)
    return build.add("Mul", [pair[0], number]), build.add("Mul", [pair[1], number])


def _transformed(build: Builder, signal: Value, axis: int, *, inverse: int = 0, onesided: int = 0) -> Pair:
    """DFT along an axis of a signal whose last dim has one or two parts; the inverse is divided by the length."""
    options = {"inverse": inverse, "onesided": onesided}
    found = build.add("DFT", [signal, None, build.constant(axis)], options)
    real, imaginary = (build.add("Gather", [found, build.constant(part)], {"axis": -1}) for part in (0, 1))
    return real, imaginary


def _stacked(build: Builder, pair: Pair) -> Value:
    last = build.constant([-1])
    return build.add("Concat", [build.add("Unsqueeze", [each, last]) for each in pair], {"axis": -1})


def _fft(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair | None:
    shape, (pair, *_) = node.outputs[0].shape, inputs
    if shape is None:
        return None
    factor, inverse = node.attributes.get("scale", 1.0), node.attributes.get("inverse", 0)
    for each in node.attributes["axes"]:
        length = shape[each]
        if inverse:
            if not isinstance(length, int):
                return None
            factor *= length
        pair = _transformed(build, _stacked(build, pair), each % len(shape), inverse=inverse)
    return _scaled(build, pair, factor, node.outputs[0].dtype)


def _rfft(node: Node, build: Builder, inputs: Sequence[Pair]) -> Pair | None:
    shape, signal = node.outputs[0].shape, inputs[0][0]
    if shape is None:
        return None
    signal = build.add("Unsqueeze", [signal, build.constant([-1])])
    found = _transformed(build, signal, node.attributes["axis"] % len(shape), onesided=1)
    return _scaled(build, found, node.attributes.get("scale", 1.0), node.outputs[0].dtype)


def _irfft(node: Node, build: Builder, inputs: Sequence[Pair]) -> Value | None:
    shape, length, source = node.outputs[0].shape, node.attributes["length"], node.inputs[0]
    half = length // 2 + 1
    if shape is None or source is None or source.shape is None or length < 1:
        return None
    axis = node.attributes["axis"] % len(shape)
    bins = source.shape[axis]
    if not isinstance(bins, int) or bins < half:
        return None
    kept, mirrored = build.constant(list(range(half))), build.constant([length - k for k in range(half, length)])
    parts = []
    for number, part in enumerate(inputs[0]):
        first, rest = (build.add("Gather", [part, each], {"axis": axis}) for each in (kept, mirrored))
        rest = build.add("Neg", [rest]) if number else rest
        parts.append(build.add("Concat", [first, rest], {"axis": axis}))
    found = _transformed(build, _stacked(build, (parts[0], parts[1])), axis, inverse=1)
    return _scaled(build, found, node.attributes.get("scale", 1.0) * length, node.outputs[0].dtype)[0]


RULES: dict[str, Callable[[Node, Builder, Sequence[Pair]], Pair | Value | None]] = {
    "Complex": _joined,
    "ComplexAbs": _absolute,
    "ComplexCast": _cast,
    "ComplexCastLike": _cast,
    "ComplexDiv": _quotient,
    "ComplexExp": _exponential,
    "ComplexMatMul": functools.partial(_product, "MatMul"),
    "ComplexMul": functools.partial(_product, "Mul"),
    "Conj": lambda node, build, inputs: (inputs[0][0], build.add("Neg", [inputs[0][1]])),
    "FFT": _fft,
    "IRFFT": _irfft,
    "Imag": lambda node, build, inputs: inputs[0][1],
    "RFFT": _rfft,
    "Real": lambda node, build, inputs: inputs[0][0],
}
"""Rules of complex operators, from the parts of their inputs; None where a length is not known."""

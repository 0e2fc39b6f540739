"""Dynamic int8 quantization: 8-bit weights; activations are quantized to uint8 in every run, with their current range.

MatMul and Gemm become DynamicQuantizeLinear, MatMulInteger and a scaling, Conv the same with ConvInteger, LSTM one
DynamicQuantizeLSTM; Gather keeps its table in uint8. Source: the operators' definitions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import MICROSOFT
from ...ir.graph import Graph, Node, Value
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import by_operator, constant, constant_matrix, rewrite
from ..pattern.shared_constants import SharedConstants

if TYPE_CHECKING:
    import numpy as np

F32 = 1
OPERATORS = ("Conv", "Gather", "Gemm", "LSTM", "MatMul")
"""Operators whose weights are quantized."""
INT8_REACH = {False: 127, True: 64}
"""Greatest int8 code of a weight, by whether the range is reduced, as onnxruntime has them."""


@dataclass
class DynamicInt8:
    """Quantize constant weights of `OPERATORS`.

    Attributes:
        weight: int8 or uint8; the weights of Conv are always uint8, since runtimes have no ConvInteger for others,
            those of LSTM always int8.
        per_channel: a scale for each output channel of a weight, instead of one.
        reduced: 7-bit codes of weights, whose sums of two products with bytes fit 16 bits.
        selected: whether a node may be changed.
        changed: names of the weights that were quantized.
    """

    weight: str = "int8"
    per_channel: bool = False
    reduced: bool = False
    selected: Callable[[Node], bool] = field(default=lambda node: True)
    changed: list[str] = field(default_factory=list)
    _rounded: dict[tuple[Graph, Value], tuple[Value, Value, Value]] = field(default_factory=dict, repr=False)
    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)

    def run(self, graph: Graph) -> bool:
        """Replace nodes with a constant f32 matrix; return whether there were any."""
        rules = (self._conv, self._gather, self._gemm, self._lstm, self._matmul)
        return rewrite(graph, by_operator(dict(zip(OPERATORS, rules, strict=True)), self.selected))

    def _matmul(self, node: Node, build: Builder) -> bool:
        matrices = [self._stack(value, build) for value in node.inputs[:2]]
        if matrices[1] is not None:
            self._product(node, matrices[1], False, build, node.outputs)
        elif matrices[0] is not None:
            self._left_product(node, matrices[0], build)
        else:
            return False
        return True

    def _gemm(self, node: Node, build: Builder) -> bool:
        read = {**node.op.defaults, **node.attributes}
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        plain = read["alpha"] == 1 and not read["transA"] and (bias is None or read["beta"] == 1)
        matrix = self._weight(node.inputs[1], build) if plain else None
        if matrix is None:
            return False
        transposed = bool(read["transB"])
        if bias is None:
            self._product(node, matrix, transposed, build, node.outputs)
        else:
            build.add(
                "Add", [self._product(node, matrix, transposed, build), bias], outputs=node.outputs, name=node.name
            )
        return True

    def _gather(self, node: Node, build: Builder) -> bool:
        table = self._weight(node.inputs[0], build)
        if table is None:
            return False
        assert node.inputs[0] is not None
        codes, scale, zero = self._shared.constants(
            build, node.inputs[0], "table", lambda: quantize_uint8(table.numpy())
        )
        rows = build.add("Gather", [codes, node.inputs[1]], node.attributes, name=node.name)
        build.add("DequantizeLinear", [rows, scale, zero], outputs=node.outputs)
        return True

    def _weight(self, value: Value | None, build: Builder) -> StoredTensor | None:
        matrix = constant_matrix(build.graph, value, ("f32",))
        if value is not None and matrix is not None:
            self.changed.append(value.name)
        return matrix

    def _stack(self, value: Value | None, build: Builder) -> StoredTensor | None:
        """A constant f32 matrix, or a stack of matrices."""
        tensor = constant(build.graph, value)
        if value is None or tensor is None or tensor.dtype.name != "f32" or len(tensor.shape) < 2 or 0 in tensor.shape:
            return None
        self.changed.append(value.name)
        return tensor

    def _conv(self, node: Node, build: Builder) -> bool:
        tensor = constant(build.graph, node.inputs[1])
        if tensor is None or tensor.dtype.name != "f32" or 0 in tensor.shape or len(tensor.shape) < 3:
            return False
        rank = len(tensor.shape)
        assert node.inputs[0] is not None
        assert node.inputs[1] is not None
        self.changed.append(node.inputs[1].name)
        codes, scale, zero = self._codes(node.inputs[0], build)
        across = (-1, *(1,) * (rank - 2))

        def made() -> list[np.ndarray]:
            axes = tuple(range(1, rank)) if self.per_channel else None
            right, steps, zeros = quantize_8bit(tensor.numpy(), "uint8", axes, reduced=self.reduced)
            return [right, steps.reshape(across) if self.per_channel else steps, zeros.reshape(-1)[:1].reshape(())]

        right, steps, middle = self._shared.constants(build, node.inputs[1], "conv", made)
        sums = build.add("ConvInteger", [codes, right, zero, middle], node.attributes, name=node.name)
        factor = build.add("Mul", [scale, steps])
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        scaled = build.add(
            "Mul", [build.add("Cast", [sums], {"to": F32}), factor], outputs=node.outputs if bias is None else 1
        )
        if bias is not None:
            vector = build.add("Reshape", [bias, build.constant([*across])])
            build.add("Add", [scaled, vector], outputs=node.outputs)
        return True

    def _lstm(self, node: Node, build: Builder) -> bool:
        weights = [constant(build.graph, value) for value in node.inputs[1:3]]
        if node.attributes.get("layout", 0) or any(
            tensor is None or tensor.dtype.name != "f32" or 0 in tensor.shape for tensor in weights
        ):
            return False
        inputs: list[Value | None] = [*node.inputs, *[None] * (8 - len(node.inputs))]
        for index, tensor in enumerate(weights, 1):
            value = node.inputs[index]
            assert tensor is not None
            assert value is not None
            inputs[index], *scaling = self._shared.constants(
                build, value, "lstm", functools.partial(self._lstm_codes, tensor)
            )
            inputs += scaling
            self.changed.append(value.name)
        attributes = {name: value for name, value in node.attributes.items() if name != "layout"}
        build.add("DynamicQuantizeLSTM", inputs, attributes, domain=MICROSOFT, outputs=node.outputs, name=node.name)
        build.graph.opsets.setdefault(MICROSOFT, 1)
        return True

    def _lstm_codes(self, tensor: StoredTensor) -> list[np.ndarray]:
        """LSTM weight codes with the last two axes swapped, with their scales and zero points."""
        transposed = tensor.numpy().swapaxes(1, 2)
        codes, steps = quantize_int8(transposed, (1,) if self.per_channel else (1, 2), INT8_REACH[self.reduced])
        steps = steps.reshape(len(transposed), -1) if self.per_channel else steps
        return [codes, steps, (steps * 0).astype("int8")]

    def _codes(self, value: Value, build: Builder) -> tuple[Value, Value, Value]:
        """Codes, scale and zero point of an activation, computed once per graph."""
        place = (build.graph, value)
        if place not in self._rounded:
            node = build.node("DynamicQuantizeLinear", [value], outputs=3)
            self._rounded[place] = (node.outputs[0], node.outputs[1], node.outputs[2])
        return self._rounded[place]

    def _product(
        self, node: Node, matrix: StoredTensor, transposed: bool, build: Builder, outputs: int | list[Value] = 1
    ) -> Value:
        left, weight = node.inputs[:2]
        assert left is not None
        assert weight is not None
        codes, scale, zero = self._codes(left, build)
        how = ("product", node.attributes.get("transB", 0))

        def made() -> tuple[np.ndarray, ...]:
            array = matrix.numpy()
            axes = tuple(range(array.ndim - 1)) if self.per_channel else None
            parts = quantize_8bit(array.T if transposed else array, self.weight, axes, reduced=self.reduced)
            return parts if array.ndim == 2 else (*parts[:2], parts[2].reshape(-1)[:1].reshape(()))

        right, steps, zeros = self._shared.constants(build, weight, how, made)
        sums = build.add("MatMulInteger", [codes, right, zero, zeros], name=node.name if outputs != 1 else "")
        factor = build.add("Mul", [scale, steps])
        return build.add("Mul", [build.add("Cast", [sums], {"to": F32}), factor], outputs=outputs)

    def _left_product(self, node: Node, matrix: StoredTensor, build: Builder) -> None:
        """A product with a weight on the left, whose codes are uint8: runtimes multiply no int8 by uint8. Scales of
        channels are those of rows."""
        weight, right = node.inputs[:2]
        assert weight is not None
        assert right is not None
        codes, scale, zero = self._codes(right, build)

        def made() -> tuple[np.ndarray, ...]:
            array = matrix.numpy()
            axes = (*range(array.ndim - 2), array.ndim - 1) if self.per_channel else None
            left, steps, zeros = quantize_8bit(array, "uint8", axes, reduced=self.reduced)
            return left, steps.reshape(-1, 1) if self.per_channel else steps, zeros.reshape(-1)[:1].reshape(())

        left, steps, middle = self._shared.constants(build, weight, "left", made)
        sums = build.add("MatMulInteger", [left, codes, middle, zero], name=node.name)
        factor = build.add("Mul", [scale, steps])
        build.add("Mul", [build.add("Cast", [sums], {"to": F32}), factor], outputs=node.outputs)


def quantize_8bit(
    values: np.ndarray, dtype: str, axis: int | tuple[int, ...] | None = None, *, reduced: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, f32 scales and zero points as int8 or uint8; symmetric: the zero point is the middle code. `reduced`: 7
    bits, -64 to 64 as int8 and 1 to 127 as uint8."""
    import numpy

    if dtype == "int8":
        codes, steps = quantize_int8(values, axis, INT8_REACH[reduced])
        return codes, steps, numpy.zeros(steps.shape, numpy.int8)
    codes, steps = quantize_int8(values, axis, 63 if reduced else 127)
    zero = 64 if reduced else 128
    return (codes.astype(numpy.int16) + zero).astype(numpy.uint8), steps, numpy.full(steps.shape, zero, numpy.uint8)


def quantize_int8(
    values: np.ndarray, axis: int | tuple[int, ...] | None = None, most: int = 127
) -> tuple[np.ndarray, np.ndarray]:
    """int8 codes in [-most, most] and the f32 scale of the array; with `axis` (one or several), scales are reduced
    over these axes."""
    import numpy

    reach = numpy.abs(values).max(axis=axis, keepdims=axis is not None)
    steps = numpy.where(reach == 0, 1, reach / numpy.float32(most)).astype(numpy.float32)
    codes = numpy.clip(numpy.rint(values / steps), -most, most).astype(numpy.int8)
    return codes, steps.reshape(() if axis is None else steps.size)


def quantize_uint8(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """uint8 codes, the f32 scale, and the uint8 zero point."""
    import numpy

    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    step = numpy.float32((high - low) / 255 or 1)
    zero = numpy.uint8(numpy.clip(round(-low / float(step)), 0, 255))
    codes = numpy.clip(numpy.rint(values / step) + numpy.float32(zero), 0, 255).astype(numpy.uint8)
    return codes, numpy.array(step), numpy.array(zero)

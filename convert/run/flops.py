"""Operation counts: multiplications and additions of a node with known shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Trait

Shape = tuple[int, ...]


def shape_of(value: Value | None) -> Shape | None:
    """The shape of a value; None if a length of it is unknown."""
    if value is None or value.shape is None:
        return None
    lengths = tuple(length for length in value.shape if isinstance(length, int))
    return lengths if len(lengths) == len(value.shape) else None


def operations(node: Node) -> float | None:
    """Arithmetic operations of one application: a product and its sum are two, any other result element is one. None
    where shapes are unknown."""
    inputs, outputs = [shape_of(value) for value in node.inputs], [shape_of(value) for value in node.outputs]
    if not outputs or outputs[0] is None:
        return None
    count = COUNTED.get(node.op.name)
    if count is not None:
        return count(node, inputs, outputs[0])
    largest = (
        max((math.prod(shape) for shape in inputs if shape is not None), default=0)
        if Trait.REDUCTION in node.op.traits
        else 0
    )
    return (
        float(max(largest, sum(math.prod(shape) for shape in outputs if shape is not None)))
        if Trait.MOVES not in node.op.traits
        else 0.0
    )


def _product(
    contracted: Callable[[Node, list[Shape | None]], int | None],
) -> Callable[[Node, list[Shape | None], Shape], float | None]:
    def count(node: Node, inputs: list[Shape | None], output: Shape) -> float | None:
        length = contracted(node, inputs)
        return None if length is None else 2.0 * math.prod(output) * length

    return count


def _last(node: Node, inputs: list[Shape | None]) -> int | None:
    return inputs[0][-1] if inputs[0] else None


def _gemm(node: Node, inputs: list[Shape | None]) -> int | None:
    return inputs[0][0 if node.attributes.get("transA") else -1] if inputs[0] else None


def _window(position: int) -> Callable[[Node, list[Shape | None]], int | None]:
    """Elements of a kernel that one result is made of, from the weights at an input."""

    def elements(node: Node, inputs: list[Shape | None]) -> int | None:
        weights = inputs[position] if position < len(inputs) else None
        return None if weights is None else math.prod(weights[1:])

    return elements


def _transposed(node: Node, inputs: list[Shape | None], output: Shape) -> float | None:
    if inputs[0] is None or inputs[1] is None:
        return None
    return 2.0 * math.prod(inputs[0]) * math.prod(inputs[1][1:])


def _attention(node: Node, inputs: list[Shape | None], output: Shape) -> float | None:
    """Scores and their sum: two products over all pairs of positions, without regard to masks."""
    query, key = inputs[0], inputs[1] if len(inputs) > 1 else None
    if query is None or key is None or len(query) < 3 or len(key) < 3:
        return None
    return 4.0 * math.prod(query) * key[-2]


def _recurrent(node: Node, inputs: list[Shape | None], output: Shape) -> float | None:
    x, weights, hidden = inputs[0], inputs[1], inputs[2]
    if x is None or weights is None or hidden is None:
        return None
    return 2.0 * x[0] * x[1] * (math.prod(weights) + math.prod(hidden))


COUNTED: dict[str, Callable[[Node, list[Shape | None], Shape], float | None]] = {
    **dict.fromkeys(
        (
            "MatMul",
            "MatMulInteger",
            "QLinearMatMul",
            "FusedMatMul",
            "MatMulNBits",
            "MatMulBnb4",
            "Linear",
            "DynamicQuantizeMatMul",
            "MatMulIntegerToFloat",
        ),
        _product(_last),
    ),
    **dict.fromkeys(("Gemm", "FusedGemm"), _product(_gemm)),
    **dict.fromkeys(("Conv", "BlockedConv", "ConvInteger", "FusedConv", "NhwcConv"), _product(_window(1))),
    "QLinearConv": _product(_window(3)),
    "ConvTranspose": _transposed,
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent),
}
"""Operators whose arithmetic is more than an operation for each element of the result."""

"""How the parts of heads and hidden units that a rank has go through operators, for `AcrossRanks`.

A rule looks at a node: it says which values are parts, of what, along which axis (counted from the last, -1), and notes what the node needs instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ..graph import Dim, Graph, Node, Value
from ..record import dataclass
from .cutting import Spans
from .rewrite import constant


class Refused(Exception):
    """A network cannot be cut."""

    def __init__(self, network: str, why: str) -> None:
        super().__init__(network, why)
        self.network = network
        self.why = why


@dataclass(frozen=True)
class Part:
    """What a rank has of a value.

    Attributes:
        axis: from the last, -1, -2 ...
        length: of the axis at one rank alone.
        network: whose weights made it.
    """

    axis: int
    length: int
    network: str


@dataclass
class Tracing:
    """A graph under examination, and what has to be changed.

    Attributes:
        state: values of which a rank has a part.
        cuts: axis and spans of each weight that is cut; networks: what each belongs to.
        changes: attributes, constants by the place of the input, and slices (axis, start, stop) by the place of the input.
        shapes: of inputs; sums: nodes behind which AllReduce stands.
    """

    graph: Graph
    rank: int
    size: int
    role: re.Pattern[str]
    whole: frozenset[str]
    last: Sequence[str]
    state: dict[Value, Part] = field(default_factory=dict)
    cuts: dict[str, tuple[int, Spans]] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    changes: dict[Node, tuple[dict[str, Any], dict[int, list[int]], dict[int, tuple[int, int, int]]]] = field(default_factory=dict)
    shapes: dict[Value, tuple[Dim, ...]] = field(default_factory=dict)
    sums: set[Node] = field(default_factory=set)

    def share(self, length: int, network: str) -> int:
        """What each rank has of a length."""
        if length % self.size:
            raise Refused(network, f"{length} heads or units are not a multiple of {self.size} ranks")
        return length // self.size

    def spans(self, lengths: Sequence[int], network: str) -> Spans:
        """Where this rank's share of each of some pieces lies, which follow one another."""
        found, start = [], 0
        for length in lengths:
            each = self.share(length, network)
            found.append((start + self.rank * each, start + (self.rank + 1) * each))
            start += length
        return tuple(found)

    def cut(self, name: str, axis: int, spans: Spans, network: str) -> None:
        """Note that a weight is cut."""
        if self.cuts.setdefault(name, (axis, spans)) != (axis, spans):
            raise Refused(network, f"{name} would be cut in two ways")
        self.networks[name] = network

    def change(self, node: Node) -> tuple[dict[str, Any], dict[int, list[int]], dict[int, tuple[int, int, int]]]:
        """What a node needs instead."""
        return self.changes.setdefault(node, ({}, {}, {}))

    def refuse(self, node: Node) -> None:
        """Raise where a node takes a part."""
        for value in node.inputs:
            if value is not None and value in self.state:
                raise Refused(self.state[value].network, f"{node.op.name} of a part of its heads or units is not known")

    def named(self, value: Value | None) -> tuple[str, str] | None:
        """Network and part of a weight by its name, None for those that stay whole."""
        found = self.role.match(value.name) if value is not None and value.name in self.graph.weights else None
        return None if found is None or found["layer"] in self.whole else (found["layer"], found["part"])

    def numbers(self, value: Value | None) -> list[int] | None:
        """A constant list of integers."""
        held = constant(self.graph, value)
        return None if held is None or held.dtype.name != "i64" or held.count > 16 else [int(item) for item in held.numpy().reshape(-1)]


def _matrix(tracing: Tracing, value: Value | None) -> tuple[Value, bool] | None:
    """The weight behind a product's second input, and whether it is turned."""
    if value is not None and value.producer is not None and value.producer.op.name == "Transpose":
        inner = value.producer.inputs[0]
        return None if inner is None else (inner, True)
    return None if value is None else (value, False)


def _product(tracing: Tracing, node: Node) -> None:
    """Rows times a weight: a part of its results, or the sum over a part of what it takes."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    part = tracing.state.get(x)
    experts = node.op.name == "MatMulExperts"
    found = (w, True) if experts and w is not None else _matrix(tracing, w)
    named = None if found is None else tracing.named(found[0])
    if named is None or found is None:
        if part is not None:
            raise Refused(part.network, "a part meets a matrix that is not known")
        return
    weight, turned = found
    network, role = named
    shape = tracing.graph.weights[weight.name].shape
    first = 1 if experts else 0
    if not turned or len(shape) != first + 2:
        raise Refused(network, f"{weight.name} is not stored as rows of results")
    if role in tracing.last:
        if part is None:
            return
        if part.axis != -1 or part.network != network:
            raise Refused(network, f"{weight.name} does not take what its network gives")
        tracing.cut(weight.name, first + 1, tracing.spans([shape[-1]], network), network)
        tracing.sums.add(node)
        return
    if part is not None:
        raise Refused(part.network, f"{weight.name} takes a part")
    pieces = _pieces(tracing, node, shape[first])
    tracing.cut(weight.name, first, tracing.spans(pieces, network), network)
    tracing.state[node.outputs[0]] = Part(-1, shape[first], network)


def _pieces(tracing: Tracing, node: Node, length: int) -> list[int]:
    """Lengths of the pieces that a product's results are split into afterwards, past a bias."""
    value = node.outputs[0]
    for other in tracing.graph.nodes:
        if value not in other.inputs:
            continue
        if other.op.name == "Add":
            value = other.outputs[0]
        elif other.op.name == "Split":
            sizes = tracing.numbers(other.inputs[1] if len(other.inputs) > 1 else None)
            return sizes or [length]
        else:
            break
    return [length]


def _elementwise(tracing: Tracing, node: Node) -> None:
    parts = [(value, tracing.state[value]) for value in node.inputs if value is not None and value in tracing.state]
    if not parts:
        return
    part = parts[0][1]
    if any((other.axis, other.length) != (part.axis, part.length) for _, other in parts):
        raise Refused(part.network, f"{node.op.name} of parts along different axes")
    for place, value in enumerate(node.inputs):
        if value is None or value in tracing.state:
            continue
        shape = value.shape
        if shape is None:
            raise Refused(part.network, f"the shape of {value.name} is not known")
        if len(shape) < -part.axis or shape[part.axis] == 1:
            continue
        if shape[part.axis] != part.length:
            raise Refused(part.network, f"{value.name} has another length")
        _whole_meets_part(tracing, node, place, value, part)
    tracing.state[node.outputs[0]] = part


def _whole_meets_part(tracing: Tracing, node: Node, place: int, value: Value, part: Part) -> None:
    """An input that every rank has whole is cut: a weight of its own, or by Slice."""
    share = tracing.share(part.length, part.network)
    axis = len(value.shape or ()) + part.axis
    if tracing.named(value) is not None:
        tracing.cut(value.name, axis, tracing.spans(_pieces(tracing, node, part.length), part.network), part.network)
    else:
        tracing.change(node)[2][place] = (axis, tracing.rank * share, (tracing.rank + 1) * share)


def _gather(tracing: Tracing, node: Node) -> None:
    """Biases of experts by their index."""
    data = node.inputs[0]
    tracing.refuse(node)
    named = tracing.named(data)
    if data is None or named is None or named[1] in tracing.last or not node.outputs[0].name:
        return
    network, length = named[0], tracing.graph.weights[data.name].shape[-1]
    tracing.cut(data.name, len(tracing.graph.weights[data.name].shape) - 1, tracing.spans([length], network), network)
    tracing.state[node.outputs[0]] = Part(-1, length, network)


def _reshape(tracing: Tracing, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None or x is None:
        return
    dims = tracing.numbers(node.inputs[1])
    if dims is None or node.attributes.get("allowzero"):
        raise Refused(part.network, "Reshape of a part to a shape that is computed")
    lead = next((place for place, dim in enumerate(dims) if dim), len(dims))
    rest = dims[lead:]
    if part.axis == -1 and rest:
        length = rest[0] if rest[0] > 0 else _inferred(part, rest)
        made = Part(-len(rest), length, part.network)
    elif part.axis == -2 and len(rest) == 1 and x.shape is not None and len(x.shape) == lead + 2 and isinstance(x.shape[-1], int):
        length = part.length * x.shape[-1]
        made = Part(-1, length, part.network)
        if rest[0] not in (-1, length):
            raise Refused(part.network, "Reshape takes heads apart")
    else:
        raise Refused(part.network, "this Reshape of a part is not known")
    share = tracing.share(length, part.network)
    tracing.change(node)[1][1] = [*dims[:lead], share if rest[0] > 0 else -1, *rest[1:]]
    tracing.state[node.outputs[0]] = made


def _inferred(part: Part, rest: Sequence[int]) -> int:
    others = 1
    for dim in rest[1:]:
        others *= dim
    if others <= 0 or part.length % others:
        raise Refused(part.network, "this Reshape of a part is not known")
    return part.length // others


def _transpose(tracing: Tracing, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    order = list(node.attributes.get("perm", ()))
    if not order:
        raise Refused(part.network, "Transpose of a part without an order")
    tracing.state[node.outputs[0]] = Part(order.index(len(order) + part.axis) - len(order), part.length, part.network)


def _rotary(tracing: Tracing, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    heads = node.attributes.get("num_heads", 0)
    if heads:
        tracing.change(node)[0]["num_heads"] = tracing.share(heads, part.network)
    elif part.axis != -3:
        raise Refused(part.network, "RotaryEmbedding of a part along an axis that is none of heads")
    tracing.state[node.outputs[0]] = part


def _cached(tracing: Tracing, node: Node) -> None:
    """Keys or values behind those of the tokens before, which a rank has of its heads only."""
    past, new = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    part = None if new is None else tracing.state.get(new)
    if part is None:
        tracing.refuse(node)
        return
    shape = None if past is None else past.shape
    if past is None or past not in tracing.graph.inputs or shape is None or len(shape) < -part.axis or shape[part.axis] != part.length:
        raise Refused(part.network, f"{node.op.name} of a part and what is no state")
    axis = len(shape) + part.axis
    tracing.shapes[past] = (*shape[:axis], tracing.share(part.length, part.network), *shape[axis + 1 :])
    tracing.state[past] = tracing.state[node.outputs[0]] = part


def _attention(tracing: Tracing, node: Node) -> None:
    q, k, v, mask, *others = [*node.inputs, None]
    parts = [tracing.state.get(value) for value in (q, k, v) if value is not None]
    given = [part for part in parts if part is not None]
    if not given:
        return
    network = given[0].network
    if len(given) != 3 or any(part.axis != -3 for part in given) or any(value is not None for value in others):
        raise Refused(network, "Attention of some parts only, or of more than queries, keys, values and a mask")
    for part in given:
        tracing.share(part.length, network)
    heads = given[0]
    if mask is not None and mask.shape is None:
        raise Refused(network, "the shape of the mask is not known")
    if mask is not None and mask.shape is not None and len(mask.shape) == 4 and mask.shape[1] == heads.length > 1:
        share = tracing.share(heads.length, network)
        tracing.change(node)[2][3] = (1, tracing.rank * share, (tracing.rank + 1) * share)
    tracing.state[node.outputs[0]] = heads


def _shape(tracing: Tracing, node: Node) -> None:
    """Lengths that the ranks share."""
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if x is None or part is None:
        return
    if x.shape is None or len(x.shape) + part.axis in range(len(x.shape))[node.attributes.get("start", 0) : node.attributes.get("end")]:
        raise Refused(part.network, "the length of a part is asked for")


def _split(tracing: Tracing, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None or x is None:
        return
    sizes = tracing.numbers(node.inputs[1] if len(node.inputs) > 1 else None)
    axis = node.attributes.get("axis", 0)
    if sizes is None or axis not in (part.axis, None if x.shape is None else len(x.shape) + part.axis):
        raise Refused(part.network, "this Split of a part is not known")
    tracing.change(node)[1][1] = [tracing.share(size, part.network) for size in sizes]
    for value, size in zip(node.outputs, sizes, strict=True):
        tracing.state[value] = Part(part.axis, size, part.network)


def _normed(tracing: Tracing, node: Node) -> None:
    """Norms of each head, along its own elements."""
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    if part.axis == -1 or node.attributes.get("axis", -1) != -1:
        raise Refused(part.network, "a norm over all heads or units")
    tracing.state[node.outputs[0]] = part


Rule = Callable[[Tracing, Node], None]
ELEMENTWISE = (
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Where", "Identity", "Cast", "Neg", "Abs", "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Relu",
    "Gelu", "Erf", "Softplus", "Swish", "Clip", "Silu",
)  # fmt: skip
RULES: dict[tuple[str, str], Rule] = {
    **{("", name): _elementwise for name in ELEMENTWISE},
    ("", "MatMul"): _product, ("candle", "MatMulExperts"): _product, ("", "Gather"): _gather, ("", "Reshape"): _reshape,
    ("", "Shape"): _shape, ("", "Transpose"): _transpose, ("", "RotaryEmbedding"): _rotary, ("", "TensorScatter"): _cached, ("", "Concat"): _cached,
    ("", "Attention"): _attention, ("", "Split"): _split, ("", "RMSNormalization"): _normed, ("", "LayerNormalization"): _normed,
}

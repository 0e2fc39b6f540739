"""Partition rules: how a shard of heads or hidden units propagates through each operator, for `ShardAcrossRanks`.

A rule looks at a node: it records which outputs are shards, of what, along which axis (negative), and what the node
needs instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ...base.dataclass import dataclass
from ...base.units import counted
from ...ir.domain import CANDLE
from ...ir.graph import Dim, Graph, Node, Value
from ...ir.registry import candle, onnx
from ..pattern.replace_nodes import constant
from .weight_slice import Spans


class NotShardable(Exception):
    """A network cannot be sharded."""

    def __init__(self, network: str, why: str) -> None:
        super().__init__(network, why)
        self.network = network
        self.why = why


@dataclass(frozen=True)
class Shard:
    """The shard of a value that one rank holds.

    Attributes:
        axis: from the last, -1, -2 ...
        length: of the axis at one rank alone.
        network: whose weights made it.
    """

    axis: int
    length: int
    network: str


@dataclass
class ShardingTrace:
    """A graph being sharded, and the changes it needs.

    Attributes:
        state: values of which a rank has a part.
        cuts: axis and spans of each weight that is cut; networks: what each belongs to.
        changes: attributes, constants by the index of the input, and slices (axis, start, stop) by the index of the
            input.
        shapes: of inputs; sums: nodes after which AllReduce stands.
    """

    graph: Graph
    rank: int
    size: int
    role: re.Pattern[str]
    whole: frozenset[str]
    last: Sequence[str]
    state: dict[Value, Shard] = field(default_factory=dict)
    cuts: dict[str, tuple[int, Spans]] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    changes: dict[Node, tuple[dict[str, Any], dict[int, list[int]], dict[int, tuple[int, int, int]]]] = field(
        default_factory=dict
    )
    shapes: dict[Value, tuple[Dim, ...]] = field(default_factory=dict)
    sums: set[Node] = field(default_factory=set)

    def share(self, length: int, network: str) -> int:
        """The shard length at each rank."""
        if length % self.size:
            raise NotShardable(
                network, f"{counted(length, 'head')} or units are not a multiple of {counted(self.size, 'rank')}"
            )
        return length // self.size

    def spans(self, lengths: Sequence[int], network: str) -> Spans:
        """The span of this rank's shard in each of several consecutive pieces."""
        found, start = [], 0
        for length in lengths:
            each = self.share(length, network)
            found.append((start + self.rank * each, start + (self.rank + 1) * each))
            start += length
        return tuple(found)

    def cut(self, name: str, axis: int, spans: Spans, network: str) -> None:
        """Record that a weight is sharded."""
        if self.cuts.setdefault(name, (axis, spans)) != (axis, spans):
            raise NotShardable(network, f"{name} would be sharded in two ways")
        self.networks[name] = network

    def change(self, node: Node) -> tuple[dict[str, Any], dict[int, list[int]], dict[int, tuple[int, int, int]]]:
        """The changes recorded for a node."""
        return self.changes.setdefault(node, ({}, {}, {}))

    def check_replicated(self, node: Node) -> None:
        """NotShardable if an input of the node is a shard."""
        for value in node.inputs:
            if value is not None and value in self.state:
                raise NotShardable(
                    self.state[value].network, f"{node.op.name} of a shard of heads or units is not supported"
                )

    def named(self, value: Value | None) -> tuple[str, str] | None:
        """Network and role of a weight by its name, None for replicated weights."""
        found = self.role.match(value.name) if value is not None and value.name in self.graph.weights else None
        return None if found is None or found["layer"] in self.whole else (found["layer"], found["part"])

    def numbers(self, value: Value | None) -> list[int] | None:
        """A constant list of integers."""
        held = constant(self.graph, value)
        return (
            None
            if held is None or held.dtype.name != "i64" or held.count > 16
            else [int(item) for item in held.numpy().reshape(-1)]
        )


def _matrix(tracing: ShardingTrace, value: Value | None) -> tuple[Value, bool] | None:
    """The weight of a product, and whether it is transposed."""
    if value is not None and value.producer is not None and value.producer.op is onnx.Transpose:
        inner = value.producer.inputs[0]
        return None if inner is None else (inner, True)
    return None if value is None else (value, False)


def _product(tracing: ShardingTrace, node: Node) -> None:
    """Activations times a weight: column-parallel output, or a partial sum over a sharded input."""
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    part = tracing.state.get(x)
    experts = node.op is candle.MatMulExperts
    found = (w, True) if experts and w is not None else _matrix(tracing, w)
    named = None if found is None else tracing.named(found[0])
    if named is None or found is None:
        if part is not None:
            raise NotShardable(part.network, "a shard is multiplied by an unknown matrix")
        return
    weight, transposed = found
    network, role = named
    shape = tracing.graph.weights[weight.name].shape
    first = 1 if experts else 0
    if not transposed or len(shape) != first + 2:
        raise NotShardable(network, f"{weight.name} is not stored as [out, in]")
    if role in tracing.last:
        if part is None:
            return
        if part.axis != -1 or part.network != network:
            raise NotShardable(network, f"{weight.name} does not read its network's hidden units")
        tracing.cut(weight.name, first + 1, tracing.spans([shape[-1]], network), network)
        tracing.sums.add(node)
        return
    if part is not None:
        raise NotShardable(part.network, f"{weight.name} reads a shard")
    pieces = _pieces(tracing, node, shape[first])
    tracing.cut(weight.name, first, tracing.spans(pieces, network), network)
    tracing.state[node.outputs[0]] = Shard(-1, shape[first], network)


def _pieces(tracing: ShardingTrace, node: Node, length: int) -> list[int]:
    """Lengths of the pieces that a product's result is split into later, past a bias."""
    value = node.outputs[0]
    for other in tracing.graph.nodes:
        if value not in other.inputs:
            continue
        if other.op is onnx.Add:
            value = other.outputs[0]
        elif other.op is onnx.Split:
            sizes = tracing.numbers(other.inputs[1] if len(other.inputs) > 1 else None)
            return sizes or [length]
        else:
            break
    return [length]


def _elementwise(tracing: ShardingTrace, node: Node) -> None:
    parts = [(value, tracing.state[value]) for value in node.inputs if value is not None and value in tracing.state]
    if not parts:
        return
    part = parts[0][1]
    if any((other.axis, other.length) != (part.axis, part.length) for _, other in parts):
        raise NotShardable(part.network, f"{node.op.name} of shards along different axes")
    for index, value in enumerate(node.inputs):
        if value is None or value in tracing.state:
            continue
        shape = value.shape
        if shape is None:
            raise NotShardable(part.network, f"the shape of {value.name} is unknown")
        if len(shape) < -part.axis or shape[part.axis] == 1:
            continue
        if shape[part.axis] != part.length:
            raise NotShardable(part.network, f"{value.name} has another length")
        _whole_meets_part(tracing, node, index, value, part)
    tracing.state[node.outputs[0]] = part


def _whole_meets_part(tracing: ShardingTrace, node: Node, place: int, value: Value, part: Shard) -> None:
    """Shard a replicated input: a constant weight directly, other values with Slice."""
    share = tracing.share(part.length, part.network)
    axis = len(value.shape or ()) + part.axis
    if tracing.named(value) is not None:
        tracing.cut(value.name, axis, tracing.spans(_pieces(tracing, node, part.length), part.network), part.network)
    else:
        tracing.change(node)[2][place] = (axis, tracing.rank * share, (tracing.rank + 1) * share)


def _gather(tracing: ShardingTrace, node: Node) -> None:
    """Biases of experts gathered by index."""
    data = node.inputs[0]
    tracing.check_replicated(node)
    named = tracing.named(data)
    if data is None or named is None or named[1] in tracing.last or not node.outputs[0].name:
        return
    network, length = named[0], tracing.graph.weights[data.name].shape[-1]
    tracing.cut(data.name, len(tracing.graph.weights[data.name].shape) - 1, tracing.spans([length], network), network)
    tracing.state[node.outputs[0]] = Shard(-1, length, network)


def _reshape(tracing: ShardingTrace, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None or x is None:
        return
    dims = tracing.numbers(node.inputs[1])
    if dims is None or node.attributes.get("allowzero"):
        raise NotShardable(part.network, "Reshape of a shard to a computed shape")
    lead = next((index for index, dim in enumerate(dims) if dim), len(dims))
    rest = dims[lead:]
    if part.axis == -1 and rest:
        length = rest[0] if rest[0] > 0 else _inferred(part, rest)
        made = Shard(-len(rest), length, part.network)
    elif (
        part.axis == -2
        and len(rest) == 1
        and x.shape is not None
        and len(x.shape) == lead + 2
        and isinstance(x.shape[-1], int)
    ):
        length = part.length * x.shape[-1]
        made = Shard(-1, length, part.network)
        if rest[0] not in (-1, length):
            raise NotShardable(part.network, "Reshape splits heads")
    else:
        raise NotShardable(part.network, "this Reshape of a shard is not supported")
    share = tracing.share(length, part.network)
    tracing.change(node)[1][1] = [*dims[:lead], share if rest[0] > 0 else -1, *rest[1:]]
    tracing.state[node.outputs[0]] = made


def _inferred(part: Shard, rest: Sequence[int]) -> int:
    others = 1
    for dim in rest[1:]:
        others *= dim
    if others <= 0 or part.length % others:
        raise NotShardable(part.network, "this Reshape of a shard is not supported")
    return part.length // others


def _transpose(tracing: ShardingTrace, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    order = list(node.attributes.get("perm", ()))
    if not order:
        raise NotShardable(part.network, "Transpose of a shard without perm")
    tracing.state[node.outputs[0]] = Shard(order.index(len(order) + part.axis) - len(order), part.length, part.network)


def _rotary(tracing: ShardingTrace, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    heads = node.attributes.get("num_heads", 0)
    if heads:
        tracing.change(node)[0]["num_heads"] = tracing.share(heads, part.network)
    elif part.axis != -3:
        raise NotShardable(part.network, "RotaryEmbedding of a shard along another axis than heads")
    tracing.state[node.outputs[0]] = part


def _cached(tracing: ShardingTrace, node: Node) -> None:
    """Keys or values appended to those of earlier tokens, of which a rank holds its own heads."""
    past, new = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    part = None if new is None else tracing.state.get(new)
    if part is None:
        tracing.check_replicated(node)
        return
    shape = None if past is None else past.shape
    if (
        past is None
        or past not in tracing.graph.inputs
        or shape is None
        or len(shape) < -part.axis
        or shape[part.axis] != part.length
    ):
        raise NotShardable(part.network, f"{node.op.name} of a shard and a value that is not a cached state")
    axis = len(shape) + part.axis
    tracing.shapes[past] = (*shape[:axis], tracing.share(part.length, part.network), *shape[axis + 1 :])
    tracing.state[past] = tracing.state[node.outputs[0]] = part


def _attention(tracing: ShardingTrace, node: Node) -> None:
    q, k, v, mask, *others = [*node.inputs, None]
    parts = [tracing.state.get(value) for value in (q, k, v) if value is not None]
    given = [part for part in parts if part is not None]
    if not given:
        return
    network = given[0].network
    if len(given) != 3 or any(part.axis != -3 for part in given) or any(value is not None for value in others):
        raise NotShardable(
            network,
            "Attention with some inputs sharded only, or with inputs other than queries, keys, values and a mask",
        )
    for part in given:
        tracing.share(part.length, network)
    heads = given[0]
    if mask is not None and mask.shape is None:
        raise NotShardable(network, "the shape of the mask is unknown")
    if mask is not None and mask.shape is not None and len(mask.shape) == 4 and mask.shape[1] == heads.length > 1:
        share = tracing.share(heads.length, network)
        tracing.change(node)[2][3] = (1, tracing.rank * share, (tracing.rank + 1) * share)
    tracing.state[node.outputs[0]] = heads


def _shape(tracing: ShardingTrace, node: Node) -> None:
    """Lengths of sharded axes, divided among the ranks."""
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if x is None or part is None:
        return
    if (
        x.shape is None
        or len(x.shape) + part.axis in range(len(x.shape))[node.attributes.get("start", 0) : node.attributes.get("end")]
    ):
        raise NotShardable(part.network, "the length of a sharded axis is read")


def _split(tracing: ShardingTrace, node: Node) -> None:
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None or x is None:
        return
    sizes = tracing.numbers(node.inputs[1] if len(node.inputs) > 1 else None)
    axis = node.attributes.get("axis", 0)
    if sizes is None or axis not in (part.axis, None if x.shape is None else len(x.shape) + part.axis):
        raise NotShardable(part.network, "this Split of a shard is not supported")
    tracing.change(node)[1][1] = [tracing.share(size, part.network) for size in sizes]
    for value, size in zip(node.outputs, sizes, strict=True):
        tracing.state[value] = Shard(part.axis, size, part.network)


def _normed(tracing: ShardingTrace, node: Node) -> None:
    """Per-head norms, along the head's own elements."""
    x = node.inputs[0]
    part = None if x is None else tracing.state.get(x)
    if part is None:
        return
    if part.axis == -1 or node.attributes.get("axis", -1) != -1:
        raise NotShardable(part.network, "a norm over all heads or units")
    tracing.state[node.outputs[0]] = part


Rule = Callable[[ShardingTrace, Node], None]
ELEMENTWISE = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Min",
    "Max",
    "Where",
    "Identity",
    "Cast",
    "Neg",
    "Abs",
    "Exp",
    "Log",
    "Sqrt",
    "Tanh",
    "Sigmoid",
    "Relu",
    "Gelu",
    "Erf",
    "Softplus",
    "Swish",
    "Clip",
    "Silu",
)
RULES: dict[tuple[str, str], Rule] = {
    **{("", name): _elementwise for name in ELEMENTWISE},
    ("", "MatMul"): _product,
    (CANDLE, "MatMulExperts"): _product,
    ("", "Gather"): _gather,
    ("", "Reshape"): _reshape,
    ("", "Shape"): _shape,
    ("", "Transpose"): _transpose,
    ("", "RotaryEmbedding"): _rotary,
    ("", "TensorScatter"): _cached,
    ("", "Concat"): _cached,
    ("", "Attention"): _attention,
    ("", "Split"): _split,
    ("", "RMSNormalization"): _normed,
    ("", "LayerNormalization"): _normed,
}

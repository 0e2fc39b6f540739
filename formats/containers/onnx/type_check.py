"""Type checker of ONNX graphs: declared against inferred types, and invalid ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....runtime.base.units import counted
from ....runtime.contract.format import Finding
from ....runtime.ir.graph import Function, Graph, Value
from ....runtime.passes.pattern.replace_nodes import graphs
from .opset_lowering import type_name

DeclaredTypes = Mapping[Value, str]
CODE = "E-ONNX-TYPE"


def declared_types(graph: Graph) -> dict[Value, str]:
    """Declared types of values, as operator definitions name them."""
    values = {value for inner in graphs(graph) for value in (*inner.values.values(), *inner.outputs)}
    mentioned = [value for value in values if value.carried is not None and "type" in value.carried]
    return {value: name for value in mentioned if (name := type_name(value)) is not None}


def contradictions(graph: Graph, declared: DeclaredTypes) -> Iterator[Finding]:
    """Values whose inferred types differ from the declared ones, in node order.

    Args:
        declared: the types in the file, noted before the graph was inferred.
    """
    for inner in graphs(graph):
        for node in inner.nodes:
            for value in node.outputs:
                found, expected = type_name(value), declared.get(value)
                if expected is not None and found is not None and _held(found) != _held(expected):
                    why = f"the file says {expected}, the {node.op.name} node computes {found}"
                    yield Finding(CODE, "error", why, member=value.name or None)


def _held(name: str) -> str:
    """A type without ``optional``, with which it is interchangeable for present values."""
    return name.removeprefix("optional(").removesuffix(")") if name.startswith("optional(") else name


RANKS: dict[str, dict[int, tuple[int, ...]]] = {
    "AffineGrid": {0: (3,), 1: (1,)},
    "Attention": {4: (4,), 5: (4,)},
    "CausalConvWithState": {2: (1,)},
    "Col2Im": {1: (1,), 2: (1,)},
    "ConstantOfShape": {0: (1,)},
    "Dropout": {1: (0,), 2: (0,)},
    "Expand": {1: (1,)},
    "GRU": {0: (3,), 1: (3,), 2: (3,)},
    "ImageDecoder": {0: (1,)},
    "LSTM": {0: (3,), 1: (3,), 2: (3,)},
    "LinearAttention": {4: (3,)},
    "NegativeLogLikelihoodLoss": {2: (1,)},
    "NonMaxSuppression": {0: (3,), 1: (3,)},
    "OneHot": {1: (0, 1), 2: (1,)},
    "Pad": {1: (1,)},
    "RNN": {0: (3,), 1: (3,), 2: (3,)},
    "Reshape": {1: (1,)},
    "Resize": {1: (1,), 2: (1,), 3: (1,)},
    "RoiAlign": {0: (4,), 1: (2,), 2: (1,)},
    "SoftmaxCrossEntropyLoss": {2: (1,)},
    "TfIdfVectorizer": {0: (1, 2)},
    "Tile": {1: (1,)},
}
"""Allowed ranks by operator and input. Source: the operators' definitions in the ONNX standard."""
ONE_LESS = frozenset({"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"})
"""Operators whose second input has one rank less than the first."""
STATES = {"Loop": 2, "Scan": 0}
"""Operators with a body, and the number of their inputs before those passed to the body."""


def wrong_ranks(graph: Graph) -> Iterator[Finding]:
    """Inputs whose rank the operator does not allow."""
    for inner in graphs(graph):
        for node in inner.nodes:
            if node.op.domain or isinstance(node.op, Function):
                continue
            allowed = dict(RANKS.get(node.op.name, {}))
            first = node.inputs[0] if node.inputs else None
            if node.op.name in ONE_LESS and first is not None and first.shape is not None:
                allowed[1] = (len(first.shape) - 1,)
            for index, ranks in allowed.items():
                value = node.inputs[index] if index < len(node.inputs) else None
                if value is not None and value.shape is not None and len(value.shape) not in ranks:
                    named = " or ".join(map(str, ranks))
                    found = counted(len(value.shape), "dimension")
                    why = f"{node.op.name} node: {value.name!r} has {found}, {named} are needed"
                    yield Finding("E-ONNX-RANK", "error", why, member=node.name or value.name)


def body_inputs(graph: Graph, declared: DeclaredTypes) -> Iterator[Finding]:
    """Loop body inputs whose types differ from those passed."""
    for inner in graphs(graph):
        for node in inner.nodes:
            if node.op.domain or node.op.name not in STATES or not node.subgraphs:
                continue
            start, body = STATES[node.op.name], node.subgraphs[0]
            for given, value in zip(node.inputs[start:], body.inputs[start:], strict=False):
                found = None if given is None else type_name(given)
                expected = declared.get(value)
                if given is not None and found is not None and expected is not None and _held(found) != _held(expected):
                    sides = f"its body takes {value.name!r} as {expected}, and {given.name!r} is {found}"
                    why = f"{node.op.name} node: {sides}"
                    yield Finding(CODE, "error", why, member=node.name or value.name)

"""Operators that carry a state along, on the device: causal convolution, and linear attention token by token, made of other operators."""

from __future__ import annotations

import numpy as np

from ...runtime.build import Builder
from ...runtime.cuda.place import composed
from ...runtime.graph import Node
from ..term import Term
from .causal_conv import causal_conv_with_state
from .linear import RULES, linear_attention


def _integers(build: Builder, *items: int) -> Term:
    return Term(build.constant(list(items)), build)


def _terms(node: Node, build: Builder) -> list[Term | None]:
    return [None if value is None else Term(value, build) for value in node.inputs]


def _lengths(term: Term) -> list[int]:
    return [length for length in term.value.shape or () if isinstance(length, int)]


def _give(node: Node, build: Builder, index: int, term: Term, operator: str = "Identity", **attributes: int) -> None:
    if index < len(node.outputs) and node.outputs[index].name:
        build.add(operator, [term.value], attributes, outputs=[node.outputs[index]])


def _part(build: Builder, term: Term, axis: int, start: int, stop: int) -> Term:
    return term.call("Slice", *(_integers(build, item) for item in (start, stop, axis)))


@composed(causal_conv_with_state)
def causal_conv_of_others(node: Node, build: Builder) -> None:
    """A convolution of each channel by itself over the state and the input."""
    x, weight, bias, past, *_ = [*_terms(node, build), None, None]
    assert x is not None
    assert weight is not None
    batch, channels, length = _lengths(x)
    carried = _lengths(weight)[2] - 1
    assert x.value.dtype is not None
    if past is None and carried:
        past = Term(build.constant(np.zeros((batch, channels, carried), x.value.dtype.as_numpy())), build)
    whole = x if past is None or not carried else past.call("Concat", x, axis=2)
    y = whole.call("Conv", weight, bias, group=channels)
    if (node.attributes.get("activation") or "none") != "none":
        y = y * y.call("Sigmoid")
    _give(node, build, 0, y)
    if len(node.outputs) > 1 and node.outputs[1].name:
        _give(node, build, 1, _part(build, whole, 2, length, length + carried))


@composed(linear_attention)
def linear_attention_of_others(node: Node, build: Builder) -> None:
    """The state [batch, key heads, size, value size] after each token, in f32."""
    query, key, value, past, decay, beta, *_ = [*_terms(node, build), None, None, None]
    assert query is not None
    assert key is not None
    assert value is not None
    attributes = {**node.op.defaults, **node.attributes}
    heads, groups = attributes["q_num_heads"], attributes["kv_num_heads"]
    _, corrected = RULES[attributes["update_rule"]]
    batch, length, width = _lengths(query)
    depth, out = width // heads, _lengths(value)[2] // groups

    def split(term: Term, count: int) -> Term:
        """[length, batch, heads, size] in f32."""
        wide = term.call("Cast", to=1)
        return wide.call("Reshape", _integers(build, batch, length, count, -1)).call("Transpose", perm=[1, 0, 2, 3])

    def token(term: Term, index: int) -> Term:
        return _part(build, term, 0, index, index + 1).call("Squeeze", _integers(build, 0))

    scale = attributes["scale"] or 1 / max(depth, 1) ** 0.5
    q, k, v = split(query, heads) * scale, split(key, groups), split(value, groups)
    zeros = Term(build.constant(np.zeros((batch, groups, depth, out), np.float32)), build)
    state = zeros if past is None else past.call("Cast", to=1)
    kept = None if decay is None else split(decay, groups).call("Exp").call("Unsqueeze", _integers(build, -1))
    rate = None if beta is None else split(beta, groups if _lengths(beta)[2] == groups else 1)
    rows = []
    for index in range(length):
        write, at = token(v, index), token(k, index).call("Unsqueeze", _integers(build, 3))
        if kept is not None:
            state = state * token(kept, index)
        if rate is not None and corrected:
            read = (state * at).call("ReduceSum", _integers(build, 2), keepdims=0)
            write = token(rate, index) * (write - read)
        state = state + at * write.call("Unsqueeze", _integers(build, 2))
        asked = token(q, index).call("Reshape", _integers(build, batch, groups, heads // groups, depth))
        rows.append(asked.call("MatMul", state).call("Reshape", _integers(build, batch, 1, heads * out)))
    found = rows[0].call("Concat", *rows[1:], axis=1) if len(rows) > 1 else rows[0]
    kinds = [item.value.dtype for item in (query, past or query)]
    for place, (term, kind) in enumerate(zip((found, state), kinds, strict=True)):
        assert kind is not None
        assert kind.onnx is not None
        _give(node, build, place, term, "Cast", to=kind.onnx)

"""FlexAttention on the device: products, softmax and the nodes of its subgraphs, as nodes of one plan."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ...runtime.ir.graph import Graph
from ...runtime.ir.op import Undecomposable
from ...runtime.tensor.dtype import BY_ONNX, F32, F64, DType
from ..rules.decompose_cuda import Form, forms
from ..rules.expression import Term
from .flex_attention import flex_attention


def _through(form: Form, name: str, scores: Term, precision: DType) -> Term:
    """Scores after a subgraph, whose nodes and weights become those around it."""
    graph = form.attributes[name]
    if not isinstance(graph, Graph):
        return scores
    around = form.build.graph
    for own, tensor in graph.weights.items():
        around.weights[f"{name}/{own}"], around.values[f"{name}/{own}"] = tensor, graph.values[own]
    form.build.add("Identity", [scores.value], outputs=[graph.inputs[0]])
    for node in graph.nodes:
        form.build.keep(node)
    made = Term(graph.outputs[0], form.build)
    if made.value.shape is not None and made.lengths != scores.lengths:
        raise Undecomposable("a subgraph gives another shape than that of the scores")
    return made.cast(precision)


def _shares(form: Form, scores: Term) -> Term:
    """Softmax over the last axis; zero where every score is -inf."""
    last = form.constant([-1])
    top = scores.call("ReduceMax", last, keepdims=1)
    powers = (scores - top.call("Equal", top.number(-np.inf)).where(top.number(0), top)).call("Exp")
    total = powers.call("ReduceSum", last, keepdims=1)
    return powers / total.call("Equal", total.number(0)).where(total.number(1), total)


def _flex(form: Form) -> None:
    q, k, v = (form.input(index) for index in range(3))
    given, (batch, heads, queries, size) = form.attributes, q.lengths
    groups, keys, width = k.lengths[1], k.lengths[2], v.lengths[3]
    if not groups or heads % groups or k.lengths[3] != size:
        raise Undecomposable("its shapes do not fit")
    number = given["softmax_precision"]
    precision = BY_ONNX[number] if number is not None else F64 if q.dtype is F64 else F32
    work = F64 if F64 in (q.dtype, precision) else F32
    scale = given["scale"] if given["scale"] is not None else 1 / max(size, 1) ** 0.5
    rows = (q.cast(work) * scale).reshaped(batch, groups, heads // groups * queries, size)
    scores = rows.call("MatMul", k.cast(work).call("Transpose", perm=[0, 1, 3, 2])).reshaped(
        batch, heads, queries, keys
    )
    scores = _through(form, "score_mod", scores.cast(precision), precision)
    shares = _shares(form, scores.cast(work) if precision.bits < 32 else scores)
    shares = _through(form, "prob_mod", shares.cast(precision), precision).cast(work)
    found = shares.reshaped(batch, groups, heads // groups * queries, keys).call("MatMul", v.cast(work))
    form.give(0, found.reshaped(batch, heads, queries, width).cast(v.dtype))


decomposed(flex_attention)(forms(_flex))

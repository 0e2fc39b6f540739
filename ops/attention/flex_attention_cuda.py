"""FlexAttention on the device: products, softmax and the nodes of its subgraphs, as nodes of one plan."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import BY_ONNX, F32, F64, DType
from ..rules.decompose_cuda import Form, StaysOnCpu, dtype_of, forms, lengths
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
    if made.value.shape is not None and lengths(made) != lengths(scores):
        raise StaysOnCpu("a subgraph returns another shape than that of the scores")
    return form.cast(made, precision)


def _shares(form: Form, scores: Term) -> Term:
    """Softmax over the last axis; zero where every score is -inf."""
    last = form.constant([-1])
    top = scores.call("ReduceMax", last, keepdims=1)
    powers = (scores - top.call("Equal", top.number(-np.inf)).where(top.number(0), top)).call("Exp")
    total = powers.call("ReduceSum", last, keepdims=1)
    return powers / total.call("Equal", total.number(0)).where(total.number(1), total)


def _flex(form: Form) -> None:
    q, k, v = (form.input(index) for index in range(3))
    given, (batch, heads, queries, size) = form.attributes, lengths(q)
    groups, keys, width = lengths(k)[1], lengths(k)[2], lengths(v)[3]
    if not groups or heads % groups or lengths(k)[3] != size:
        raise StaysOnCpu("the shapes of its inputs contradict each other")
    number = given["softmax_precision"]
    precision = BY_ONNX[number] if number is not None else F64 if dtype_of(q) is F64 else F32
    work = F64 if F64 in (dtype_of(q), precision) else F32
    scale = given["scale"] if given["scale"] is not None else 1 / max(size, 1) ** 0.5
    rows = form.reshaped(form.cast(q, work) * scale, batch, groups, heads // groups * queries, size)
    scores = form.reshaped(
        rows.call("MatMul", form.cast(k, work).call("Transpose", perm=[0, 1, 3, 2])), batch, heads, queries, keys
    )
    scores = _through(form, "score_mod", form.cast(scores, precision), precision)
    shares = _shares(form, form.cast(scores, work) if precision.bits < 32 else scores)
    shares = form.cast(_through(form, "prob_mod", form.cast(shares, precision), precision), work)
    found = form.reshaped(shares, batch, groups, heads // groups * queries, keys).call("MatMul", form.cast(v, work))
    form.give(0, form.cast(form.reshaped(found, batch, heads, queries, width), dtype_of(v)))


decomposed(flex_attention)(forms(_flex))

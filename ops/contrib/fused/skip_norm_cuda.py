"""onnxruntime's fused normalizations on the device."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.elementwise import Apply, Chain, chain_step, copy_launch, elementwise_chain
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import over
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda, decomposed
from ....runtime.tensor.dtype import F32, I32, I64
from ...norm.norm_cuda import MOMENTS, ROOT, _scaled, _shifted, _the_inverse, _the_mean, normalized, rooted, wide
from ...rules.decompose_cuda import Form, forms, lengths
from ...rules.expression import Term
from .skip_norm import (
    embed_layer_normalization,
    gated_rms_norm,
    quantized_embed_layer_normalization,
    simplified_layer_normalization,
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)

Table = tuple[Term, Term | None, Term | None]
"""Rows, and for bytes their scale and zero point."""


@cuda(simplified_layer_normalization)
def simplified_norm_on_device(step: Step) -> Planned:
    """The root of the mean square."""
    x, scale = step.input(0), step.input(1)
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    statistics = [(_the_inverse, step.output(1))] if step.is_used(1) else []
    operands = {"x": x, "scale": scale}
    return normalized(
        x.shape,
        axes,
        operands,
        step.output(),
        rooted,
        ROOT,
        wide(x.dtype),
        statistics,
        epsilon=step.attributes["epsilon"],
    )


def _plus(x: float, other: float) -> float:
    return x + other


def _nothing(x: float) -> float:
    return 0


@cuda(skip_layer_normalization, skip_simplified_layer_normalization)
def skip_norm_on_device(step: Step) -> Planned:
    """The sum first."""
    simple = step.node.op is skip_simplified_layer_normalization
    x, skip, scale = step.input(0), step.input(1), step.input(2)
    beta, bias = (None, step.optional_input(3)) if simple else (step.optional_input(3), step.optional_input(4))
    kind = wide(x.dtype)
    total = step.temporary(kind, x.shape)
    steps: list[Apply] = [chain_step(_plus, [x, skip], kind, compute=kind)]
    if bias is not None:
        steps.append(chain_step(_plus, [None, bias], kind, compute=kind))
    launches: list[Launch | Chain] = [Chain(tuple(steps), total)]
    operands = {"x": total, "scale": scale} | ({"bias": beta} if beta is not None else {})
    form = rooted if simple else _scaled if beta is None else _shifted
    statistics = [
        (function, step.output(index)) for index, function in ((1, _the_mean), (2, _the_inverse)) if step.is_used(index)
    ]
    if simple:
        launches += [
            elementwise_chain(_nothing, [item], item) for function, item in statistics if function is _the_mean
        ]
        statistics = [pair for pair in statistics if pair[0] is _the_inverse]
    axes = [len(x.shape) - 1]
    folds = ROOT if simple else MOMENTS
    y = step.output() if step.is_used(0) else step.temporary(x.dtype, x.shape)
    launches.append(
        normalized(x.shape, axes, operands, y, form, folds, kind, statistics, epsilon=step.attributes["epsilon"])
    )
    if step.is_used(3):
        launches.append(copy_launch(x.shape, over(total, x.shape), over(step.output(3), x.shape)))
    return launches


def _row(form: Form, table: Table, ids: Term | None) -> Term:
    """Rows of a table by index, or a whole one, as numbers."""
    codes, scale, zero = table
    found = codes if ids is None else codes.call("Gather", form.cast(ids, I64))
    if scale is None:
        return found
    wide = form.cast(found, F32)
    return (wide if zero is None else wide - form.cast(zero, F32)) * scale


def _embedded(form: Form, tables: list[Table | None], mask: Term | None, places: Term | None) -> None:
    words, positions, segments, gamma, beta = tables
    assert words is not None
    assert positions is not None
    assert gamma is not None
    ids = form.input(0)
    length = lengths(ids)[1]
    total = _row(form, words, ids) + _row(form, positions, form.constant([range(length)]) if places is None else places)
    segment_ids = form.optional_input(1)
    if segments is not None and segment_ids is not None:
        total = total + _row(form, segments, segment_ids)
    shift = None if beta is None else _row(form, beta, None)
    form.give(
        0, total.call("LayerNormalization", _row(form, gamma, None), shift, axis=-1, epsilon=form.attributes["epsilon"])
    )
    if form.is_used(1):
        counted = (
            form.constant([0] * lengths(ids)[0], "int32")
            if mask is None
            else form.cast(
                form.cast(mask.call("Equal", mask.number(1)), I32).call("ReduceSum", form.constant([1]), keepdims=0),
                I32,
            )
        )
        form.give(1, counted)
    form.give(2, total)


@decomposed(embed_layer_normalization)
@forms
def _embedding(form: Form) -> None:
    tables: list[Table | None] = [
        None if item is None else (item, None, None) for item in map(form.optional_input, range(2, 7))
    ]
    _embedded(form, tables, form.optional_input(7), form.optional_input(8))


@decomposed(quantized_embed_layer_normalization)
@forms
def _embedding_of_bytes(form: Form) -> None:
    tables: list[Table | None] = []
    for index in range(5):
        codes, scale = form.optional_input(2 + index), form.optional_input(8 + index)
        tables.append(None if codes is None or scale is None else (codes, scale, form.optional_input(13 + index)))
    _embedded(form, tables, form.optional_input(7), None)


@decomposed(gated_rms_norm)
@forms
def _opened(form: Form) -> None:
    x, scale, gate = form.input(0), form.input(1), form.input(2)
    size = int(np.prod(lengths(scale)))
    y = form.reshaped(x, *lengths(x)[:-1], -1, size).call(
        "RMSNormalization", form.reshaped(scale, -1), axis=-1, epsilon=form.attributes["epsilon"]
    )
    opened = gate.call("Sigmoid")
    form.give(
        0, form.reshaped(y, *lengths(x)) * (opened if form.attributes["activation"] == "sigmoid" else gate * opened)
    )

"""Types of the encoder and the projector of a model in llama.cpp's two files: f16, unless a rule addresses them.

A rule whose pattern has ``mmproj/`` is for that file, whose tensors it sees as ``mmproj/v.blk.0.attn_q.weight``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from ...runtime.base.units import counted
from ...runtime.ir.graph import Graph
from ...runtime.passes.precision.cast_weights import Audit
from ...runtime.passes.quantize.block_weights import Quantize
from ...runtime.tensor.block_codec import Codec
from ...runtime.tensor.dtype import BlockType, DType
from ..mmproj.split import TRANSPOSED, full_precision
from ..translate.model_facts import model_of, weight_of
from ..write.conversion_options import Options
from ..write.plan import cast_mmproj
from .recipe.request import Quantization, recipe_of
from .recipe.rule import Decider, Recipe, Rule

PREFIX = "mmproj/"
"""What stands before the names of the tensors in patterns."""
USUAL = "f16"
"""The dtype without a rule."""
MATRIX = 2
"""Axes of weights that are multiplied, and may be blocks."""


def cast_encoder(
    graph: Graph, request: Quantization, options: Options, codec: Callable[[BlockType], Codec]
) -> tuple[list[Audit], set[str]]:
    """Give the weights of an mmproj file their types; what was lost, and the patterns of --tensor-type that decided.

    Notes blocks that do not fit a row; these weights are `USUAL`.
    """
    types, used = _chosen(graph, request)
    rules = [
        (rf"^{re.escape(name)}\Z", "f32" if isinstance(dtype, BlockType) else dtype.name)
        for name, dtype in types.items()
    ]
    casts = cast_mmproj(graph, USUAL, dataclasses.replace(options, tensor_types=(*rules, *options.tensor_types)))
    blocks = {name: dtype for name, dtype in types.items() if isinstance(dtype, BlockType)}
    encoded = Quantize(blocks, codec, {}, options.nan, request.measure)
    encoded.run(graph)
    return casts.audits + encoded.audits, used


def _chosen(graph: Graph, request: Quantization) -> tuple[dict[str, DType], set[str]]:
    """Types that rules give, by name, and the used patterns. Vectors and what llama.cpp takes in f32 alone keep it."""
    asked = [] if request.copying else [Rule(pattern, name) for pattern, name in request.wishes.tensor_types]
    rules = [rule for rule in (*asked, *recipe_of(request).rules) if PREFIX in rule.match]
    if not rules:
        return {}, set()
    weights = [dataclasses.replace(weight_of(name, each), name=PREFIX + name) for name, each in graph.weights.items()]
    decider = Decider(Recipe(PREFIX, None, tuple(rules)), model_of(graph), weights, importance=False)
    kept = [re.compile(pattern) for pattern, _ in full_precision(graph)]
    types: dict[str, DType] = {}
    used: set[str] = set()
    fallen: dict[DType, list[str]] = {}
    for weight in weights:
        rule, name = decider.rule(weight), weight.name.removeprefix(PREFIX)
        if rule is None:
            continue
        if rule in asked:
            used.add(rule.match)
        dtype = rule.dtype
        if dtype is None or any(pattern.search(name) for pattern in kept):
            continue
        fits = not isinstance(dtype, BlockType) or (
            len(graph.weights[name].shape) == MATRIX
            and weight.columns % dtype.block == 0
            and not re.search(TRANSPOSED, name)
        )
        if fits:
            types[name] = dtype
        else:
            fallen.setdefault(dtype, []).append(name)
    for dtype, names in fallen.items():
        why = (
            f"stored as {USUAL} instead of {dtype.name}, which needs matrices with rows of a multiple of {dtype.block}"
        )
        graph.note("W-FALLBACK", f"{counted(len(names), 'tensor')} {why}", names[0])
    return types, used

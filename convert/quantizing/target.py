"""Targets: a number of bytes or of bits a weight becomes a recipe, by measuring what each type would cost and lose."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...runtime.dtype import DType
from ...runtime.format import Format, WriteOptions
from ...runtime.graph import Graph
from ...runtime.tensor import Tensor, nbytes
from . import budget, sampling
from .choosing import Choice, Chooser
from .model import Weight
from .request import Quantization
from .rules import Recipe

PADDING = 32
ROOM = 4096
"""Bytes that the header may grow by, for keys that say how the file was quantized."""


def within_target(
    graph: Graph, request: Quantization, chooser: Chooser, weights: Sequence[Weight], importance: dict[str, Any], format: Format, threads: int
) -> Recipe:
    """The recipe that keeps to the target with the least error; `chooser` says which tensors the options decide."""
    choices = [chooser.choose(weight) for weight in weights]
    free = [choice for choice in choices if choice.chosen and choice.reason == "kept by a rule" and math.prod(choice.weight.shape) > 0]
    names = {choice.weight.name for choice in free}
    fixed = sum(_padded(choice.dtype, choice.weight, request) for choice in choices if choice.weight.name not in names)
    target = _target(graph, weights, request, format)
    bits = 8 * target / max(1, sum(math.prod(weight.shape) for weight in weights))

    def offers(choice: Choice) -> list[budget.Offer]:
        return _offers(graph.weights[choice.weight.name], choice.weight, importance.get(choice.weight.name), bits, request)

    with ThreadPoolExecutor(threads) as pool:
        found = budget.allocate(list(pool.map(offers, free)), target - fixed)
    types = {choice.weight.name: offer.dtype for choice, offer in zip(free, found, strict=True)}
    return budget.as_recipe(types, {weight.name: math.prod(weight.shape) for weight in weights})


def _target(graph: Graph, weights: Sequence[Weight], request: Quantization, format: Format) -> int:
    """The bytes that all tensors may take together."""
    if request.target_bpw is not None:
        return int(request.target_bpw * sum(math.prod(weight.shape) for weight in weights) / 8)
    assert request.target_size is not None
    assert format.layout is not None
    whole = sum(file.nbytes for file in format.layout(dataclasses.replace(graph, notes=[]), WriteOptions()))
    return request.target_size - (whole - sum(-(-tensor.nbytes // PADDING) * PADDING for tensor in graph.weights.values())) - ROOM


def _padded(dtype: DType, weight: Weight, request: Quantization) -> int:
    """Bytes of a tensor, as they count for the target: with padding where the whole file is meant."""
    size = nbytes(dtype, weight.shape)
    assert size is not None
    return size if request.target_size is None else -(-size // PADDING) * PADDING


def _offers(tensor: Tensor, weight: Weight, importance: Any, bits: float, request: Quantization) -> list[budget.Offer]:
    """What each candidate type costs and loses, measured; the tensor as it is loses nothing."""
    rows = sampling.sample(tensor)
    count = tensor.count
    offers = [budget.Offer(tensor.dtype, _padded(tensor.dtype, weight, request), 0.0)]
    if tensor.qtype is not None and not request.allow_requantize:
        return offers
    for dtype in budget.candidates(weight.columns, importance=importance is not None, bits=bits):
        found = sampling.errors(rows, dtype, importance, weighted=importance is not None)
        loss = budget.relative_loss(found.error, found.value, count)
        if math.isfinite(loss) and dtype != tensor.dtype:
            offers.append(budget.Offer(dtype, _padded(dtype, weight, request), loss))
    return offers



"""Size targets: a recipe for a number of bytes or bits per weight, from the measured size and error of each type."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

from ....runtime.ir.graph import Graph
from ....runtime.tensor.dtype import DType
from ....runtime.tensor.element_packing import nbytes
from ....runtime.tensor.stored_tensor import StoredTensor
from ...console.thread_pool import results
from ...translate.model_facts import Weight
from ...write.plan import Plan
from . import bit_allocation, sample_error
from .choose_type import Choice
from .request import Quantization
from .rule import Recipe

PADDING = 32


def within_target(
    graph: Graph,
    request: Quantization,
    choices: Sequence[Choice],
    importance: dict[str, Any],
    room: int,
    held: Container[DType],
    threads: int,
) -> Recipe:
    """The recipe that keeps to the target with the least error.

    Args:
        choices: what the options decide; tensors that are kept by a rule may change.
        room: bytes of the output outside tensors.
        held: types that the output can hold.
    """
    free = [
        choice
        for choice in choices
        if choice.chosen and choice.reason == "kept by a rule" and math.prod(choice.weight.shape) > 0
    ]
    names = {choice.weight.name for choice in free}
    fixed = sum(_padded(choice.dtype, choice.weight, request) for choice in choices if choice.weight.name not in names)
    target = _target(choices, request, room) - fixed
    bits = 8 * target / max(1, sum(math.prod(choice.weight.shape) for choice in free))

    def offers(choice: Choice) -> list[bit_allocation.Offer]:
        return _offers(
            graph.weights[choice.weight.name], choice.weight, importance.get(choice.weight.name), bits, request, held
        )

    found = bit_allocation.allocate(results(offers, free, threads), target)
    types = {choice.weight.name: offer.dtype for choice, offer in zip(free, found, strict=True)}
    return bit_allocation.as_recipe(types, {choice.weight.name: math.prod(choice.weight.shape) for choice in choices})


def _target(choices: Sequence[Choice], request: Quantization, overhead: int) -> int:
    """The bytes that all tensors may take together."""
    if request.target_bpw is not None:
        return int(request.target_bpw * sum(math.prod(choice.weight.shape) for choice in choices) / 8)
    assert request.target_size is not None
    return request.target_size - overhead


def overhead(made: Plan) -> int:
    """Bytes of a planned output outside tensors and the padding between them; they do not depend on types."""
    return made.nbytes - sum(-(-tensor.nbytes // PADDING) * PADDING for tensor in made.graph.weights.values())


def _padded(dtype: DType, weight: Weight, request: Quantization) -> int:
    """Bytes of a tensor, as they count for the target: with padding where the whole file is meant."""
    size = nbytes(dtype, weight.shape)
    assert size is not None
    return size if request.target_size is None else -(-size // PADDING) * PADDING


def _offers(
    tensor: StoredTensor, weight: Weight, importance: Any, bits: float, request: Quantization, held: Container[DType]
) -> list[bit_allocation.Offer]:
    """The size and the measured error of each candidate type; the tensor as it is has no error."""
    rows = sample_error.sample(tensor)
    count = tensor.count
    offers = [bit_allocation.Offer(tensor.dtype, _padded(tensor.dtype, weight, request), 0.0)]
    if tensor.qtype is not None and not request.allow_requantize:
        return offers
    for dtype in bit_allocation.candidates(weight.columns, importance=importance is not None, bits=bits):
        if dtype not in held:
            continue
        found = sample_error.errors(rows, dtype, importance, weighted=importance is not None)
        loss = bit_allocation.relative_loss(found.error, found.value, count)
        if math.isfinite(loss) and dtype != tensor.dtype:
            offers.append(bit_allocation.Offer(dtype, _padded(dtype, weight, request), loss))
    return offers

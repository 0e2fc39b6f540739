"""checkpoint: what a function computes on the way is computed again for its gradients, and not kept for them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ...ops.rules.expression import Term
from ...ops.training.propagation import through
from ...runtime.base.process_cache import owned
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import Inference
from ..core.expression import Expression, TensorType, alias, apply_all
from ..core.grad_mode import GRAD_MODE
from ..core.nested import flattened, mapped, restored
from ..core.plan import Plan
from ..core.registry import function
from ..core.tensor import Tensor
from .traced import Parts, repeated

MAX_OPERATORS = 1024
"""Operators of checkpoints that are kept; all are dropped when there are more."""
_operators: dict[Any, Op] = owned({})


def _as_first(node: Inference) -> None:
    node.set(0, node.dtype(0), node.shape(0))


def _passed(node: Node, build: Builder, gradients: Sequence[Value | None]) -> list[Value | None]:
    return [gradients[0]]


AFTER = Op("After", CANDLE, compute=lambda x, other: x, infer=_as_first, gradients=[_passed])
"""Returns its first input, once the second one is computed."""


@function()
def checkpoint(
    made: Callable[..., Any],
    *arguments: Any,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
    **options: Any,
) -> Any:
    """``made(*arguments, **options)``; what it computes is computed again when its results are differentiated.

    That saves the memory of what lies between arguments and results, and costs the function once more. Random numbers
    that it draws are kept. Tensors that it reads besides its arguments have their gradients, too. `use_reentrant` and
    `preserve_rng_state` are PyTorch's, without effect.
    """
    if not GRAD_MODE.enabled:
        return made(*arguments, **options)
    outer: dict[Expression, Expression] = {}

    def renamed(item: Any) -> Any:
        if not isinstance(item, Tensor):
            return item
        inner = alias(item.expression)
        inner.needs_grad = item.expression.needs_grad
        outer[inner] = item.expression
        return Tensor(inner)

    given, named = mapped((arguments, options), renamed)
    start = alias(next(iter(outer))).order if outer else 0
    results: list[Tensor] = []
    structure = flattened(made(*given, **named), results)
    if not outer or not results:
        return restored(structure, iter(results))
    found = _applied([result.expression for result in results], outer, start)
    return restored(structure, iter([Tensor(each) for each in found]))


def _applied(results: list[Expression], outer: dict[Expression, Expression], start: int) -> list[Expression]:
    """One operator that computes `results` from what was there before; those that it does not compute as they are."""
    parts = Parts(results, list(outer), start)
    if not parts.inside:
        return [outer.get(result, result) for result in results]
    computed = [result for result in results if result in parts.inside]
    inputs = [outer.get(each, each) for each in parts.inputs]
    wanted = tuple([parts.slots[each] for each in computed])
    key = (
        tuple([each.type.number for each in inputs]),
        tuple([(signature.number, places) for signature, places, _ in parts.parts]),
        wanted,
    )
    op = _operators.get(key)
    if op is None:
        if len(_operators) >= MAX_OPERATORS:
            _operators.clear()
        op = _operators[key] = _operator(
            parts, [each.type for each in inputs], wanted, [each.type for each in computed]
        )
    made = iter(apply_all(op, inputs, None, len(computed)))
    return [next(made) if result in parts.inside else outer.get(result, result) for result in results]


def _operator(found: Parts, inputs: Sequence[TensorType], wanted: Sequence[int], types: Sequence[TensorType]) -> Op:
    """The operator that computes the slots `wanted` of the parts."""
    parts, slots = found.parts, found.count
    kept = sorted(set(wanted))
    plan = Plan(parts, slots, {}, dict(enumerate(inputs)), kept)

    def compute(*arrays: Any) -> Any:
        found = dict(zip(kept, plan.run(arrays), strict=True))
        results = tuple(found[slot] for slot in wanted)
        return results if len(results) > 1 else results[0]

    def infer(node: Inference) -> None:
        for index, kind in enumerate(types):
            node.set(index, kind.dtype, kind.shape)

    def lower(node: Node, build: Builder) -> None:
        known = repeated(parts, slots, node.inputs, build)
        for slot, output in zip(wanted, node.outputs, strict=True):
            build.add("Identity", [known[slot]], outputs=[output])

    def gradient(node: Node, build: Builder, gradients: Sequence[Value | None]) -> list[Value | None]:
        first = next(value for value in gradients if value is not None)
        again = [build.add(AFTER, [value, first]) if _moves(value) else value for value in node.inputs]
        start = len(build.nodes)
        known = repeated(parts, slots, again, build)
        grads: dict[Value, Term] = {}
        for slot, g in zip(wanted, gradients, strict=True):
            value = known[slot]
            if g is not None and value is not None:
                term = Term(g, build)
                grads[value] = grads[value] + term if value in grads else term
        moves = [value if _moves(value) else None for value in again]
        made = through(build, build.nodes[start:], grads, moves)
        return [None if term is None else term.value for term in made]

    return Op("Checkpoint", CANDLE, compute=compute, infer=infer, lower=lower, gradients=[gradient])


def _moves(value: Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.has_gradient


def checkpoint_sequential(functions: Any, segments: int, input: Any, **options: Any) -> Any:
    """A sequence of functions or layers, each on the result of the one before, in `segments` checkpoints."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(steps) // segments)
    bounds = [size * index for index in range(segments)]

    def run(first: int, last: int) -> Callable[[Any], Any]:
        return lambda x: functools.reduce(lambda found, step: step(found), steps[first:last], x)

    for first, last in itertools.pairwise((*bounds, len(steps))):
        input = checkpoint(run(first, last), input, **options)
    return input

"""Derivatives of expressions: the gradient rules of the operators build a graph, whose nodes become expressions.

The rules run once for each structure that is differentiated; afterwards the nodes that they built are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.rules.expression import Inferring
from ...ops.training.gradient import derivatives
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import owned
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import MAX_DATA
from ..core.autocast import autocast
from ..core.expression import Expression, apply_all, constant, held_tensor, leaf, placeholder

MAX_RECIPES = 4096
"""Structures whose derivatives are kept; all are dropped when there are more."""
_recipes: dict[Any, Recipe] = owned({})
FORGOTTEN = placeholder(leaf(np.zeros(0)).type)
"""The input of expressions whose inputs `backward` has dropped."""
FORGOTTEN.needs_grad = True


@dataclass(frozen=True)
class Applied:
    """An operator that a derivative applies to slots.

    Attributes:
        first: slot of its first output.
        outputs: how many it has.
    """

    op: Op
    attributes: dict[str, Any]
    inputs: tuple[int | None, ...]
    first: int
    outputs: int


@dataclass(frozen=True)
class Recipe:
    """Recipe of the derivatives of one structure, built from its expressions.

    Attributes:
        slots: number of slots; the first ones are the structure's expressions.
        constants: arrays by slot.
        found: for each source the slot of its derivative, None where the target does not depend on it.
    """

    slots: int
    constants: dict[int, np.ndarray]
    steps: tuple[Applied, ...]
    found: tuple[int | None, ...]


def differentiated(target: Expression, sources: Sequence[Expression]) -> list[Expression | None]:
    """The derivatives of the sum of a float expression by each of `sources`; None where it does not depend on one."""
    if not target.needs_grad:
        return [None] * len(sources)
    if len(sources) > 1 and _depend_on_each_other(sources):
        return [differentiated(target, [source])[0] for source in sources]
    return partial_derivatives(target, sources)


def partial_derivatives(target: Expression, sources: Sequence[Expression]) -> list[Expression | None]:
    """The derivatives of the sum of a float expression by each of `sources`, all others of which are held fixed."""
    order, slots, key = _structure(target, sources)
    recipe = _recipes.get(key)
    if recipe is None:
        if len(_recipes) >= MAX_RECIPES:
            _recipes.clear()
        recipe = _recipes.setdefault(key, _recipe(order, slots, target, sources))
    return _built(recipe, order)


def _depend_on_each_other(sources: Sequence[Expression]) -> bool:
    """Whether gradients flow through one of the sources to another."""
    inner = [source for source in sources if not source.is_leaf]
    return bool(inner) and any(len(set(history(source)) & set(sources)) > 1 for source in inner)


def history(target: Expression, stops: Sequence[Expression] = ()) -> list[Expression]:
    """The expressions through which gradients of `target` flow, inputs first; `stops` end the search.

    Raises UsageError where `backward` has dropped what they were computed from.
    """
    found, ends, stack = set(), set(stops), [target]
    while stack:
        expression = stack.pop()
        if expression not in found:
            found.add(expression)
            if expression not in ends:
                stack += [item for item in expression.inputs if item is not None and item.needs_grad]
    if FORGOTTEN in found:
        why = f"backward a second time through what {target.type} is computed from, which the first one has dropped"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Pass retain_graph=True to the first backward()")
    return sorted(found, key=lambda item: item.order)


def _structure(
    target: Expression, sources: Sequence[Expression]
) -> tuple[list[Expression], dict[Expression, int], Any]:
    """The differentiated expressions with a slot for each input, and a key of their structure."""
    nodes = history(target, sources)
    inside, ends = set(nodes), set(sources)
    outside = {
        item: None
        for node in nodes
        if node not in ends
        for item in node.inputs
        if item is not None and item not in inside
    }
    order = [*outside, *nodes]
    slots = {item: slot for slot, item in enumerate(order)}
    key: list[Any] = [item.type.number for item in outside]
    for node in nodes:
        if node in ends or node.is_leaf:
            key.append(node.type.number)
        else:
            signature = node.signature
            inputs = [None if item is None else slots[item] for item in node.inputs]
            key.append((None if signature is None else signature.number, node.index, *inputs))
    ending = (slots[target], *[slots.get(source) for source in sources])
    return order, slots, (tuple(key), ending)


def _recipe(
    order: Sequence[Expression], slots: dict[Expression, int], target: Expression, sources: Sequence[Expression]
) -> Recipe:
    """Run the gradient rules."""
    graph = Graph()
    build = Inferring(Builder(graph))
    values: list[Value] = []
    stops = set(sources)
    made: dict[tuple[Any, ...], Node] = {}
    taken: set[Value] = set()
    for slot, item in enumerate(order):
        value = Value(f"x{slot}", item.type.dtype, item.type.shape)
        values.append(value)
        graph.values[value.name] = value
        if item.type.array is not None:
            graph.weights[value.name] = held_tensor(item.type.array)
        if not item.needs_grad or item in stops or item.is_leaf:
            continue
        inputs = [None if each is None else values[slots[each]] for each in item.inputs]
        if item.signature is None:
            build.add("Identity", inputs, outputs=[value])
            continue
        identity = (item.signature, *inputs)
        node = made.get(identity)
        if node is not None and node.outputs[item.index] in taken:
            build.add("Identity", [node.outputs[item.index]], outputs=[value])
        elif node is None:
            outputs = [Value(build.name("unused"), kind.dtype, kind.shape) for kind in item.signature.outputs]
            outputs[item.index] = value
            made[identity] = build.node(item.signature.op, inputs, item.signature.attributes, outputs=outputs)
        else:
            node.outputs[item.index] = value
            value.producer = node
        taken.add(value)
    first = len(build.nodes)
    reached = [values[slots[item]] for item in sources if item in slots]
    given = iter(derivatives(build, list(build.nodes), values[slots[target]], reached))
    by_source = [next(given) if item in slots else None for item in sources]
    return _as_recipe(build, first, values, [None if term is None else term.value for term in by_source])


def _as_recipe(build: Inferring, first: int, values: Sequence[Value], found: Sequence[Value | None]) -> Recipe:
    """The nodes from number `first` on that lead to `found`, as steps; what is known without them, as constants."""
    graph = build.graph
    slots: dict[Value, int] = {value: slot for slot, value in enumerate(values)}
    known = {value: array for value in graph.values.values() if (array := _known(build, value)) is not None}
    needed = {value for value in found if value is not None}
    kept = []
    for node in reversed(build.nodes[first:]):
        if any(value in needed and value not in known for value in node.outputs):
            kept.append(node)
            needed.update(value for value in node.inputs if value is not None)
    count, constants, steps = len(values), {}, []

    def slot_of(value: Value | None) -> int | None:
        nonlocal count
        if value is None:
            return None
        if value not in slots:
            array = known.get(value)
            if array is None and value.name in graph.weights:
                array = graph.weights[value.name].numpy()
            if array is None:
                assert value.producer is not None
                add(value.producer)
            else:
                slots[value] = count
                constants[count] = array
                count += 1
        return slots[value]

    def add(node: Node) -> None:
        """A step for a node: a new one, or one of the structure of which a rule needs further outputs."""
        nonlocal count
        inputs = tuple([slot_of(value) for value in node.inputs])
        steps.append(Applied(node.op, dict(node.attributes), inputs, count, len(node.outputs)))
        for value in node.outputs:
            slots.setdefault(value, count)
            count += 1

    for node in reversed(kept):
        add(node)
    return Recipe(count, constants, tuple(steps), tuple(slot_of(value) for value in found))


def _known(build: Inferring, value: Value) -> np.ndarray | None:
    """The elements of a constant, or of a small integer tensor that follow from shapes."""
    held = build.graph.weights.get(value.name)
    if held is not None:
        return held.numpy() if held.qtype is None else None
    array = build.facts.array(value)
    return array if array is not None and array.size <= MAX_DATA else None


def _built(recipe: Recipe, order: Sequence[Expression]) -> list[Expression | None]:
    """The expressions that a recipe says."""
    built: list[Any] = [None] * recipe.slots
    built[: len(order)] = order
    for slot, array in recipe.constants.items():
        built[slot] = constant(array, array.dtype) if array.size <= MAX_DATA else leaf(array)
    with autocast(enabled=False):
        for step in recipe.steps:
            inputs = [None if slot is None else built[slot] for slot in step.inputs]
            built[step.first : step.first + step.outputs] = apply_all(step.op, inputs, step.attributes, step.outputs)
    return [None if slot is None else built[slot] for slot in recipe.found]

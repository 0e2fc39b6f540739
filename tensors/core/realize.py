"""Realization: unrealized expressions are collected, their structure is looked up among plans, and the plan is run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ...runtime.base.errors import Error, UsageError, UsageIndexError
from ...runtime.base.process_cache import owned
from ...runtime.ir.shape_inference import MALFORMED
from .expression import Expression, TensorType
from .plan import Plan, StepError
from .source_line import SourceLine, described

MAX_PLANS, MAX_STEPS = 4096, 1 << 17
"""Plans that are kept, and their steps; the oldest are dropped when there are more."""
MAX_DEPTH = 2000
"""Length of a chain of unrealized expressions that is realized although nobody asks for a value; with gradients it is
left whole, because `backward` would compute it again, as it is while a function is traced."""
_plans: dict[Any, Plan] = owned({})
_tree_plans: dict[int, tuple[Plan, list[int]]] = owned({})
_lock = threading.RLock()
_order = attrgetter("order")


def realize(roots: Sequence[Expression]) -> None:
    """Compute the data of expressions, and of expressions on the way that tensors hold."""
    with _lock:
        if len(roots) == 1 and roots[0].tree is not None and not roots[0].companions and _run_tree(roots[0]):
            return
        pending = [root for root in roots if root.data is None]
        if pending:
            _run(pending)


def _run_tree(root: Expression) -> bool:
    """Realize an expression by the plan of its `Tree`; whether that was possible."""
    assert root.tree is not None
    number, leaves, inner = root.tree
    for item in inner:
        if item.data is not None or (item.holder is not None and item.holder() is not None):
            return False
    found = _tree_plans.get(number)
    if found is None:
        if len(_tree_plans) >= MAX_PLANS:
            _tree_plans.clear()
        found = _tree_plans[number] = _tree_plan(root)
    plan, places = found
    try:
        root.data = plan.run([leaves[index].data for index in places])[0]  # type: ignore[misc]
    except StepError:
        return False
    _settle(root)
    return True


def _tree_plan(root: Expression) -> tuple[Plan, list[int]]:
    """The plan of a tree in which each use of an array is an input of its own, and the indices of the inputs among the
    tree's arrays."""
    copies: dict[Expression, tuple[Expression, list[Expression]]] = {}
    for item in collected([root]):
        if item.data is None:
            inputs: list[Expression | None] = []
            leaves: list[Expression] = []
            for each in item.inputs:
                if each is None or each.type.array is not None:
                    inputs.append(each)
                elif each.data is not None:
                    leaves.append(Expression(each.type, data=each.data))
                    inputs.append(leaves[-1])
                else:
                    copy, below = copies[each]
                    inputs.append(copy)
                    leaves += below
            copies[item] = Expression(item.type, item.signature, tuple(inputs)), leaves
    copy, leaves = copies[root]
    structure = Structure(collected([copy]), {copy})
    places = {structure.slots[each]: index for index, each in enumerate(leaves)}
    return _plan_of(structure), [places[slot] for slot in structure.feeds]


def _settle(expression: Expression) -> None:
    """Drop what a realized expression does not need."""
    expression.depth = 0
    expression.tree = None
    expression.companions = ()
    if not expression.needs_grad:
        expression.inputs = ()


def _plan_of(structure: Structure) -> Plan:
    """The plan of a structure, a new one if it was not seen before."""
    plan = _plans.get(structure.key)
    if plan is None:
        plan = _plans.setdefault(structure.key, structure.plan())
        trim(_plans, [len(each.steps) for each in _plans.values()], MAX_PLANS, MAX_STEPS)
    return plan


def trim(table: dict[Any, Any], sizes: Sequence[int], most: int, total: int) -> None:
    """Drop the oldest entries but the last until at most `most` are left, of a size of `total` together."""
    count, size = len(sizes), sum(sizes)
    for key, each in list(zip(table, sizes, strict=True))[:-1]:
        if count <= most and size <= total:
            return
        del table[key]
        count, size = count - 1, size - each


def _run(roots: list[Expression]) -> None:
    order = collected(roots)
    companions = _companions(order)
    if companions:
        roots += companions
        order = collected(roots)
    structure = Structure(order, set(roots))
    plan = _plan_of(structure)
    try:
        results = plan.run(structure.arrays)
    except StepError as error:
        raise located(error, structure.lines[error.step.first]) from error.__cause__
    by_slot = dict(zip(plan.wanted, results, strict=True))
    for expression in order:
        if expression.data is None:
            result = by_slot.get(structure.slots[expression])
            if result is not None:
                expression.data = result
                _settle(expression)


def _companions(order: Sequence[Expression]) -> list[Expression]:
    """Unrealized companions that tensors hold and that are not in `order`."""
    found = {item for each in order if each.companions for reference in each.companions if (item := reference())}
    found.difference_update(order)
    return [item for item in found if item.data is None and item.holder is not None and item.holder() is not None]


def collected(roots: Sequence[Expression]) -> list[Expression]:
    """Unrealized expressions that lead to `roots`, and the arrays they are computed from, inputs first."""
    found = set()
    stack = list(roots)
    while stack:
        expression = stack.pop()
        if expression not in found:
            found.add(expression)
            if expression.data is None:
                stack += [item for item in expression.inputs if item is not None and item not in found]
    return sorted(found, key=_order)


class Structure:
    """The cache key of a plan: operators with their types, their connections, and which results are kept.

    Equal operators on equal inputs are one.

    Attributes:
        key: equal for structures that one plan computes.
        slots: number of each expression's value.
        feeds, arrays: the slots that a run is fed, and with what.
    """

    def __init__(self, order: Sequence[Expression], roots: set[Expression]) -> None:
        self.slots: dict[Expression, int] = {}
        self.arrays: list[Any] = []
        self.feeds: list[int] = []
        self._types: list[TensorType] = []
        self._constants: dict[int, Expression] = {}
        self._steps: dict[tuple[Any, ...], tuple[Expression, int]] = {}
        key: list[Any] = []
        slots, steps, count = self.slots, self._steps, 0
        wanted = set()
        for expression in order:
            signature = expression.signature
            if signature is None and expression.data is None:
                if not expression.inputs:
                    raise _unknown_while_tracing()
                expression.data = expression.inputs[0].data  # type: ignore[union-attr]
            if expression.data is not None:
                slots[expression] = count
                key.append(expression.type.number)
                if expression.type.array is None:
                    self.feeds.append(count)
                    self._types.append(expression.type)
                    self.arrays.append(expression.data)
                else:
                    self._constants[count] = expression
                count += 1
                continue
            if signature is None:
                slots[expression] = slots[expression.inputs[0]]  # type: ignore[index]
            else:
                step = (signature.number, *[None if item is None else slots[item] for item in expression.inputs])
                seen = steps.get(step)
                if seen is None:
                    seen = steps[step] = expression, count
                    key.append(step)
                    count += len(signature.outputs)
                slots[expression] = seen[1] + expression.index
            if expression in roots or (expression.holder is not None and expression.holder() is not None):
                wanted.add(slots[expression])
        self.count = count
        self.wanted = sorted(wanted)
        self.key = (tuple(key), tuple(self.wanted))

    def plan(self) -> Plan:
        """A new plan."""
        steps = []
        for (_, *inputs), (expression, first) in self._steps.items():
            assert expression.signature is not None
            steps.append((expression.signature, tuple(inputs), first))
        return Plan(steps, self.count, self._constants, dict(zip(self.feeds, self._types, strict=True)), self.wanted)

    @property
    def lines(self) -> dict[int, SourceLine | None]:
        """First slot of a step of the plan -> the line of the user's program that built its expression."""
        return {first: expression.line for expression, first in self._steps.values()}


def _unknown_while_tracing() -> UsageError:
    why = "a function under jit needs the value of an argument while it is traced, for example in if or item()"
    return UsageError("E-TENSOR-TRACE", None, why, hint="Use where(), or leave this function without jit")


def located(error: StepError, built: SourceLine | None) -> BaseException:
    """The cause of a failed step, with the line of the program that built it."""
    cause = error.__cause__
    assert cause is not None
    signature, line = error.step.signature, described(built)
    given = ", ".join("nothing" if kind is None else repr(kind) for kind in signature.inputs)
    what = f"{signature.op.name} of {given}{f', built at {line},' if line else ''}"
    if isinstance(cause, Error):
        cause.why = f"{cause.why}, in {what}".rstrip(",")
        if cause.code != "E-OP-INDEX":
            return cause
        hint = "Print the index, and the shape that it is for"
        return UsageIndexError(cause.code, cause.file, cause.why, expected=cause.expected, found=cause.found, hint=hint)
    if isinstance(cause, MALFORMED):
        return UsageError("E-TENSOR-VALUE", None, f"{what} failed: {cause}", hint="Print its inputs")
    return cause

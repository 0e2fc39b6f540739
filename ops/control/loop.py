"""Loop: runs a subgraph for a number of iterations or while a condition holds."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.errors import LimitError
from ...runtime.base.limits import current
from ...runtime.base.units import counted
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Graph, Value
from ...runtime.ir.op import Trait, op
from ...runtime.ir.registry import onnx
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.control_flow import control
from ...runtime.tensor.dtype import BOOL, I64
from ..rules.axes import input_error
from .if_else import either
from .iteration import Iterations, outputs_of, taken_over

if TYPE_CHECKING:
    from ...runtime.plan.planner import Planner, Task


def infer_loop(node: Inference) -> None:
    """State has the dtype that it begins with, the body's container, and its shape where no iteration changes it; scan
    outputs have one more dim."""
    body = node.subgraph("body")
    count = max(len(node) - 2, 0)
    if (
        len(body.inputs) != count + 2
        or len(body.outputs) != len(node.node.outputs) + 1
        or len(node.node.outputs) < count
    ):
        node.fail(
            f"its body has {counted(len(body.inputs), 'input')} and {counted(len(body.outputs), 'output')}, "
            "which are not those of the node"
        )
    for value, dtype in zip(body.inputs, (I64, BOOL), strict=False):
        value.dtype, value.shape = value.dtype or dtype, () if value.shape is None else value.shape
    for index in range(count):
        kept = body.inputs[index + 2] is body.outputs[index + 1]
        taken_over(body.inputs[index + 2], node.value(index + 2), kept)
    node.infer_subgraph(body)
    for index, value in enumerate(body.outputs[1:]):
        if index >= count:
            node.set(index, value.dtype, None if value.shape is None else (None, *value.shape))
            continue
        first = node.value(index + 2)
        assert first is not None
        container = value.container if value.container or value.dtype is not None else first.container
        node.set(index, first.dtype or value.dtype, either(first.shape, value.shape), container=container)


ITERATION = 1e-7
"""Seconds that an iteration in Python takes at least."""


def _keeps_its_condition(body: Graph) -> bool:
    """Whether each iteration gives the condition on as it is."""
    value: Value | None = body.outputs[0]
    while value is not None and value.producer is not None and value.producer.op is onnx.Identity:
        value = value.producer.inputs[0]
    return value is body.inputs[1]


def _flag(value: Value, item: Any, dtype: type) -> np.ndarray:
    """A counter or condition in the rank that the body asks for: some declare one dim."""
    return np.full((1,) if value.shape is not None and len(value.shape) == 1 else (), item, dtype)


@op(
    "Loop",
    since=25,
    types="i64 bool any+optional+sequence** -> *",
    traits=(Trait.LOOP, Trait.MIXES_POSITIONS, Trait.KEEPS_F32),
    infer=infer_loop,
)
def loop(
    trip_count: np.ndarray | None, condition: np.ndarray | None, *state: Any, body: Graph, call: Call
) -> tuple[Any, ...]:
    """Final state, then what each iteration gave beyond it, stacked along a new first axis.

    The body takes the iteration, the condition and the state; it gives the condition for the next iteration, the state,
    and tensors to stack.
    """
    for name, item in (("trip count", trip_count), ("condition", condition)):
        if item is not None and item.size != 1:
            raise input_error("Loop", f"the {name} is not one element", expected=1, found=item.size)
    times = None if trip_count is None else int(trip_count.reshape(-1)[0])
    goes_on = condition is None or bool(condition.reshape(-1)[0])
    if times is not None and goes_on and _keeps_its_condition(body) and times * ITERATION > current().time:
        why = f"Loop is to run {counted(times, 'time')}, for which {current().time:g} s are not enough"
        raise LimitError("E-RUN-TIME", None, why, hint="Raise it with --limit time=10h")
    values = list(state)
    scanned = Iterations("Loop", body.outputs[len(values) + 1 :])
    for iteration in itertools.count() if times is None else range(times):
        if not goes_on:
            break
        inputs = [_flag(body.inputs[0], iteration, np.int64), _flag(body.inputs[1], goes_on, np.bool_), *values]
        found = outputs_of("Loop", call, call.run(body, inputs), len(body.outputs))
        goes_on, values = bool(call.number(found[0])), found[1 : len(values) + 1]
        scanned.add(found[len(values) + 1 :], values)
    count = len(scanned.kept)
    return (*values, *scanned.stacked(call, [0] * count, [0] * count))


@control(loop)
def plan_loop(planner: Planner, task: Task, tasks: deque[Task]) -> bool:
    """The body is part of the plan while its state keeps its shape, and tensors are collected for a number of
    iterations known ahead."""
    if not planner.native:
        return False
    from .control_flow_kernel import Along, Repeated, length_of, plan_repeated
    from .trip_count import iterations

    node = task.node
    trips, condition, *states = [*node.inputs, None, None][: max(len(node.inputs), 2)]
    stores = [Along()] * (len(node.outputs) - len(states))
    path = f"{task.path}{node.name or node.outputs[0].name}/body/"
    body = task.original.attributes["body"]
    count = iterations(planner, node, body)
    limit = length_of(planner, trips) if count is None else count
    repeated = Repeated(
        body, path, states, trips, condition, limit, exact=count is not None, stores=stores, counted=True
    )
    return limit != 0 and plan_repeated(planner, task, repeated)

"""If: runs one of two subgraphs, chosen by a condition."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Trait, op
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.plan.control_flow import control
from ..elementwise.unary import identity
from ..rules.axes import input_error

if TYPE_CHECKING:
    from ...runtime.plan.planner import Planner, Task

BRANCHES = ("then_branch", "else_branch")


def either(one: Shape | None, other: Shape | None) -> Shape | None:
    """The dims that two shapes share; None if their ranks differ or one is unknown."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(first if first == second else None for first, second in zip(one, other, strict=True))


def infer_if(node: Inference) -> None:
    """The dtype and dims that the possible branches share. A branch that contradicts itself is not possible."""
    array = node.array(0)
    known = None if array is None or array.size != 1 else bool(array.reshape(-1)[0])
    names = [name for name, taken in zip(BRANCHES, (True, False), strict=True) if known in (None, taken)]
    possible, failures = [], []
    for name in names:
        graph, depth = node.subgraph(name), len(node.facts.graphs)
        if graph.inputs:
            node.fail(f"{name} has {counted(len(graph.inputs), 'input')}, a branch takes no inputs")
        if len(graph.outputs) != len(node.node.outputs):
            node.fail(f"{name} has {counted(len(graph.outputs), 'output')}, the node {len(node.node.outputs)}")
        try:
            node.infer_subgraph(graph)
        except FormatError as error:
            del node.facts.graphs[depth:]
            failures.append(error)
        else:
            possible.append(graph)
    if not possible:
        raise failures[0]
    for index in range(len(node.node.outputs)):
        _joined(node, index, [graph.outputs[index] for graph in possible])


def _joined(node: Inference, index: int, values: list[Value]) -> None:
    first, last = values[0], values[-1]
    dtypes = {value.dtype for value in values if value.dtype is not None}
    if len(dtypes) > 1:
        node.fail(f"the branches differ in the dtype of output {index}: {first.dtype} and {last.dtype}")
    container = max((value.container for value in values), key=len)
    data = node.facts.data(first) if len(values) == 1 and not container else None
    node.set(index, next(iter(dtypes), None), either(first.shape, last.shape), data=data, container=container)


@op("If", since=25, types="bool -> *", traits=(Trait.MIXES_POSITIONS, Trait.KEEPS_F32), infer=infer_if)
def if_(condition: np.ndarray, *, then_branch: Graph, else_branch: Graph, call: Call) -> tuple[Any, ...]:
    """The outputs of the first subgraph where the condition, one element, holds, else those of the second."""
    if condition.size != 1:
        raise input_error("If", "the condition is not one element", expected=1, found=condition.size)
    return tuple(call.run(then_branch if condition.reshape(-1)[0] else else_branch, ()))


@control(if_)
def plan_if(planner: Planner, task: Task, tasks: deque[Task]) -> bool:
    """A branch that constants or shapes decide on replaces the node; others stand side by side in the plan,
    where kernels compute them."""
    node, original = task.node, task.original
    paths = [f"{task.path}{node.name or node.outputs[0].name}/{name}/" for name in BRANCHES]
    condition = None if node.inputs[0] is None else planner.facts.array(node.inputs[0])
    if condition is None or condition.size != 1:
        if not planner.native:
            return False
        from .control_flow_kernel import plan_branches

        return plan_branches(planner, task, [original.attributes[name] for name in BRANCHES], paths)
    index = 0 if condition.reshape(-1)[0] else 1
    graph, source = node.attributes[BRANCHES[index]], original.attributes[BRANCHES[index]]
    inner = planner.spliced(graph, source, paths[index])
    for own, value, one, other in zip(graph.outputs, node.outputs, source.outputs, original.outputs, strict=True):
        if value.name:
            inner.append(type(task)(Node(identity, [own], [value]), Node(identity, [one], [other]), task.path))
    tasks.extendleft(reversed(inner))
    return True

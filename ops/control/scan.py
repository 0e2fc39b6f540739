"""Scan: runs a subgraph over slices of tensors along an axis, with carried states."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Dim, Graph, Node, Value
from ...runtime.ir.op import Trait, op, upgrade
from ...runtime.ir.shape_inference import Inference, Shape
from ...runtime.plan.control_flow import control
from ..rules.axes import axis_in, axis_of, input_error
from .iteration import Iterations, outputs_of, taken_over

if TYPE_CHECKING:
    from ...runtime.plan.planner import Planner, Task


def infer_scan(node: Inference) -> None:
    """State keeps its dtype and shape; scan inputs lose the axis, scan outputs gain it."""
    body, scans = node.subgraph("body"), int(node.attributes["num_scan_inputs"])
    states = len(node) - scans
    if (
        not 0 < scans <= len(node)
        or len(body.inputs) != len(node)
        or len(body.outputs) != len(node.node.outputs)
        or len(body.outputs) < states
    ):
        node.fail(
            f"its body has {counted(len(body.inputs), 'input')} and {counted(len(body.outputs), 'output')}, "
            "which are not those of the node"
        )
    axes = _given(node.attributes["scan_input_axes"], scans)
    length: Dim = None
    for index, inner in enumerate(body.inputs):
        outer, shape = node.value(index), node.shape(index)
        taken_over(inner, outer, index < states)
        if index >= states and shape is not None:
            axis = axis_of(node, axes[index - states], len(shape))
            inner.shape = (*shape[:axis], *shape[axis + 1 :]) if inner.shape is None else inner.shape
            length = length if isinstance(length, int) else shape[axis]
    node.infer_subgraph(body)
    places = _given(node.attributes["scan_output_axes"], len(body.outputs) - states)
    for index, value in enumerate(body.outputs):
        if index < states:
            node.set(index, node.dtype(index) or value.dtype, node.shape(index))
        else:
            node.set(index, value.dtype, _grown(node, value.shape, places[index - states], length))


def _grown(node: Inference, shape: Shape | None, axis: int, length: Dim) -> Shape | None:
    if shape is None:
        return None
    at = axis_of(node, axis, len(shape) + 1)
    return (*shape[:at], length, *shape[at:])


def _given(numbers: Sequence[int] | None, count: int) -> list[int]:
    """One number for each input or output, zeros where none are given."""
    return list(numbers) if numbers else [0] * count


@op("Scan", since=25, types="any** -> *", traits=(Trait.LOOP, Trait.MIXES_POSITIONS, Trait.KEEPS_F32), infer=infer_scan)
def scan(
    *inputs: Any,
    body: Graph,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
    call: Call,
) -> tuple[Any, ...]:
    """Final state, then what the body gave for each entry, stacked along an axis; directions are 1 for from the last
    entry to the first."""
    states = len(inputs) - num_scan_inputs
    if not 0 < num_scan_inputs <= len(inputs):
        why = "the number of scan inputs is not among its inputs"
        raise input_error("Scan", why, expected=f"up to {len(inputs)}", found=num_scan_inputs)
    axes = [
        axis_in("Scan", axis, item.ndim)
        for axis, item in zip(_given(scan_input_axes, num_scan_inputs), inputs[states:], strict=True)
    ]
    entries = [call.entries(item, axis) for axis, item in zip(axes, inputs[states:], strict=True)]
    backwards = _given(scan_input_directions, num_scan_inputs)
    entries = [item[::-1] if reverse else item for reverse, item in zip(backwards, entries, strict=True)]
    if len({len(item) for item in entries}) != 1:
        raise input_error("Scan", "the scan inputs differ in length", found=[len(item) for item in entries])
    values = list(inputs[:states])
    collected = Iterations("Scan", body.outputs[states:])
    for step in range(len(entries[0])):
        found = outputs_of(
            "Scan", call, call.run(body, [*values, *(item[step] for item in entries)]), len(body.outputs)
        )
        values = found[:states]
        collected.add(found[states:], values)
    count = len(collected.kept)
    return (*values, *collected.stacked(call, _given(scan_output_axes, count), _given(scan_output_directions, count)))


@control(scan)
def plan_scan(planner: Planner, task: Task, tasks: deque[Task]) -> bool:
    """The body is part of the plan while its state keeps its shape."""
    if not planner.native:
        return False
    from .control_flow_kernel import Along, Repeated, plan_repeated

    node = task.node
    attributes = {**node.op.defaults, **node.attributes}
    scans = attributes["num_scan_inputs"]
    states, entries = node.inputs[: len(node.inputs) - scans], node.inputs[len(node.inputs) - scans :]

    def along(name: str, count: int) -> list[Along]:
        axes, directions = (_given(attributes[f"scan_{name}_{what}"], count) for what in ("axes", "directions"))
        return [Along(axis, bool(backwards)) for axis, backwards in zip(axes, directions, strict=True)]

    loads = list(zip(entries, along("input", scans), strict=True))
    lengths = {value.shape[each.axis] for value, each in loads if value is not None and value.shape is not None}
    length = lengths.pop() if len(lengths) == 1 else None
    if not isinstance(length, int) or not length:
        return False
    path = f"{task.path}{node.name or node.outputs[0].name}/body/"
    stores = along("output", len(node.outputs) - len(states))
    return plan_repeated(
        planner,
        task,
        Repeated(task.original.attributes["body"], path, states, limit=length, loads=loads, stores=stores),
    )


@upgrade(scan, below=9)
def with_a_batch_axis(node: Node, build: Builder) -> None:
    """Before opset 9 the first axis of all inputs was that of a batch, the second that of the sequence, whose lengths
    could be given.

    A Scan over the batch does the same, whose body is the Scan over one sequence, cut to its length; outputs are filled
    up with zeros.
    """
    lengths, *rest = node.inputs
    body, scans = node.attributes["body"], node.attributes["num_scan_inputs"]
    states = len(rest) - scans
    outer = Graph(parent=build.graph, opsets={**build.graph.opsets, "": scan.since}, name=body.name, newest=False)
    body.parent = outer
    inner = Builder(outer, stem=build.stem)
    entries = [Value(inner.name("entry")) for _ in rest]
    length = Value(inner.name("length"))
    outer.inputs = [*entries, length] if lengths is not None else list(entries)
    outer.values.update({value.name: value for value in outer.inputs})
    sequences = list(entries[states:])
    if lengths is not None:
        end = inner.add("Reshape", [length, inner.constant([1])])
        sequences = [inner.add("Slice", [item, inner.constant([0]), end, inner.constant([0])]) for item in sequences]
    attributes = {"body": body, "num_scan_inputs": scans, "scan_input_directions": node.attributes.get("directions")}
    made = inner.node(
        scan,
        [*entries[:states], *sequences],
        {k: v for k, v in attributes.items() if v is not None},
        outputs=len(node.outputs),
    )
    outer.outputs = list(made.outputs)
    if lengths is not None:
        whole = inner.add("Shape", [entries[states]], {"start": 0, "end": 1})
        missing = inner.add("Concat", [inner.constant([0]), inner.add("Sub", [whole, end])], {"axis": 0})
        outer.outputs[states:] = [
            inner.add("Pad", [item, missing, None, inner.constant([0])]) for item in made.outputs[states:]
        ]
    inputs = [*rest, lengths] if lengths is not None else rest
    build.add(scan, inputs, {"body": outer, "num_scan_inputs": len(inputs)}, outputs=node.outputs)

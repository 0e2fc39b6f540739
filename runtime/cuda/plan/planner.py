"""The device planner: nodes become launches, with host steps and transfers for operators without a CUDA path.

Shapes are inferred for the inputs at hand, and constants are folded. At a data-dependent shape the plan ends: the
nodes after it form a region that is planned once the shape is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base.errors import FormatError, UnsupportedError
from ...ir.clone import captures, needed
from ...ir.graph import Graph, Node, Value
from ...ir.op import Undecomposable
from ...ir.registry import onnx, operator
from ...plan.kernel_api import Allocation, Buffer, Chain, View, constant_of
from ...plan.plan import dtype_of_numpy, ints, is_static, size
from ...plan.region_planner import RegionPlanner, check_implemented
from ...region.region import Region
from ...tensor.dtype import STRING, DType
from ...tensor.weight_array import Blocks, Packed, load_weight
from ..element.block_quantized import quantized_buffer
from ..element.element import is_supported
from ..element.sub_byte import PackedBuffer, packed_buffer
from ..kernel.elementwise import MAX_FUNCTIONS, chain_launch
from ..memory.dynamic_length import Sized
from ..memory.host_weight import DeviceWeight, host_weight
from .kernel_api import (
    CONTROL_FLOW,
    MAX_SPECIALIZED_ELEMENTS,
    SIZED,
    Step,
    cpu_reason,
    decomposition_of,
    plan_node,
    planner_of,
    specialized_inputs,
)
from .plan import Control, Download, Draw, Fixed, HostStep, Location, OnDevice, OnHost, Plan, Upload, assign_offsets
from .step_order import inputs_first


def _held(dtype: DType | None) -> bool:
    """Whether kernels support arrays of the dtype."""
    return dtype is not None and dtype is not STRING and dtype.numpy is not None and is_supported(dtype.as_numpy())


class Planner(RegionPlanner[DeviceWeight, Buffer]):
    """Makes one plan for device `number`; values named in `keep` are returned as taps."""

    max_fused = MAX_FUNCTIONS

    def __init__(
        self,
        region: Region[DeviceWeight],
        feeds: Sequence[OnDevice | OnHost | Fixed],
        keep: frozenset[str] = frozenset(),
        number: int = 0,
    ) -> None:
        super().__init__(region, keep)
        self.number = number
        self.plan = Plan()
        self.host: set[Value] = set()
        self.sized: dict[Value, Sized] = {}
        self.uses.update(value for node in self.copies for value in node.outputs if value.name in keep)
        for value, feed in zip(region.inputs, feeds, strict=True):
            self._feed(self.copy_of(value), feed, value)

    def _feed(self, value: Value, feed: OnDevice | OnHost | Fixed, described: Value) -> None:
        if isinstance(feed, Fixed):
            self.constant(value, host_weight(feed.tensor), feed.tensor.dtype)
            self.plan.inputs.append(value)
            return
        if isinstance(feed, OnDevice):
            value.dtype, value.shape = dtype_of_numpy(feed.dtype), feed.shape
            slot = len(self.plan.inputs)
            allocation = Allocation(
                size(feed.shape) * feed.dtype.itemsize, slot=slot, writable=described.name in self.region.inplace_inputs
            )
            self.locations[value] = Buffer(feed.dtype, feed.shape, allocation)
            self.plan.inputs.append(slot)
            return
        if feed.data is not None and feed.dtype is not None and feed.shape is not None:
            self.constant(value, np.frombuffer(feed.data, feed.dtype.as_numpy()).reshape(feed.shape), feed.dtype)
            self.plan.inputs.append(value)
            return
        value.container, value.dtype, value.shape = described.container, feed.dtype or described.dtype, feed.shape
        self.host.add(value)
        self.plan.inputs.append(value)

    def make_plan(self) -> Plan:
        """Return the plan."""
        pending = self.copies[::-1]
        while pending:
            node = pending.pop()
            done = self._node(node)
            if done is None:
                self._cut([node, *pending[::-1]])
                break
            if not done:
                pending += self._expanded(node)[::-1]
            elif (pending or self.sized) and self.shape_depends_on_data(node.outputs):
                self._cut(pending[::-1])
                break
        else:
            self.plan.outputs = [self._result(value) for value in self.results]
        return self._finished()

    def _readable(self, value: Value) -> bool:
        """Whether a value has few elements that are computed before use, so that the host can read them."""
        location = self.locations.get(value)
        if value in self.constants or location is None:
            return value in self.host and value not in self.constants and value not in self.plan.inputs
        made_here = location.allocation.constant is None and location.allocation.slot is None
        return made_here and location.count <= MAX_SPECIALIZED_ELEMENTS and location.dtype.kind in "fiub"

    def _node(self, node: Node) -> bool | None:
        """Plan a node; return whether it is done, False if it was replaced by other nodes.

        None if small inputs that are computed at run time select what it does: the plan ends, the inputs are read,
        and the rest is planned for their values, so that the tensors stay on the device.
        """
        if self._branch(node) is not None:
            return False
        self.facts.infer_node(node)
        if not any(self.is_used(value) for value in node.outputs) or self.fold(node):
            return True
        if node.op in CONTROL_FLOW:
            self._controlled(node)
            return True
        why = cpu_reason(node.op)
        if why is None:
            if planner_of(node.op) is None:
                why = self._unfit(node)
                if why is None:
                    return False
            else:
                why = self._launched(node)
        if why is not None:
            if any(self._readable(value) for value in specialized_inputs(node)):
                return None
            self._on_host(node, why)
        return True

    def _unfit(self, node: Node) -> str | None:
        """The reason why a node cannot run on the device whatever its operator, None if it can."""
        for value in node.inputs:
            if value is None or value in self.constants:
                continue
            if value.container:
                return "an input is a sequence, a map or an optional"
            if value.dtype is STRING:
                return "an input is a string tensor"
            if value not in self.locations and (not _held(value.dtype) or not is_static(value.shape)):
                return (
                    "the shape of an input is unknown"
                    if _held(value.dtype)
                    else f"kernels do not support {value.dtype}"
                )
        for value in node.outputs:
            if self.is_used(value):
                if value.container or not _held(value.dtype):
                    return f"kernels do not support {'sequences' if value.container else value.dtype}"
                if not is_static(value.shape):
                    if node.op in SIZED:
                        continue
                    return "the shape of an output depends on data"
                if not size(value.shape):
                    return "an output is empty"
        return None

    def _branch(self, node: Node) -> Graph | None:
        """The subgraph that a constant condition selects."""
        condition = node.inputs[0] if node.op is onnx.If and node.inputs else None
        known_condition = None if condition is None else self.constants.get(condition)
        if not isinstance(known_condition, np.ndarray) or known_condition.size != 1:
            return None
        graph = node.attributes["then_branch" if known_condition.reshape(()) else "else_branch"]
        return graph if isinstance(graph, Graph) else None

    def _inlined(self, graph: Graph, outputs: Sequence[Value]) -> list[Node]:
        """The nodes of a branch; its results get the names of the node's outputs."""
        for name, tensor in graph.weights.items():
            self.constant(graph.values[name], load_weight(tensor), tensor.dtype)
        identity = operator("Identity")
        assert identity is not None
        pairs = zip(graph.outputs, outputs, strict=True)
        last = [Node(identity, [result], [value]) for result, value in pairs if value.name]
        for made in (*graph.nodes, *last):
            self.uses.update(needed(made))
        return [*graph.nodes, *last]

    def _expanded(self, node: Node) -> list[Node]:
        """The nodes of a decomposition, with constants folded."""
        from ...ir.builder import Builder

        branch = self._branch(node)
        if branch is not None:
            return self._inlined(branch, node.outputs)
        formula = decomposition_of(node.op)
        assert formula is not None
        graph = Graph()
        build = Builder(graph, stem=node.name or node.op.name)
        try:
            formula(node, build)
        except (Undecomposable, FormatError, UnsupportedError) as why:
            self._on_host(node, str(why))
            return []
        for name, tensor in graph.weights.items():
            self.constant(graph.values[name], load_weight(tensor), tensor.dtype)
        for made in graph.nodes:
            self.uses.update(needed(made))
        return graph.nodes

    def _launched(self, node: Node) -> str | None:
        """Add a node's launches, or return the reason why it runs on the CPU."""
        why = self._unfit(node)
        if why is not None:
            return why
        locations = {value: self._described(value) for value in node.inputs if value is not None}
        for value, location in locations.items():
            if location is None or not location.count:
                return "it has no inputs" if location is not None else f"kernels do not support {value.dtype}"
        inputs = [None if value is None else locations[value] for value in node.inputs]
        results = self.results_of(node)
        attributes = {**node.op.defaults, **node.attributes}
        step = Step(node, inputs, attributes, results, self.region.packed, self.may_overwrite, device=self.number)
        found = plan_node(step)
        if isinstance(found, str):
            return found
        for value, location in locations.items():
            if location is not None and value in self.host and value not in self.locations:
                self.locations[value] = location
                self.add(Upload(value, location), node)
        if isinstance(found, View):
            assert results[0] is not None
            made = self.locations[node.outputs[0]] = found.buffer.view(results[0][1])
            if isinstance(made, PackedBuffer):
                self.constant(node.outputs[0], made.host())
            return None
        for index, value in enumerate(node.outputs):
            if index in step.outputs:
                self.locations[value] = step.outputs[index]
            elif index in step.sized and is_static(value.shape):
                self.locations[value] = step.sized[index].buffer.view(ints(value.shape))
            elif index in step.sized:
                self.sized[value] = step.sized[index]
        self.plan.flags += step.flags
        for buffer in step.fresh:
            self.add(Draw(buffer), node)
        for item in found if isinstance(found, list) else [found]:
            self.append(item, node)
        return None

    def _described(self, value: Value) -> Buffer | None:
        """The buffer of a value, which may have to be uploaded."""
        location = self.locations.get(value)
        if location is not None:
            return location
        array = self.constants.get(value)
        if isinstance(array, Blocks):
            blocks = quantized_buffer(array)
            if blocks is not None:
                self.locations[value] = blocks
            return blocks
        if isinstance(array, Packed):
            location = self.locations[value] = packed_buffer(array)
            return location
        if array is not None:
            if array.dtype.kind in "OUT" or not is_supported(array.dtype):
                return None
            location = self.locations[value] = constant_of(array)
            return location
        if value.container or not _held(value.dtype) or not is_static(value.shape) or value.dtype is None:
            return None
        dtype = value.dtype.as_numpy()
        return (
            Buffer(dtype, ints(value.shape), Allocation(size(value.shape) * dtype.itemsize))
            if is_supported(dtype)
            else None
        )

    def may_overwrite(self, buffer: Buffer) -> bool:
        """As the base, unless intermediate values are returned."""
        return not self.keep and super().may_overwrite(buffer)

    def _on_host(self, node: Node, why: str) -> None:
        check_implemented(node)
        inputs = [None if value is None else self._at_host(value, node) for value in node.inputs]
        self.add(HostStep(node, why, inputs, self._captured(node)), node)
        self.host.update(value for value in node.outputs if value.name)

    def _controlled(self, node: Node) -> None:
        host_inputs = CONTROL_FLOW[node.op].host_inputs
        inputs = [
            None if value is None else self._at_host(value, node) if index in host_inputs else self._where(value, node)
            for index, value in enumerate(node.inputs)
        ]
        self.add(Control(node, inputs, self._captured(node)), node)
        self.host.update(value for value in node.outputs if value.name)

    def _captured(self, node: Node) -> dict[Value, Buffer | Value]:
        return {value: self._where(value, node) for graph in node.subgraphs for value in captures(graph)}

    def _where(self, value: Value, node: Node) -> Buffer | Value:
        """The location of a value: on the device if it is there, else on the host. Weights too: subgraph programs
        upload them."""
        location = self.locations.get(value)
        return location if location is not None and location.allocation.constant is None else self._at_host(value, node)

    def _at_host(self, value: Value, node: Node | None) -> Value:
        if value in self.constants:
            self.plan.objects[value] = self.constants[value]
        elif value not in self.host:
            self.add(Download(self.locations[value], value), node)
            self.host.add(value)
        return value

    def _result(self, value: Value) -> Buffer | Value:
        return self._at_host(value, None) if value in self.constants or value in self.host else self.locations[value]

    def _cut(self, nodes: list[Node]) -> None:
        """Leave nodes to a region that is planned once its inputs are known."""
        fed, weights = self.needed_later(nodes, self.locations.keys() | self.sized.keys() | self.host)
        self.plan.rest = Region(nodes, fed, self.results, weights, self.region.packed)
        self.plan.live = [self._location(value) for value in fed]

    def _location(self, value: Value) -> Location:
        return self.sized[value] if value in self.sized else self.locations.get(value, value)

    def _finished(self) -> Plan:
        plan = self.plan
        plan.taps = {
            value.name: self._location(value)
            for value in (*self.locations, *self.sized, *self.host)
            if value.name in self.keep
        }
        fed = {value for value in plan.inputs if isinstance(value, Value)}
        steps, plan.nodes = inputs_first(
            self.steps, self.nodes, lambda step: isinstance(step, Upload) and step.value in fed
        )
        plan.steps = [chain_launch(item) if isinstance(item, Chain) else item for item in steps]
        assign_offsets(plan)
        return plan

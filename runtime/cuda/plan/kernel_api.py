"""CUDA kernel API: registration of device planners by operator, and the reasons why other operators run on the CPU.

    @cuda(transpose)
    def transpose_on_device(step: Step) -> Planned: ...  # launches, a view, or why this node runs on the CPU

    on_cpu("strings are Python objects", string_split, string_concat)

A planner is called for each node of its operators, with the shapes at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...base.dataclass import dataclass
from ...base.process_cache import PROCESS, owned, process_cache
from ...ir import registry
from ...plan.kernel_api import BaseStep, Buffer, Chain, Planners, View
from ...tensor.weight_array import as_array
from ..element.element import is_supported
from ..element.sub_byte import PackedBuffer
from ..kernel.kernel import Launch
from ..kernel.reduce import launch_of
from ..memory.dynamic_length import Sized

if TYPE_CHECKING:
    from ...ir.builder import Builder
    from ...ir.graph import Node, Value
    from ...ir.op import Op


@dataclass(eq=False)
class Step(BaseStep):
    """A node as its device planner sees it; a data-dependent shape among its results is empty.

    Attributes:
        device: index of the device.
        sized: outputs with data-dependent shapes.
        fresh: buffers that every run fills with random bits.
        flags: bytes that kernels set for data that the operator does not allow, with the error message.
    """

    device: int = 0
    sized: dict[int, Sized] = field(default_factory=dict)
    fresh: list[Buffer] = field(default_factory=list)
    flags: list[tuple[Buffer, str]] = field(default_factory=list)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of a constant input, None for other inputs."""
        buffer = self.optional_input(index)
        return np.asarray(as_array(buffer.host())) if isinstance(buffer, PackedBuffer) else super().constant(index)

    def random_bits(self, count: int) -> Buffer:
        """Random int64 bits, new in every run."""
        made = self.temporary(np.int64, (count,))
        self.fresh.append(made)
        return made

    def flag(self, why: str) -> Buffer:
        """A byte that kernels set to 1 for data that the operator does not allow; `why` is the error message."""
        made = self.temporary(np.uint8, (1,))
        self.flags.append((made, why))
        return made


Planned: TypeAlias = "Launch | Chain | View | list[Launch | Chain] | str"
"""A planner's result: launches in order, a view, or why the node runs on the CPU."""
Planner = Callable[[Step], Planned]
Decomposition = Callable[["Node", "Builder"], None]


@dataclass(frozen=True)
class ControlFlow:
    """An operator that the host runs on device tensors: it forwards them, gathers them, or passes them to subgraphs.

    Attributes:
        host_inputs: indices of the inputs whose values it reads; they are copied to the host.
        compute: function that runs it, with a keyword `call`; None for the operator's own.
    """

    host_inputs: tuple[int, ...] = ()
    compute: Callable[..., Any] | None = None


SPECIALIZED_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "Reshape",
            "Expand",
            "Tile",
            "Split",
            "Squeeze",
            "Unsqueeze",
            "TopK",
            "CumSum",
            "CumProd",
            "CenterCropPad",
            "Upsample",
        ),
        (1,),
    ),
    **{
        f"Reduce{name}": (1,)
        for name in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow", "ConstantOfShape"), (0,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Range": (0, 1, 2),
    "OneHot": (1,),
    "Col2Im": (1, 2),
    "DFT": (1, 2),
    "STFT": (1, 2, 3),
    "Dropout": (1, 2),
    "AffineGrid": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "MaxUnpool": (2,),
    "com.microsoft.GroupQueryAttention": (6,),
    "com.microsoft.MatMulNBits": (4,),
}
"""Inputs that select the computation of a node (by domain, if not the standard's, and name): a plan is specialized
to their values."""
MAX_SPECIALIZED_ELEMENTS = 4096


def specialized_inputs(node: Node) -> list[Value]:
    """The inputs of a node that a plan is specialized to."""
    places = SPECIALIZED_INPUTS.get(f"{node.op.domain}.{node.op.name}" if node.op.domain else node.op.name, ())
    return [value for place in places if place < len(node.inputs) and (value := node.inputs[place]) is not None]


PLANNERS: Planners[Planner] = Planners()
DECOMPOSITIONS: dict[Op, Decomposition] = owned({}, PROCESS)
CPU_REASONS: dict[Op, str] = owned({}, PROCESS)
CONTROL_FLOW: dict[Op, ControlFlow] = owned({}, PROCESS)
SIZED: set[Op] = owned(set(), PROCESS)
"""Operators whose planners return outputs of data-dependent length."""


def cuda(*found: Op, sized: bool = False) -> Callable[[Planner], Planner]:
    """Register the device planner of operators; a `sized` one returns all outputs of unknown shapes as `Step.sized`."""

    def registered(planner: Planner) -> Planner:
        PLANNERS.update(dict.fromkeys(found, planner))
        SIZED.update(found if sized else ())
        return planner

    return registered


def cuda_by_element(planner: Planner) -> Planner:
    """Register the device planner of operators with a scalar function and no planner of their own."""
    PLANNERS.by_element = planner
    return planner


def control_flow(*found: Op, host_inputs: tuple[int, ...] = (), compute: Callable[..., Any] | None = None) -> None:
    """Register operators that run as `ControlFlow` describes."""
    CONTROL_FLOW.update(dict.fromkeys(found, ControlFlow(host_inputs, compute)))


def decomposed(*found: Op) -> Callable[[Decomposition], Decomposition]:
    """Register a decomposition into operators with device planners, in place of that of the operator. All shapes are
    known when it runs; a node for which it raises `Undecomposable` runs on the CPU."""

    def registered(formula: Decomposition) -> Decomposition:
        DECOMPOSITIONS.update(dict.fromkeys(found, formula))
        return formula

    return registered


def on_cpu(why: str, *found: Op) -> None:
    """Register the reason why operators run on the CPU."""
    CPU_REASONS.update(dict.fromkeys(found, why))


def operators_of(*modules: ModuleType) -> list[Op]:
    """The operators that modules define."""
    from ...ir.op import Op

    return [item for module in modules for item in vars(module).values() if isinstance(item, Op)]


@process_cache
def load_kernels() -> None:
    """Import the modules of ``ops`` that register device planners."""
    registry.load(registry.registering(cuda, cuda_by_element, control_flow, decomposed, on_cpu))


def planner_of(operator: Op) -> Planner | None:
    """The device planner of an operator, None without one."""
    load_kernels()
    return PLANNERS.of(operator)


def plan_rows(step: Step) -> Planned:
    """The kernel of an operator's description of rows."""
    assert step.node.op.rows is not None
    described = step.node.op.rows(step)
    if isinstance(described, str):
        return described
    return launch_of(described) if described.fits else "its inputs do not broadcast to one shape"


PLANNERS.by_rows = plan_rows


def cpu_reason(operator: Op) -> str | None:
    """The reason why an operator runs on the CPU, None if it runs on the device."""
    if planner_of(operator) is not None or operator in CONTROL_FLOW or decomposition_of(operator) is not None:
        return None
    return CPU_REASONS.get(operator, "it has no CUDA path")


def decomposition_of(operator: Op) -> Decomposition | None:
    """The decomposition of an operator, None without one."""
    return DECOMPOSITIONS.get(operator, operator.lower)


def plan_node(step: Step) -> Planned:
    """The launches or view of a node, or the reason why it runs on the CPU."""
    unknown = [item.dtype for item in step.inputs if item is not None and not is_supported(item.dtype)]
    unknown += [result[0] for result in step.results if result is not None and not is_supported(result[0])]
    if unknown:
        return f"kernels do not support {unknown[0]}"
    planner = planner_of(step.node.op)
    assert planner is not None
    return planner(step)

"""Placement: which operators have a path on the device, from the files named ``*_cuda.py`` beside them, and why others have none.

    @cuda(transpose)
    def transpose_on_device(step: Step) -> Planned: ...       # launches, a view, or a sentence that says why this node stays on the CPU

    on_cpu("texts are Python objects", string_split, string_concat)
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..blocks import numbers
from ..launch import Buffer, Room, View
from ..record import dataclass
from ..registry import operators
from .element import holds
from .kernel import Launch
from .packed import PackedBuffer
from .sized import Sized
from .zip import Chain

if TYPE_CHECKING:
    from ..build import Builder
    from ..graph import Node, Value
    from ..op import Op


@dataclass(eq=False)
class Step:
    """A node as its device planner sees it.

    Attributes:
        inputs: buffers, None for an optional input that is absent.
        attributes: all of them, defaults filled in.
        results: dtype and shape of each output, None for one that nobody uses; the shape is empty where data decides on it.
        cache: what has been made of constants, kept for all plans of a session.
        device: number of the one that it is planned for.
        sized: outputs whose shapes data decides on.
        fresh: what every run fills with random bits.
        flags: bytes that kernels set when data is not what the operator allows, and what to say then.
        spare: whether an output may take the place of an input.
    """

    node: Node
    inputs: list[Buffer | None]
    attributes: dict[str, Any]
    results: list[tuple[np.dtype[Any], tuple[int, ...]] | None]
    cache: dict[Any, np.ndarray]
    device: int = 0
    outputs: dict[int, Buffer] = field(default_factory=dict)
    sized: dict[int, Sized] = field(default_factory=dict)
    fresh: list[Buffer] = field(default_factory=list)
    spare: Callable[[Buffer], bool] = lambda buffer: False
    flags: list[tuple[Buffer, str]] = field(default_factory=list)

    def input(self, index: int) -> Buffer:
        """An input that the operator requires."""
        found = self.inputs[index]
        assert found is not None
        return found

    def given(self, index: int) -> Buffer | None:
        """An input, None where it is absent or left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Buffer:
        """The buffer for an output that is used."""
        if index not in self.outputs:
            result = self.results[index]
            assert result is not None
            self.outputs[index] = self.temporary(*result)
        return self.outputs[index]

    def wanted(self, index: int) -> bool:
        """Whether anything uses output `index`."""
        return index < len(self.results) and self.results[index] is not None

    def temporary(self, dtype: np.dtype[Any] | type, shape: Sequence[int]) -> Buffer:
        """An array for the launches of this step."""
        kind = np.dtype(dtype)
        return Buffer(kind, tuple(shape), Room(math.prod(shape) * kind.itemsize))

    def constant(self, index: int) -> np.ndarray | None:
        """Values of an input that is known ahead."""
        buffer = self.given(index)
        if buffer is None or buffer.room.constant is None:
            return None
        if isinstance(buffer, PackedBuffer):
            return np.asarray(numbers(buffer.host()))
        whole = buffer.room.constant.reshape(-1).view(np.uint8)[buffer.offset : buffer.offset + buffer.nbytes]
        return whole.view(buffer.dtype).reshape(buffer.shape)

    def held(self, array: np.ndarray) -> Buffer:
        """A constant buffer."""
        plain = array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)
        return Buffer(plain.dtype, plain.shape, Room(plain.nbytes, constant=plain))

    def drawn(self, count: int) -> Buffer:
        """Integers of random bits, other ones in every run."""
        made = self.temporary(np.int64, (count,))
        self.fresh.append(made)
        return made

    def flag(self, why: str) -> Buffer:
        """A byte that kernels set to 1 when the node's data is not what its operator allows."""
        made = self.temporary(np.uint8, (1,))
        self.flags.append((made, why))
        return made


Planned: TypeAlias = "Launch | Chain | View | list[Launch | Chain] | str"
"""What computes a node in order, a view, or why it runs on the CPU."""
Planner = Callable[[Step], Planned]
Formula = Callable[["Node", "Builder"], None]

@dataclass(frozen=True)
class Deciding:
    """An operator that the host runs on tensors that stay where they are: it hands them on, gathers them, or gives them to subgraphs.

    Attributes:
        looks: the inputs that it looks into, which are brought to the host.
        compute: what runs it, with a keyword `call`; the operator's own where None.
    """

    looks: tuple[int, ...] = ()
    compute: Callable[..., Any] | None = None


DECIDING: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Split", "Squeeze", "Unsqueeze", "TopK", "CumSum", "CumProd", "CenterCropPad", "Upsample"), (1,)),
    **{f"Reduce{name}": (1,) for name in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")},
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow", "ConstantOfShape"), (0,)),
    "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Resize": (1, 2, 3), "Range": (0, 1, 2), "OneHot": (1,), "Col2Im": (1, 2), "DFT": (1, 2), "STFT": (1, 2, 3),
    "Dropout": (1, 2), "AffineGrid": (1,), "MelWeightMatrix": (0, 1, 2, 3, 4), "MaxUnpool": (2,),
    "com.microsoft.GroupQueryAttention": (6,), "com.microsoft.MatMulNBits": (4,),
}
"""Inputs whose values decide what a node is, by domain (none for the standard's) and name: a plan is made for the very values that are fed there."""
DECIDING_ELEMENTS = 4096


def deciding(node: Node) -> list[Value]:
    """The inputs of a node whose values decide what it is."""
    places = DECIDING.get(f"{node.op.domain}.{node.op.name}" if node.op.domain else node.op.name, ())
    return [value for place in places if place < len(node.inputs) and (value := node.inputs[place]) is not None]



PLANNERS: dict[Op, Planner] = {}
FORMULAS: dict[Op, Formula] = {}
REASONS: dict[Op, str] = {}
CONTROLLED: dict[Op, Deciding] = {}
SIZED: set[Op] = set()
"""Operators whose planners give outputs as long as data says."""


def cuda(*found: Op, sized: bool = False) -> Callable[[Planner], Planner]:
    """Register the device planner of operators; one that is `sized` gives all outputs of unknown shapes as `Step.sized`."""

    def registered(planner: Planner) -> Planner:
        PLANNERS.update(dict.fromkeys(found, planner))
        SIZED.update(found if sized else ())
        return planner

    return registered


def controlled(*found: Op, looks: tuple[int, ...] = (), compute: Callable[..., Any] | None = None) -> None:
    """Say that operators are run as `Deciding` says."""
    CONTROLLED.update(dict.fromkeys(found, Deciding(looks, compute)))


class Stays(Exception):
    """A rule of `composed` does not know this node; the text says why it runs on the CPU."""


def composed(*found: Op) -> Callable[[Formula], Formula]:
    """Register the rule that builds a node of operators that have device planners. All shapes are known when it runs; it may raise `Stays`."""

    def registered(formula: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(found, formula))
        return formula

    return registered


def on_cpu(why: str, *found: Op) -> None:
    """Say why operators run on the CPU."""
    REASONS.update(dict.fromkeys(found, why))


def within(*modules: ModuleType) -> list[Op]:
    """The operators that modules define."""
    from ..op import Op

    return [item for module in modules for item in vars(module).values() if isinstance(item, Op)]


@functools.cache
def kernels() -> None:
    """Load the modules of ``ops`` that say how operators run on the device."""
    operators()
    package = importlib.import_module("...ops", __package__)
    for module in sorted(pkgutil.walk_packages(package.__path__, f"{package.__name__}."), key=lambda module: module.name):
        if module.name.endswith("_cuda"):
            importlib.import_module(module.name)


def placed(operator: Op) -> str | None:
    """None for operators with a path on the device, why the others have none."""
    kernels()
    if operator in PLANNERS or operator in CONTROLLED or formula_of(operator) is not None:
        return None
    return REASONS.get(operator, "it has no CUDA path")


def formula_of(operator: Op) -> Formula | None:
    """What builds a node of others."""
    return FORMULAS.get(operator, operator.lower)


def planned(step: Step) -> Planned:
    """What computes a node on the device, or why nothing does."""
    unknown = [item.dtype for item in step.inputs if item is not None and not holds(item.dtype)]
    unknown += [result[0] for result in step.results if result is not None and not holds(result[0])]
    if unknown:
        return f"kernels do not know {unknown[0]}"
    return PLANNERS[step.node.op](step)

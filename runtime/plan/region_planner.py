"""Base of the CPU and CUDA planners: copies a region's nodes, infers shapes, folds constants and fuses chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ..base.errors import UnsupportedError
from ..ir.clone import copied, needed
from ..ir.graph import Node, Value
from ..region.known_values import KnownValues
from ..region.region import Region
from ..tensor.dtype import STRING, DType
from ..tensor.weight_array import Blocks, LazyWeight, Packed
from .constant_folding import folded
from .kernel_api import BaseLaunch, Buffer, Chain, fuse
from .plan import dtype_of, ints, is_static
from .value_location import ValueLocations

L = TypeVar("L", bound=Buffer | Value)
W = TypeVar("W", np.ndarray | Blocks | LazyWeight, np.ndarray | Blocks | Packed)


class RegionPlanner(Generic[W, L]):
    """A region that is being planned.

    Attributes:
        keep: chooses intermediate values that are returned too; nothing is fused then.
        values: the plan's own copy of each value of the region, which has the shape at hand.
        constants: values that are known ahead.
        copies: the plan's copies of the region's nodes.
        uses: how often each value is used; results: the region's outputs.
        locations: locations of the values that kernels address.
        steps: launches, chains and other steps so far; nodes: what asked for each.
    """

    max_fused: int
    """Operators of the longest fused chain."""

    def __init__(self, region: Region[W], keep: Any) -> None:
        self.region: Region[W] = region
        self.keep = keep
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, W] = {}
        self.facts = KnownValues(self.constants)
        self.copies = [copied(node, self.values) for node in region.nodes]
        self.uses: Counter[Value] = Counter(value for node in self.copies for value in needed(node))
        self.results = [self.copy_of(value) for value in region.outputs]
        self.uses.update(self.results)
        self.locations: ValueLocations[L] = ValueLocations()
        self.steps: list[Any] = []
        self.nodes: list[Node | None] = []
        for value, array in region.weights.items():
            self.constant(self.copy_of(value), array, value.dtype)

    def copy_of(self, value: Value) -> Value:
        """The planner's copy of a value."""
        return self.values.setdefault(value, Value(value.name))

    def constant(self, value: Value, array: W, dtype: DType | None = None) -> None:
        """Register a value as a constant."""
        value.dtype, value.shape = dtype or dtype_of(array), array.shape
        self.constants[value] = array

    def is_used(self, value: Value) -> bool:
        """Whether a value has a name and a use."""
        return bool(value.name) and self.uses[value] > 0

    def shape_depends_on_data(self, values: Collection[Value]) -> bool:
        """Whether a used value has a dtype or shape that is known only at run time."""
        return any(
            self.is_used(value)
            and value not in self.constants
            and not value.container
            and value.dtype is not STRING
            and (value.dtype is None or not is_static(value.shape))
            for value in values
        )

    def fold(self, node: Node) -> bool:
        """Fold a node if its inputs are constants; returns whether its results are constants now."""
        found = folded(node, self.facts, self.constants)
        for value, array in (found or {}).items():
            self.constant(value, array, value.dtype)
        return found is not None

    def results_of(self, node: Node) -> list[tuple[np.dtype[Any], tuple[int, ...]] | None]:
        """The dtype and shape of each output, None if it is unused; the shape is empty if it depends on data."""
        return [
            (value.dtype.as_numpy(), ints(value.shape) if is_static(value.shape) else ())
            if self.is_used(value) and value.dtype is not None
            else None
            for value in node.outputs
        ]

    def add(self, step: Any, node: Node | None) -> None:
        """Append a step."""
        self.steps.append(step)
        self.nodes.append(node)

    def append(self, step: Any, node: Node) -> None:
        """Append a step; an element-wise chain is fused with its predecessor if possible."""
        before = self.steps[-1] if self.steps else None
        if isinstance(step, Chain) and isinstance(before, Chain | BaseLaunch) and not self.keep:
            both = fuse(before, step, self.max_fused)
            if both is not None and before.output is not None and self.only_use(before.output):
                self.steps[-1] = both
                if isinstance(both, Chain):
                    self.nodes[-1] = node
                return
        self.add(step, node)

    def only_use(self, buffer: Buffer) -> bool:
        """Whether one value occupies the memory of a buffer, and one node uses it."""
        occupant = self.locations.sole_occupant(buffer.allocation)
        return occupant is not None and self.uses[occupant] == 1

    def may_overwrite(self, buffer: Buffer) -> bool:
        """Whether an output may overwrite an input: the last use of a temporary, or an in-place input."""
        allocation = buffer.allocation
        own = allocation.constant is None and (allocation.slot is None or allocation.writable)
        return own and not buffer.offset and buffer.nbytes == allocation.nbytes and self.only_use(buffer)

    def needed_later(self, nodes: Sequence[Node], known: Collection[Value]) -> tuple[list[Value], dict[Value, W]]:
        """The values among `known` that nodes left to another plan need, in the order of their uses, and the constants
        that they need."""
        wanted = dict.fromkeys([*(value for node in nodes for value in needed(node)), *self.results])
        fed = [value for value in wanted if value in known and value not in self.constants]
        return fed, {value: self.constants[value] for value in wanted if value in self.constants}


def check_implemented(node: Node) -> None:
    """Raise UnsupportedError if an operator has no NumPy reference."""
    if node.op.compute is None:
        raise UnsupportedError(
            "E-OP-MISSING", None, f"no implementation of {node.op.name}", hint="List them with candle-convert ops"
        )

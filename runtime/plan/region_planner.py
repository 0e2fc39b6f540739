"""Base of the CPU and CUDA planners: copies a region's nodes, infers shapes and folds constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Generic, TypeVar

import numpy as np

from ..ir.clone import copied, needed
from ..ir.graph import Node, Value
from ..region.known_values import KnownValues
from ..region.region import Region
from ..tensor.dtype import STRING, DType
from ..tensor.weight_array import Blocks, LazyWeight, Packed
from .constant_folding import folded
from .plan import dtype_of, is_static

W = TypeVar("W", np.ndarray | Blocks | LazyWeight, np.ndarray | Blocks | Packed)


class RegionPlanner(Generic[W]):
    """A region that is being planned.

    Attributes:
        values: the plan's own copy of each value of the region, which has the shape at hand.
        constants: values that are known ahead.
        nodes: the plan's copies of the region's nodes.
        uses: how often each value is used; results: the region's outputs.
    """

    def __init__(self, region: Region[W]) -> None:
        self.region: Region[W] = region
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, W] = {}
        self.facts = KnownValues(self.constants)
        self.copies = [copied(node, self.values) for node in region.nodes]
        self.uses: Counter[Value] = Counter(value for node in self.copies for value in needed(node))
        self.results = [self.copy_of(value) for value in region.outputs]
        self.uses.update(self.results)
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

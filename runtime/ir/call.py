"""Call context of an operator's NumPy reference: requested outputs, and how to run a subgraph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.dataclass import dataclass
from .graph import Graph, Node


@dataclass(frozen=True)
class Call:
    """The node and run that a compute function is called for, passed as its keyword parameter `call`.

    Attributes:
        used_outputs: for each output of the node, whether it is used; results for others may be None.
        run: runs a subgraph (an attribute of the node) on values for its inputs, and returns its outputs.
    """

    node: Node
    used_outputs: tuple[bool, ...]
    run: Callable[[Graph, Sequence[Any]], list[Any]]

    def number(self, array: Any) -> Any:
        """The only element of a tensor returned by a subgraph."""
        import numpy as np

        return np.asarray(array).reshape(-1)[0]

    def entries(self, array: Any, axis: int) -> Sequence[Any]:
        """A tensor's entries along an axis."""
        import numpy as np

        return [np.asarray(entry) for entry in np.moveaxis(array, axis, 0)]

    def stacked(self, arrays: Sequence[Any], axis: int) -> Any:
        """Tensors of one dtype and shape, stacked along a new axis."""
        import numpy as np

        return np.stack(arrays, axis)

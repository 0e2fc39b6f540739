"""Call context of an operator's NumPy reference: requested outputs, and how to run a subgraph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.dataclass import dataclass
from .graph import Graph, Node


@dataclass(frozen=True)
class Call:
    """What a compute function may ask of the run, by a keyword parameter `call`.

    Attributes:
        wanted: for each output of the node, whether anything uses it; results for others may be None.
        run: runs a subgraph (an attribute of the node) on values for its inputs, and gives its outputs.
    """

    node: Node
    wanted: tuple[bool, ...]
    run: Callable[[Graph, Sequence[Any]], list[Any]]

    def number(self, array: Any) -> Any:
        """The only element of a tensor that a subgraph gave."""
        import numpy as np

        return np.asarray(array).reshape(-1)[0]

    def entries(self, array: Any, axis: int) -> Sequence[Any]:
        """A tensor's entries along an axis."""
        import numpy as np

        return [np.asarray(entry) for entry in np.moveaxis(array, axis, 0)]

    def stacked(self, arrays: Sequence[Any], axis: int) -> Any:
        """Tensors of one dtype and shape as one, along a new axis."""
        import numpy as np

        return np.stack(arrays, axis)

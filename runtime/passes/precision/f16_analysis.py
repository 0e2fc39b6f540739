"""F16 analysis: which nodes compute in f16, from the values they derive from.

The rules are those of PyTorch's autocast. Products and lookups compute in f16. Functions that overflow or lose digits
in f16 compute in f32, and operators on their results stay in f32 up to the next product, or the scale of a norm. Values
that derive from integers alone (positions, masks, rotary angles) stay f32.
"""

from __future__ import annotations

from ...ir.graph import Function, Graph, Node, Value
from ...ir.op import Trait
from ...ir.registry import onnx
from ...tensor.dtype import F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import graphs
from .half import F16_MAX

F16_MIN = 2.0**-24
"""The smallest positive f16."""
MAX_EXAMINED = 1 << 22
"""Elements of a constant whose values are examined, at most."""


class ValueOrigins:
    """The values that each value derives from.

    Attributes:
        held: constants, by value.
        matrices: constants of two dimensions that are longer than 1, and what merely moves their elements: weights, and
            not the frequencies of rotary angles.
        exact: f32 values that follow from integers and other constants alone; huge: those among them that may be beyond
            the range of f16.
    """

    def __init__(self, graph: Graph) -> None:
        every = list(graphs(graph))
        self.held = {
            value: inner.weights[name]
            for inner in every
            for name, value in inner.values.items()
            if name in inner.weights and value not in inner.inputs
        }
        self.matrices = {
            value
            for value, tensor in self.held.items()
            if tensor.dtype.is_float and sum(length > 1 for length in tensor.shape) > 1
        }
        self.exact: set[Value] = set()
        self.huge: set[Value] = set()
        self._follow(graph)

    def _follow(self, graph: Graph) -> None:
        for node in graph.nodes:
            for below in node.subgraphs:
                self._follow(below)
            if _moves_matrix(node) and node.inputs[:1] and node.inputs[0] in self.matrices:
                self.matrices.update(node.outputs)
            elif self._is_exact(node):
                made = [value for value in node.outputs if value.dtype is F32]
                self.exact.update(made)
                if self._is_huge(node):
                    self.huge.update(made)

    def _is_exact(self, node: Node) -> bool:
        if node.op.domain or node.subgraphs or isinstance(node.op, Function):
            return False
        computed = [
            value
            for value in node.inputs
            if value is not None and value not in self.held and value not in self.matrices
        ]
        if any(
            value.dtype is None or value.container or (value.dtype.is_float and value not in self.exact)
            for value in computed
        ):
            return False
        weighs = any(value in self.matrices for value in node.inputs)
        return not (weighs and (Trait.PRODUCT in node.op.traits or Trait.LOOKUP in node.op.traits))

    def _is_huge(self, node: Node) -> bool:
        import numpy

        given = node.attributes.get("value")
        tensors = [StoredTensor.of(given)] if isinstance(given, numpy.ndarray) and given.dtype == numpy.float32 else []
        tensors += [self.held[value] for value in node.inputs if value in self.held and value.dtype is F32]
        return (
            node.op is onnx.Log
            or any(value in self.huge for value in node.inputs)
            or any(map(_reaches_beyond, tensors))
        )


class F16Selection:
    """Selects the nodes that compute in f16; nodes are queried in execution order."""

    def __init__(self, graph: Graph, origins: ValueOrigins) -> None:
        self.origins = origins
        self.narrow = set(graph.inputs)
        self._looping = {
            id(node)
            for inner in graphs(graph)
            for outer in inner.nodes
            if Trait.LOOP in outer.op.traits
            for body in outer.subgraphs
            for below in graphs(body)
            for node in below.nodes
        }

    def selects(self, node: Node) -> bool:
        """Whether a node computes in f16."""
        chosen = id(node) not in self._looping and self._chosen(node)
        if chosen:
            self.narrow.update(node.outputs)
        return chosen

    def _chosen(self, node: Node) -> bool:
        traits, origins = node.op.traits, self.origins
        wide = [value for value in node.inputs if value is not None and value.dtype is F32]
        computed = [value for value in wide if value not in origins.held and value not in origins.matrices]
        if Trait.IMPRECISE_IN_F16 in traits:
            return False
        if Trait.PRODUCT in traits or (Trait.LOOKUP in traits and node.inputs[0] in origins.matrices):
            return not origins.exact.issuperset(node.outputs)
        if _moves_matrix(node) and node.inputs[0] in origins.matrices:
            return True
        if not computed or origins.exact.issuperset(computed):
            return False
        if any(_lost(origins.held[value]) for value in wide if value in origins.held):
            return False
        if node.op is onnx.Mul and any(origins.held[value].count > 1 for value in wide if value in origins.held):
            return True
        begun = [value in self.narrow for value in computed]
        if _joins(node) and origins.exact.isdisjoint(computed):
            return any(begun)
        return all(begun)


def _moves_matrix(node: Node) -> bool:
    return Trait.RESHAPES in node.op.traits or node.op is onnx.Transpose


def _joins(node: Node) -> bool:
    """Whether a node computes in f16 if any input is f16: those that extend a cache, and residual connections."""
    return node.op in (onnx.Add, onnx.Concat, onnx.ScatterElements, onnx.ScatterND, onnx.TensorScatter)


def _reaches_beyond(tensor: StoredTensor) -> bool:
    """Whether a constant has elements beyond the range of f16, including infinities."""
    import numpy

    if tensor.dtype is not F32 or tensor.count > MAX_EXAMINED:
        return False
    return bool((numpy.abs(tensor.numpy()) > F16_MAX).any())


def _lost(tensor: StoredTensor) -> bool:
    """Whether f16 cannot represent a constant: elements beyond its range, or a scalar such as an epsilon that becomes
    0."""
    import numpy

    if tensor.dtype is not F32 or tensor.count > MAX_EXAMINED:
        return False
    sizes = numpy.abs(tensor.numpy())
    sizes = sizes[numpy.isfinite(sizes)]
    return bool((sizes > F16_MAX).any() or (tensor.count == 1 and ((sizes > 0) & (sizes < F16_MIN)).any()))

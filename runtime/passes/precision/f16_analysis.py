"""F16 analysis: which nodes compute in f16, from the values they derive from.

The rules are those of PyTorch's autocast. Products and lookups compute in f16. Functions that overflow or lose digits
in f16 compute in f32, and operators on their results stay in f32 up to the next product, or the scale of a norm. Values
that derive from integers alone (positions, masks, rotary angles) stay f32.
"""

from __future__ import annotations

from ...ir.graph import Function, Graph, Node, Value
from ...tensor.dtype import F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import graphs
from .half import F16_MAX

PRODUCTS = frozenset(
    {
        "Attention",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "Einsum",
        "GRU",
        "Gemm",
        "LSTM",
        "MatMul",
        "RNN",
        "RotaryEmbedding",
    }
)
"""Operators that always compute in f16."""
NEEDS_F32 = frozenset(
    {
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Cos",
        "Cosh",
        "Exp",
        "GridSample",
        "InstanceNormalization",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "MeanVarianceNormalization",
        "NegativeLogLikelihoodLoss",
        "Pow",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Sin",
        "Sinh",
        "Softmax",
        "SoftmaxCrossEntropyLoss",
        "Softplus",
        "Sqrt",
        "Tan",
    }
)
"""Operators that always compute in f32, in addition to those that `Half` excludes. LayerNormalization and
RMSNormalization compute in f32 inside."""
LOOKUPS = frozenset({"Gather", "GatherElements", "GatherND"})
MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
JOINS = frozenset({"Add", "Concat", "ScatterElements", "ScatterND", "TensorScatter"})
"""Operators that compute in f16 if any input is f16: those that extend a cache, and residual connections."""
LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})
"""Operators whose bodies stay in f32, since errors accumulate."""
F16_MIN = 2.0**-24
"""The smallest positive f16."""
MAX_EXAMINED = 1 << 22
"""Elements of a constant whose values are examined, at most."""


class ValueOrigins:
    """What values derive from.

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
            if node.op.name in MOVES and not node.op.domain and node.inputs[:1] and node.inputs[0] in self.matrices:
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
        return not (weighs and (node.op.name in PRODUCTS or node.op.name in LOOKUPS))

    def _is_huge(self, node: Node) -> bool:
        import numpy

        given = node.attributes.get("value")
        tensors = [StoredTensor.of(given)] if isinstance(given, numpy.ndarray) and given.dtype == numpy.float32 else []
        tensors += [self.held[value] for value in node.inputs if value in self.held and value.dtype is F32]
        return (
            node.op.name == "Log"
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
            if outer.op.name in LOOPS
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
        name, origins = node.op.name, self.origins
        wide = [value for value in node.inputs if value is not None and value.dtype is F32]
        computed = [value for value in wide if value not in origins.held and value not in origins.matrices]
        if name in NEEDS_F32:
            return False
        if name in PRODUCTS or (name in LOOKUPS and node.inputs[0] in origins.matrices):
            return not origins.exact.issuperset(node.outputs)
        if name in MOVES and node.inputs[0] in origins.matrices:
            return True
        if not computed or origins.exact.issuperset(computed):
            return False
        if any(_lost(origins.held[value]) for value in wide if value in origins.held):
            return False
        if name == "Mul" and any(origins.held[value].count > 1 for value in wide if value in origins.held):
            return True
        begun = [value in self.narrow for value in computed]
        if name in JOINS and origins.exact.isdisjoint(computed):
            return any(begun)
        return all(begun)


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

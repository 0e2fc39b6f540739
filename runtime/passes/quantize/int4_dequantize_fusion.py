"""Fusion of 2- and 4-bit weights with DequantizeLinear: products become com.microsoft's MatMulNBits, and Gather
precedes dequantization.

For devices whose kernels read codes. Otherwise such weights would be folded to floats, or dequantized in every run.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import MICROSOFT
from ...ir.graph import Graph, Node, Value
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, rewrite
from ..pattern.shared_constants import SharedConstants
from ..pattern.stage import PipelinePass
from .weight_only import pack_codes

if TYPE_CHECKING:
    import numpy as np

FEW = ("i2", "u2", "i4", "u4")
RUN = 32
"""Codes of a single-scale row are padded to a multiple of this, so that kernels read full int32 words."""


@dataclass(frozen=True)
class Codes:
    """A constant matrix of codes [rows, columns], or its transpose where it is `transposed`.

    Attributes:
        node: dequantizes it.
        block: codes along `axis` that share a scale; 0 where each index of the axis has one, or the whole matrix.
    """

    node: Node
    held: StoredTensor
    scale: StoredTensor
    zero: StoredTensor | None
    axis: int
    block: int
    transposed: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        one, other = self.held.shape
        return (other, one) if self.transposed else (one, other)

    @property
    def groups(self) -> int | None:
        """Scales per row; None if they run along the columns."""
        along = self.axis == int(not self.transposed)
        if self.block:
            return self.scale.shape[self.axis] if along else None
        return 1 if self.scale.count == 1 or not along else None

    @property
    def size(self) -> int:
        """Codes per group."""
        return self.block or -(-self.shape[1] // RUN) * RUN

    def arrays(self) -> list[np.ndarray]:
        """In MatMulNBits's layout: packed codes, scales [rows, groups], and packed zero points unless they are the
        middle code."""
        import numpy

        rows, columns = self.shape
        groups, bits = self.groups or 1, self.held.dtype.bits
        shift = 1 << (bits - 1) if self.held.dtype.kind == "int" else 0

        def by_row(tensor: StoredTensor) -> np.ndarray:
            array = tensor.numpy()
            if not self.block and tensor is not self.held:
                return numpy.broadcast_to(array.reshape(-1, 1), (rows, 1))
            return array.T if self.transposed else array

        def counted(tensor: StoredTensor) -> np.ndarray:
            found: np.ndarray = (by_row(tensor).astype(numpy.int8) + numpy.int8(shift)).view(numpy.uint8)
            return found

        whole = numpy.zeros((rows, groups * self.size), numpy.uint8)
        whole[:, :columns] = counted(self.held)
        found = [pack_codes(whole.reshape(rows, groups, -1), bits), numpy.ascontiguousarray(by_row(self.scale))]
        if self.zero is not None or not shift:
            found.append(
                pack_codes(numpy.zeros((rows, groups), numpy.uint8) if self.zero is None else counted(self.zero), bits)
            )
        return found


@dataclass
class FuseInt4Dequantize:
    """Fuse in place."""

    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)

    def run(self, graph: Graph) -> bool:
        """Return whether anything was fused."""
        changed = rewrite(graph, by_operator({"MatMul": self._product, "Gemm": self._product, "Gather": self._look_up}))
        if changed:
            RemoveDeadCode().run(graph)
        return changed

    def _product(self, node: Node, build: Builder) -> bool:
        given = {**node.op.defaults, **node.attributes}
        plain = given.get("alpha", 1) == given.get("beta", 1) == 1 and not given.get("transA", 0)
        found = codes_of(build.graph, node.inputs[1], transposed=not given.get("transB", 0)) if plain else None
        if found is None or found.groups is None or not found.size:
            return False
        rows, columns = found.shape
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and bias.shape != (rows,):
            return False
        source = found.node.inputs[0]
        assert source is not None
        codes, scales, *zeros = self._shared.constants(
            build, source, (found.node.name, found.node.outputs[0].name, found.transposed), found.arrays
        )
        inputs = [node.inputs[0], codes, scales, zeros[0] if zeros else None, None, bias]
        while inputs[-1] is None:
            inputs.pop()
        attributes = {"K": columns, "N": rows, "bits": found.held.dtype.bits, "block_size": found.size}
        build.add("MatMulNBits", inputs, attributes, domain=MICROSOFT, outputs=node.outputs, name=node.name)
        build.graph.opsets.setdefault(MICROSOFT, 1)
        return True

    def _look_up(self, node: Node, build: Builder) -> bool:
        found = codes_of(build.graph, node.inputs[0], transposed=False)
        if found is None or found.transposed or node.attributes.get("axis", 0) not in (0, -2):
            return False
        if found.axis == 0 if found.block else found.scale.count != 1:
            return False
        table, *scaling = found.node.inputs
        rows = [
            item if item is None or not found.block else build.add("Gather", [item, node.inputs[1]]) for item in scaling
        ]
        attributes = {**found.node.attributes, "axis": -1}
        build.add(
            "DequantizeLinear",
            [build.add("Gather", [table, node.inputs[1]]), *rows],
            attributes,
            outputs=node.outputs,
            name=node.name,
        )
        return True


def codes_of(graph: Graph, value: Value | None, transposed: bool) -> Codes | None:
    """The 2- or 4-bit constant after a DequantizeLinear and an optional Transpose; None for other values."""
    node = None if value is None else value.producer
    if (
        node is not None
        and (node.op.domain, node.op.name) == ("", "Transpose")
        and list(node.attributes.get("perm", (1, 0))) == [1, 0]
    ):
        node, transposed = None if node.inputs[0] is None else node.inputs[0].producer, not transposed
    if node is None or (node.op.domain, node.op.name) != ("", "DequantizeLinear"):
        return None
    held, scale, *zeros = (constant(graph, item) for item in node.inputs)
    given = {**node.op.defaults, **node.attributes}
    if (
        held is None
        or scale is None
        or held.dtype.name not in FEW
        or len(held.shape) != 2
        or not held.count
        or given["output_dtype"]
    ):
        return None
    if zeros and zeros[0] is None and node.inputs[2] is not None:
        return None
    block = given["block_size"]
    zero = zeros[0] if zeros else None
    if len(scale.shape) != (2 if block else min(1, len(scale.shape))) or (
        zero is not None and zero.shape != scale.shape
    ):
        return None
    return Codes(node, held, scale, zero, given["axis"] % 2, block, transposed)


PIPELINE = (PipelinePass("integers", lambda options: FuseInt4Dequantize(), backends=("cuda",)),)

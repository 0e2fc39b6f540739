"""ggml blocks as com.microsoft's MatMulNBits and GatherBlockQuantized: the codes are kept, only repacked.

These operators hold scaled codes of 4 and 8 bits around a middle code. Minima of a type are added separately: for a
product, the sum of a row's elements in each group times the group's offset. Results differ in the last place of f32
only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import MICROSOFT
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.block_codec import Codec
from ...tensor.dtype import BlockType
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, rewrite
from ..pattern.shared_constants import SharedConstants
from .weight_only import pack_codes

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Weight:
    """A quantized matrix [rows, columns] in the layout of these operators.

    Attributes:
        value: the weight itself; held: its blocks.
        group: elements that share a scale.
    """

    value: Value
    held: StoredTensor
    codec: Codec
    group: int

    @property
    def bits(self) -> int:
        return self.codec.code_bits

    @property
    def rows(self) -> int:
        return self.held.shape[0]

    @property
    def columns(self) -> int:
        return self.held.shape[1]

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Codes uint8 [rows, columns], scales f32 [rows, groups], and offsets f32 [rows, groups] if the type has
        minima."""
        import numpy

        assert self.codec.scaled is not None
        raw = numpy.frombuffer(self.held.storage.read(0, self.held.nbytes), numpy.uint8).reshape(
            -1, self.codec.dtype.block_nbytes
        )
        found = self.codec.scaled(raw)
        middle, shift = 1 << (self.bits - 1), 0 if self.bits == 4 and found.minima is not None else 1 << (self.bits - 1)
        scales = found.scales.reshape(self.rows, -1)
        offsets = None
        if found.minima is not None:
            offsets = numpy.float32(middle - shift) * scales - found.minima.reshape(self.rows, -1)
        return (
            (found.codes.astype(numpy.int16) + numpy.int16(shift)).astype(numpy.uint8).reshape(self.rows, -1),
            scales,
            offsets,
        )


@dataclass
class RepackGgmlAsNBits:
    """Replace products and lookups with quantized weights; expects products that transpose their weights.

    Attributes:
        codec_of: the codec of a block type.
    """

    codec_of: Callable[[BlockType], Codec]
    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)

    def run(self, graph: Graph) -> bool:
        """Replace nodes whose weight's type allows it; return whether there were any."""
        changed = rewrite(graph, by_operator({"MatMul": self._product, "Gather": self._look_up}))
        RemoveDeadCode().run(graph)
        return changed

    def _weight(self, graph: Graph, value: Value | None) -> Weight | None:
        held = constant(graph, value)
        if (
            value is None
            or held is None
            or not isinstance(held.dtype, BlockType)
            or len(held.shape) != 2
            or not held.count
        ):
            return None
        codec = self.codec_of(held.dtype)
        if codec.scaled is None:
            return None
        import numpy

        groups = codec.scaled(numpy.zeros((1, held.dtype.block_nbytes), numpy.uint8)).scales.shape[1]
        return Weight(value, held, codec, held.dtype.block // groups)

    def _product(self, node: Node, build: Builder) -> bool:
        transpose = node.inputs[1].producer if node.inputs[1] is not None else None
        if (
            transpose is None
            or transpose.op is not onnx.Transpose
            or list(transpose.attributes.get("perm", ())) != [1, 0]
        ):
            return False
        weight = self._weight(build.graph, transpose.inputs[0])
        if weight is None:
            return False

        def made() -> list[np.ndarray]:
            codes, scales, offsets = weight.arrays()
            arrays = [pack_codes(codes.reshape(weight.rows, -1, weight.group), weight.bits), scales]
            return arrays if offsets is None else [*arrays, offsets.T]

        codes, scales, *offsets = self._shared.constants(build, weight.value, "product", made)
        attributes = {"K": weight.columns, "N": weight.rows, "bits": weight.bits, "block_size": weight.group}
        results = [Value(build.name("product"))] if offsets else node.outputs
        y = build.add(
            "MatMulNBits",
            [node.inputs[0], codes, scales],
            attributes,
            domain=MICROSOFT,
            outputs=results,
            name=node.name,
        )
        build.graph.opsets.setdefault(MICROSOFT, 1)
        if offsets:
            groups = build.add(
                "Reshape", [node.inputs[0], build.constant([-1, weight.columns // weight.group, weight.group])]
            )
            sums = build.add("ReduceSum", [groups, build.constant([2])], {"keepdims": 0})
            added = build.add("Reshape", [build.add("MatMul", [sums, offsets[0]]), build.add("Shape", [y])])
            build.add("Add", [y, added], outputs=node.outputs)
        return True

    def _look_up(self, node: Node, build: Builder) -> bool:
        weight = self._weight(build.graph, node.inputs[0])
        if weight is None or node.attributes.get("axis", 0) not in (0, -2):
            return False

        def made() -> list[np.ndarray]:
            codes, scales, offsets = weight.arrays()
            return [pack_codes(codes, weight.bits), scales] + ([] if offsets is None else [offsets])

        codes, scales, *offsets = self._shared.constants(build, weight.value, "table", made)
        attributes = {"bits": weight.bits, "block_size": weight.group, "gather_axis": 0, "quantize_axis": 1}
        results = [Value(build.name("rows"))] if offsets else node.outputs
        y = build.add(
            "GatherBlockQuantized",
            [codes, node.inputs[1], scales],
            attributes,
            domain=MICROSOFT,
            outputs=results,
            name=node.name,
        )
        build.graph.opsets.setdefault(MICROSOFT, 1)
        if offsets:
            groups = build.add("Reshape", [y, build.constant([-1, weight.columns // weight.group, weight.group])])
            each = build.add(
                "Reshape",
                [
                    build.add("Gather", [offsets[0], node.inputs[1]]),
                    build.constant([-1, weight.columns // weight.group, 1]),
                ],
            )
            build.add("Reshape", [build.add("Add", [groups, each]), build.add("Shape", [y])], outputs=node.outputs)
        return True

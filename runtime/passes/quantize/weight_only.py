"""Weight-only quantization of matrix products and lookup tables to blocks of 4 or 8 bits.

Every row of the transposed matrix is cut into blocks with a scale each; asymmetric blocks have a zero point too.
Activations stay float. The result uses com.microsoft's MatMulNBits and GatherBlockQuantized, or the standard's
blocked DequantizeLinear. Lookup tables may have rows of int8 with a scale each instead, for runtimes without
GatherBlockQuantized. Source: the operators' definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import UsageError
from ...ir.builder import Builder
from ...ir.domain import MICROSOFT
from ...ir.graph import Graph, Node, Value
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import by_operator, constant_matrix, rewrite
from ..pattern.shared_constants import SharedConstants

if TYPE_CHECKING:
    import numpy as np

BITS = (4, 8)
OPERATORS = ("Gather", "Gemm", "MatMul")
"""Operators whose weights are quantized."""
FORMS = ("nbits", "qdq")


@dataclass(frozen=True)
class QuantizedMatrix:
    """A matrix in blocks.

    Attributes:
        codes: uint8 [rows, blocks, block].
        scales: f32 [rows, blocks].
        zeros: uint8 [rows, blocks], None where all are the middle code.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None


@dataclass
class WeightOnly:
    """Quantize constant matrices of `OPERATORS`.

    Attributes:
        bits: of a code; block: values of a row that share a scale, a power of two from 16.
        symmetric: whether zero is always the middle code.
        form: nbits (operators of com.microsoft) or qdq (DequantizeLinear of opset 21).
        tables: blocks, or rows of int8 with a scale each, of lookup tables; those narrower than `block` stay floats.
        selected: whether a node may be changed.
        changed: names of the weights that were quantized.
    """

    bits: int = 4
    block: int = 32
    symmetric: bool = True
    form: str = "nbits"
    tables: str = "blocks"
    selected: Callable[[Node], bool] = field(default=lambda node: True)
    changed: list[str] = field(default_factory=list)
    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)

    def run(self, graph: Graph) -> bool:
        """Replace nodes with a constant f32 or f16 matrix; return whether there were any."""
        if self.bits not in BITS or self.block < 16 or self.block & (self.block - 1):
            hint = "Bits 4, 8; blocks 16, 32, 64, 128, 256"
            raise UsageError(
                "E-QUANT-BLOCK", None, f"{self.bits} bits in blocks of {self.block} are not supported", hint=hint
            )
        rules = (self._gather, self._gemm, self._matmul)
        return rewrite(graph, by_operator(dict(zip(OPERATORS, rules, strict=True)), self.selected))

    def _gather(self, node: Node, build: Builder) -> bool:
        table = constant_matrix(build.graph, node.inputs[0], ("f32", "f16"))
        if table is None or node.attributes.get("axis", 0) not in (0, -2):
            return False
        columns = table.shape[1]
        if columns < self.block or (self.tables == "blocks" and columns % self.block):
            return False
        assert node.inputs[0] is not None
        self.changed.append(node.inputs[0].name)
        if self.tables == "rows":
            codes, scales = self._shared.constants(build, node.inputs[0], "rows", lambda: quantize_rows(table.numpy()))
            rows, factors = (build.add("Gather", [part, node.inputs[1]]) for part in (codes, scales))
            steps = build.add("Cast", [rows], {"to": table.dtype.onnx})
            build.add("Mul", [steps, factors], outputs=node.outputs, name=node.name)
            return True
        if self.form == "qdq":
            node.inputs[0] = self._dequantized(node.inputs[0], table, False, build, axis=1)
            build.keep(node)
            return True

        def made() -> list[np.ndarray]:
            rows = table.numpy()
            found = quantize_blocks(rows, self.bits, self.block, symmetric=self.symmetric)
            zeros = [] if found.zeros is None else [pack_codes(found.zeros, self.bits)]
            return [pack_codes(found.codes.reshape(len(rows), -1), self.bits), found.scales.astype(rows.dtype), *zeros]

        codes, *scaling = self._shared.constants(build, node.inputs[0], "table", made)
        inputs = [codes, node.inputs[1], *scaling]
        attributes = {"bits": self.bits, "block_size": self.block, "gather_axis": 0, "quantize_axis": 1}
        build.add("GatherBlockQuantized", inputs, attributes, domain=MICROSOFT, outputs=node.outputs, name=node.name)
        build.graph.opsets.setdefault(MICROSOFT, 1)
        return True

    def _matmul(self, node: Node, build: Builder) -> bool:
        vector = node.inputs[0] is not None and node.inputs[0].shape is not None and len(node.inputs[0].shape) < 2
        if vector:
            return False
        matrix = self._matrix(node.inputs[1], build)
        if matrix is None:
            return False
        if self.form == "qdq":
            node.inputs[1] = self._dequantized(node.inputs[1], matrix, True, build, axis=0)
            build.keep(node)
        else:
            self._product(node, build, matrix, True, None)
        return True

    def _gemm(self, node: Node, build: Builder) -> bool:
        read = {**node.op.defaults, **node.attributes}
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        vector = bias is None or (read["beta"] == 1 and bias.shape is not None and len(bias.shape) == 1)
        plain = read["alpha"] == 1 and not read["transA"] and vector
        matrix = self._matrix(node.inputs[1], build) if plain else None
        if matrix is None:
            return False
        transposed = not read["transB"]
        if self.form == "qdq":
            node.inputs[1] = self._dequantized(node.inputs[1], matrix, transposed, build, axis=0 if transposed else 1)
            build.keep(node)
        else:
            columns = matrix.shape[1 if transposed else 0]
            if bias is not None and bias.shape != (columns,):
                bias = build.add("Expand", [bias, build.constant([columns])])
            self._product(node, build, matrix, transposed, bias)
        return True

    def _matrix(self, value: Value | None, build: Builder) -> StoredTensor | None:
        matrix = constant_matrix(build.graph, value, ("f32", "f16"))
        if value is not None and matrix is not None:
            self.changed.append(value.name)
        return matrix

    def _product(self, node: Node, build: Builder, matrix: StoredTensor, transposed: bool, bias: Value | None) -> None:
        """The weight is [N, K], or [K, N] if `transposed`."""
        weight = node.inputs[1]
        assert weight is not None

        def made() -> list[np.ndarray]:
            rows = _rows(matrix, transposed)
            found = quantize_blocks(rows, self.bits, self.block, symmetric=self.symmetric)
            zeros = [] if found.zeros is None else [pack_codes(found.zeros, self.bits)]
            return [pack_codes(found.codes, self.bits), found.scales.astype(rows.dtype), *zeros]

        codes, scales, *zeros = self._shared.constants(
            build, weight, ("product", node.attributes.get("transB", 0)), made
        )
        inputs = [node.inputs[0], codes, scales, zeros[0] if zeros else None, None, bias]
        while inputs[-1] is None:
            inputs.pop()
        count, columns = matrix.shape[::-1] if transposed else matrix.shape
        attributes = {"K": columns, "N": count, "bits": self.bits, "block_size": self.block}
        build.add("MatMulNBits", inputs, attributes, domain=MICROSOFT, outputs=node.outputs, name=node.name)
        build.graph.opsets.setdefault(MICROSOFT, 1)

    def _dequantized(
        self, weight: Value | None, matrix: StoredTensor, transposed: bool, build: Builder, axis: int
    ) -> Value:
        """The matrix with blocks along `axis`, as a DequantizeLinear; codes are transposed for axis 0."""
        assert weight is not None

        def made() -> list[np.ndarray]:
            import ml_dtypes

            rows = _rows(matrix, transposed)
            found = quantize_blocks(rows, self.bits, self.block, symmetric=self.symmetric)
            whole = found.codes.reshape(len(rows), -1)[:, : rows.shape[1]]
            plain = "uint8" if self.bits == 8 else ml_dtypes.uint4
            middle = found.zeros if found.zeros is not None else (found.scales * 0 + (1 << (self.bits - 1)))
            parts = (whole.astype(plain), found.scales.astype(rows.dtype), middle.astype("uint8").astype(plain))
            return [part.T if axis == 0 else part for part in parts]

        inputs = self._shared.constants(build, weight, ("blocks", transposed, axis), made)
        return build.add("DequantizeLinear", inputs, {"axis": axis, "block_size": self.block})


def _rows(matrix: StoredTensor, transposed: bool) -> np.ndarray:
    array = matrix.numpy()
    return array.T if transposed else array


def quantize_blocks(rows: np.ndarray, bits: int, block: int, *, symmetric: bool) -> QuantizedMatrix:
    """Quantize a matrix [rows, columns]; columns are padded with zeros to full blocks. Scales are rounded to the
    matrix's dtype.

    Symmetric: the value of largest magnitude becomes code 0 (so that its sign gets the extra code). Asymmetric: the
    codes span the minimum to the maximum, zero included.
    """
    import numpy

    count, columns = rows.shape
    number = -(-columns // block)
    values = numpy.zeros((count, number * block), numpy.float32)
    values[:, :columns] = rows
    values = values.reshape(count, number, block)
    top, middle = (1 << bits) - 1, 1 << (bits - 1)
    if symmetric:
        farthest = numpy.take_along_axis(values, numpy.abs(values).argmax(axis=-1, keepdims=True), axis=-1)
        scales = farthest / -middle
    else:
        low, high = (
            numpy.minimum(values.min(axis=-1, keepdims=True), 0),
            numpy.maximum(values.max(axis=-1, keepdims=True), 0),
        )
        scales = high / numpy.float32(top) - low / numpy.float32(top)
    scales = scales.astype(rows.dtype).astype(numpy.float32)
    if symmetric:
        zeros = numpy.full_like(scales, middle)
    else:
        zeros = numpy.clip(numpy.rint(numpy.divide(-low, scales, out=numpy.zeros_like(low), where=scales != 0)), 0, top)
    steps = numpy.divide(values, scales, out=numpy.zeros_like(values), where=scales != 0)
    codes = numpy.clip(numpy.rint(steps) + zeros, 0, top).astype(numpy.uint8)
    return QuantizedMatrix(codes, scales[..., 0], None if symmetric else zeros[..., 0].astype(numpy.uint8))


def quantize_rows(rows: np.ndarray) -> list[np.ndarray]:
    """Codes of a matrix, int8 [rows, columns] of -127 to 127, and a scale for each row [rows, 1] in its dtype.

    Scales are normal numbers of the dtype, which no device flushes to zero, and 127 of them do not overflow.
    """
    import numpy

    info, wide = numpy.finfo(rows.dtype), rows.astype(numpy.float32)
    largest = numpy.nextafter(info.max / rows.dtype.type(127), rows.dtype.type(0))
    scales = (numpy.abs(wide).max(axis=1, keepdims=True, initial=0) / 127).astype(rows.dtype)
    scales = numpy.clip(scales, info.smallest_normal, largest)
    return [numpy.clip(numpy.rint(wide / scales), -127, 127).astype(numpy.int8), scales]


def pack_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of the last axis packed into bytes, the first in the lowest bits; the axis is padded with zeros."""
    import numpy

    each = 8 // bits
    length = -(-codes.shape[-1] // each)
    full = numpy.zeros((*codes.shape[:-1], length * each), numpy.uint8)
    full[..., : codes.shape[-1]] = codes
    parts = full.reshape(*codes.shape[:-1], length, each)
    out = numpy.zeros(parts.shape[:-1], numpy.uint8)
    for position in range(each):
        out |= parts[..., position] << (position * bits)
    return out

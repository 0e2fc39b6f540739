"""MatMulBnb4 on the device: the weight is decoded by other operators, then multiplied."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import F32, I64
from ...rules.decompose_cuda import Form, forms
from .matmul_bnb4 import TABLES, matmul_bnb4


@decomposed(matmul_bnb4)
@forms
def _of_floats(form: Form) -> None:
    given = form.attributes
    inner, outer, block = given["K"], given["N"], given["block_size"]
    if inner * outer % 2 or inner * outer % block:
        raise Undecomposable("weights that do not fill their last block are decoded on the CPU")
    a, codes = form.input(0), form.input(1).reshaped(-1)
    halves = [
        codes.call("BitShift", form.constant(4, "uint8"), direction="RIGHT"),
        codes.call("BitwiseAnd", form.constant(15, "uint8")),
    ]
    first, second = (half.call("Unsqueeze", form.constant([1])) for half in halves)
    places = first.call("Concat", second, axis=1).reshaped(-1, block).cast(I64)
    values = form.constant(TABLES[given["quant_type"]], "float32").call("Gather", places)
    weight = values * form.input(2).cast(F32).reshaped(-1, 1)
    matrix = weight.reshaped(outer, inner).cast(a.dtype)
    form.give(0, a.call("MatMul", matrix.call("Transpose", perm=[1, 0]) if given["transB"] else matrix))

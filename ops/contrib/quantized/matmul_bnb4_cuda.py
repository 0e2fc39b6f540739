"""MatMulBnb4 on the device: the weight is decoded by other operators, then multiplied."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.tensor.dtype import F32, I64
from ...rules.decompose_cuda import Form, StaysOnCpu, dtype_of, forms
from .matmul_bnb4 import TABLES, matmul_bnb4


@decomposed(matmul_bnb4)
@forms
def _of_floats(form: Form) -> None:
    given = form.attributes
    inner, outer, block = given["K"], given["N"], given["block_size"]
    if inner * outer % 2 or inner * outer % block:
        raise StaysOnCpu("weights with a partial last block are supported on the CPU only")
    a, codes = form.input(0), form.reshaped(form.input(1), -1)
    halves = [
        codes.call("BitShift", form.constant(4, "uint8"), direction="RIGHT"),
        codes.call("BitwiseAnd", form.constant(15, "uint8")),
    ]
    first, second = (half.call("Unsqueeze", form.constant([1])) for half in halves)
    places = form.cast(form.reshaped(first.call("Concat", second, axis=1), -1, block), I64)
    values = form.constant(TABLES[given["quant_type"]], "float32").call("Gather", places)
    weight = values * form.reshaped(form.cast(form.input(2), F32), -1, 1)
    matrix = form.cast(form.reshaped(weight, outer, inner), dtype_of(a))
    form.give(0, a.call("MatMul", matrix.call("Transpose", perm=[1, 0]) if given["transB"] else matrix))

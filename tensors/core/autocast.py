"""Autocast: operators that cost most compute in a dtype of 16 bits, others in f32; for each thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.ir.op import Op, Trait
from ...runtime.ir.registry import onnx
from ...runtime.tensor.dtype import BF16, F16, F32, DType, dtype_named


class _Autocast(threading.local):
    dtype: DType | None = None


AUTOCAST = _Autocast()
"""The dtype of products in this thread, None outside of `autocast`."""


class autocast(ContextDecorator):  # noqa: N801 (a class in torch)
    """A context, or a decorator, in which products compute in 16 bits, as under torch's class of this name.

        with cc.autocast("cpu", dtype="bf16"):
            loss = model(**batch).loss

    Parameters stay as they are, and so do their gradients. Call `backward()` outside of the context.

    Args:
        device_type: "cpu".
        dtype: of products: bf16 or f16.
        enabled: False leaves the context without effect, inside of another one too.
    """

    def __init__(self, device_type: str = "cpu", dtype: Any = BF16, enabled: bool = True) -> None:
        if device_type != "cpu":
            why = f"tensors are computed on the CPU, not on {device_type!r}"
            raise UnsupportedError("E-TENSOR-DEVICE", None, why, hint='Use autocast("cpu")')
        chosen = dtype_named(dtype)
        if chosen not in (BF16, F16):
            raise UsageError(
                "E-TENSOR-DTYPE", None, f"autocast computes in 16 bits, not in {chosen}", expected="bf16, f16"
            )
        self._dtype = chosen if enabled else None
        self._before: list[DType | None] = []

    def __enter__(self) -> None:
        self._before.append(AUTOCAST.dtype)
        AUTOCAST.dtype = self._dtype

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        AUTOCAST.dtype = self._before.pop()


def casts(op: Op, dtypes: Sequence[DType | None], narrow: DType) -> list[DType | None]:
    """The dtypes that autocast converts an operator's inputs to; None for inputs it leaves alone.

    Args:
        dtypes: of the inputs, None for absent ones.
        narrow: the dtype of products.
    """
    if op.domain or op is onnx.Cast:
        return [None] * len(dtypes)
    products = _narrowed(op)
    if products:
        return [narrow if index in products and dtype is F32 else None for index, dtype in enumerate(dtypes)]
    if Trait.SUMS in op.traits or (F32 in dtypes and narrow in dtypes):
        return [F32 if dtype is narrow else None for dtype in dtypes]
    return [None] * len(dtypes)


def _narrowed(op: Op) -> tuple[int, ...]:
    """Inputs of a product that are narrowed; an attention mask is not one of them."""
    if op is onnx.Attention:
        return (0, 1, 2, 4, 5)
    return (0, 1, 2) if op in (onnx.MatMul, onnx.Gemm, onnx.Conv, onnx.ConvTranspose, onnx.Einsum) else ()

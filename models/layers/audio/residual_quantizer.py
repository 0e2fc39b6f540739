"""Residual vector quantization (SoundStream; Zeghidour et al. 2021, arXiv:2107.03312): each codebook codes what the
earlier ones leave over.

Vectors are [batch, frames, channels]. Codes of several codebooks are i64 [batch, quantizers, frames]; decoding takes
as many of them as there are, the first ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ....runtime.base.errors import FormatError
from ....runtime.ir.graph import Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ...schema.computed_weights import computed, f32
from ..net import Net
from .conv1d import kernel, pointwise1d


def residual_codes(net: Net, x: Value, codebooks: Sequence[str]) -> list[Value]:
    """For each codebook, a weight [vectors, channels], the numbers of the nearest vectors, i64 [batch, frames]."""
    found = []
    for i, name in enumerate(codebooks):
        table = f32(codebook(net, name))
        half = computed(table.shape[:1], functools.partial(_half_squares, table))
        products = net.MatMul(x, net.Transpose(net.vector(name), perm=[1, 0]))
        codes = net.ArgMax(net.Add(products, net.named(f"{name}.half", half)), axis=-1, keepdims=0)
        found.append(codes)
        if i + 1 < len(codebooks):
            x = net.Sub(x, net.Gather(net.vector(name), codes))
    return found


def codebook_sum(net: Net, codes: Value, codebooks: Sequence[str]) -> Value:
    """The sum of the vectors that `codes` [batch, quantizers, frames] stand for."""
    value: Value = net.ReduceSum(_vectors(net, codes, codebooks), [1], keepdims=0)
    return value


def codebook(net: Net, name: str) -> StoredTensor:
    """A codebook, [vectors, channels]."""
    tensor = net.tensor(name)
    if len(tensor.shape) != 2:
        why = f"{name} of the shape {list(tensor.shape)} is not a codebook"
        raise FormatError("E-ARCH-SHAPE", None, why, expected="[vectors, channels]")
    return tensor


def _vectors(net: Net, codes: Value, codebooks: Sequence[str]) -> Value:
    """The vectors of codes, [batch, quantizers, frames, channels]."""
    tables = [f32(codebook(net, name)) for name in codebooks]
    count, channels = tables[0].shape
    if any(table.shape != (count, channels) for table in tables):
        raise FormatError("E-ARCH-SHAPE", None, "codebooks have different shapes", hint="Are all shards there?")
    shape = (len(tables) * count, channels)
    every = net.named(f"{codebooks[0]}.stacked", computed(shape, lambda: np.concatenate([t.numpy() for t in tables])))
    starts = net.constant(np.arange(len(tables), dtype=np.int64)[:, None] * count)
    value: Value = net.Gather(every, net.Add(codes, net.Slice(starts, [0], _count(net, codes), [0])))
    return value


def _count(net: Net, codes: Value) -> Value:
    """The number of quantizers that codes [batch, quantizers, frames] are of, i64 [1]."""
    value: Value = net.Shape(codes, start=1, end=2)
    return value


def factorized_codes(net: Net, x: Value, names: Sequence[str], strides: Sequence[int]) -> list[Value]:
    """Codes i64 [batch, frames / stride] by cosine similarity in a space of few channels, with ``NAME.in_proj``,
    ``NAME.codebook.weight`` and ``NAME.out_proj`` (Improved VQGAN; Yu et al. 2021, arXiv:2110.04627).

    Args:
        strides: for each quantizer, the number of frames that a code stands for: it codes their mean.
    """
    found = []
    for i, (name, stride) in enumerate(zip(names, strides, strict=True)):
        table = f32(codebook(net, f"{name}.codebook.weight"))
        units = net.named(f"{name}.units", computed(table.shape, functools.partial(_units, table)))
        projected = pointwise1d(net, _means(net, x, stride), f"{name}.in_proj")
        codes = net.ArgMax(net.MatMul(projected, net.Transpose(units, perm=[1, 0])), axis=-1, keepdims=0)
        found.append(codes)
        if i + 1 < len(names):
            x = net.Sub(x, factorized_vectors(net, codes, name, stride))
    return found


def factorized_vectors(net: Net, codes: Value, name: str, stride: int) -> Value:
    """The vectors of codes [batch, frames / stride] of one quantizer, [batch, frames, channels]."""
    chosen = net.Gather(net.vector(f"{name}.codebook.weight"), codes)
    return _repeated(net, pointwise1d(net, chosen, f"{name}.out_proj"), stride)


def factorized_sum(net: Net, codes: Value, names: Sequence[str]) -> Value:
    """The sum of the vectors that `codes` [batch, quantizers, frames] stand for, of stride 1."""
    chosen = net.Transpose(_vectors(net, codes, [f"{name}.codebook.weight" for name in names]), perm=[0, 2, 1, 3])
    weights = [f32(kernel(net, f"{name}.out_proj")) for name in names]
    biases = [net.array(f"{name}.out_proj.bias") for name in names]
    out, width, _ = weights[0].shape
    if any(weight.shape != (out, width, 1) for weight in weights):
        raise FormatError("E-ARCH-SHAPE", None, "projections have different shapes", hint="Are all shards there?")
    shape = (len(names) * width, out)
    every = computed(shape, lambda: np.concatenate([weight.numpy()[:, :, 0].T for weight in weights]))
    count = _count(net, codes)
    matrix = net.Slice(net.named(f"{names[0]}.stacked", every), [0], net.Mul(count, [width]), [0])
    sums = net.constant(np.cumsum(np.stack(biases), 0, dtype=np.float32))
    value: Value = net.Add(net.MatMul(net.Reshape(chosen, [0, 0, -1]), matrix), net.Gather(sums, net.Sub(count, [1])))
    return value


def _half_squares(table: StoredTensor) -> np.ndarray:
    """Half the squared length of each vector, negative."""
    found: np.ndarray = np.square(table.numpy(), dtype=np.float32).sum(1) / np.float32(-2)
    return found


def _units(codebook: StoredTensor) -> np.ndarray:
    """Each vector divided by its length."""
    table = codebook.numpy()
    lengths = np.sqrt(np.square(table, dtype=np.float64).sum(1, keepdims=True))
    found: np.ndarray = (table / np.maximum(lengths, 1e-12)).astype(np.float32)
    return found


def _means(net: Net, x: Value, stride: int) -> Value:
    """[batch, frames / stride, channels]."""
    if stride == 1:
        return x
    width = net.Shape(x, start=2, end=3)
    value: Value = net.ReduceMean(net.Reshape(x, net.Concat([0, -1, stride], width, axis=0)), [2], keepdims=0)
    return value


def _repeated(net: Net, x: Value, stride: int) -> Value:
    """[batch, frames x stride, channels]: each vector as often as the stride says."""
    if stride == 1:
        return x
    several = net.Expand(net.Unsqueeze(x, [2]), net.constant(np.array([1, 1, stride, 1], np.int64)))
    width = net.Shape(x, start=2, end=3)
    value: Value = net.Reshape(several, net.Concat([0, -1], width, axis=0))
    return value

"""Canonical hash: equal for equal weights of one architecture, whatever names, layouts and dtypes the files use."""

from __future__ import annotations

from ...runtime.ir.graph import Graph
from ...runtime.tensor.block_codec import codecs
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.stored_tensor import StoredTensor, equal_bytes
from ..inspect.content_hash import combined_hash, tensor_hash
from ..translate.named_weights import identify_weights
from .match_tensors import TIED


def canonical_weights(graph: Graph) -> dict[str, StoredTensor]:
    """The weights by their architecture's names and in its layouts, as f32 unless they are wider.

    A head equal to the embedding is left out, as files with tied weights leave it out.

    Raises UnsupportedError where the architecture is not known.
    """
    side = identify_weights(graph)
    found = side.found
    needed = [name for name in (*found.stored, *found.computed) if name in found.weights and name not in side.spare]
    weights = {name: found.weights[name] for name in needed}
    misfits = {name: side.weights[found.stored[name][1][0]] for name in found.misshapen}
    extra = {name: side.weights[name] for name in found.extra}
    plain = {name: _widened(tensor) for name, tensor in (*weights.items(), *misfits.items(), *extra.items())}
    for name, other in TIED.items():
        if name in plain and other in plain and _same(plain[name], plain[other]):
            del plain[name]
    return plain


def _widened(tensor: StoredTensor) -> StoredTensor:
    """The values as f32, which holds those of all narrower types and of the types of blocks."""
    if tensor.qtype is not None:
        return tensor.dequantize() if tensor.qtype in codecs() else tensor
    return tensor.cast("f32") if tensor.dtype.kind == "float" and tensor.dtype.bits < F32.bits else tensor


def _same(a: StoredTensor, b: StoredTensor) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and equal_bytes(a, b)


def canonical_hash(graph: Graph) -> str:
    """The hash of all weights of a graph by its architecture's names; raises as `canonical_weights` does."""
    return combined_hash({name: tensor_hash(tensor) for name, tensor in canonical_weights(graph).items()})

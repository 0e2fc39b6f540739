"""Compiles block encoders on a machine's first run, which takes seconds; later runs load them from the disk cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.jit.code_cache import CachedKernel
from ...runtime.tensor import checksum
from ...runtime.tensor.block_codec import codec_of
from ...runtime.tensor.dtype import BlockType, DType
from .recipe.choose_type import Choice


def prepare(
    choices: Iterable[Choice], importance: dict[str, Any], tell: Callable[[list[str]], object] = lambda names: None
) -> None:
    """Compile the encoders that a quantization needs and the disk cache lacks; `tell` gets the names of their types
    first."""
    needed = {(choice.dtype, choice.weight.name in importance) for choice in choices if choice.changes}
    found = {kernel: dtype for dtype, weighted in needed for kernel in kernels(dtype, weighted) if not kernel.is_cached}
    if found:
        tell(sorted({dtype.name for dtype in found.values()}))
        for kernel in (*found, checksum.KERNEL):
            kernel.load()


def kernels(dtype: DType, weighted: bool) -> list[CachedKernel]:
    """The kernels that encode a type with importance or without."""
    encoder = codec_of(dtype).encoder if isinstance(dtype, BlockType) else None
    return [] if encoder is None else [encoder.kernels[weighted]]

"""Compiling: encoders become machine code on a machine's first run, which takes seconds, and are in the disk cache afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from ...ops.quants import codec_of
from ...runtime.dtype import BlockType, DType
from ...runtime.quant import encoded


def prepare(dtypes: Iterable[DType], tell: Callable[[list[str]], object] = lambda names: None) -> None:
    """Compile the encoders of the block types among `dtypes` that are not in the disk cache; `tell` gets their names before."""
    new = [dtype for dtype in unused(dtypes) if codec_of(dtype).encoder is not None]
    if new:
        tell([dtype.name for dtype in new])
    for dtype in new:
        _compile(dtype)


def unused(dtypes: Iterable[DType]) -> list[BlockType]:
    """The block types among `dtypes` whose encoders this machine has not compiled from these sources."""
    blocks = sorted({dtype for dtype in dtypes if isinstance(dtype, BlockType)}, key=lambda dtype: dtype.name)
    if not blocks:
        return []
    return [dtype for dtype in blocks if (mark := _mark(dtype)) is None or not mark.exists()]


def _mark(dtype: BlockType) -> Path | None:
    """The file that says that the cache holds the encoder for this processor, None without a cache."""
    from llvmlite import binding

    from ...runtime.kernel import cache_folder

    folder = cache_folder()
    return None if folder is None else folder / f"{dtype.name}-{binding.get_host_cpu_name()}.compiled"


def _compile(dtype: BlockType) -> None:
    import numpy

    row = numpy.linspace(-1, 1, dtype.block, dtype=numpy.float32)[None]
    with contextlib.suppress(OSError):  # the cache's disk may be full; what was compiled is used all the same
        encoded(codec_of(dtype), row, numpy.ones(dtype.block, numpy.float32))
        mark = _mark(dtype)
        if mark is not None:
            mark.touch()

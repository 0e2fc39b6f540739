"""Scatter kernels: sequential along one axis, one thread per column, so that results are deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..element.element import key_of, storage_of
from . import source_module
from .elementwise import THREADS, blocks_for
from .kernel import Launch
from .operand import Box, Operand, Writer


def scatter_launch(
    apart: Sequence[int],
    along: Sequence[int],
    target: Operand,
    updates: Operand,
    combine: Callable[..., Any],
    compute: np.dtype[Any],
) -> Launch:
    """target = combine(target, update) for all updates, at the indices that `target` looks up.

    Updates that differ along the axes `apart` never have the same target; those along `along` are applied in order.
    """
    writer = Writer()
    writer.parameter("rows", math.prod(apart))
    writer.parameter("count", math.prod(along))
    box = Box(writer, [*apart, *along], [target, updates], len(apart))
    writer.add(1, "for i in range(np.int64(cuda.grid(1)), rows, cuda.gridsize(1)):")
    box.decode(2, "k", "i")
    box.place(2, "k")
    writer.add(2, "for j in range(count):")
    box.decode(3, "r", "j")
    box.place(3, "r")
    box.load(3, 1, "kr", "v1")
    box.load(3, 0, "kr", "v0")
    writer.add(3, f"x0[p0] = {storage_of(target.buffer.dtype).store.format('f0(v0, v1)')}")
    head = f"f0 = scalar({key_of(combine)!r}, {compute.name!r})\n"
    kernel = source_module.compile_source(f"scatter by {combine.__name__}", head + writer.text(), (THREADS,))
    return Launch(kernel, writer.values, blocks_for(math.prod(apart)))

"""Per-element kernels: a generated grid-stride loop around a hand-written body."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from ...plan.kernel_api import Argument, Buffer
from ..element.element import key_of, storage_of
from ..element.kernel_text import PACKAGE
from ..element.sub_byte import element
from . import source_module
from .elementwise import THREADS, blocks_for
from .kernel import Launch
from .operand import Writer


def per_thread_launch(
    title: str,
    count: int,
    named: Mapping[str, Argument],
    body: str,
    functions: Mapping[str, tuple[Callable[..., Any], str]] | None = None,
) -> Launch:
    """The launch of `body` for every `i` below `count`.

    Args:
        named: parameters: numbers by their names; buffers, whose elements the text loads by ``get_NAME(NAME, index)``
            and rounds and stores by ``put_NAME(NAME, index, number)``.
        body: lines of Python, which may call `math` and the additions and products of `unfused_arithmetic`.
        functions: scalar functions that the text calls, and the dtype of the numbers in theirs.
    """
    writer = Writer()
    writer.head += ["import math", f"from {PACKAGE}.element.bits import inlined"]
    writer.head.append(f"from {PACKAGE}.device.unfused_arithmetic import add, add64, mul, mul64")
    writer.head += [
        f"{name} = scalar({key_of(function)!r}, {dtype!r})" for name, (function, dtype) in (functions or {}).items()
    ]
    writer.parameter("count", count)
    for name, value in named.items():
        writer.parameter(name, value)
        if isinstance(value, Buffer) and f"get_{name}(" in body:
            writer.head += ["@inlined", f"def get_{name}(x, place):", f"    return {element(value, 'x', 'place')}"]
        if isinstance(value, Buffer) and f"put_{name}(" in body:
            writer.head += [
                "@inlined",
                f"def put_{name}(x, place, number):",
                f"    x[place] = {storage_of(value.dtype).store.format('number')}",
            ]
    writer.add(1, "for i in range(np.int64(cuda.grid(1)), count, cuda.gridsize(1)):")
    writer.add(2, *textwrap.dedent(body).strip("\n").split("\n"))
    return Launch(source_module.compile_source(title, writer.text(), (THREADS,)), writer.values, blocks_for(count))

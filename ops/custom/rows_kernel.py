"""Kernels of a program's own functions of one row of arrays: generated range kernels that call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.process_cache import PROCESS, owned
from ...runtime.ir.op import Op
from ...runtime.jit import address, kernel_arguments, range_kernel
from ...runtime.jit.range_kernel import inner
from ...runtime.plan.elementwise_fusion import POINTERS, code_digest, module_kernel
from ...runtime.plan.kernel_api import BaseStep, Buffer, Launch, Planned, Step, native

WORK = 64
"""Scalar operations for each element of arguments and results that rows are assumed to take."""


@dataclass(frozen=True)
class Rows:
    """The row function of an operator.

    Attributes:
        body: takes the number of a row, the arrays of arguments and results, and the options.
        name: of the body, different for different ones.
        count: how many rows there are.
        results: dtypes and shapes.
    """

    body: Callable[..., None]
    name: str
    count: int
    options: tuple[float, ...]
    results: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]


ROWS: dict[Op, Rows] = owned({}, PROCESS)
"""Operator -> its description of rows."""
BODIES: dict[str, Callable[..., None]] = owned({}, PROCESS)
"""By name."""
LATER: list[Callable[[Op], None]] = owned([], PROCESS)
"""Called with each operator that is registered later."""


def register_rows(op: Op, rows: Rows) -> None:
    """Give an operator kernels that compute rows."""
    ROWS[op], BODIES[rows.name] = rows, rows.body
    native(op)(plan_rows)
    for registered in LATER:
        registered(op)


def plan_rows(step: Step) -> Planned:
    """One launch, whose parts are runs of rows."""
    rows = ROWS[step.node.op]
    arrays = arrays_of(step, rows)
    lines = [
        f'"""Generated from {rows.body.__name__}."""',
        "from __future__ import annotations",
        f"# {code_digest(rows.body)}",
        "from numba import carray",
        f"from {address.__name__} import *",
        f"from {kernel_arguments.__name__} import Words",
        f"from {range_kernel.__name__} import range_kernel",
        f"from {__name__} import row_body",
        f"body = row_body({rows.name!r})",
        "@range_kernel",
        "def compute(rows: int, arrays: Words, lengths: Words, part: int, parts: int):",
    ]
    place = 0
    for index, each in enumerate(arrays):
        dims = "".join(f"lengths[{place + axis}], " for axis in range(len(each.shape)))
        lines.append(f"    x{index} = carray({POINTERS[str(each.dtype)]}(arrays[{index}]), ({dims}))")
        place += len(each.shape)
    lines.append("    for row in range(rows * part // parts, rows * (part + 1) // parts):")
    lines.append(f"        body({called(len(arrays), rows.options)})")
    lengths = [length for each in arrays for length in each.shape]
    parts = step.parts(rows.count, sum(each.count for each in arrays) * WORK)
    text = "\n".join(lines) + "\n"
    return Launch(module_kernel("rows", text), parts, rows=rows.count, arrays=arrays, lengths=lengths)


def arrays_of(step: BaseStep, rows: Rows) -> list[Buffer]:
    """The buffers of arguments and results; memory of its own for a result that nobody asks for."""
    found = [each for each in step.inputs if each is not None]
    for index, (dtype, shape) in enumerate(rows.results):
        found.append(step.output(index) if step.is_used(index) else step.temporary(dtype, shape))
    return found


def called(arrays: int, options: Sequence[float]) -> str:
    """The arguments of a body in generated text."""
    return ", ".join(["row", *(f"x{index}" for index in range(arrays)), *map(repr, options)])


def row_body(name: str) -> Any:
    """A body as generated modules call it."""
    return inner(BODIES[name])

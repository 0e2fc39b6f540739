"""Kernels of a program's own functions of one row of arrays on the device: a thread computes a row."""

from __future__ import annotations

from typing import Any

from ...runtime.base.process_cache import process_cache
from ...runtime.cuda.element.bits import inlined
from ...runtime.cuda.kernel.elementwise import THREADS, blocks_for
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Writer
from ...runtime.cuda.kernel.source_module import compile_source
from ...runtime.cuda.plan.kernel_api import PLANNERS, Planned, Step, cuda
from ...runtime.plan.elementwise_fusion import code_digest
from .rows_kernel import BODIES, LATER, ROWS, arrays_of, called


@cuda(*ROWS)
def rows_on_device(step: Step) -> Planned:
    """Launch one thread per row."""
    rows = ROWS[step.node.op]
    arrays = arrays_of(step, rows)
    writer = Writer()
    writer.head += [
        f"from {__name__} import device_body",
        f"# {code_digest(rows.body)}",
        f"body = device_body({rows.name!r})",
    ]
    writer.parameter("count", rows.count)
    for index, each in enumerate(arrays):
        writer.parameter(f"flat{index}", each)
        lengths = [writer.parameter(f"length{index}_{axis}", length) for axis, length in enumerate(each.shape)]
        writer.add(1, f"x{index} = flat{index}.reshape(({''.join(f'{length}, ' for length in lengths)}))")
    writer.add(1, "for row in range(cuda.grid(1), count, cuda.gridsize(1)):")
    writer.add(2, f"body({called(len(arrays), rows.options)})")
    kernel = compile_source(rows.body.__name__, writer.text(), (THREADS,))
    return Launch(kernel, writer.values, blocks_for(rows.count))


@process_cache
def device_body(name: str) -> Any:
    """The body of a row kernel as generated device modules call it."""
    return inlined(BODIES[name])


LATER.append(lambda op: PLANNERS.update({op: rows_on_device}))

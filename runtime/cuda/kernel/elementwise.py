"""Elementwise kernels: chains of scalar functions over broadcast operands, generated as one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan.kernel_api import Apply, Buffer, Chain
from ..device.device import SIMULATED
from ..element.element import compute_dtype, key_of, storage_of
from . import source_module
from .kernel import Launch
from .operand import Box, Operand, Writer, over

if TYPE_CHECKING:
    from ...ir.op import Op

THREADS = 2 if SIMULATED else 256
BLOCKS = 2 if SIMULATED else 1 << 16
MAX_FUNCTIONS = 24
"""Functions in one kernel, at most."""
BOOL = np.dtype(np.bool_)


def chain_launch(chain: Chain) -> Launch:
    """The launch of a chain's kernel."""
    shape = chain.output.shape
    return elementwise_launch(
        chain.steps, shape, [over(operand, shape) for operand in chain.operands], over(chain.output, shape)
    )


def blocks_for(count: int, threads: int = THREADS) -> int:
    """Grid size for `count` elements in a grid-stride loop."""
    return max(1, min(BLOCKS, -(-count // threads)))


def unchanged(x: float) -> float:
    """Identity."""
    return x


def scalar_key(operator: Op) -> str:
    """The key in chains of an operator with a scalar function."""
    assert operator.scalar is not None
    return key_of(operator.scalar)


def chain_step(
    function: Callable[..., Any],
    operands: Sequence[Buffer | None],
    result: np.dtype[Any],
    *numbers: float,
    compute: np.dtype[Any] | None = None,
) -> Apply:
    """One function of a chain; constants in its source have the dtype of the first floating-point operand, or of the
    last operand."""
    if compute is None:
        kinds = [compute_dtype(operand.dtype) for operand in operands if operand is not None]
        compute = next((kind for kind in kinds if kind.kind == "f"), kinds[-1] if kinds else compute_dtype(result))
    return Apply(key_of(function), tuple(operands), tuple(map(float, numbers)), compute, result)


def elementwise_chain(
    function: Callable[..., Any],
    operands: Sequence[Buffer],
    output: Buffer,
    *numbers: float,
    compute: np.dtype[Any] | None = None,
) -> Chain:
    """A chain of one function."""
    return Chain((chain_step(function, operands, output.dtype, *numbers, compute=compute),), output)


def copy_launch(lengths: Sequence[int], source: Operand, target: Operand) -> Launch:
    """A copy between operands over a box, with dtype conversion."""
    kind = compute_dtype(source.buffer.dtype)
    return elementwise_launch(
        [chain_step(unchanged, [source.buffer], target.buffer.dtype, compute=kind)], lengths, [source], target
    )


def elementwise_launch(
    steps: Sequence[Apply], lengths: Sequence[int], operands: Sequence[Operand], output: Operand
) -> Launch:
    """The launch that computes `output` over a box; operands are those of the steps, in order."""
    writer = Writer()
    count = math.prod(lengths)
    writer.parameter("count", count)
    box = Box(writer, lengths, [output, *operands])
    writer.add(1, "for i in range(np.int64(cuda.grid(1)), count, cuda.gridsize(1)):")
    box.decode(2, "k", "i")
    box.place(2, "k")
    head: list[str] = []
    taken = 0
    for number, step in enumerate(steps):
        arguments = []
        for operand in step.operands:
            if operand is None:
                arguments.append(f"t{number - 1}")
                continue
            taken += 1
            box.load(2, taken, "k", f"v{taken}")
            arguments.append(_widened(f"v{taken}", operand, step.compute))
        for place, value in enumerate(step.attributes):
            arguments.append(number_in(writer.parameter(f"a{number}_{place}", value), step.compute))
        head.append(f"f{number} = scalar({step.key!r}, {step.compute.name!r})")
        writer.add(2, f"t{number} = f{number}({', '.join(arguments)})")
        if number + 1 < len(steps):
            writer.add(2, f"t{number} = {rounded(f't{number}', step.result)}")
    box.store(2, 0, "k", f"t{len(steps) - 1}")
    title = " ".join(step.key.partition(" ")[0] for step in steps)
    return Launch(
        source_module.compile_source(title, "\n".join([*head, writer.text()]), (THREADS,)),
        writer.values,
        blocks_for(count),
    )


def _widened(name: str, operand: Buffer, compute: np.dtype[Any]) -> str:
    """Convert integers to the compute dtype, except 64-bit integers to a float, which keep their precision."""
    kind = compute_dtype(operand.dtype)
    narrow = (
        kind.kind in "iu" and kind != compute and (compute.kind in "iu" or (compute.kind == "f" and kind.itemsize <= 4))
    )
    return f"to_{compute.name}({name})" if narrow else name


def number_in(name: str, dtype: np.dtype[Any]) -> str:
    """Code of a parameter converted to a dtype."""
    return f"({name} != 0)" if dtype == BOOL else f"to_{dtype.name}({name})"


def rounded(name: str, dtype: np.dtype[Any]) -> str:
    """Code of a value rounded to a dtype that it is not stored in."""
    kind = storage_of(dtype)
    return f"({name}) != 0" if kind.compute == BOOL else kind.load.format(kind.store.format(name))

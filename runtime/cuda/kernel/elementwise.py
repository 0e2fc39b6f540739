"""Elementwise kernels: chains of scalar functions over broadcast operands, generated as one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...plan.kernel_api import Buffer
from ..device.device import SIMULATED
from ..element.element import compute_dtype, key_of, storage_of
from . import source_module
from .kernel import Launch
from .operand import Box, Operand, Writer, over

THREADS = 2 if SIMULATED else 256
BLOCKS = 2 if SIMULATED else 1 << 16
MAX_FUNCTIONS = 24
"""Functions in one kernel, at most."""
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True)
class Apply:
    """One scalar function of a chain.

    Attributes:
        operands: buffers; None stands for the result of the one before.
        numbers: follow the elements.
        compute: dtype of the numbers in the function's text.
        result: dtype that it is rounded to.
    """

    function: Callable[..., Any]
    operands: tuple[Buffer | None, ...]
    numbers: tuple[float, ...]
    compute: np.dtype[Any]
    result: np.dtype[Any]


@dataclass(frozen=True)
class Chain:
    """Scalar functions applied in order to each element of `output`, to which all operands broadcast."""

    steps: tuple[Apply, ...]
    output: Buffer

    @property
    def operands(self) -> list[Buffer]:
        """The input buffers, in order."""
        return [operand for step in self.steps for operand in step.operands if operand is not None]

    def launch(self) -> Launch:
        """The launch of the chain's kernel."""
        operands = [over(operand, self.output.shape) for operand in self.operands]
        return elementwise_launch(self.steps, self.output.shape, operands, over(self.output, self.output.shape))


def fuse(first: Chain | Launch, then: Chain) -> Chain | Launch | None:
    """The fusion of both; None unless the first function of `then` reads the output of `first` exactly once,
    elementwise."""
    made, head = first.output, then.steps[0]
    if made is None:
        return None
    fed = [operand for operand in then.operands if operand.allocation is made.allocation]
    same = len(fed) == 1 and fed[0].shape == made.shape == then.output.shape and fed[0].dtype == made.dtype
    if not same or fed[0] not in head.operands:
        return None
    if isinstance(first, Launch):
        return None if first.takes is None else first.takes(then)
    if len(first.steps) + len(then.steps) > MAX_FUNCTIONS:
        return None
    operands = tuple(None if operand is fed[0] else operand for operand in head.operands)
    return Chain(
        (*first.steps, Apply(head.function, operands, head.numbers, head.compute, head.result), *then.steps[1:]),
        then.output,
    )


def blocks_for(count: int, threads: int = THREADS) -> int:
    """Grid size for `count` elements in a grid-stride loop."""
    return max(1, min(BLOCKS, -(-count // threads)))


def unchanged(x: float) -> float:
    """Identity."""
    return x


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
    return Apply(function, tuple(operands), tuple(map(float, numbers)), compute, result)


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
        for place, value in enumerate(step.numbers):
            arguments.append(number_in(writer.parameter(f"a{number}_{place}", value), step.compute))
        head.append(f"f{number} = scalar({key_of(step.function)!r}, {step.compute.name!r})")
        writer.add(2, f"t{number} = f{number}({', '.join(arguments)})")
        if number + 1 < len(steps):
            writer.add(2, f"t{number} = {rounded(f't{number}', step.result)}")
    box.store(2, 0, "k", f"t{len(steps) - 1}")
    title = " ".join(key_of(step.function).partition(" ")[0] for step in steps)
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

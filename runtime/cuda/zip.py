"""Map and zip: one element of the output from one element of each operand, by one scalar function after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..launch import Buffer
from ..record import dataclass
from . import generated
from .element import computing, key_of, stored
from .kernel import Launch
from .machine import SIMULATED
from .operand import Box, Operand, Writer, over

THREADS = 2 if SIMULATED else 256
BLOCKS = 2 if SIMULATED else 1 << 16
LONGEST = 24
"""Functions in one kernel."""
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
    """Functions that run one after another on each element of `output`, to which all operands broadcast."""

    steps: tuple[Apply, ...]
    output: Buffer

    @property
    def operands(self) -> list[Buffer]:
        """The buffers that it reads, in order."""
        return [operand for step in self.steps for operand in step.operands if operand is not None]

    def launch(self) -> Launch:
        """The launch of its kernel."""
        operands = [over(operand, self.output.shape) for operand in self.operands]
        return zipped(self.steps, self.output.shape, operands, over(self.output, self.output.shape))


def joined(first: Chain | Launch, then: Chain) -> Chain | Launch | None:
    """Both as one, None where the second does not take the first one's output, once, element by element, in its first function."""
    made, head = first.output, then.steps[0]
    if made is None:
        return None
    fed = [operand for operand in then.operands if operand.room is made.room]
    same = len(fed) == 1 and fed[0].shape == made.shape == then.output.shape and fed[0].dtype == made.dtype
    if not same or fed[0] not in head.operands:
        return None
    if isinstance(first, Launch):
        return None if first.takes is None else first.takes(then)
    if len(first.steps) + len(then.steps) > LONGEST:
        return None
    operands = tuple(None if operand is fed[0] else operand for operand in head.operands)
    return Chain((*first.steps, Apply(head.function, operands, head.numbers, head.compute, head.result), *then.steps[1:]), then.output)


def blocks_for(count: int, threads: int = THREADS) -> int:
    """Blocks of a launch whose threads take `count` elements in turn."""
    return max(1, min(BLOCKS, -(-count // threads)))


def identical(x: float) -> float:
    """The element itself."""
    return x


def applied(
    function: Callable[..., Any], operands: Sequence[Buffer | None], result: np.dtype[Any], *numbers: float, compute: np.dtype[Any] | None = None,
) -> Apply:
    """One function of a chain; numbers in its text have the dtype of the first floating-point operand, or of the last one."""
    if compute is None:
        kinds = [computing(operand.dtype) for operand in operands if operand is not None]
        compute = next((kind for kind in kinds if kind.kind == "f"), kinds[-1] if kinds else computing(result))
    return Apply(function, tuple(operands), tuple(map(float, numbers)), compute, result)


def mapped(
    function: Callable[..., Any], operands: Sequence[Buffer], output: Buffer, *numbers: float, compute: np.dtype[Any] | None = None,
) -> Chain:
    """A chain of one function."""
    return Chain((applied(function, operands, output.dtype, *numbers, compute=compute),), output)


def copied(lengths: Sequence[int], source: Operand, target: Operand) -> Launch:
    """A copy of the elements of a box; dtypes are converted."""
    kind = computing(source.buffer.dtype)
    return zipped([applied(identical, [source.buffer], target.buffer.dtype, compute=kind)], lengths, [source], target)


def zipped(steps: Sequence[Apply], lengths: Sequence[int], operands: Sequence[Operand], output: Operand) -> Launch:
    """The launch that fills the elements of `output` over a box; operands are those of the steps, in order."""
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
    return Launch(generated.made(title, "\n".join([*head, writer.text()]), (THREADS,)), writer.values, blocks_for(count))


def _widened(name: str, operand: Buffer, compute: np.dtype[Any]) -> str:
    """Integers are taken to the dtype that is computed in, except those of 64 bits to a float, which keep their digits."""
    kind = computing(operand.dtype)
    narrow = kind.kind in "iu" and kind != compute and (compute.kind in "iu" or (compute.kind == "f" and kind.itemsize <= 4))
    return f"to_{compute.name}({name})" if narrow else name


def number_in(name: str, dtype: np.dtype[Any]) -> str:
    """Text of a parameter as a number of a dtype."""
    return f"({name} != 0)" if dtype == BOOL else f"to_{dtype.name}({name})"


def rounded(name: str, dtype: np.dtype[Any]) -> str:
    """Text of a number rounded to a dtype that it is not stored in."""
    kind = stored(dtype)
    return f"({name}) != 0" if kind.compute == BOOL else kind.load.format(kind.store.format(name))

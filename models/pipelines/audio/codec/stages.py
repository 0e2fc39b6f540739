"""Stages: the parts of an encoder or decoder, each run over long audio block by block, so that memory is bounded.

A stage whose outputs depend on inputs near them is given windows that overlap by its reach; a recurrent one is given
its last state. Results are those of one run over everything but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from .....runtime.base.dataclass import dataclass

Block = list[np.ndarray]
"""Arrays [..., length] of the same time."""
Run = Callable[[Block], Block]


@dataclass(frozen=True)
class Windows:
    """A stage whose outputs depend on inputs near them.

    Attributes:
        run: computes the outputs of inputs.
        steps: samples of audio that an element stands for, of each input and of each output.
        before, behind: samples around an output on which it depends; None for any number.
        size: samples of a window.
        multiple: samples of which windows begin at a multiple.
    """

    run: Run
    steps: tuple[Sequence[int], Sequence[int]]
    before: int | None
    behind: int
    size: int
    multiple: int = 1

    def __call__(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The outputs of the whole, in blocks."""
        unit = math.lcm(*self.steps[0], *self.steps[1], self.multiple)
        before, behind, size = (-(-count // unit) * unit for count in (self.before or 0, self.behind, self.size))
        held: Block = []
        start = done = 0
        for block in blocks:
            held = [np.concatenate(pair, axis=-1) for pair in zip(held, block, strict=True)] if held else list(block)
            while self.before is not None and start + self._samples(held) > done + size + behind:
                window = self._cut(held, 0, done + size + behind - start, self.steps[0])
                yield self._cut(self.run(window), done - start, done + size - start, self.steps[1])
                done += size
                kept = max(0, done - before)
                held, start = self._cut(held, kept - start, None, self.steps[0]), kept
        if held:
            yield self._cut(self.run(held), done - start, None, self.steps[1])

    def _samples(self, held: Block) -> int:
        return min(array.shape[-1] * step for array, step in zip(held, self.steps[0], strict=True))

    @staticmethod
    def _cut(arrays: Block, start: int, stop: int | None, steps: Sequence[int]) -> Block:
        """The elements from one sample to another."""
        pairs = zip(arrays, steps, strict=True)
        return [array[..., start // step : None if stop is None else stop // step] for array, step in pairs]


@dataclass(frozen=True)
class Recurrence:
    """A recurrent stage.

    Attributes:
        run: computes the outputs of inputs and a state, and the state after them; an empty state at the beginning.
    """

    run: Callable[[Block, Block], tuple[Block, Block]]

    def __call__(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The outputs of the whole, in blocks."""
        state: Block = []
        for block in blocks:
            made, state = self.run(block, state)
            yield made


Stage = Windows | Recurrence

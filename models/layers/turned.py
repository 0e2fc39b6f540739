"""Turned layouts: matrices of experts [in, out] in files, where ours are [out, in], as gpt-oss and Llama 4 have them; blocks stay blocks.

MXFP4 experts of Hugging Face's files come as the transposes of tensors of blocks [experts, out, in]. Turned back they are these tensors, so that
their rows can be taken, and written to GGUF, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.arch import Config, Whole
from ...runtime.tensor import Tensor
from ...runtime.transposed import transposed
from .layouts import concatenated, take_rows


class Turned(Whole):
    """``[..., in, out]`` in the file."""

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        return transposed(parts[0])

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [transposed(whole)]


@dataclass(frozen=True)
class TurnedPart:
    """One of `count` parts of ``[..., in, out]`` in the file.

    Attributes:
        alternating: whether output i belongs to part ``i % count``; otherwise the parts are one behind the other.
    """

    index: int
    count: int = 2
    alternating: bool = True

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        whole = transposed(parts[0])
        outputs = whole.shape[-2]
        if outputs % self.count:
            raise ValueError(f"{outputs} outputs have no {self.count} equal parts")
        length = outputs // self.count
        places = np.arange(self.index, outputs, self.count) if self.alternating else np.arange(self.index * length, (self.index + 1) * length)
        matrices = math.prod(whole.shape[:-2])
        rows = np.arange(matrices)[:, None] * outputs + places
        return take_rows(whole, rows.reshape(-1), (*whole.shape[:-2], length, whole.shape[-1]))

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [whole]

    def together(self, pieces: Sequence[Tensor]) -> Tensor:
        """The tensor that has all parts."""
        first = pieces[0]
        behind = concatenated(pieces, len(first.shape) - 2)
        if not self.alternating:
            return transposed(behind)
        outputs, length = behind.shape[-2], first.shape[-2]
        order = np.arange(outputs).reshape(self.count, length).T.reshape(-1)
        rows = np.arange(math.prod(behind.shape[:-2]))[:, None] * outputs + order
        return transposed(take_rows(behind, rows.reshape(-1), behind.shape))

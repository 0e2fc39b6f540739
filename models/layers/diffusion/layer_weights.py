"""Weight rows of linear layers in diffusion transformers, in diffusers' names and in those of the authors' code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.contract.architecture import ORIGINAL, SAME, Config, Layout, Stored, Weight
from ...schema.fused_weight_layout import RowShare
from ...schema.weight_layout import Ordered

When = Callable[[Config, int], bool]


def _scale_first(config: Config) -> np.ndarray:
    width = config.heads * config.head_dim
    return np.roll(np.arange(2 * width), width)


SCALE_FIRST = Ordered(_scale_first, "2*heads*head_dim")
"""Layout of a modulation without a gate: the authors' files have the rows of the shift before those of the scale."""


def parameter(
    name: str,
    shape: tuple[str | int, ...],
    original: str,
    *,
    layout: Layout = SAME,
    when: When | None = None,
    layers: str = "layers",
) -> Weight:
    """The row of one weight: `name` in diffusers' files and in graphs, `original` with `layout` in the authors'."""
    stored = {ORIGINAL: Stored((original,), layout)}
    return Weight(name, name, shape=shape, when=when, layers=layers, others=stored)


def affine(
    name: str,
    original: str,
    out: str | int,
    width: str | int,
    *,
    bias: bool = True,
    layout: Layout = SAME,
    when: When | None = None,
    layers: str = "layers",
) -> tuple[Weight, ...]:
    """Rows of a linear layer: a weight [out, width], and a bias [out] unless `bias` is False."""
    shapes = {"weight": (out, width), "bias": (out,)} if bias else {"weight": (out, width)}
    return tuple(
        parameter(f"{name}.{part}", shape, f"{original}.{part}", layout=layout, when=when, layers=layers)
        for part, shape in shapes.items()
    )


def fused(
    names: tuple[str, ...],
    original: str,
    width: str,
    *,
    of: int = 0,
    bias: bool = True,
    when: When | None = None,
    layers: str = "layers",
) -> tuple[Weight, ...]:
    """Rows of linear layers [width, width] whose rows follow each other in one layer of the authors' files.

    Args:
        of: how many times `width` rows that layer has; as many as there are names if 0.
    """
    return tuple(
        row
        for index, name in enumerate(names)
        for row in affine(
            name,
            original,
            width,
            width,
            bias=bias,
            layout=RowShare(index, index + 1, of or len(names)),
            when=when,
            layers=layers,
        )
    )

"""The task of dual encoders: a graph of both towers and one of each."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .....runtime.contract.architecture import MODEL, RunOptions, Stored, Task, Weight
from .....runtime.contract.naming import SCALAR
from .....runtime.ir.graph import Graph
from .dual_encoder_graphs import TEXT, TEXT_MODEL, VISION, VISION_MODEL, ZERO_SHOT, Vector, similarities, tower

if TYPE_CHECKING:
    from .dual_encoder_model import DualEncoderModel


def dual_encoder_tasks(text: Vector, image: Vector, *, pairwise: bool = False, masked: bool = True) -> tuple[Task, ...]:
    """The tasks of a model whose towers give vectors as `text` and `image` say; `pairwise`: see `DualEncoderModel`,
    `masked`: see `similarities`."""
    graphs = {
        MODEL: similarities(text, image, masked=masked),
        TEXT_MODEL: tower(TEXT, text, masked=masked),
        VISION_MODEL: tower(VISION, image),
    }
    run = functools.partial(run_dual_encoder, pairwise=pairwise)
    return (Task(ZERO_SHOT, graphs, run, aliases=("zero-shot",)),)


def scalar(name: str, shape: tuple[int, ...] = ()) -> Weight:
    """The row of a weight of one element."""
    stored = Stored((name,), SCALAR)
    return Weight(name, stored, stored, shape)


def run_dual_encoder(graphs: Mapping[str, Graph], options: RunOptions, *, pairwise: bool) -> DualEncoderModel:
    """The graphs as a model of texts and pictures."""
    from .dual_encoder_model import DualEncoderModel

    return DualEncoderModel(graphs, options, pairwise=pairwise)

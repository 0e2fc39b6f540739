"""Tasks of audio models with one graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....runtime.contract.architecture import MODEL, RunOptions
from ....runtime.ir.graph import Graph

if TYPE_CHECKING:
    from .audio_model import AudioModel


def run_audio_model(graphs: Mapping[str, Graph], options: RunOptions) -> AudioModel:
    """The only graph as a model of sounds."""
    from .audio_model import AudioModel

    return AudioModel(graphs[MODEL], options)

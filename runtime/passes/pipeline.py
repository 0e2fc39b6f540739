"""Pass pipelines: the passes that a backend runs on the graph of a session before planning, by stage.

Passes are found by existence: see `pattern.stage`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..plugin.discovery import below
from .pattern.stage import STAGES, Pass, PipelineOptions, PipelinePass

PASSES = below(__package__, "PIPELINE")


def required(backend: str, options: PipelineOptions) -> Sequence[Pass]:
    """The passes of every session on a backend, simplified or not."""
    return _made(backend, options, STAGES[:1])


def simplifying(backend: str, options: PipelineOptions) -> Sequence[Pass]:
    """The passes of a simplified session on a backend, which run after those that are required."""
    return _made(backend, options, STAGES[1:])


def _made(backend: str, options: PipelineOptions, stages: Sequence[str]) -> Sequence[Pass]:
    declared: list[PipelinePass] = [item for items in PASSES.all() for item in items if backend in item.backends]
    return [item.make(options) for stage in stages for item in declared if item.stage == stage]

"""The stages of a codec: its encoder and decoder part by part, run over audio of any length."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from .....runtime.session import Session
from ....postprocess.finite_results import finite
from ....schema.codec_hyperparameters import CODES, DECODER, ENCODER, SAMPLES
from ...task_model import opened
from .codec_parts import FEATURES, Codec, LocalPart, RecurrentPart, part_name
from .fewer_quantizers import fewer_quantizers
from .reach import reach_of
from .stages import Block, Recurrence, Run, Stage, Windows

SECONDS = 2.0
"""Minimum seconds of a window: the output of a convolution is still in cache when the next one reads it."""


class CodecStages:
    """Runs the graphs of a codec.

    Args:
        graphs: encoder and decoder by name.
        options: how they run, the hyper-parameters, and how graphs of parts are made.
        codec: the parts; None if they are not known.
    """

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions, codec: Codec | None) -> None:
        assert options.config is not None
        self._graphs, self._options, self._config = graphs, options, options.config
        self._codec = codec if options.variant is not None else None
        self._sessions: dict[tuple[str, int | None], Session] = {}
        self._found: dict[tuple[str, int | None], list[Stage]] = {}

    def encoded(self, blocks: Iterable[np.ndarray], count: int) -> Block:
        """Codes, [batch, count, frames] or one [batch, frames] for each quantizer, of blocks [batch, channels,
        samples]."""
        made = list(self._chain(ENCODER, ([block] for block in blocks), count))
        return [np.concatenate(parts, axis=-1) for parts in zip(*made, strict=True)]

    def decoded(self, codes: Block) -> Iterator[np.ndarray]:
        """Samples [batch, channels, samples] of codes as of `encoded`, in blocks."""
        return (samples for (samples,) in self._chain(DECODER, [codes]))

    def filled(self, x: np.ndarray) -> np.ndarray:
        """With zeros after the samples, up to a multiple of the length that the encoder needs."""
        missing = -x.shape[2] % self._multiple
        return np.pad(x, ((0, 0), (0, 0), (0, missing))) if missing else x

    def run(self, name: str, feeds: Mapping[str, np.ndarray], count: int | None = None) -> list[np.ndarray]:
        """The outputs of a graph; `count`: how many quantizers it computes, None for all. UsageError for a graph that
        the file lacks, UnsupportedError if it computes NaN or infinity."""
        if (name, count) not in self._sessions:
            graph = self._graph(name)
            graph = graph if count is None else fewer_quantizers(graph, count)
            self._sessions[name, count] = opened(graph, self._options)
        session = self._sessions[name, count]
        names = [value.name for value in session.get_outputs()]
        return finite(session.run(None, dict(feeds)), names, masked=False)

    @property
    def _multiple(self) -> int:
        return int(self._config.values.get("multiple") or 1)

    @property
    def _code_steps(self) -> list[int]:
        """Samples that a code stands for, of each array of codes."""
        strides = self._config.strides if self._multiscale else [1]
        return [int(self._config.hop) * stride for stride in strides]

    @property
    def _multiscale(self) -> bool:
        return self._graphs[ENCODER].outputs[0].name != CODES

    def named(self, codes: Block) -> dict[str, np.ndarray]:
        """Codes by the names of the decoder's inputs."""
        return {f"{CODES}.{i}": each for i, each in enumerate(codes)} if self._multiscale else {CODES: codes[0]}

    def _cut(self, made: Block, count: int) -> Block:
        return made if self._multiscale else [made[0][:, :count]]

    def _graph(self, name: str) -> Graph:
        variant = self._options.variant
        graph = self._graphs[name] if name in self._graphs else variant(name) if variant is not None else None
        if graph is None:
            raise UsageError("E-CODEC-PART", None, f"the file has no graph that computes {name}", expected="weights")
        return graph

    def _chain(self, side: str, blocks: Iterable[Block], count: int | None = None) -> Iterator[Block]:
        """Run the stages of the encoder or decoder in order."""
        if (side, count) not in self._found:
            self._found[side, count] = self._stages(side, count)
        for stage in self._found[side, count]:
            blocks = stage(blocks)
        return iter(blocks)

    def _stages(self, side: str, count: int | None) -> list[Stage]:
        parts: Sequence[LocalPart | RecurrentPart | None] = [None]
        if self._codec is not None:
            parts = self._codec.encode if side == ENCODER else self._codec.decode
        between = [[part.step(self._config)] for part in parts[:-1] if part is not None]
        ends = ([1], self._code_steps) if side == ENCODER else (self._code_steps, [1])
        steps = [ends[0], *between, ends[1]]
        found: list[Stage] = []
        for index, part in enumerate(parts):
            name = part_name(side, index) if len(parts) > 1 else side
            if isinstance(part, RecurrentPart):
                found.append(Recurrence(functools.partial(self._recurred, name)))
            else:
                is_last = index + 1 == len(parts)
                run = functools.partial(self._ran, name, not index, count if is_last else None)
                found.append(self._windows(self._graph(name), part, (steps[index], steps[index + 1]), run))
        return found

    def _windows(self, graph: Graph, part: LocalPart | None, steps: tuple[list[int], list[int]], run: Run) -> Windows:
        """The stage of a part that is not recurrent."""
        attends = part is not None and part.context is not None
        before, behind = part.context(self._config) if part is not None and part.context is not None else (0, 0)
        reach = reach_of(graph, steps[0], attends)
        size = max(int(SECONDS * self._config.rate), before)
        if reach is None:
            return Windows(run, steps, None, 0, size, self._multiple)
        return Windows(run, steps, before + reach, behind + reach, size, self._multiple)

    def _ran(self, name: str, is_first: bool, count: int | None, block: Block) -> Block:
        """The outputs of the graph of a part; `count` of quantizers if it makes codes."""
        if not is_first:
            feeds = {FEATURES: block[0]}
        elif name.startswith(ENCODER):
            feeds = {SAMPLES: self.filled(block[0])}
        else:
            feeds = self.named(block)
        made = self.run(name, feeds, count)
        return made if count is None else self._cut(made, count)

    def _recurred(self, name: str, block: Block, state: Block) -> tuple[Block, Block]:
        """The outputs of a recurrent part, and its state, which has as many channels as its features."""
        batch, channels, _ = block[0].shape
        names = [value.name for value in self._graph(name).inputs if value.name != FEATURES]
        before = state or [np.zeros((1, batch, channels), np.float32) for _ in names]
        made, *after = self.run(name, {FEATURES: block[0], **dict(zip(names, before, strict=True))})
        return [made], after

"""Decoders as encoders of prompts: what enters the last layer, for transformers that take it as a condition."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from ....runtime.contract.architecture import MODEL, Config, Task
from ....runtime.ir.graph import Graph, Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ...generation.decoder_tasks import HEAD, Complete, run_decoder
from ...layers.decoder import Decoder
from .text_to_image import PENULTIMATE, TEXT_CONDITIONING


class PenultimateState(Decoder):
    """A net that ends before the last layer: the output ``penultimate_hidden_state`` [batch, length, hidden]."""

    def begin(self, embed: str = "embed", scale: float | None = None) -> Value:
        """The embeddings, which a decoder of one layer ends with."""
        return self._until(-1, super().begin(embed, scale))

    def with_features(self, x: Value, i: int) -> Value:
        """Hidden states after layer `i`; raises `Complete` where only one layer is left."""
        return self._until(i, super().with_features(x, i))

    def _until(self, i: int, x: Value) -> Value:
        if i == self.config.layers - 2:
            self.close(PENULTIMATE, x)
            raise Complete
        return x


def conditioning_task(build: Callable[[Decoder], None]) -> Task:
    """The task of a decoder whose layers `build` adds, each of which ends with `Decoder.with_features`."""

    def add(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        with contextlib.suppress(Complete):
            build(PenultimateState(graph, config, weights, task=TEXT_CONDITIONING, fixed=fixed))

    return Task(TEXT_CONDITIONING, {MODEL: add}, run_decoder, unneeded=HEAD)

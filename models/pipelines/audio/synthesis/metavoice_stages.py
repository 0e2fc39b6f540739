"""The runnable stages of MetaVoice: the first writes tokens of two codebooks, the second fills in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from ....generation.language_model import Placement
from ....postprocess.finite_results import finite
from ...task_model import TaskModel, opened
from .conditioned_decoder import ConditionedDecoder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SPEAKER = "speaker_embedding"


class Stage(TaskModel):
    """A stage of MetaVoice.

    Args:
        graph: made by `candle_convert.models.load`.
        options: threads, device, activations and hyper-parameters.
    """

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        self.graph, self.options = graph, options

    @property
    def verbs(self) -> tuple[str, ...]:
        """A stage alone does nothing that has a name."""
        return ()

    def _voice(self, speaker: ArrayLike | None, batch: int) -> np.ndarray:
        """Vectors f32 [batch, width] of speakers, zeros for none. UsageError for another shape."""
        assert self.options.config is not None
        shape = (batch, self.options.config.speaker)
        found = np.zeros(shape, np.float32) if speaker is None else np.asarray(speaker, np.float32)
        if found.shape != shape:
            why = "speaker_embedding does not have one vector for each row of input_ids"
            raise UsageError("E-RUN-SHAPE", None, why, expected=list(shape), found=list(found.shape))
        return found


class FirstStage(Stage):
    """A decoder of text and of the codes of two codebooks, one after the other."""

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        super().__init__(graph, options)
        placement = Placement(options.device, options.device_memory, options.gpu_layers)
        self.decoder = ConditionedDecoder(graph, options.threads, options.activations, placement=placement)

    @memory_limited
    def __call__(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, speaker_embedding: ArrayLike | None = None
    ) -> dict[str, np.ndarray]:
        """``logits`` [batch, length, vocabulary].

        Args:
            input_ids: integers [batch, length] or [length].
            attention_mask: 1 for tokens, 0 for padding; None if all are tokens.
            speaker_embedding: f32 [batch, width], zeros for rows without a speaker; None for no speaker.

        Raises UsageError for shapes that do not fit.
        """
        ids = np.atleast_2d(np.asarray(input_ids, np.int64))
        cache = self.decoder.start(len(ids), self._voice(speaker_embedding, len(ids)))
        return {"logits": self.decoder.step(ids, cache, attention_mask)[0]}


class SecondStage(Stage):
    """Predicts the codes of further codebooks from those of the first ones, for all frames at once."""

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        super().__init__(graph, options)
        self._session = opened(graph, options)

    @memory_limited
    def __call__(self, input_ids: ArrayLike, speaker_embedding: ArrayLike | None = None) -> dict[str, np.ndarray]:
        """``logits.0``, ``logits.1`` ... [batch, length, vocabulary] of each codebook that is predicted.

        Args:
            input_ids: integers [batch, codebooks, length].
            speaker_embedding: f32 [batch, width]; None for no speaker.

        Raises UsageError for shapes that do not fit, and more positions than the model has.
        """
        assert self.options.config is not None
        ids, config = np.asarray(input_ids, np.int64), self.options.config
        if ids.ndim != 3 or ids.shape[1] != config.inputs or not 0 < ids.shape[2] <= config.positions:
            why = "input_ids has a wrong shape"
            expected = f"[batch, {config.inputs}, 1 to {config.positions:,}]"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(ids.shape))
        feeds = {"input_ids": ids, SPEAKER: self._voice(speaker_embedding, len(ids))}
        names = [value.name for value in self.graph.outputs]
        return dict(zip(names, finite(self._session.run(None, feeds), names, masked=False), strict=True))

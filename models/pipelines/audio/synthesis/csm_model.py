"""A runnable CSM: a backbone that reads text and frames of codes, and a depth decoder of the codes of one frame."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from .....runtime.session import Session
from ....generation.language_model import LanguageModel, Placement
from ....generation.sampling import Sampler
from ....layers.audio.codebooks import SPOKEN
from ....postprocess.finite_results import finite
from ...task_model import opened
from .checked_ids import checked
from .conditioned_decoder import ConditionedDecoder
from .synthesis_model import CodeRequest, SynthesisModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

BACKBONE, HEAD, DEPTH = "backbone", "lm_head", "depth_decoder"
HIDDEN = "last_hidden_state"
SPEAKERS = range(1000)
"""Numbers of speakers; the published model knows a few."""


class CSMModel(SynthesisModel):
    """The graphs of a CSM.

    Args:
        graphs: ``backbone``, ``lm_head`` and ``depth_decoder``.
        options: as of `SynthesisModel`.
    """

    reads = ("speaker",)

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        super().__init__(graphs, options)
        placement = Placement(options.device, options.device_memory, options.gpu_layers)
        self.backbone = LanguageModel(graphs[BACKBONE], options.threads, options.activations, placement=placement)
        self.depth = ConditionedDecoder(graphs[DEPTH], options.threads, options.activations, placement=placement)

    @functools.cached_property
    def _head(self) -> Session:
        return opened(self._graphs[HEAD], self.options)

    @property
    def codebooks(self) -> int:
        """Codes of a frame."""
        assert self.options.config is not None
        return int(self.options.config.codebooks)

    @memory_limited
    def __call__(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        backbone_last_hidden_state: ArrayLike | None = None,
    ) -> dict[str, np.ndarray]:
        """``last_hidden_state`` [batch, length, hidden] and ``logits`` [batch, length, vocabulary] of the first code of
        each next frame; or, of the depth decoder, ``logits`` [batch, length - 1, vocabulary].

        Args:
            input_ids: tokens of text [batch, length], frames of codes [batch, length, codebooks], or frames whose last
                column is the token of text or -1 [batch, length, codebooks + 1]; for the depth decoder codes of one
                frame [batch, length], the first of which is not read.
            attention_mask: 1 for positions, 0 for padding; None without padding.
            backbone_last_hidden_state: f32 [batch, hidden], for the depth decoder.

        Raises UsageError for shapes that do not fit.
        """
        ids = np.asarray(input_ids, np.int64)
        if backbone_last_hidden_state is not None:
            state = np.asarray(backbone_last_hidden_state, np.float32)
            logits, _ = self.depth.step(ids, self.depth.start(len(ids), state))
            return {"logits": logits[:, 1:]}
        hidden, _ = self.backbone.step(self.frames(ids), mask=attention_mask)
        return {HIDDEN: hidden, "logits": self.first_logits(hidden)}

    def frames(self, ids: np.ndarray) -> np.ndarray:
        """Frames [batch, length, codebooks + 1] of tokens of text [batch, length] or codes [batch, length, codebooks].
        UsageError for other shapes."""
        if ids.ndim == 2:
            return np.concatenate([np.zeros((*ids.shape, self.codebooks), np.int64), ids[..., None]], 2)
        if ids.ndim == 3 and ids.shape[2] == self.codebooks:
            return np.concatenate([ids, np.full((*ids.shape[:2], 1), SPOKEN)], 2)
        if ids.ndim != 3 or ids.shape[2] != self.codebooks + 1:
            why = "input_ids has a wrong shape"
            expected = f"[batch, length] or [batch, length, {self.codebooks}]"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(ids.shape))
        return ids

    def first_logits(self, hidden: np.ndarray) -> np.ndarray:
        """Logits f32 [..., vocabulary] of the first code of the next frame, for hidden states [..., hidden]."""
        (found,) = finite(self._head.run(None, {HIDDEN: hidden.reshape(-1, hidden.shape[-1])}), ["logits"])
        logits: np.ndarray = found.reshape(*hidden.shape[:-1], -1)
        return logits

    def codes(self, request: CodeRequest) -> np.ndarray:
        """Codes int64 [codebooks, frames]. UsageError for ids that the model does not have."""
        assert self.options.config is not None
        end = self.options.config.end
        sampler = Sampler(request.sampling, 1)
        cache = self.backbone.start(1)
        following = self.frames(np.array([self._ids(request.text, request.speech.speaker)]))
        found: list[np.ndarray] = []
        while len(found) < request.frames:
            state = self.backbone.advance(following, cache)
            frame = self._frame(state, sampler)
            if (frame == end).all():
                break
            found.append(frame)
            if request.progress is not None:
                request.progress(len(found), request.frames)
            if (frame[:-1] == end).all():
                break
            following = self.frames(frame[None, None])
        return np.array(found, np.int64).reshape(-1, self.codebooks).T

    def _frame(self, state: np.ndarray, sampler: Sampler) -> np.ndarray:
        """The codes of the next frame, for the backbone's last hidden state [1, hidden]."""
        codes = [int(sampler.choose(self.first_logits(state), [])[0])]
        cache = self.depth.start(1, state)
        while len(codes) < self.codebooks:
            logits = self.depth.advance([[0, codes[0]] if len(codes) == 1 else codes[-1:]], cache)
            codes.append(int(sampler.choose(logits, [])[0]))
        return np.array(codes)

    def _ids(self, text: str | Sequence[int], speaker: Any) -> Sequence[int]:
        """Ids of a text, with the number of its speaker in front, 0 for None; begin and end of text are added.
        UsageError for ids beyond the vocabulary, and what is not a number of a speaker."""
        assert self.options.config is not None
        count = self.options.config.text_vocab
        if not isinstance(text, str):
            return checked(list(map(int, text)), count)
        said = "0" if speaker is None else str(speaker)
        if not said.isdecimal() or int(said) not in SPEAKERS:
            expected = f"a number, {SPEAKERS.start} to {SPEAKERS.stop - 1}"
            raise UsageError("E-SPEAK-SPEAKER", None, "not a speaker of CSM", expected=expected, found=said)
        tokenizer: Any = self.tokenizer
        ids = list(tokenizer.encode(f"[{int(said)}]{text}"))
        roles = tokenizer.vocabulary.roles
        begin, end = ([roles[role]] if role in roles else [] for role in ("bos", "eos"))
        return checked((begin if ids[:1] != begin else []) + ids + (end if ids[-1:] != end else []), count)

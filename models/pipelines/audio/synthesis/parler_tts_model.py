"""A runnable Parler-TTS model: the encoder reads the description of a voice, the decoder the text and its codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from ....generation.kv_cache import Cache
from ....seq2seq.decoder import SOURCE_HIDDEN
from .checked_ids import checked
from .codebook_model import CodebookModel
from .synthesis_model import CodeRequest

DESCRIPTION = "A speaker delivers a slightly expressive and animated speech with a moderate speed and pitch."
"""The voice that nothing is said of."""


class ParlerTTSModel(CodebookModel):
    """As `CodebookModel`; its text stands before the codes."""

    reads = ("description",)
    prompted = True
    returned = SOURCE_HIDDEN

    def _begun(self, request: CodeRequest, guided: bool) -> Cache:
        prompt = self._tokens(request.text)
        cache = self.start(self._ids(request.speech.description or DESCRIPTION), None, prompt)
        config = self.options.config
        assert config is not None
        length = len(prompt) + self.pattern.length(request.frames)
        if not config.rotates and length > config.positions:
            raise UsageError(
                "E-LM-CONTEXT",
                None,
                "the text and the sound are longer than the model's positions",
                expected=f"{counted(config.positions, 'position')}",
                found=f"{length:,}",
                hint="Shorten the text, or give fewer --max-seconds",
            )
        return cache

    def _tokens(self, text: str | Sequence[int]) -> Sequence[int]:
        """Ids of the prompt. UsageError for ids beyond its vocabulary."""
        ids = self.tokenizer.encode(text) if isinstance(text, str) else list(map(int, text))
        assert self.options.config is not None
        return checked(ids, self.options.config.prompt_vocab)

    @property
    def _ends(self) -> tuple[int, ...]:
        assert self.options.config is not None
        return self.settings.ends or (self.options.config.end,)

    def _sounding(self, codes: np.ndarray) -> np.ndarray:
        """The frames without codes that are not sound: the start, the end and padding."""
        assert self.options.config is not None
        first = min(self.pattern.start, self.pattern.pad, *self._ends)
        found: np.ndarray = codes[:, (codes < first).all(0)]
        return found

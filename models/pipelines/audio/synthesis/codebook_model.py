"""A runnable model that writes frames of audio codes for a text: MusicGen and Parler-TTS."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.out_of_memory import memory_limited
from .....runtime.contract.architecture import RunOptions
from .....runtime.ir.graph import Graph
from .....runtime.session import Session
from ....generation.kv_cache import Cache
from ....generation.language_model import Placement
from ....generation.sampling import Sampler
from ....layers.audio.codebooks import SPOKEN
from ....postprocess.finite_results import finite
from ....seq2seq.cross_language_model import CrossLanguageModel
from ....seq2seq.decoder import DECODER, SOURCE_HIDDEN, SOURCE_MASK
from ....seq2seq.source_tokens import source_tokens
from ...task_model import opened
from .checked_ids import checked
from .delay_pattern import UNKNOWN, DelayPattern
from .ending import Ending
from .synthesis_model import CodeRequest, SynthesisModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TEXT_ENCODER = "text_encoder"
HIDDEN = "last_hidden_state"


class CodebookModel(SynthesisModel):
    """A model with an encoder of texts and a decoder of frames that attends to them.

    Args:
        graphs: ``text_encoder`` and ``decoder``.
        options: as of `SynthesisModel`.
    """

    reads = ("guidance",)
    prompted = False
    """Whether the decoder reads a prompt before the codes."""
    returned = HIDDEN
    """The encoder's output that `__call__` returns."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        super().__init__(graphs, options)
        self.decoder = CrossLanguageModel(
            graphs[DECODER],
            options.threads,
            options.activations,
            placement=Placement(options.device, options.device_memory, options.gpu_layers),
        )
        config = options.config
        assert config is not None
        self.pattern = DelayPattern(config.codebooks, config.values.get("channels", 1), config.start, config.pad)

    @functools.cached_property
    def _encoder(self) -> Session:
        return opened(self._graphs[TEXT_ENCODER], self.options)

    @memory_limited
    def __call__(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        decoder_input_ids: ArrayLike | None = None,
        prompt_input_ids: ArrayLike | None = None,
        prompt_attention_mask: ArrayLike | None = None,
    ) -> dict[str, np.ndarray]:
        """``logits`` [batch x codebooks, length, vocabulary] and ``encoder_last_hidden_state`` [batch, source,
        hidden], as transformers and parler_tts name them; positions of the prompt are included.

        Args:
            input_ids: integers [batch, source] or [source].
            attention_mask, prompt_attention_mask: 1 for tokens, 0 for padding; None if all are tokens.
            decoder_input_ids: codes [batch x codebooks, length].
            prompt_input_ids: integers [batch, prompt], for models that read a prompt before the codes.

        Raises UsageError for shapes that do not fit.
        """
        if decoder_input_ids is None:
            why = "decoder_input_ids is missing"
            raise UsageError("E-RUN-INPUT", None, why, expected="input_ids, decoder_input_ids")
        outputs, source = self.encode(input_ids, attention_mask)
        codes = np.asarray(decoder_input_ids, np.int64)
        count, texts = self.pattern.codebooks, len(outputs[HIDDEN])
        if codes.ndim != 2 or len(codes) != texts * count:
            why = "decoder_input_ids does not have one row for each codebook of each text"
            raise UsageError("E-RUN-SHAPE", None, why, expected=[texts * count, "length"], found=list(codes.shape))
        frames = self._frames_of(codes.reshape(texts, count, -1).transpose(0, 2, 1))
        mask = np.ones(frames.shape[:2], np.int64)
        if prompt_input_ids is not None:
            prompt, before = self._prompt(prompt_input_ids, prompt_attention_mask, texts)
            frames, mask = np.concatenate([prompt, frames], 1), np.concatenate([before, mask], 1)
        logits, _ = self.decoder.step(frames, self.decoder.start(texts, source), mask)
        return {"logits": by_codebook(logits), "encoder_last_hidden_state": outputs[self.returned]}

    def start(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        prompt_input_ids: ArrayLike | None = None,
        prompt_attention_mask: ArrayLike | None = None,
    ) -> Cache:
        """A cache to decode with: the text is encoded, the decoder has read the prompt. Arguments as of a call."""
        _, source = self.encode(input_ids, attention_mask)
        texts = len(source[SOURCE_MASK])
        cache = self.decoder.start(texts, source)
        if prompt_input_ids is not None:
            prompt, mask = self._prompt(prompt_input_ids, prompt_attention_mask, texts)
            self.decoder.advance(prompt, cache, None if mask.all() else mask)
        return cache

    def advance(self, codes: np.ndarray, cache: Cache) -> np.ndarray:
        """Logits f32 [batch, codebooks, vocabulary] after further codes [batch, length, codebooks], which are appended
        to `cache`."""
        return self.decoder.advance(self._frames_of(codes), cache)

    def _prompt(self, ids: ArrayLike, mask: ArrayLike | None, texts: int) -> tuple[np.ndarray, np.ndarray]:
        """Frames [batch, prompt, columns] of tokens, and their mask. UsageError for a model that does not read them,
        and for other shapes."""
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        seen = np.ones_like(tokens) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        if not self.prompted:
            raise UsageError("E-RUN-INPUT", None, "the model reads no prompt before the codes")
        if seen.shape != tokens.shape or len(tokens) != texts:
            why = "prompt_input_ids does not have one row for each text, or another shape than its mask"
            raise UsageError("E-RUN-SHAPE", None, why, expected=[texts, "prompt"], found=list(tokens.shape))
        codes = np.zeros((*tokens.shape, self.pattern.codebooks), np.int64)
        return np.concatenate([codes, tokens[..., None]], 2), seen

    def _frames_of(self, codes: np.ndarray) -> np.ndarray:
        """Frames [batch, length, columns] of codes [batch, length, codebooks]."""
        if not self.prompted:
            return codes
        return np.concatenate([codes, np.full((*codes.shape[:2], 1), SPOKEN)], 2)

    def encode(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The encoder's outputs by name, and the inputs that the decoder has of them."""
        ids, mask = source_tokens(input_ids, attention_mask)
        names = [value.name for value in self._graphs[TEXT_ENCODER].outputs]
        results = finite(self._encoder.run(None, {"input_ids": ids, "attention_mask": mask}), names)
        outputs = dict(zip(names, results, strict=True))
        key_values = {name: array for name, array in outputs.items() if name not in (HIDDEN, SOURCE_HIDDEN)}
        return outputs, self.decoder.source(outputs[HIDDEN], mask, key_values)

    @property
    def longest(self) -> int | None:
        """Frames of the longest sound that the checkpoint states; None if it states none."""
        length = self.settings.max_length
        return None if length is None else max(1, self.pattern.frames(length))

    def codes(self, request: CodeRequest) -> np.ndarray:
        """Codes int64 [codebooks, frames]. UsageError for ids that the model does not have."""
        guided, pattern = request.guidance > 1, self.pattern
        cache = self._begun(request, guided)
        sampler = Sampler(request.sampling, pattern.codebooks)
        first = np.full((pattern.codebooks, 1), pattern.start)
        layout = pattern.laid_out(first, pattern.length(request.frames))
        ending = Ending(pattern.codebooks, self._ends, self.settings.min_length)
        written = [layout[0]]
        while len(written) < len(layout) and not ending.ended:
            logits = self.advance(np.repeat(written[-1][None, None], 1 + guided, 0), cache)
            scores = logits[1] + (logits[0] - logits[1]) * np.float32(request.guidance) if guided else logits[0]
            chosen = ending.push(sampler.choose(ending.limited(scores), []))
            known = layout[len(written)]
            written.append(np.where(known == UNKNOWN, chosen, known))
            if request.progress is not None:
                request.progress(pattern.frames(len(written)), request.frames)
        return self._sounding(pattern.undelayed(np.array(written)))

    @property
    def _ends(self) -> tuple[int, ...]:
        """Codes that end a sequence."""
        return ()

    def _sounding(self, codes: np.ndarray) -> np.ndarray:
        """The frames that have a sound."""
        return codes

    def _begun(self, request: CodeRequest, guided: bool) -> Cache:
        """A cache of the text; for guidance with a second row, whose text is all zeros."""
        _, source = self.encode(self._ids(request.text))
        if guided:
            source = {
                name: np.concatenate([array, np.ones_like(array) if array.dtype == np.int64 else np.zeros_like(array)])
                for name, array in source.items()
            }
        return self.decoder.start(1 + guided, source)

    def _ids(self, text: str | Sequence[int]) -> Sequence[int]:
        """Ids that the encoder reads. UsageError for ids beyond its vocabulary."""
        ids = self.tokenizer.encode(text) if isinstance(text, str) else list(map(int, text))
        assert self.options.config is not None
        return checked(ids, self.options.config.values["text_encoder.vocab"])


def by_codebook(logits: np.ndarray) -> np.ndarray:
    """Logits [batch, length, codebooks, vocabulary] as [batch x codebooks, length, vocabulary]."""
    batch, length, count, vocabulary = logits.shape
    found: np.ndarray = logits.transpose(0, 2, 1, 3).reshape(batch * count, length, vocabulary)
    return found

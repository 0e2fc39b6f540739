"""A runnable encoder-decoder: the encoder runs once, the decoder token by token."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import human_count
from ...runtime.contract.architecture import RunOptions
from ...runtime.ir.graph import Graph
from ...runtime.session import Session
from ..generation.generate import Generation, Timing, written
from ..generation.kv_cache import Cache
from ..pipelines.task_model import opened
from ..pipelines.text_model import TextModel
from ..postprocess.finite_results import finite
from .decoder import DECODER, ENCODER
from .generation_settings import GenerationSettings, settings_of
from .source_tokens import source_tokens
from .text_to_text import pieces, requested

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..generation.batching.rows import Rows
    from .cross_language_model import CrossLanguageModel
    from .exported_decoder import ExportedDecoder


class EncoderDecoderModel(TextModel):
    """An encoder and a decoder that attends to it.

    Args:
        encoder: graph made by `candle_convert.models.load`, or read from an ONNX file.
        decoder: runs the other graph.
        options: threads, device, activations, hyper-parameters and tokenizer.
    """

    def __init__(self, encoder: Graph, decoder: CrossLanguageModel | ExportedDecoder, options: RunOptions) -> None:
        self.graph = decoder.graph
        self.encoder_graph = encoder
        self.decoder = decoder
        self.options = options
        self._encoders: dict[str, Session] = {}

    def __repr__(self) -> str:
        size = f"{human_count(sum(tensor.count for tensor in self._weights().values()))} parameters"
        return f"<{type(self).__name__} {self.graph.arch or self.graph.name}: {size}>"

    def _weights(self) -> dict[str, Any]:
        return {**self.encoder_graph.weights, **self.graph.weights}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The encoder and the decoder."""
        return {ENCODER: self.encoder_graph, DECODER: self.graph}

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("generate",)

    @memory_limited
    def __call__(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        decoder_input_ids: ArrayLike | None = None,
        decoder_attention_mask: ArrayLike | None = None,
    ) -> dict[str, np.ndarray]:
        """``logits`` [batch, target, vocabulary] and ``encoder_last_hidden_state`` [batch, source, hidden], as
        transformers names them.

        Args:
            input_ids, decoder_input_ids: integers [batch, length] or [length].
            attention_mask, decoder_attention_mask: 1 for tokens, 0 for padding; None if all are tokens.

        Raises UsageError for shapes that do not fit.
        """
        return self._outputs(*self.encode(input_ids, attention_mask), decoder_input_ids, decoder_attention_mask)

    def _outputs(
        self,
        hidden: np.ndarray,
        source: dict[str, np.ndarray],
        decoder_input_ids: ArrayLike | None,
        decoder_attention_mask: ArrayLike | None,
    ) -> dict[str, np.ndarray]:
        """Outputs of `__call__`, of those of `encode`."""
        if decoder_input_ids is None:
            expected = f"{self.encoder_graph.inputs[0].name}, decoder_input_ids"
            raise UsageError("E-RUN-INPUT", None, "decoder_input_ids is missing", expected=expected)
        ids = np.atleast_2d(np.asarray(decoder_input_ids, np.int64))
        if len(ids) != len(hidden):
            why = f"{self.encoder_graph.inputs[0].name} and decoder_input_ids have different numbers of rows"
            raise UsageError("E-RUN-SHAPE", None, why, expected=len(hidden), found=len(ids))
        logits, _ = self.decoder.step(ids, self.decoder.start(len(ids), source), mask=decoder_attention_mask)
        return {"logits": logits, "encoder_last_hidden_state": hidden}

    def start(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, *, rows: int = 1, activations: str = "f32"
    ) -> Cache:
        """A cache to decode with: the encoder has run, the decoder has seen no token.

        Args:
            rows: rows of the decoder's batch that each text has.
            activations: as of `Session`, for the encoder, unless the model was loaded with others.
        """
        hidden, source = self.encode(input_ids, attention_mask, activations)
        return self.decoder.start(len(hidden) * rows, source)

    def encode(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, activations: str = "f32"
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Hidden states f32 [batch, source, hidden], and the inputs that the decoder has of them."""
        ids, mask = source_tokens(input_ids, attention_mask)
        return self._encoded({"input_ids": ids, "attention_mask": mask}, mask, activations)

    def _encoded(
        self, feeds: dict[str, np.ndarray], mask: np.ndarray | None, activations: str
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Outputs of `encode`, of the encoder's inputs."""
        session = self._encoder(activations)
        found = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
        names = [value.name for value in self.encoder_graph.outputs]
        outputs = dict(zip(names, finite(found, names), strict=True))
        hidden: np.ndarray = outputs.pop("last_hidden_state")
        return hidden, self.decoder.source(hidden, mask, outputs)

    def _encoder(self, activations: str) -> Session:
        """The encoder's session; both kinds of activations share its weights."""
        kind = self.options.activations or activations
        if kind not in self._encoders:
            beside = next(iter(self._encoders.values()), None)
            self._encoders[kind] = opened(self.encoder_graph, self.options, kind, beside)
        return self._encoders[kind]

    @functools.cached_property
    def settings(self) -> GenerationSettings:
        """Defaults of `generate`, as the files next to the weights state them. FormatError for an invalid value."""
        config, vocabulary = self.options.config, self.decoder.vocabulary
        start = 0 if config is None else int(config.decoder_start)
        return settings_of(self.graph, start, len(self.tokenizer) if vocabulary is None else vocabulary)

    @property
    def positions(self) -> int | None:
        """Most tokens of a text; None for models whose positions are relative."""
        config = self.options.config
        return None if config is None else config.values.get("positions")

    def decoding_rows(self, count: int, context: int | None, max_memory: int | None) -> Rows:
        """Rows for the engine of continuous batching; arguments as of `Engine`."""
        from ..generation.batching.source_rows import BatchedSourceRows, SeparateSourceRows, Targets
        from .cross_language_model import CrossLanguageModel

        targets = Targets(self, context, tuple(self.tokenizer.ends))
        if isinstance(self.decoder, CrossLanguageModel) and self.decoder.can_batch:
            return BatchedSourceRows(self.decoder, targets, count, max_memory)
        return SeparateSourceRows(self.decoder, targets)

    def greedy(self, ids: Any, count: int, start: int | None = None) -> list[int]:
        """The first decoder token, `start` or the model's, and the `count` most probable next ones, one after
        another."""
        cache, tokens = self.start([ids]), [self.settings.start if start is None else start]
        while len(tokens) <= count:
            tokens.append(int(self.decoder.advance([tokens[cache.length :]], cache)[0].argmax()))
        return tokens

    @overload
    def generate(self, text: str | Sequence[int], *, stream: Literal[False] = False, **options: Any) -> str: ...
    @overload
    def generate(self, text: str | Sequence[int], *, stream: Literal[True], **options: Any) -> Iterator[str]: ...
    def generate(self, text: str | Sequence[int], *, stream: bool = False, **options: Any) -> str | Iterator[str]:
        """The text that the decoder makes of a text (or ids).

        Args:
            stream: whether to return an iterator of text pieces instead of the full text; with one beam only, text
                comes as it is generated.
            options: fields of `TextToText`, and options of `Sampling`; the most probable tokens are taken unless a
                temperature is given.

        Raises UsageError for an unknown option, one out of range, an unknown language, and a text that is too long;
        with `stream`, before the first piece.
        """
        found = pieces(self, requested(self, [text], options))
        return (part for _, part in found) if stream else "".join(part for _, part in found)

    @memory_limited
    def generate_batch(
        self,
        texts: Sequence[str | Sequence[int]],
        *,
        on_text: Callable[[int, str], None] | None = None,
        timing: Timing | None = None,
        **options: Any,
    ) -> list[Generation]:
        """As `generate`, for several texts as one batch.

        Args:
            on_text: called with the index of a text and the next part of what is made of it.
            timing: filled in; the prompt is what the encoder reads.
        """
        return written(pieces(self, requested(self, texts, options), timing=timing), on_text)

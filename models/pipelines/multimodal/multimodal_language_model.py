"""A language model that takes pictures or sounds among the tokens of its prompt.

A family plugs in with `multimodal_task` and `PromptRules` (see prompts/prompt_rules.py): an encoder's graph for each
modality, the id of its placeholder, a processor that expands placeholders, and optionally positions and groups of
tokens.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...generation.decoder_states import numpy_dtype
from ...generation.decoder_tasks import EMBED_TOKENS
from ...generation.generate import generate, pieces
from ...generation.kv_cache import Cache, EmbeddedPrompt
from ...generation.request import requested, token_limit
from ...layers.decoder import EMBEDS
from ...postprocess.finite_results import finite
from ..task_model import PICTURES, TEXTS, opened
from .embedded_language_model import EmbeddedLanguageModel
from .prompts.chat_messages import prompt_of
from .prompts.prompt_rules import DECODER_MODEL, Modality, Prompted, PromptRules

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.contract.architecture import RunOptions
    from ...generation.generate import Generation, Timing


TEXT_RANK, PICTURE_RANK = 2, 4
"""Axes of token ids, and of pictures without an axis of tiles."""


class MultimodalLanguageModel(EmbeddedLanguageModel):
    """LLaVA and its relatives.

    Args:
        graphs: of the encoders, the embeddings and the decoder, by name.
        options: threads, device, activations, hyper-parameters and tokenizer.
        rules: how the family puts other inputs among tokens.
    """

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions, rules: PromptRules) -> None:
        config = options.config
        context = None if config is None else config.values.get("text.context")
        super().__init__(graphs[DECODER_MODEL], graphs[EMBED_TOKENS], options, context)
        self.rules = rules
        self.takes = PICTURES if hasattr(self._pipeline, "predict") else TEXTS
        self._graphs = dict(graphs)
        self._encoders: dict[str, Session] = {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs of the task by name."""
        return self._graphs

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("generate", *(verb for verb in ("predict",) if hasattr(self._pipeline, verb)))

    def __call__(
        self,
        input_ids: ArrayLike,
        attention_mask: ArrayLike | None = None,
        position_ids: ArrayLike | None = None,
        **arrays: ArrayLike,
    ) -> dict[str, np.ndarray]:
        """``logits`` f32 [batch, length, vocabulary].

        Args:
            input_ids: integers [batch, length] or [length], with a placeholder for each row of features.
            attention_mask: 1 for tokens, 0 for padding; None if all are tokens.
            position_ids: integers [batch, length] or [axes, batch, length]; None for the family's.
            arrays: what transformers' processor makes of pictures and sounds: ``pixel_values`` ...

        Raises UsageError for arrays that the model does not take, and for features that do not fit the placeholders.
        """
        ids = np.atleast_2d(np.asarray(input_ids, np.int64))
        mask = None if attention_mask is None else np.atleast_2d(np.asarray(attention_mask, np.int64))
        prompt = self.embedded(ids, mask, {name: np.asarray(array) for name, array in arrays.items()})
        logits, _ = self.step(ids, self.start_with(prompt), positions=position_ids)
        return {self._output: logits}

    def logits(self, ids: ArrayLike, mask: ArrayLike | None = None, positions: ArrayLike | None = None) -> np.ndarray:
        """As of `LanguageModel`, of texts without placeholders."""
        return self(ids, mask, positions)[self._output]

    def embedded(self, ids: np.ndarray, mask: np.ndarray | None, arrays: Mapping[str, np.ndarray]) -> EmbeddedPrompt:
        """The prompts of a batch: embeddings of token ids [batch, length], with features of `arrays` in the order of
        the placeholders."""
        unknown = next((name for name in arrays if name not in self.rules.arrays), None)
        if unknown is not None:
            expected = ", ".join(self.rules.arrays)
            raise UsageError("E-RUN-INPUT", None, f"the model has no input {unknown}", expected=expected)
        self._check(ids, arrays)
        mask = np.ones_like(ids) if mask is None else mask
        holes = {modality.noun: self._placeholders(modality, ids) for modality in self.rules.modalities}
        known = ids * ~np.logical_or.reduce(list(holes.values()))
        if known.min() < 0:
            raise UsageError("E-RUN-INPUT", None, f"input_ids has the negative id {known.min()}", expected="token ids")
        inputs = {EMBEDS: self.embed_ids(known)}
        for modality in self.rules.modalities:
            self._fill(inputs, modality, holes[modality.noun], arrays)
        config, rules = self.options.config, self.rules
        assert config is not None
        positions = None if rules.positions is None else rules.positions(config, ids, mask, arrays)
        following = None if positions is None else positions.max(axis=(0, 2))[:, None] + 1
        grouped = mask if rules.groups is None else rules.groups(config, ids, mask, arrays)
        return EmbeddedPrompt(inputs, grouped, positions, following)

    def _check(self, ids: np.ndarray, arrays: Mapping[str, np.ndarray]) -> None:
        """UsageError for ids without tokens, and for arrays that are empty, no numbers, or have too few axes; those
        that only rules of prompts read have the shape of the ids."""
        if not ids.size or ids.ndim != TEXT_RANK:
            raise UsageError("E-RUN-SHAPE", None, "input_ids have no tokens", expected="[batch, length]")
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf" or not array.size:
                why = f"{name} of {array.dtype} {list(array.shape)} has no numbers"
                raise UsageError("E-RUN-INPUT", None, why, expected="an array of numbers")
            if name in self.rules.further and array.shape != ids.shape:
                why = f"{name} has another shape than input_ids"
                raise UsageError("E-RUN-SHAPE", None, why, expected=list(ids.shape), found=list(array.shape))
        for modality in self.rules.modalities:
            name = modality.arrays[0]
            value = self._graphs[modality.graph].values.get(name)
            least = 0 if value is None else min(len(value.shape or ()), PICTURE_RANK)
            if name in arrays and arrays[name].ndim < least:
                why = f"{name} has too few axes"
                raise UsageError("E-RUN-SHAPE", None, why, expected=least, found=list(arrays[name].shape))

    def _placeholders(self, modality: Modality, ids: np.ndarray) -> np.ndarray:
        """Whether token ids are placeholders for inputs of a modality."""
        assert self.options.config is not None
        token = self.options.config.values[modality.placeholder]
        return ids == (-1 if token is None else token)

    def _fill(
        self, inputs: dict[str, np.ndarray], modality: Modality, holes: np.ndarray, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Put the features of a modality where its placeholders are."""
        wanted = int(holes.sum())
        if modality.arrays[0] not in arrays:
            if wanted:
                why = f"{counted(wanted, 'placeholder')} in the prompt, but no {modality.noun}"
                raise UsageError("E-LM-PLACEHOLDER", None, why, hint=f"Pass the {modality.noun}s of the prompt")
            return
        given = {name: arrays[name] for name in modality.arrays if name in arrays}
        assert self.options.config is not None
        encode = functools.partial(self._encoder_outputs, modality.graph)
        features = modality.encode(encode, self.options.config, given)
        for number, (name, rows) in enumerate(features.items()):
            if len(rows) != wanted:
                why = f"{counted(wanted, 'placeholder')} in the prompt for {counted(len(rows), 'row')} of features"
                hint = f"Each {modality.noun} has its own number of placeholders: pass prompts as text"
                raise UsageError("E-LM-PLACEHOLDER", None, why, hint=hint)
            own = EMBEDS if number == 0 else name
            inputs.setdefault(own, np.zeros((*holes.shape, rows.shape[-1]), np.float32))
            inputs[own][holes] = rows

    def _encoder_outputs(self, name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of an encoder by name; arrays get the leading axes that exported encoders have for texts."""
        graph = self._graphs[name]
        if name not in self._encoders:
            self._encoders[name] = opened(graph, self.options, "f32")
        session = self._encoders[name]
        feeds = {}
        for value in session.get_inputs():
            if value.name not in arrays:
                raise UsageError("E-RUN-INPUT", None, f"{value.name} is missing", expected=", ".join(self.rules.arrays))
            array = np.asarray(arrays[value.name], numpy_dtype(graph.values[value.name]))
            missing = len(value.shape or ()) - array.ndim
            feeds[value.name] = array[(None,) * max(0, missing)]
        names = [value.name for value in graph.outputs]
        return dict(zip(names, finite(session.run(names, feeds), names), strict=True))

    def prompted(
        self, text: str, images: Sequence[Any] = (), audio: Sequence[Any] = (), *, add_bos: bool | None = None
    ) -> Prompted:
        """Token ids and arrays of a text with pictures and sounds; see `Processor`."""
        if self.rules.processor is None:
            raise UsageError("E-LM-PROCESSOR", None, "the model takes arrays only", hint="Call it with pixel_values")
        return self.rules.processor(self, text, images, audio, add_bos=add_bos)

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]], path: str | None = None) -> Prompted:
        """Token ids and arrays of messages, as of `chat`; `path`: of the model, for error messages."""
        text, images, audio, add_bos = prompt_of(self, messages, path)
        return self.prompted(text, images, audio, add_bos=add_bos)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str | Iterator[str]:
        """The answer to messages with ``role`` and ``content``, by the model's chat template.

        Args:
            messages: a content is a text, or a list of parts: ``{"type": "text", "text": ...}``, ``{"type": "image",
                "image": ...}`` of a path, bytes or an array, ``{"type": "audio", "audio": ...}``, or OpenAI's
                ``image_url`` and ``input_audio`` with a path or base64 data.
            options: as of `generate`.

        Raises UsageError for other parts, UnsupportedError without a chat template.
        """
        text, images, audio, add_bos = prompt_of(self, messages)
        return self.generate(text, images=images, audio=audio, add_bos=add_bos, **options)

    @memory_limited
    def generate(  # type: ignore[override]
        self,
        prompt: str | Sequence[int],
        *,
        images: Sequence[Any] = (),
        audio: Sequence[Any] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        stream: bool = False,
        max_new_tokens: int | None = None,
        add_bos: bool | None = None,
        **sampling: Any,
    ) -> str | Iterator[str]:
        """The text that follows a prompt (text or ids) with pictures and sounds.

        Args:
            images, audio: paths, bytes or arrays, in the order of their markers in the text; before a text without
                markers.
            add_bos: whether BOS goes before the text; None for what the tokenizer does.
            max_tokens, stop, context, stream, max_new_tokens, sampling: as of `LanguageModel.generate`.

        Raises UsageError as `LanguageModel.generate`, and for numbers of markers and inputs that differ.
        """
        given = self._given([prompt], [images], [audio], add_bos)
        limit = token_limit(max_tokens, max_new_tokens)
        request = requested(self._encode, [each.ids for each in given], limit, stop, context, sampling)
        found = pieces(_GivenPrompts(self, given), self.tokenizer, request)
        return (text for _, text in found) if stream else "".join(text for _, text in found)

    @memory_limited
    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int] | Prompted],
        *,
        images: Sequence[Sequence[Any]] = (),
        audio: Sequence[Sequence[Any]] = (),
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        on_text: Callable[[int, str], None] | None = None,
        timing: Timing | None = None,
        max_new_tokens: int | None = None,
        add_bos: bool | None = None,
        **sampling: Any,
    ) -> list[Generation]:
        """As `generate`, for several prompts as one batch.

        Args:
            prompts: texts, ids, or results of `prompted`.
            images, audio: a sequence for each prompt.
            on_text, timing: as of `LanguageModel.generate_batch`.
        """
        given = self._given(prompts, images or [()] * len(prompts), audio or [()] * len(prompts), add_bos)
        limit = token_limit(max_tokens, max_new_tokens)
        request = requested(self._encode, [each.ids for each in given], limit, stop, context, sampling)
        model = _GivenPrompts(self, given)
        return generate(model, self.tokenizer, request, on_text=on_text, timing=timing)

    def _given(
        self,
        prompts: Sequence[str | Sequence[int] | Prompted],
        images: Sequence[Sequence[Any]],
        audio: Sequence[Sequence[Any]],
        add_bos: bool | None,
    ) -> list[Prompted]:
        """Prompts with token ids and arrays; ids are taken as they are."""
        for items in (images, audio):
            if len(items) != len(prompts):
                why = f"{counted(len(prompts), 'prompt')} with pictures or sounds for {len(items)}"
                raise UsageError("E-LM-PROMPT", None, why, hint="Pass one list for each prompt")
        found = []
        for prompt, pictures, sounds in zip(prompts, images, audio, strict=True):
            for given in (pictures, sounds):
                if isinstance(given, str | bytes | os.PathLike):
                    why = "pictures and sounds of a prompt are a list"
                    raise UsageError("E-LM-PROMPT", None, why, hint="Write images=[...] or audio=[...]")
            if isinstance(prompt, str):
                found.append(self.prompted(prompt, pictures, sounds, add_bos=add_bos))
            elif isinstance(prompt, Prompted):
                found.append(prompt)
            elif len(pictures) or len(sounds):
                raise UsageError("E-LM-PROMPT", None, "pictures and sounds need a prompt of text")
            else:
                found.append(Prompted(list(map(int, prompt)), {}))
        return found


class _GivenPrompts:
    """A model with given prompts, for generation: their arrays are encoded when the cache is made."""

    def __init__(self, model: MultimodalLanguageModel, prompts: Sequence[Prompted]) -> None:
        self.context, self.vocabulary = model.context, model.vocabulary
        self.advance, self.advance_on_device, self.sampler = model.advance, model.advance_on_device, model.sampler
        self._model, self._prompts = model, prompts

    def start(self, batch: int) -> Cache:
        """An empty cache for the prompts, padded on the left."""
        longest = max(len(prompt.ids) for prompt in self._prompts)
        rows = [self._model.embedded(np.array([prompt.ids], np.int64), None, prompt.arrays) for prompt in self._prompts]
        return self._model.start_with(joined(rows, longest))


def joined(rows: Sequence[EmbeddedPrompt], length: int) -> EmbeddedPrompt:
    """Prompts of one row each as a batch, padded on the left to `length` tokens."""

    def padded(array: np.ndarray, axis: int) -> np.ndarray:
        widths = [(0, 0)] * array.ndim
        widths[axis] = (length - array.shape[axis], 0)
        return np.pad(array, widths)

    names = dict.fromkeys(name for row in rows for name in row.inputs)
    width = rows[0].inputs[EMBEDS].shape[-1]
    inputs = {
        name: np.concatenate([padded(row.inputs.get(name, np.zeros((1, 0, width), np.float32)), 1) for row in rows])
        for name in names
    }
    mask = np.concatenate([padded(row.mask, 1) for row in rows])
    if any(row.positions is None for row in rows):
        return EmbeddedPrompt(inputs, mask)
    positions = np.concatenate([padded(row.positions, 2) for row in rows if row.positions is not None], 1)
    following = np.concatenate([row.following for row in rows if row.following is not None])
    return EmbeddedPrompt(inputs, mask, positions, following)

"""A runnable language model: sessions over its graph, and the states between runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import human_count
from ...runtime.contract.architecture import TEXT_GENERATION, RunOptions
from ...runtime.contract.kv_types import KV_TYPES
from ...runtime.devices import on_device
from ...runtime.ir.clone import copied_graph
from ...runtime.ir.graph import Graph, Value
from ...runtime.passes.precision.block_kv_cache import StoreKVCacheAsBlocks
from ...runtime.passes.precision.half_kv_cache import StoreKVCacheAsHalf
from ...runtime.passes.simplify.slice_pushdown import PushDownSlices
from ...runtime.region.expected_shapes import BATCHED_LENGTHS, LENGTHS
from ...runtime.session import Session
from ...runtime.tensor.dtype import BF16, F16, U8
from ..pipelines.task_model import cannot
from ..pipelines.text_model import TextModel, embedding_rows
from ..postprocess.finite_results import finite
from .decoder_states import (
    INITIAL_CAPACITY,
    capacity_for,
    empty_states,
    growing_axis,
    is_state,
    numpy_dtype,
    output_of,
    resized,
    state_shape,
)
from .kv_cache import CACHE_POSITION, Cache, DecodeStep
from .prefill_chunk import CPU_CHUNK, MAX_CHUNK, chunk_length

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..tokenizer import Tokenizer
    from .generate import Generation, Timing
    from .request import Request
    from .sampling import Sampling
    from .sampling_graph import DeviceSampler
    from .token_constraints import Grammar

LAST, EACH = "last_logits", "each_logits"
"""Sessions for generation: logits after the last token of a run, and after each."""


@dataclass(frozen=True)
class Placement:
    """Device of a model: ``cpu``, ``cuda`` or ``cuda:N``, the limit of device memory in bytes, and the number of layers
    on the device (None: all; see `Session`)."""

    device: str = "cpu"
    device_memory: int | None = None
    gpu_layers: int | str | None = None


ON_CPU = Placement()
BY_LONGEST_ROW = ("dynamic", "longrope")
"""Scalings of rotary frequencies by the length of the longest row of a batch."""
FIRST_STEPS = 1
"""Runs that follow a first prompt at once: one of a token, with a past."""


class LanguageModel(TextModel):
    """A decoder whose graph has the inputs ``input_ids``, ``attention_mask``, ``position_ids`` and states.

    A token may be a frame of audio codes; ``input_ids`` is [batch, length, codebooks] then.

    Args:
        graph: made by `candle_convert.models.load`, or read from an ONNX file whose inputs are named as exporters do.
        threads: threads of one run, all cores where None.
        activations: as of `Session`; None for f32 in `logits` and `step`, and q8 in `advance`, from which text is
            generated: faster by a quarter, and as exact as llama.cpp, which rounds what meets quantized weights too.
            Models of narrow weights on the CPU store keys and values as f16 then.
        read: reads the model's tokenizer when it is needed.
        context: the most tokens that the model was trained with, None where that is not known.
        placement: where layers run; the states of layers on a card stay there from run to run.

    Attributes:
        vocabulary: logits of a token, None where the graph does not say.
        threads: threads of one run, all cores where None.
        initial_capacity: tokens that a KV cache has capacity for at first.
    """

    initial_capacity = INITIAL_CAPACITY
    token_input = "input_ids"
    """The input that holds the tokens of a run."""

    def __init__(
        self,
        graph: Graph,
        threads: int | None = None,
        activations: str | None = None,
        read: Callable[[], Tokenizer] | None = None,
        context: int | None = None,
        placement: Placement = ON_CPU,
    ) -> None:
        self._names = {value.name for value in graph.inputs}
        if self.token_input not in self._names:
            raise UsageError(
                "E-LM-INPUTS",
                None,
                f"not a language model: the graph has no input named {self.token_input}",
                found=", ".join(value.name for value in graph.inputs),
            )
        self.graph = graph
        self._columns = self._token_columns()
        self._states = [value for value in graph.inputs if is_state(value)]
        self._fixed = CACHE_POSITION in self._names
        results = {value.name for value in graph.outputs}
        self._kept = {value.name: output_of(value.name, results) for value in self._states}
        self._output, generates = self._named_outputs(graph)
        self._last = LAST if generates else self._output
        self._each = EACH if self._last == LAST else self._output
        self.options = RunOptions(tokenizer=read)
        self.context = context
        self.vocabulary = embedding_rows(graph)
        self.threads = threads
        self._options: dict[str, Any] = {"threads": threads, "native": True, **vars(placement)}
        generating = "q8" if self._last != self._output else "f32"
        chosen = activations or generating
        self._activations = {self._last: chosen, self._each: chosen, self._output: activations or "f32"}
        self._device = placement.device
        self._on_device = on_device(placement.device)
        self._fixed_on_cpu = self._fixed and not self._on_device
        self._repeats = self._fixed_on_cpu
        self._kv_type: str | None = None
        self._packed: Session | None = None
        self._sessions: dict[str, Session] = {}
        self._dtypes: dict[str, dict[str, np.dtype[Any]]] = {}
        self.session(self._last)

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        size = f"{human_count(self.graph.parameters)} parameters"
        return f"<{type(self).__name__} {self.graph.arch or self.graph.name}: {size}, {self._device}{context}>"

    def session(self, output: str) -> Session:
        """The session that computes one output and the states, `EACH` as generation does. All sessions of a model share
        its weights."""
        if output not in self._sessions:
            wanted = {*self._wanted(output), *self._kept.values()}
            graph = dataclasses.replace(
                self.graph, outputs=[value for value in self.graph.outputs if value.name in wanted]
            )
            rounded = self._activations[output] == "q8" and output != self._output and not self._on_device
            if output == LAST and not self._on_device:
                graph = copied_graph(graph, {}, typed=True)
                PushDownSlices().run(graph)
            kv_type = self._kv_type or ("f16" if rounded and self._has_narrow_weights(graph) else "f32")
            if kv_type != "f32":
                graph = copied_graph(graph, {}, typed=True)
                (StoreKVCacheAsBlocks if kv_type == "q8_0" else StoreKVCacheAsHalf)().run(graph)
            self._dtypes[output] = {value.name: numpy_dtype(value) for value in graph.inputs if is_state(value)}
            if self._kv_type is not None:
                self._states = [graph.values[value.name] for value in self._states]
            sibling = next(iter(self._sessions.values()), self._packed)
            made = Session(
                graph,
                inplace_inputs=self._kept,
                shares_weights_with=sibling,
                activations=self._activations[output],
                **self._options,
            )
            made.expect(functools.partial(self._warm_up_feeds, output), imminent=FIRST_STEPS)
            self._sessions[output] = made
        return self._sessions[output]

    def store_cache_as(self, kv_type: str | None) -> None:
        """Store keys and values of later caches as f32, f16, or q8_0 (blocks of 32 signed bytes and a scale); None for
        f16 where text is generated from narrow weights, and f32 elsewhere.

        Raises UsageError for another type, and for q8_0 with a model on a device, without a cache of fixed capacity,
        or whose attention cannot read blocks.
        """
        if kv_type not in (None, *KV_TYPES):
            expected = "one of " + ", ".join(KV_TYPES)
            raise UsageError("E-LM-KV-TYPE", None, "unknown type of KV cache", expected=expected, found=repr(kv_type))
        if kv_type == self._kv_type:
            return
        if kv_type is not None and not self._fixed_on_cpu:
            raise UsageError("E-LM-KV-TYPE", None, "the type of the KV cache can be chosen for models on the CPU only")
        self._packed = self._sessions[self._last]
        self._kv_type, self._states = kv_type, [value for value in self.graph.inputs if is_state(value)]
        self._sessions, self._dtypes = {}, {}
        self.session(self._last)
        if kv_type == "q8_0" and all(value.dtype is not U8 for value in self._states):
            self.store_cache_as(None)
            why = "the KV cache of this model cannot be stored as q8_0: heads of 32 elements or multiples are needed"
            raise UsageError("E-LM-KV-TYPE", None, why, expected="f32 or f16")

    def logits(self, ids: ArrayLike, mask: ArrayLike | None = None, positions: ArrayLike | None = None) -> np.ndarray:
        """f32 [batch, length, vocabulary] (or the model's own output) for token ids [batch, length] or [length].

        Args:
            mask: 1 for tokens, 0 for padding; None if all are tokens.
            positions: of the tokens; None to count along the mask.

        Raises:
            UnsupportedError: the model computes NaN or infinity.
        """
        return self.step(ids, mask=mask, positions=positions)[0]

    def __call__(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, position_ids: ArrayLike | None = None
    ) -> dict[str, np.ndarray]:
        """The output by the name that transformers gives it: ``logits`` or ``last_hidden_state``.

        Args:
            input_ids: integers [batch, length] or [length].
            attention_mask: 1 for tokens, 0 for padding; None if all are tokens.
            position_ids: None to count along the mask.
        """
        return {self._output: self.logits(input_ids, attention_mask, position_ids)}

    def start(self, batch: int) -> Cache:
        """An empty cache."""
        return Cache(empty_states(self._states, batch), batch)

    def copied(self, cache: Cache) -> Cache:
        """A copy of a cache."""
        return cache.copy()

    def rewind(self, cache: Cache, length: int) -> bool:
        """Truncate a cache to the first `length` tokens; False if its states cannot be truncated: recurrent and
        sliding-window states."""
        if length == cache.length:
            return True
        axes = {value.name: growing_axis(value) for value in self._states}
        if length > cache.length or None in axes.values():
            return False
        if not self._fixed:
            if not all(isinstance(array, np.ndarray) for array in cache.states.values()):
                return False
            for name, axis in axes.items():
                cache.states[name] = cache.states[name].take(range(length), axis)
        cache.truncate(length)
        return True

    @property
    def can_rewind(self) -> bool:
        """Whether `rewind` can drop tokens."""
        grows_on_device = self._on_device and not self._fixed
        return not grows_on_device and all(growing_axis(value) is not None for value in self._states)

    def run_states(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> None:
        """Update a cache with tokens, as rank 0 does when it computes `output`."""
        self._run(output, tokens, cache, mask, positions)

    @memory_limited
    def step(
        self,
        ids: ArrayLike,
        cache: Cache | None = None,
        mask: ArrayLike | None = None,
        positions: ArrayLike | None = None,
    ) -> tuple[np.ndarray, Cache]:
        """The output for further tokens, and the cache that includes them; the passed cache is unchanged.

        Raises UnsupportedError if the model computes NaN or infinity.
        """
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        cache = self.start(len(tokens)) if cache is None else self.copied(cache)
        found: np.ndarray = _fetched(self._run(self._output, tokens, cache, mask, positions))
        finite([found], [self._output], masked=False)
        return found, cache

    def advance(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> np.ndarray:
        """Logits f32 [batch, vocabulary] after further tokens, which are appended to `cache`."""
        found: np.ndarray = _fetched(self.advance_on_device(ids, cache, mask))
        return found[:, -1]

    @memory_limited
    def advance_on_device(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> Any:
        """As `advance`, but [batch, length, vocabulary] as an array of the device. Long prompts are processed in
        chunks."""
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        count = tokens.shape[1]
        size = self._chunk(count, cache)
        if count <= size:
            return self._run(self._last, tokens, cache, mask, None)
        mask_buffer = None if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        cache.expected_length = cache.length + count
        for start in range(0, count, size):
            part = None if mask_buffer is None else mask_buffer[:, start : start + size]
            found = self._run(self._last, tokens[:, start : start + size], cache, part, None)
        return found

    @memory_limited
    def advance_each(self, ids: ArrayLike, cache: Cache) -> np.ndarray:
        """Logits f32 [batch, length, vocabulary] after each of few further tokens, which are appended to `cache`."""
        found: np.ndarray = _fetched(self._run(self._each, np.atleast_2d(np.asarray(ids, np.int64)), cache, None, None))
        return found

    def _named_outputs(self, graph: Graph) -> tuple[str, bool]:
        """The output of `logits`, and whether there is one for generation."""
        return graph.outputs[0].name, any(value.name == LAST for value in graph.outputs)

    def _has_narrow_weights(self, graph: Graph) -> bool:
        """Whether matrices are stored in fewer bits than f32, so that keys and values may be, too."""
        return _has_narrow_weights(graph)

    def _wanted(self, output: str) -> list[str]:
        """The graph's outputs, without the states, that the session of an output computes."""
        return [self._name(output)]

    def _name(self, output: str) -> str:
        """The graph's output that a session computes."""
        return self._output if output == EACH else output

    def _token_columns(self) -> tuple[int, ...]:
        """The dimensions of token ids after batch and length: codebooks of audio codes."""
        return tuple(int(count) for count in (self.graph.values["input_ids"].shape or ())[2:] if count)

    def _chunk(self, count: int, cache: Cache) -> int:
        """How many of `count` further tokens one run processes."""
        return chunk_length(count, CPU_CHUNK if self._fixed and not self._on_device else MAX_CHUNK)

    def _token_feeds(self, tokens: np.ndarray, cache: Cache) -> dict[str, np.ndarray]:
        """The inputs, by name, that stand for token ids [batch, length], before they are appended to `cache`."""
        return {self.token_input: tokens}

    def _position_feed(self, counted: np.ndarray) -> np.ndarray:
        """``position_ids`` of tokens that are counted as [batch, length]."""
        return counted

    def sampler(self, sampling: Sampling, batch: int, vocabulary: int | None) -> DeviceSampler | None:
        """A sampler for logits on the device (`advance_on_device`), or None on the CPU. Logits at `vocabulary` and
        beyond are ignored."""
        count = vocabulary or self.vocabulary
        if count is None or not self._on_device or self._options["gpu_layers"] is not None:
            return None
        from .sampling_graph import DeviceSampler

        return DeviceSampler(sampling, batch, count, device=self._device)

    @property
    def can_batch(self) -> bool:
        """Whether rows with different numbers of tokens can run together, without one changing the others: the graph
        has fixed states on the CPU, is fed with ids, and its rotary frequencies do not depend on the longest row."""
        known = self._row_inputs() | {value.name for value in self._states} | self.graph.weights.keys()
        return self._fixed_on_cpu and self.rotary_by_length is None and self._names <= known

    @property
    def rotary_by_length(self) -> str | None:
        """The scaling of rotary frequencies where these depend on the longest row of a run; None elsewhere."""
        config = self.options.config
        scaling = None if config is None else config.values.get("scaling")
        kind = scaling.get("type") if isinstance(scaling, dict) else None
        return kind if kind in BY_LONGEST_ROW else None

    def _row_inputs(self) -> set[str]:
        """Names of the inputs of `advance_rows` apart from the states."""
        return {"input_ids", "attention_mask", "position_ids", CACHE_POSITION}

    def state_values(self) -> tuple[list[Value], dict[str, np.dtype[Any]]]:
        """The states, and the dtypes that `advance` has them in."""
        self.session(self._last)
        return self._states, self._dtypes[self._last]

    @memory_limited
    def advance_rows(
        self,
        tokens: np.ndarray,
        before: np.ndarray,
        states: Mapping[str, np.ndarray],
        others: Mapping[str, np.ndarray],
        *,
        each: bool = False,
    ) -> np.ndarray:
        """Logits f32 [rows, 1, vocabulary] after further tokens of rows of different lengths; states change in place.

        Args:
            tokens: i64 [rows, length].
            before: tokens that each row has, i64 [rows].
            states: of fixed capacity.
            others: ``attention_mask``, ones [rows, capacity], and inputs that an encoder made.
            each: whether to return logits after each token, [rows, length, vocabulary].
        """
        given = {
            "input_ids": tokens,
            "position_ids": before[:, None] + np.arange(tokens.shape[1]),
            CACHE_POSITION: before,
            **others,
        }
        feeds = {name: array for name, array in given.items() if name in self._names} | dict(states)
        output = self._each if each else self._last
        result, *made = self._results(self.session(output), [self._name(output), *self._kept.values()], feeds)
        for name, array in zip(self._kept, made, strict=True):
            if array is not states[name]:
                states[name][...] = array
        logits: np.ndarray = result if each else result[:, -1:]
        return logits

    def prepare(self) -> None:
        """Compile kernels for prompts of all lengths and for decoding; CPU only."""
        for output in dict.fromkeys((self._last, self._output)):
            self.session(output).prepare(
                self._feeds(output, np.zeros((1, 1, *self._columns), np.int64), self.start(1), None, None)
            )

    def _warm_up_feeds(self, output: str) -> Iterator[dict[str, Any]]:
        """Feeds of runs over prompts of several lengths, each after those of a token that follows it."""
        for batch, lengths in ((1, LENGTHS), (2, BATCHED_LENGTHS)):
            for length in (length for length in lengths if self.context is None or length < self.context):
                cache = self.start(batch)
                prompt = self._feeds(output, np.zeros((batch, length, *self._columns), np.int64), cache, None, None)
                if not self._fixed:
                    cache.states = {
                        value.name: np.zeros(state_shape(value, batch, length), numpy_dtype(value))
                        for value in self._states
                    }
                yield self._feeds(output, np.zeros((batch, 1, *self._columns), np.int64), cache, None, None)
                yield prompt

    def _run(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> Any:
        session, decode_step = self.session(output), cache.decode_step
        plain = mask is None and positions is None
        if plain and decode_step is not None and decode_step.fits(output, tokens, cache):
            decode_step.run = decode_step.run or session.repeated(self._name(output), decode_step.feeds)
            if decode_step.run is not None:
                decode_step.feed(self._token_feeds(tokens, cache), cache)
                return decode_step.run()
            self._repeats = False
        feeds = self._feeds(output, tokens, cache, mask, positions)
        result, *states = self._results(session, [self._name(output), *self._kept.values()], feeds)
        cache.states = dict(zip(self._kept, states, strict=True))
        cache.decode_step = None
        if (
            plain
            and self._repeats
            and tokens.shape[1] == 1
            and all(feeds[name] is array for name, array in cache.states.items())
        ):
            kept = {*cache.states, *cache.source, "attention_mask"}
            own = {name: array.copy() for name, array in feeds.items() if name not in kept}
            cache.decode_step = DecodeStep(output, feeds | own, cache.states, tokens.shape)
        return result

    def _feeds(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> dict[str, Any]:
        """Feeds of a run over tokens that the cache already includes."""
        before, given = cache.length, self._token_feeds(tokens, cache)
        capacity = (
            capacity_for(max(before + tokens.shape[1], cache.expected_length), self.initial_capacity)
            if self._fixed
            else before + tokens.shape[1]
        )
        mask_buffer = np.ones(tokens.shape[:2], np.int64) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        counted = cache.append(mask_buffer, capacity)
        if self._fixed:
            self.session(output)
            dtypes = self._dtypes[output]
            for value in self._states:
                held, dtype = cache.states[value.name], dtypes[value.name]
                shape = state_shape(value, len(tokens), capacity, tokens.shape[1], held.shape)
                if held.shape != shape or held.dtype != dtype:
                    array = held if isinstance(held, np.ndarray) else held.numpy()
                    cache.states[value.name] = resized(array.astype(dtype, copy=False), value, shape, before)
        stated = None if positions is None else np.atleast_2d(np.asarray(positions, np.int64))
        feeds = {
            **given,
            "attention_mask": cache.mask_buffer,
            "position_ids": self._position_feed(counted) if stated is None else stated,
            CACHE_POSITION: np.full(len(tokens), before, np.int64),
        }
        return {name: array for name, array in feeds.items() if name in self._names} | cache.source | cache.states

    def _results(self, session: Session, names: list[str], feeds: dict[str, Any]) -> list[Any]:
        if not session.on_device:
            return session.run(names, feeds)
        found = dict(
            zip((value.name for value in session.get_outputs()), session.run_on_device(feeds, move=False), strict=True)
        )
        return [found[name] for name in names]

    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        stream: Literal[False] = False,
        max_new_tokens: int | None = None,
        draft: LanguageModel | None = None,
        speculate: int | None = None,
        **sampling: Any,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        stream: Literal[True],
        max_new_tokens: int | None = None,
        draft: LanguageModel | None = None,
        speculate: int | None = None,
        **sampling: Any,
    ) -> Iterator[str]: ...
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        stream: bool = False,
        max_new_tokens: int | None = None,
        draft: LanguageModel | None = None,
        speculate: int | None = None,
        **sampling: Any,
    ) -> str | Iterator[str]:
        """The text that follows a prompt (text or ids).

        Args:
            max_tokens, max_new_tokens: limit of generated tokens, 128 by default; two names for one option.
            stop: strings that end the text and are left out of it.
            context: limit of tokens including the prompt; None for the model's context length.
            stream: whether to return an iterator of text pieces instead of the full text.
            draft: a smaller model with the same vocabulary that proposes tokens, which one run of this model verifies
                (speculative decoding): the greedy text, and the distribution of a sampled one, are as without it.
            speculate: limit of tokens proposed per step, 4 by default; without a draft, of those that followed an
                earlier occurrence of the last tokens (prompt lookup); 0 for none.
            sampling: options of `Sampling`: temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed.

        Raises UsageError for an unknown option, one out of range, a prompt longer than the context, a draft of another
        vocabulary, and speculation with recurrent states; with `stream`, before the first piece.
        """
        from .request import requested, token_limit

        self._check_generates()
        limit = token_limit(max_tokens, max_new_tokens)
        request = requested(self._encode, [prompt], limit, stop, context, sampling)
        found = self._pieces(request, None, draft, speculate, None)
        return (text for _, text in found) if stream else "".join(text for _, text in found)

    @memory_limited
    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] | str = (),
        context: int | None = None,
        on_text: Callable[[int, str], None] | None = None,
        timing: Timing | None = None,
        max_new_tokens: int | None = None,
        grammar: Grammar | None = None,
        draft: LanguageModel | None = None,
        speculate: int | None = None,
        **sampling: Any,
    ) -> list[Generation]:
        """As `generate`, for several prompts at once, by the engine of continuous batching where `can_batch`; each
        sequence is as if generated alone, up to rounding.

        Args:
            on_text: called with the index of a sequence and its next text.
            timing: filled in.
            grammar: that all texts follow, as `batching.grammar.GrammarCompiler` makes it.
            draft, speculate: as of `generate`.
        """
        from .generate import written
        from .request import requested, token_limit

        self._check_generates()
        limit = token_limit(max_tokens, max_new_tokens)
        request = requested(self._encode, prompts, limit, stop, context, sampling)
        return written(self._pieces(request, grammar, draft, speculate, timing), on_text)

    def _pieces(
        self,
        request: Request,
        grammar: Grammar | None,
        draft: LanguageModel | None,
        speculate: int | None,
        timing: Timing | None,
    ) -> Generator[tuple[int, str], None, list[Generation]]:
        """The texts of a request, as `generate.pieces`; by the engine where it is needed, and for several prompts that
        can be batched."""
        together = self.options.pieces_together
        speculates = draft is not None or bool(speculate)
        if together is not None and (
            grammar is not None or speculates or (len(request.prompts) > 1 and self.can_batch)
        ):
            made: Generator[tuple[int, str], None, list[Generation]] = together(
                self, request, grammar, draft, speculate, timing
            )
            return made
        if grammar is not None or speculates:
            what = "follow grammars" if grammar is not None else "speculate"
            raise UsageError("E-ENGINE-MODEL", None, f"only models that were loaded by path {what}")
        from .generate import pieces

        return pieces(self, self.tokenizer, request, timing=timing)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return super().verbs if self.task not in ("", TEXT_GENERATION) else ("generate",)

    def _check_generates(self) -> None:
        if "generate" not in self.verbs:
            raise cannot(self, "generate")

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """The `count` most probable next tokens, one after another."""
        cache, tokens = self.start(1), list(ids)
        while len(tokens) < len(ids) + count:
            tokens.append(int(self.advance([tokens[cache.length :]], cache)[0].argmax()))
        return tokens[len(ids) :]


def _fetched(result: Any) -> Any:
    return result if isinstance(result, np.ndarray) else result.numpy()


def _has_narrow_weights(graph: Graph) -> bool:
    """Whether matrices are stored in fewer bits than f32."""
    return any(
        tensor.qtype is not None or tensor.dtype in (F16, BF16)
        for tensor in graph.weights.values()
        if len(tensor.shape) > 1
    )

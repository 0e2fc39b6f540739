"""A language model that runs: its graph in sessions, and the states that one run hands to the next."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ...runtime.copies import copied_graph
from ...runtime.dtype import BF16, F16
from ...runtime.errors import UsageError
from ...runtime.graph import Dim, Graph, Value
from ...runtime.lengths import FEW, LENGTHS
from ...runtime.nearest import did_you_mean
from ...runtime.passes.narrow_cache import NarrowCache
from ...runtime.passes.needed_rows import NeededRows
from ...runtime.session import Session
from ...runtime.shortage import memory_limited
from ...runtime.units import human_count
from ..layers.window import needed, window_of
from .cache import PLACE, Cache, Decoding, grown, turned
from .pieces import MOST, SHORT, piece

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .generating import Generation, Timing
    from .sampling import Sampling
    from .sampling_graph import DeviceSampler
    from .tokenizer import Tokenizer

PAST, PRESENT = "past_", "present_"
LAST = "last_logits"
DEFAULT_TOKENS = 128
"""Tokens that are generated where nothing else is asked for."""
ROOM, MORE = 256, 1024
"""Tokens that a cache of fixed room has room for at first; it grows by doubling, and by `MORE` from there on."""


def is_state(value: Value) -> bool:
    """Whether an input is a state, which an output of the run before it holds; exporters name them ``past_key_values.0.key``."""
    return value.name.startswith(PAST)


def empty_states(inputs: Iterable[Value], batch: int) -> dict[str, np.ndarray]:
    """The states among the inputs of a graph before the first token, by name."""
    return {value.name: np.zeros(_shape(value, batch, 0), _numpy(value)) for value in inputs if is_state(value)}


class LanguageModel:
    """A decoder whose graph has the inputs ``input_ids``, ``attention_mask``, ``position_ids`` and states.

    Args:
        graph: made by `candle_convert.models.load`, or read from an ONNX file whose inputs are named as exporters do.
        threads: threads of one run, all cores where None.
        activations: as of `Session`; None for f32 in `logits` and `step`, and q8 in `advance`, from which text is generated: faster
            by a quarter, and as exact as llama.cpp, which rounds what meets quantized weights too. On the CPU models of narrow weights
            keep keys and values as halves then.
        read: reads the model's tokenizer when it is needed.
        context: the most tokens that the model was trained with, None where that is not known.
        device, device_memory, gpu_layers: as of `Session`; the states of layers on a card stay there from run to run.

    Attributes:
        vocabulary: logits of a token, None where the graph does not say.
    """

    def __init__(
        self, graph: Graph, threads: int | None = None, activations: str | None = None, read: Callable[[], Tokenizer] | None = None,
        context: int | None = None, device: str = "cpu", device_memory: int | None = None, gpu_layers: int | str | None = None,
    ) -> None:
        self._names = {value.name for value in graph.inputs}
        if "input_ids" not in self._names:
            raise UsageError(
                "E-LM-INPUTS", None, "not a language model: the graph has no input named input_ids",
                found=", ".join(value.name for value in graph.inputs),
            )
        self.graph = graph
        self._states = [value for value in graph.inputs if is_state(value)]
        self._fixed = PLACE in self._names
        results = {value.name for value in graph.outputs}
        self._kept = {value.name: _present(value.name, results) for value in self._states}
        self._output = graph.outputs[0].name
        self._last = LAST if LAST in results else self._output
        self._read = read
        self.context = context
        self.vocabulary = _vocabulary(graph)
        self._options: dict[str, Any] = {
            "threads": threads, "native": True, "device": device, "device_memory": device_memory, "gpu_layers": gpu_layers,
        }  # fmt: skip
        generating = "q8" if self._last != self._output else "f32"
        self._activations = {self._last: activations or generating, self._output: activations or "f32"}
        self._device = device
        self._repeats = self._fixed and device == "cpu"
        self._sessions: dict[str, Session] = {}
        self._dtypes: dict[str, dict[str, np.dtype[Any]]] = {}
        self.session(self._last)

    def __repr__(self) -> str:
        context = "" if self.context is None else f", context {self.context:,}"
        size = f"{human_count(self.graph.parameters)} parameters"
        return f"<{type(self).__name__} {self.graph.arch or self.graph.name}: {size}, {self._device}{context}>"

    def session(self, output: str) -> Session:
        """The session that computes one output, and the states. Sessions of a model share its weights."""
        if output not in self._sessions:
            wanted = {output, *self._kept.values()}
            graph = dataclasses.replace(self.graph, outputs=[value for value in self.graph.outputs if value.name in wanted])
            rounded = self._activations[output] == "q8" and output != self._output and self._options["device"] == "cpu"
            if output == LAST and self._options["device"] == "cpu":
                graph = copied_graph(graph, {}, typed=True)
                NeededRows().run(graph)
            if rounded and _has_narrow_weights(graph):
                graph = copied_graph(graph, {}, typed=True)
                NarrowCache().run(graph)
            self._dtypes[output] = {value.name: _numpy(value) for value in graph.inputs if is_state(value)}
            beside = next(iter(self._sessions.values()), None)
            made = Session(graph, lent=self._kept, beside=beside, activations=self._activations[output], **self._options)
            if made.device == "cpu":
                made.expect(functools.partial(self._expected, output))
            self._sessions[output] = made
        return self._sessions[output]

    def logits(self, ids: ArrayLike, mask: ArrayLike | None = None, positions: ArrayLike | None = None) -> np.ndarray:
        """f32 [batch, length, vocabulary] (or the model's own output) for token ids [batch, length] or [length].

        Args:
            mask: 1 for tokens, 0 for padding; all tokens where None.
            positions: of the tokens; counted along the mask where None.
        """
        return self.step(ids, mask=mask, positions=positions)[0]

    def start(self, batch: int) -> Cache:
        """The cache before the first token."""
        return Cache(empty_states(self._states, batch), batch)

    def copied(self, cache: Cache) -> Cache:
        """Another cache of the same tokens."""
        return cache.copy()

    def rewind(self, cache: Cache, length: int) -> bool:
        """Let a cache forget all but the first `length` tokens; False where its states cannot: recurrent ones, and those of sliding windows."""
        if length == cache.length:
            return True
        axes = {value.name: _growing_axis(value) for value in self._states}
        if length > cache.length or None in axes.values():
            return False
        if not self._fixed:
            if not all(isinstance(array, np.ndarray) for array in cache.states.values()):
                return False
            for name, axis in axes.items():
                cache.states[name] = cache.states[name].take(range(length), axis)
        cache.truncate(length)
        return True

    def run_states(self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None) -> None:
        """Let a cache see some more tokens, as rank 0 does when it computes `output`."""
        self._run(output, tokens, cache, mask, positions)

    @memory_limited
    def step(
        self, ids: ArrayLike, cache: Cache | None = None, mask: ArrayLike | None = None, positions: ArrayLike | None = None
    ) -> tuple[np.ndarray, Cache]:
        """The output for some more tokens, and the cache that has seen them too; the one that is given stays as it is."""
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        cache = self.start(len(tokens)) if cache is None else self.copied(cache)
        found: np.ndarray = _fetched(self._run(self._output, tokens, cache, mask, positions))
        return found, cache

    def advance(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> np.ndarray:
        """f32 [batch, vocabulary], the logits behind some more tokens, which `cache` has seen afterwards."""
        found: np.ndarray = _fetched(self.advance_there(ids, cache, mask))
        return found[:, -1]

    @memory_limited
    def advance_there(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> Any:
        """As `advance`, but [batch, length, vocabulary] where the model runs: an array of the device. Long prompts are taken piece by piece."""
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        count = tokens.shape[1]
        size = piece(count, SHORT if self._fixed and self._device == "cpu" else MOST)
        if count <= size:
            return self._run(self._last, tokens, cache, mask, None)
        marks = None if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        cache.awaited = cache.length + count
        for start in range(0, count, size):
            part = None if marks is None else marks[:, start : start + size]
            found = self._run(self._last, tokens[:, start : start + size], cache, part, None)
        return found

    def sampler(self, sampling: Sampling, batch: int, vocabulary: int | None) -> DeviceSampler | None:
        """What chooses tokens where the logits are (`advance_there`), None where that is the CPU. Logits from `vocabulary` on are of no tokens."""
        count = vocabulary or self.vocabulary
        if count is None or self._device == "cpu" or self._options["gpu_layers"] is not None:
            return None
        from .sampling_graph import DeviceSampler

        return DeviceSampler(sampling, batch, count, device=self._device)

    def prepare(self) -> None:
        """Compile what prompts of all lengths need, and the tokens behind them; on the CPU."""
        for output in dict.fromkeys((self._last, self._output)):
            self.session(output).prepare(self._feeds(output, np.zeros((1, 1), np.int64), self.start(1), None, None))

    def _expected(self, output: str) -> Iterator[dict[str, Any]]:
        """What runs over prompts of several lengths, and over the token behind each, are fed."""
        for batch, lengths in ((1, LENGTHS), (2, FEW)):
            for length in (length for length in lengths if self.context is None or length < self.context):
                cache = self.start(batch)
                yield self._feeds(output, np.zeros((batch, length), np.int64), cache, None, None)
                if not self._fixed:
                    cache.states = {value.name: np.zeros(_shape(value, batch, length), _numpy(value)) for value in self._states}
                yield self._feeds(output, np.zeros((batch, 1), np.int64), cache, None, None)

    def _run(self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None) -> Any:
        session, decoding = self.session(output), cache.decoding
        plain = mask is None and positions is None
        if plain and decoding is not None and decoding.fits(output, tokens, cache):
            decoding.run = decoding.run or session.repeated(output, decoding.feeds)
            if decoding.run is not None:
                decoding.feed(tokens, cache)
                return decoding.run()
            self._repeats = False
        feeds = self._feeds(output, tokens, cache, mask, positions)
        result, *states = self._results(session, [output, *self._kept.values()], feeds)
        cache.states = dict(zip(self._kept, states, strict=True))
        cache.decoding = None
        if plain and self._repeats and tokens.shape[1] == 1 and all(feeds[name] is array for name, array in cache.states.items()):
            own = {name: feeds[name].copy() for name in ("input_ids", "position_ids", PLACE) if name in feeds}
            cache.decoding = Decoding(output, feeds | own, cache.states)
        return result

    def _feeds(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> dict[str, Any]:
        """What a run over some more tokens is fed; the cache has marked them."""
        before = cache.length
        room = _room(max(before + tokens.shape[1], cache.awaited)) if self._fixed else before + tokens.shape[1]
        marks = np.ones_like(tokens) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))
        counted = cache.mark(marks, room)
        if self._fixed:
            self.session(output)
            dtypes = self._dtypes[output]
            for value in self._states:
                held, dtype = cache.states[value.name], dtypes[value.name]
                shape = _shape(value, len(tokens), room, tokens.shape[1], held.shape)
                if held.shape != shape or held.dtype != dtype:
                    array = held if isinstance(held, np.ndarray) else held.numpy()
                    cache.states[value.name] = _fitted(array.astype(dtype, copy=False), value, shape, before)
        places = counted if positions is None else np.atleast_2d(np.asarray(positions, np.int64))
        feeds = {"input_ids": tokens, "attention_mask": cache.marks, "position_ids": places, PLACE: np.array(before, np.int64)}
        return {name: array for name, array in feeds.items() if name in self._names} | cache.states

    def _results(self, session: Session, names: list[str], feeds: dict[str, Any]) -> list[Any]:
        if session.device == "cpu":
            return session.run(names, feeds)
        found = dict(zip((value.name for value in session.get_outputs()), session.run_on_device(feeds, move=False), strict=True))
        return [found[name] for name in names]

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back. UsageError where the model came without one."""
        if self._read is None:
            raise UsageError("E-LM-TOKENIZER", None, "this model came without a tokenizer", hint="Load it by its path, or work with ids")
        return self._read()

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, max_tokens: int | None = None, stop: Sequence[str] | str = (), context: int | None = None,
        stream: Literal[False] = False, max_new_tokens: int | None = None, **sampling: Any,
    ) -> str: ...
    @overload
    def generate(
        self, prompt: str | Sequence[int], *, max_tokens: int | None = None, stop: Sequence[str] | str = (), context: int | None = None,
        stream: Literal[True], max_new_tokens: int | None = None, **sampling: Any,
    ) -> Iterator[str]: ...
    def generate(
        self, prompt: str | Sequence[int], *, max_tokens: int | None = None, stop: Sequence[str] | str = (), context: int | None = None,
        stream: bool = False, max_new_tokens: int | None = None, **sampling: Any,
    ) -> str | Iterator[str]:
        """The text that follows a prompt, a text or ids.

        Args:
            max_tokens, max_new_tokens: the most tokens to generate, 128 by default; two names for one number.
            stop: texts that end it and are left out.
            context: the most tokens with the prompt's; what the model was trained with where None.
            stream: whether to give an iterator of pieces of the text as they are generated, instead of the whole text.
            sampling: as `Sampling` has them: temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed.

        Raises UsageError for an unknown option, one out of range, and a prompt longer than the context; before the first piece with `stream`.
        """
        from .generating import pieces

        request = self._request([prompt], stop, _count(max_tokens, max_new_tokens), sampling)
        found = pieces(self, self.tokenizer, **request, context=context)
        return (text for _, text in found) if stream else "".join(text for _, text in found)

    @memory_limited
    def generate_batch(
        self, prompts: Sequence[str | Sequence[int]], *, max_tokens: int | None = None, stop: Sequence[str] | str = (), context: int | None = None,
        on_text: Callable[[int, str], None] | None = None, timing: Timing | None = None, max_new_tokens: int | None = None, **sampling: Any,
    ) -> list[Generation]:
        """As `generate`, for several prompts side by side; each sequence is the one that it would be alone, but for rounding.

        Args:
            on_text: is given the number of a sequence and the next text of it.
            timing: is filled in.
        """
        from .generating import generate

        request = self._request(prompts, stop, _count(max_tokens, max_new_tokens), sampling)
        return generate(self, self.tokenizer, **request, context=context, on_text=on_text, timing=timing)

    def _request(self, prompts: Sequence[str | Sequence[int]], stop: Sequence[str] | str, count: int, sampling: dict[str, Any]) -> dict[str, Any]:
        """What `generating` takes: ids, stop strings, the number of tokens and `Sampling`; UsageError for an unknown option."""
        from .sampling import Sampling

        known = {field.name for field in dataclasses.fields(Sampling)}
        if unknown := [name for name in sampling if name not in known]:
            hint = did_you_mean(unknown[0], (*known, "max_tokens", "stop", "context", "stream"), f"Options: {', '.join(sorted(known))}")
            raise UsageError("E-SAMPLE-OPTION", None, f"unknown option {unknown[0]!r}", hint=hint)
        ids = [self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(map(int, prompt)) for prompt in prompts]
        stops = [stop] if isinstance(stop, str) else list(stop)
        return {"prompts": ids, "stop": stops, "max_tokens": count, "sampling": Sampling(**sampling)}

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """The `count` likeliest next tokens, one after another."""
        cache, tokens = self.start(1), list(ids)
        while len(tokens) < len(ids) + count:
            tokens.append(int(self.advance([tokens[cache.length :]], cache)[0].argmax()))
        return tokens[len(ids) :]


def _count(max_tokens: int | None, max_new_tokens: int | None) -> int:
    """The most tokens to generate, by either name."""
    if max_tokens is not None and max_new_tokens is not None and max_tokens != max_new_tokens:
        raise UsageError("E-SAMPLE-OPTION", None, "max_tokens and max_new_tokens are one option", expected=max_tokens, found=max_new_tokens)
    count = max_tokens if max_tokens is not None else max_new_tokens
    return DEFAULT_TOKENS if count is None else count


def _fetched(result: Any) -> Any:
    return result if isinstance(result, np.ndarray) else result.numpy()


def _vocabulary(graph: Graph) -> int | None:
    """Rows of the weight that tokens are looked up in."""
    ids = graph.values.get("input_ids")
    weight = next((node.inputs[0] for node in graph.nodes if node.op.name == "Gather" and len(node.inputs) > 1 and node.inputs[1] is ids), None)
    held = graph.weights.get(weight.name) if weight is not None else None
    return held.shape[0] if held is not None and held.shape else None


def _has_narrow_weights(graph: Graph) -> bool:
    """Whether matrices are stored in fewer bits than f32 has."""
    return any(tensor.qtype is not None or tensor.dtype in (F16, BF16) for tensor in graph.weights.values() if len(tensor.shape) > 1)


def _room(length: int) -> int:
    return max(ROOM, 1 << (length - 1).bit_length()) if length <= MORE else -(-length // MORE) * MORE


def _shape(value: Value, batch: int, room: int, count: int = MOST, held: Sequence[int] = ()) -> tuple[int, ...]:
    """Shape of a state that has room for so many tokens; a ring has it for what `count` tokens of a run see, and stays as long as it is held."""
    assert value.shape is not None
    first, *rest = value.shape
    lengths = (_length(dim, room, count, before) for dim, before in itertools.zip_longest(rest, held[1:], fillvalue=0))
    return (batch if isinstance(first, str) else first or batch, *lengths)


def _growing_axis(value: Value) -> int | None:
    """The axis of a state along which its tokens lie, all of them; None for states of another kind."""
    assert value.shape is not None
    axes = [axis for axis, dim in enumerate(value.shape) if axis and not isinstance(dim, int)]
    return axes[0] if len(axes) == 1 and window_of(value.shape[axes[0]]) is None else None


def _length(dim: Dim, room: int, count: int, held: int) -> int:
    if isinstance(dim, int):
        return dim
    window = window_of(dim)
    return room if window is None else max(held, min(room, needed(window, max(count, MOST))))


def _fitted(held: np.ndarray, value: Value, shape: tuple[int, ...], seen: int) -> np.ndarray:
    """A state behind `seen` tokens with room for more."""
    assert value.shape is not None
    axis = next((axis for axis, dim in enumerate(value.shape) if axis and window_of(dim) is not None), None)
    return grown(held, shape) if axis is None else turned(held, axis, shape[axis], seen)


def _present(name: str, results: set[str]) -> str:
    rest = name.removeprefix(PAST)
    for spelled in (PRESENT + rest, PRESENT.rstrip("_") + rest.removeprefix("key_values")):
        if spelled in results:
            return spelled
    raise UsageError("E-LM-STATE", None, f"no output of the model gives what the input {name} takes", expected=PRESENT + rest)


def _numpy(value: Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return value.dtype.as_numpy()

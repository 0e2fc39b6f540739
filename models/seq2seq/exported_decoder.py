"""The decoder of an exported encoder-decoder: ONNX files as Optimum writes them, with growing keys and values.

There are two layouts. ``decoder_model_merged`` computes with and without a cache, by its input ``use_cache_branch``.
``decoder_model`` computes without one, ``decoder_with_past_model`` with one. Without the latter, all tokens are run
again for each new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import RunOptions
from ...runtime.ir.clone import copied_graph
from ...runtime.ir.graph import Graph, Value
from ...runtime.session import Session
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_states import is_state, numpy_dtype, output_of
from ..generation.kv_cache import Cache
from ..pipelines.task_model import opened
from ..postprocess.finite_results import finite
from .decoder import OTHER, SOURCE_HIDDEN, SOURCE_MASK, SWITCH

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LOGITS, TOKENS = "logits", "input_ids"


class ExportedDecoder:
    """A decoder of one or two graphs.

    Args:
        graph: runs without a cache; with one too, where it has the input ``use_cache_branch``.
        with_past: runs with a cache, None for the same graph.
        options: threads, device and activations.

    Attributes:
        vocabulary: logits of a token, None where the graph does not say.
        threads: threads of one run, all cores where None.

    Raises UsageError for a graph that is not such a decoder.
    """

    can_rewind = False

    def __init__(self, graph: Graph, with_past: Graph | None, options: RunOptions) -> None:
        self.graph = graph
        self._options, self.threads = options, options.threads
        self._merged = any(value.name == SWITCH for value in graph.inputs)
        self._first = _switched(graph, False) if self._merged else graph
        self._with_past = _switched(graph, True) if self._merged else with_past
        path = graph.files[0] if graph.files else None
        for each in (graph, self._with_past):
            if each is not None and LOGITS not in {value.name for value in each.outputs}:
                raise UsageError("E-MODEL-OUTPUT", path, "the decoder has no logits", expected=LOGITS)
        self._kept = {} if self._with_past is None else self._states(self._with_past, path)
        self._sessions: dict[bool, Session] = {}
        shape = next(value.shape for value in graph.outputs if value.name == LOGITS)
        self.vocabulary = shape[-1] if shape and isinstance(shape[-1], int) else None

    def _states(self, with_past: Graph, path: str | None) -> dict[str, str]:
        """The output of a run without a cache that each state is, by the state's name."""
        first = {value.name for value in self.graph.outputs}
        found = {value.name: output_of(value.name, first) for value in with_past.inputs if is_state(value)}
        if not found:
            raise UsageError("E-LM-STATE", path, "the decoder has no past keys and values", expected="past_key_values")
        return found

    def source(
        self, hidden: np.ndarray, mask: np.ndarray | None, key_values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The encoder outputs that the decoder reads."""
        return {SOURCE_HIDDEN: hidden, **({} if mask is None else {SOURCE_MASK: mask})}

    def start(self, batch: int, source: Mapping[str, np.ndarray]) -> Cache:
        """An empty cache of `batch` rows, of which each text has as many."""
        texts = len(source[SOURCE_HIDDEN])
        return Cache({}, batch, {name: array.repeat(batch // texts, 0) for name, array in source.items()})

    def select(self, cache: Cache, parents: Sequence[int] | np.ndarray, rows: int) -> None:
        """Continue row ``parents[i]`` of a cache in row i."""
        chosen = np.asarray(parents)
        if len(chosen) == len(cache.mask_buffer) and (chosen == np.arange(len(chosen))).all():
            return
        cache.states = {name: array[chosen] for name, array in cache.states.items()}
        cache.source = {name: array[chosen] for name, array in cache.source.items()}
        cache.mask_buffer, cache.token_counts = cache.mask_buffer[chosen], cache.token_counts[chosen]

    def advance(self, ids: ArrayLike, cache: Cache) -> np.ndarray:
        """Logits f32 [batch, vocabulary] after further tokens, which are appended to `cache`."""
        last: np.ndarray = self._run(np.atleast_2d(np.asarray(ids, np.int64)), cache)[:, -1]
        return last.astype(np.float32, copy=False)

    def advance_each(self, ids: ArrayLike, cache: Cache) -> np.ndarray:
        """Logits f32 [batch, length, vocabulary] after each of further tokens, which are appended to `cache`."""
        found: np.ndarray = self._run(np.atleast_2d(np.asarray(ids, np.int64)), cache)
        return found.astype(np.float32, copy=False)

    def rewind(self, cache: Cache, length: int) -> bool:
        """False: nothing says which axis of a state counts tokens."""
        return False

    def step(self, ids: ArrayLike, cache: Cache, mask: ArrayLike | None = None) -> tuple[np.ndarray, Cache]:
        """Logits [batch, length, vocabulary] of further tokens, and the cache that includes them.

        Raises UsageError for a mask with padding before a token: such files have no mask of the decoder's tokens;
        UnsupportedError if the model computes NaN or infinity.
        """
        if mask is not None and (np.diff(np.atleast_2d(np.asarray(mask, np.int64)), axis=1) > 0).any():
            raise UsageError(
                "E-RUN-INPUT", None, "exported decoders take no mask", expected="padding behind the decoder's tokens"
            )
        cache = cache.copy()
        logits = self._run(np.atleast_2d(np.asarray(ids, np.int64)), cache)
        finite([logits], [LOGITS], masked=False)
        return logits, cache

    def _run(self, tokens: np.ndarray, cache: Cache) -> np.ndarray:
        """Logits of tokens, which are appended to the cache."""
        first = not cache.length
        graph = self._first if first or self._with_past is None else self._with_past
        if self._with_past is None:
            tokens = cache.states[TOKENS] = np.concatenate([cache.states.get(TOKENS, tokens[:, :0]), tokens], 1)
        feeds = {TOKENS: tokens, **cache.source}
        given = {
            value.name: feeds[value.name] if value.name in feeds else self._past(value, cache, len(tokens))
            for value in graph.inputs
            if value.name not in graph.weights
        }
        outputs = [value.name for value in graph.outputs]
        found = dict(zip(outputs, self._session(first, graph).run(None, given), strict=True))
        new = tokens.shape[1] - (cache.length if self._with_past is None else 0)
        cache.append(np.ones((len(tokens), new), np.int64), cache.length + new)
        for name, output in self._kept.items():
            if first or f".{OTHER}." not in name:
                cache.states[name] = found[output]
        logits: np.ndarray = found[LOGITS]
        return logits[:, -new:]

    def _past(self, value: Value, cache: Cache, batch: int) -> np.ndarray:
        """A state; of an empty cache one row of zeros, which a merged decoder ignores, as Optimum passes it."""
        if value.name in cache.states:
            return cache.states[value.name]
        if not is_state(value) or value.shape is None:
            expected = f"{TOKENS}, {SOURCE_HIDDEN}, {SOURCE_MASK}, past_key_values"
            raise UsageError("E-MODEL-INPUT", None, f"unknown input {value.name!r} of the decoder", expected=expected)
        shape = [batch, *(dim if isinstance(dim, int) else 1 for dim in value.shape[1:])]
        return np.zeros(shape, numpy_dtype(value))

    def _session(self, first: bool, graph: Graph) -> Session:
        first = first or self._with_past is None
        if first not in self._sessions:
            beside = next(iter(self._sessions.values()), None) if self._merged else None
            self._sessions[first] = opened(graph, self._options, shares_weights_with=beside)
        return self._sessions[first]


def _switched(graph: Graph, cached: bool) -> Graph:
    """A merged decoder that runs only with a cache, or only without one."""
    made = copied_graph(graph, {}, typed=True)
    made.inputs = [value for value in made.inputs if value.name != SWITCH]
    made.weights[SWITCH] = StoredTensor.of(np.array([cached]))
    return made

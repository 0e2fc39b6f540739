"""A language model that runs: its graph in a session, and the states that one run hands to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.errors import UsageError
from ...runtime.graph import Graph, Value
from ...runtime.session import Session

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

PAST, PRESENT = "past_", "present_"
PLACE, TOTAL = "cache_position", "total_sequence_length"
ROOM = 256
"""Tokens by which a cache of fixed room grows."""


def is_state(value: Value) -> bool:
    """Whether an input is a state, which an output of the run before it holds; exporters name them ``past_key_values.0.key``."""
    return value.name.startswith(PAST)


class Cache:
    """What a model remembers of the tokens that it has seen.

    Attributes:
        states: by the names of the model's inputs.
        mask: int64 [batch, length]: 1 for tokens, 0 for padding.
    """

    def __init__(self, states: dict[str, np.ndarray], mask: np.ndarray) -> None:
        self.states = states
        self.mask = mask

    @property
    def length(self) -> int:
        """Tokens and padding so far."""
        return int(self.mask.shape[1])


class LanguageModel:
    """A decoder whose graph has the inputs ``input_ids``, ``attention_mask``, ``position_ids`` and states.

    Args:
        graph: made by `candle_convert.models.load`, or read from an ONNX file whose inputs are named as exporters do.
        threads: threads of one run, all cores where None.
    """

    def __init__(self, graph: Graph, threads: int | None = None) -> None:
        names = [value.name for value in graph.inputs]
        if "input_ids" not in names:
            raise UsageError("E-LM-INPUTS", None, "the model is no language model: it has no input input_ids", found=", ".join(names))
        self.graph = graph
        self.session = Session(graph, threads=threads, native=True)
        self._states = [value for value in graph.inputs if is_state(value)]
        self._fixed = PLACE in names
        results = {value.name for value in graph.outputs}
        self._kept = {value.name: _present(value.name, results) for value in self._states}
        self._output = graph.outputs[0].name

    def logits(self, ids: ArrayLike, mask: ArrayLike | None = None, positions: ArrayLike | None = None) -> np.ndarray:
        """f32 [batch, length, vocabulary] (or the model's own output) for token ids [batch, length] or [length].

        Args:
            mask: 1 for tokens, 0 for padding; all tokens where None.
            positions: of the tokens; counted along the mask where None.
        """
        return self.step(ids, mask=mask, positions=positions)[0]

    def start(self, batch: int) -> Cache:
        """The cache before the first token."""
        states = {value.name: np.zeros(self._shape(value, batch, 0), _numpy(value)) for value in self._states}
        return Cache(states, np.zeros((batch, 0), np.int64))

    def step(
        self, ids: ArrayLike, cache: Cache | None = None, mask: ArrayLike | None = None, positions: ArrayLike | None = None
    ) -> tuple[np.ndarray, Cache]:
        """The output for some more tokens, and the cache that has seen them too; the one that is given stays as it is."""
        tokens = np.atleast_2d(np.asarray(ids, np.int64))
        cache = cache or self.start(len(tokens))
        whole = np.concatenate([cache.mask, np.ones_like(tokens) if mask is None else np.atleast_2d(np.asarray(mask, np.int64))], axis=1)
        places = np.maximum(whole.cumsum(1) - 1, 0)[:, cache.length :] if positions is None else np.atleast_2d(np.asarray(positions, np.int64))
        feeds = {"input_ids": tokens, "attention_mask": whole, "position_ids": places, **cache.states}
        if self._fixed:
            room = -(-whole.shape[1] // ROOM) * ROOM
            feeds |= {value.name: _grown(cache.states[value.name], self._shape(value, len(tokens), room)) for value in self._states}
            feeds |= {"attention_mask": _grown(whole, (len(tokens), room)), PLACE: np.array(cache.length, np.int64)}
        known = {value.name for value in self.graph.inputs}
        found = self.session.run([self._output, *self._kept.values()], {name: array for name, array in feeds.items() if name in known})
        return found[0], Cache(dict(zip(self._kept, found[1:], strict=True)), whole)

    def _shape(self, value: Value, batch: int, room: int) -> tuple[int, ...]:
        """Shape of a state that has room for so many tokens."""
        assert value.shape is not None
        first, *rest = value.shape
        return (batch if isinstance(first, str) else first or batch, *(length if isinstance(length, int) else room for length in rest))

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """The `count` likeliest next tokens, one after another."""
        logits, cache = self.step([list(ids)])
        tokens = [int(logits[0, -1].argmax())]
        while len(tokens) < count:
            logits, cache = self.step([[tokens[-1]]], cache)
            tokens.append(int(logits[0, -1].argmax()))
        return tokens


def _present(name: str, results: set[str]) -> str:
    rest = name.removeprefix(PAST)
    for spelled in (PRESENT + rest, PRESENT.rstrip("_") + rest.removeprefix("key_values")):
        if spelled in results:
            return spelled
    raise UsageError("E-LM-STATE", None, f"no output of the model gives what the input {name} takes", expected=PRESENT + rest)


def _numpy(value: Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return value.dtype.as_numpy()


def _grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array`, followed by zeros up to a shape."""
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole

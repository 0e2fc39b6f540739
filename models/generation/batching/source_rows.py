"""Rows of an encoder-decoder: the encoder runs once for each request, the decoder token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ....runtime.ir.graph import Value
from ..beam_search import Limits
from ..decoder_states import numpy_dtype
from ..kv_cache import Cache, zero_padded
from ..request import DEFAULT_TOKENS
from ..token_constraints import TokenConstraints
from .batched_rows import BatchedRows, RowModel
from .request import Request
from .rows import SeparateRows, Start, StepwiseModel, check_length
from .state_arrays import BLOCK

if TYPE_CHECKING:
    from typing import Any

MAX_TARGET = 1024
"""Most tokens of a target text unless more are asked for."""


class Settings(Protocol):
    """Settings of the checkpoint; see `GenerationSettings`."""

    @property
    def start(self) -> int: ...
    @property
    def ends(self) -> tuple[int, ...]: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def constraints(self) -> TokenConstraints: ...


class SourceModel(Protocol):
    """The model interface of these rows; see `EncoderDecoderModel`."""

    @property
    def settings(self) -> Settings: ...
    @property
    def positions(self) -> int | None: ...
    def start(self, input_ids: Sequence[Sequence[int]], *, activations: str) -> Cache: ...


class CrossModel(RowModel, Protocol):
    """A decoder with inputs of the encoder; see `CrossLanguageModel`."""

    def source_values(self) -> list[Value]: ...


class Targets:
    """Begin and end tokens of target texts.

    Args:
        ends: end tokens where the checkpoint states none.
    """

    def __init__(self, model: SourceModel, context: int | None, ends: Sequence[int]) -> None:
        self.model = model
        self.context = min(context or MAX_TARGET, model.positions or context or MAX_TARGET)
        self._ends = model.settings.ends or tuple(ends)

    def check(self, request: Request) -> None:
        """UsageError for a source that is longer than the model's positions."""
        check_length(request, self.model.positions)

    def encoded(self, request: Request) -> Cache:
        """A cache with what the encoder made of a request's source."""
        return self.model.start([list(request.prompt_ids)], activations="q8")

    def start(self, request: Request) -> Start:
        """The decoder's first token, and the checkpoint's limits."""
        settings = self.model.settings
        stated = settings.max_length or DEFAULT_TOKENS + 1
        longest = stated if request.max_tokens is None else request.max_tokens + 1
        return Start(
            [settings.start], 0, Limits(min(longest, self.context), self._ends, settings.constraints), is_text=False
        )


class SeparateSourceRows(SeparateRows):
    """Rows whose caches hold what the encoder made of their source; they run one after another."""

    reads_source = True

    def __init__(self, decoder: StepwiseModel, targets: Targets) -> None:
        super().__init__(decoder, targets.context, targets.encoded)
        self.targets = targets

    def check(self, request: Request) -> None:
        """As `Targets.check`."""
        self.targets.check(request)

    def start(self, row: int, request: Request) -> Start:
        """Run the encoder."""
        super().start(row, request)
        return self.targets.start(request)


class BatchedSourceRows(BatchedRows):
    """Rows that run together; each slot has what the encoder made of its source, padded to the longest one."""

    reads_source = True

    def __init__(self, decoder: CrossModel, targets: Targets, count: int, max_memory: int | None) -> None:
        super().__init__(decoder, count, targets.context, max_memory)
        self.targets = targets
        self._values = decoder.source_values()
        self._count = count
        self._source = {value.name: np.zeros(self._shape(value, BLOCK), numpy_dtype(value)) for value in self._values}

    def check(self, request: Request) -> None:
        """As `Targets.check`, and UsageError for a request that memory never has room for."""
        self.targets.check(request)
        self.check_memory(request)

    def start(self, row: int, request: Request) -> Start:
        """Run the encoder, and keep what it made in a free slot."""
        source = self.targets.encoded(request).source
        chosen = self._free()[0]
        self._empty(chosen)
        for value in self._values:
            array = source[value.name][0]
            axis = self._axis(value)
            length = -(-array.shape[axis - 1] // BLOCK) * BLOCK
            if length > self._source[value.name].shape[axis]:
                self._source[value.name] = zero_padded(self._source[value.name], self._shape(value, length))
            slot = self._source[value.name][chosen]
            slot[...] = 0
            slot[tuple(map(slice, array.shape))] = array
        self._take(chosen, row, request, [])
        return self.targets.start(request)

    def release(self, row: int, *, reusable: bool = True) -> None:
        """Free a row; a target is not a prefix of another one's."""
        super().release(row, reusable=False)

    def _needed(self, request: Request) -> int:
        longest = self.targets.start(request).limits
        assert longest is not None
        return -(-longest.max_length // BLOCK) * BLOCK

    def _axis(self, value: Value) -> int:
        """The axis of the source's tokens."""
        assert value.shape is not None
        return next(axis for axis, dim in enumerate(value.shape) if axis and not isinstance(dim, int))

    def _shape(self, value: Value, length: int) -> tuple[int, ...]:
        assert value.shape is not None
        return (self._count, *(dim if isinstance(dim, int) else length for dim in value.shape[1:]))

    def _inputs(self, first: int, count: int) -> dict[str, Any]:
        return super()._inputs(first, count) | {
            name: array[first : first + count] for name, array in self._source.items()
        }

    def _exchange(self, source: int, target: int) -> None:
        for array in self._source.values():
            array[[source, target]] = array[[target, source]]

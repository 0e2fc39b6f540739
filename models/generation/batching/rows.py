"""Rows of a decoding batch: the interface between the engine and a model, and rows that run one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ..beam_search import Limits
from ..kv_cache import Cache
from .request import Request

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Start:
    """Start of a request in its row.

    Attributes:
        tokens: those of the decoder's sequence so far.
        cached: how many of them the row holds already.
        limits: constraints that the model's settings have; None for none.
        is_text: whether the generated text continues that of the tokens.
    """

    tokens: list[int]
    cached: int = 0
    limits: Limits | None = None
    is_text: bool = True


class Rows(Protocol):
    """States of the requests that run, each in a row of its own; one thread uses them.

    Attributes:
        batched: whether `step` computes all rows in one run; the last token of a prompt is one of its tokens then.
        reads_source: whether prompts are sources that an encoder reads, apart from the decoder's tokens.
        context: most tokens of a row, its prompt included; None for no limit.
        vocabulary: logits of a token, None where the model does not say.
    """

    batched: bool
    reads_source: bool
    vocabulary: int | None

    @property
    def context(self) -> int | None: ...
    def check(self, request: Request) -> None:
        """UsageError for a request that can never begin."""
        ...

    def has_room(self, request: Request) -> bool:
        """Whether a request can begin now if a row is free."""
        ...

    def start(self, row: int, request: Request) -> Start:
        """Begin a request in a free row."""
        ...

    def extend(self, row: int, tokens: Sequence[int]) -> np.ndarray | None:
        """Append tokens of the prompt to a row; logits f32 [vocabulary] after the last, unless rows are batched."""
        ...

    def step(self, rows: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """Append one token to each of some rows; logits f32 [rows, vocabulary]."""
        ...

    def verify(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Append several tokens to each of some rows; logits f32 [tokens, vocabulary] after each token."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Drop all but the first `length` tokens of a row, at most those of one `verify`."""
        ...

    def check_truncates(self) -> None:
        """UsageError for states that keep no earlier tokens to return to."""
        ...

    def warm_up(self, proposed: int) -> Iterator[None]:
        """Plan expected runs, one by one; `proposed`: limit of tokens that `verify` has beyond one."""
        ...

    def release(self, row: int, *, reusable: bool = True) -> None:
        """Free a row; `reusable`: whether its states are those of its tokens."""
        ...


def check_length(request: Request, context: int | None) -> None:
    """UsageError for a prompt that is longer than the context."""
    if context is not None and len(request.prompt_ids) > context:
        raise UsageError(
            "E-LM-CONTEXT",
            None,
            "the prompt is longer than the context",
            expected=f"at most {counted(context, 'token')}",
            found=f"{len(request.prompt_ids):,}",
            hint="Shorten the prompt, or use a larger context",
        )


def no_truncation() -> UsageError:
    """The error for speculation with states that cannot be cut back."""
    return UsageError(
        "E-SPECULATE-STATES",
        None,
        "speculation needs states that can drop rejected tokens; this model's states cannot",
        hint="Generate without --speculate and --draft",
    )


class StepwiseModel(Protocol):
    """The model interface of `SeparateRows`; see `LanguageModel`."""

    @property
    def vocabulary(self) -> int | None: ...
    @property
    def can_rewind(self) -> bool: ...
    def advance(self, ids: ArrayLike, cache: Cache) -> np.ndarray: ...
    def advance_each(self, ids: ArrayLike, cache: Cache) -> np.ndarray: ...
    def rewind(self, cache: Cache, length: int) -> bool: ...


class SeparateRows:
    """Rows with a cache each, which run one after another: for models whose states cannot be batched.

    Args:
        cache_for: makes the cache of a request.
    """

    batched = False
    reads_source = False

    def __init__(self, decoder: StepwiseModel, context: int | None, cache_for: Callable[[Request], Cache]) -> None:
        self.decoder, self._cache_for = decoder, cache_for
        self.context, self.vocabulary = context, decoder.vocabulary
        self._caches: dict[int, Cache] = {}

    def check(self, request: Request) -> None:
        """UsageError for a prompt that the context has no room for."""
        check_length(request, self.context)

    def has_room(self, request: Request) -> bool:
        """Always."""
        return True

    def start(self, row: int, request: Request) -> Start:
        """Begin with a new cache."""
        self._caches[row] = self._cache_for(request)
        return Start(list(request.prompt_ids))

    def extend(self, row: int, tokens: Sequence[int]) -> np.ndarray:
        """One run."""
        logits: np.ndarray = self.decoder.advance(np.array([tokens], np.int64), self._caches[row])[0]
        return logits

    def step(self, rows: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """One run per row."""
        return np.stack([self.extend(row, [token]) for row, token in zip(rows, tokens, strict=True)])

    def verify(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """One run per row."""
        return [
            self.decoder.advance_each(np.array([each], np.int64), self._caches[row])[0]
            for row, each in zip(rows, tokens, strict=True)
        ]

    def truncate(self, row: int, length: int) -> None:
        """Drop all but the first tokens of a row. UsageError for a cache that cannot."""
        if not self.decoder.rewind(self._caches[row], length):
            raise no_truncation()

    def warm_up(self, proposed: int) -> Iterator[None]:
        """Nothing: caches belong to requests."""
        return iter(())

    def check_truncates(self) -> None:
        """UsageError for recurrent and sliding-window states, and for those of a device that grow."""
        if not self.decoder.can_rewind:
            raise no_truncation()

    def release(self, row: int, *, reusable: bool = True) -> None:
        """Drop the cache."""
        del self._caches[row]

"""Rows that run together: the next tokens of all of them meet each weight once, and each attends to its own cache.

A row that ends leaves its cache behind, and a request whose prompt begins like the tokens of any cache takes the common
prefix from it: whole blocks of it stay in memory once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.units import human_size
from .request import Request
from .rows import Start, check_length, no_truncation
from .state_arrays import BLOCK, StateArrays

if TYPE_CHECKING:
    from ....runtime.ir.graph import Value

MAX_RUN = 256
"""Most tokens of a prompt that one run appends."""
SHORT, STEP = 32, 32
"""Tokens of a run over a prompt: powers of two up to `SHORT`, multiples of `STEP` beyond, for few plans."""
LEAST_SHARED = 8
"""Tokens of a prefix that are worth copying."""


class RowModel(Protocol):
    """The model interface of `BatchedRows`; see `LanguageModel`."""

    vocabulary: int | None

    def state_values(self) -> tuple[list[Value], dict[str, np.dtype[Any]]]: ...
    def advance_rows(
        self,
        tokens: np.ndarray,
        before: np.ndarray,
        states: dict[str, np.ndarray],
        others: dict[str, np.ndarray],
        *,
        each: bool = False,
    ) -> np.ndarray: ...


class Slot:
    """Slot of one sequence: its rows in the arrays of states.

    Attributes:
        row: the row that uses it; None for what an ended one has left.
        tokens: those that the states include.
        reserved: tokens that memory is counted for.
        released: when its last row ended.
        written: whether its states may differ from zeros.
        reached: tokens that were written so far, dropped ones included.
    """

    def __init__(self) -> None:
        self.row: int | None = None
        self.tokens: list[int] = []
        self.reserved = 0
        self.released = 0
        self.written = False
        self.reached = 0


class BatchedRows:
    """As of `Rows`.

    Args:
        count: rows.
        context: most tokens of a row.
        max_memory: bytes of all states; None for no limit.

    Raises UsageError if `max_memory` does not hold a block of tokens.
    """

    batched = True
    reads_source = False

    def __init__(self, model: RowModel, count: int, context: int, max_memory: int | None = None) -> None:
        self.model, self.context, self.vocabulary = model, context, model.vocabulary
        values, dtypes = model.state_values()
        self.states = StateArrays(values, dtypes, count, context)
        self._slots = [Slot() for _ in range(count)]
        self._mask = np.ones((count, self.states.capacity), np.int64)
        self._clock = itertools.count(1)
        self._most_tokens = self._tokens_within(max_memory, count)

    def _tokens_within(self, max_memory: int | None, count: int) -> float:
        if max_memory is None or not self.states.token_nbytes:
            return float("inf")
        left = max_memory - count * self.states.row_nbytes
        least = BLOCK * self.states.token_nbytes
        if left < least:
            raise UsageError(
                "E-ENGINE-MEMORY",
                None,
                "the limit of memory is too small for the states",
                expected=f"at least {human_size(count * self.states.row_nbytes + least)}",
                found=human_size(max_memory),
            )
        return left // least * BLOCK

    def _needed(self, request: Request) -> int:
        """Tokens that memory is reserved for."""
        longest = self.context
        if request.max_tokens is not None:
            longest = min(longest, len(request.prompt_ids) + max(request.max_tokens, STEP))
        return -(-longest // BLOCK) * BLOCK

    def check(self, request: Request) -> None:
        """UsageError for a prompt that the context has no room for, and a request that memory never has room for."""
        check_length(request, self.context)
        self.check_memory(request)

    def check_memory(self, request: Request) -> None:
        """UsageError for a request that memory never has room for."""
        needed = self._needed(request)
        if (
            needed > self._most_tokens
        ):  # shared tokens count as well: their first request may end before this one begins
            raise UsageError(
                "E-ENGINE-MEMORY",
                None,
                "the request does not fit the limit of memory",
                expected=f"at most {self._most_tokens:,} tokens",
                found=f"{needed:,}",
                hint="Ask for fewer tokens",
            )

    def has_room(self, request: Request) -> bool:
        """Whether a request can begin now: what ended rows have left makes room where needed."""
        if all(slot.row is not None for slot in self._slots):
            return False
        left = self._most_tokens - self._needed(request) - self._held(self._rows_in_use())
        if left >= 0:
            return True
        _, common = self._longest_prefix(list(request.prompt_ids), self._rows_in_use())
        return left + common // BLOCK * BLOCK >= 0

    def start(self, row: int, request: Request) -> Start:
        """Begin a request with the longest prefix of its prompt that a slot has."""
        prompt = list(request.prompt_ids)
        in_use = self._rows_in_use()
        fits = self._held(in_use) + self._needed(request) <= self._most_tokens
        donor, common = self._longest_prefix(prompt, range(len(self._slots)) if fits else in_use)
        free = self._free()
        if donor in free and (2 * common >= len(self._slots[donor].tokens) or free == [donor]):
            chosen = donor
            self.states.truncate(chosen, common)
        else:
            chosen = min((index for index in free if index != donor), key=lambda index: self._slots[index].released)
            self._empty(chosen)
            if common:
                reached = self._slots[donor].reached
                self.states.copy(donor, chosen, common, reached)
                self._slots[chosen].written = True
                self._slots[chosen].reached = common if self.states.is_linear(reached) else reached
        self._take(chosen, row, request, prompt[:common])
        return Start(prompt, common)

    @property
    def blocks(self) -> int:
        """Blocks of tokens that memory is reserved for; a block that several slots share counts once."""
        return self._held(range(len(self._slots))) // BLOCK

    def _held(self, slots: Sequence[int]) -> int:
        """Tokens that memory is reserved for in some slots."""
        segments = {part.segment for index in slots for part in self.states.parts(index)}
        own = sum(self._slots[index].reserved - self.states.shared(index) for index in slots)
        return own + sum(segment.end - segment.begin for segment in segments)

    def _rows_in_use(self) -> list[int]:
        return [index for index, slot in enumerate(self._slots) if slot.row is not None]

    def _free(self) -> list[int]:
        return [index for index, slot in enumerate(self._slots) if slot.row is None]

    def _take(self, index: int, row: int, request: Request, tokens: list[int]) -> None:
        """Give a slot whose states include `tokens` to a row."""
        slot = self._slots[index]
        slot.row, slot.tokens, slot.reserved = row, tokens, self._needed(request)
        self._make_room()

    def extend(self, row: int, tokens: Sequence[int]) -> None:
        """One run of the row alone, padded as that of `verify`."""
        index = self._index(row)
        slot, count = self._slots[index], len(tokens)
        ids = np.zeros((1, self._padded(count, run_length(count), len(slot.tokens))), np.int64)
        ids[0, :count] = tokens
        self._run(index, ids)
        slot.tokens += tokens

    def step(self, rows: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        """One run of all rows, moved to the first slots."""
        self._gather(rows)
        order = [self._index(row) for row in rows]
        ids = np.zeros((len(rows), 1), np.int64)
        ids[order, 0] = tokens
        logits = self._run(0, ids)
        for index, token in zip(order, tokens, strict=True):
            self._slots[index].tokens.append(token)
        last = logits[:, -1]
        return last if order == list(range(len(order))) else last[order]

    def verify(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """One run of all rows, moved to the first slots. Shorter rows are padded with tokens whose states later ones
        replace, up to few different lengths of a run."""
        self._gather(rows)
        order = [self._index(row) for row in rows]
        longest, before = max(map(len, tokens)), max(len(self._slots[index].tokens) for index in order)
        ids = np.zeros((len(rows), self._padded(longest, verified_length(longest), before)), np.int64)
        for index, each in zip(order, tokens, strict=True):
            ids[index, : len(each)] = each
        logits = self._run(0, ids, each=True)
        for index, each in zip(order, tokens, strict=True):
            self._slots[index].tokens += each
        return [logits[index, : len(each)] for index, each in zip(order, tokens, strict=True)]

    def _padded(self, count: int, wanted: int, before: int) -> int:
        """The length of a run over `count` tokens after `before` others: `wanted` if the states allow padding, and have
        room for it."""
        return count if self.states.recurrent else max(count, min(wanted, self.context - before))

    def warm_up(self, proposed: int) -> Iterator[None]:
        """Plan the runs that requests are expected to need, one by one, while no row is in use.

        Args:
            proposed: limit of tokens that `verify` has beyond one.
        """
        lengths = dict.fromkeys(run_length(count) for count in range(1, MAX_RUN + 1))
        counts = range(2, len(self._slots) + 1)
        verified = dict.fromkeys(verified_length(count) for count in range(2, proposed + 2))
        shapes = [(1, length, False) for length in lengths] + [(count, 1, False) for count in counts]
        for count, length, each in (*shapes, *((1, length, True) for length in verified)):
            slots = self._slots[:count]
            if max(len(slot.tokens) for slot in slots) + length > self.context:
                continue
            if self.states.recurrent and any(slot.written for slot in slots):
                return
            self._run(0, np.zeros((count, length), np.int64), each=each)
            for index, slot in enumerate(slots):
                if not slot.tokens:
                    self._empty(index)
            yield

    def truncate(self, row: int, length: int) -> None:
        """Drop all but the first tokens of a row; ring buffers have room for a run beyond their window."""
        index = self._index(row)
        slot = self._slots[index]
        slot.tokens = slot.tokens[:length]
        self.states.truncate(index, length)

    def check_truncates(self) -> None:
        """UsageError for recurrent states."""
        if self.states.recurrent:
            raise no_truncation()

    def release(self, row: int, *, reusable: bool = True) -> None:
        """Free a row; its states stay for later prompts until their slot is needed, unless they are not `reusable`."""
        index = self._index(row)
        slot = self._slots[index]
        slot.row, slot.released = None, next(self._clock)
        slot.reserved = -(-len(slot.tokens) // BLOCK) * BLOCK
        if not reusable:
            self._empty(index)

    def _run(self, first: int, ids: np.ndarray, *, each: bool = False) -> np.ndarray:
        count = len(ids)
        slots = self._slots[first : first + count]
        for slot in slots:
            slot.written = True
            slot.reached = max(slot.reached, len(slot.tokens) + ids.shape[1])
        before = np.array([len(slot.tokens) for slot in slots], np.int64)
        states, others = self.states.rows(first, count), self._inputs(first, count)
        return self.model.advance_rows(ids, before, states, others, each=each)

    def _inputs(self, first: int, count: int) -> dict[str, np.ndarray]:
        """Inputs of adjacent slots that runs do not change."""
        return {"attention_mask": self._mask[:count]}

    def _index(self, row: int) -> int:
        return next(index for index, slot in enumerate(self._slots) if slot.row == row)

    def _gather(self, rows: Sequence[int]) -> None:
        """Move rows to the first slots."""
        wanted = set(rows)
        outside = [index for index, slot in enumerate(self._slots) if slot.row in wanted and index >= len(rows)]
        others = [index for index in range(len(rows)) if self._slots[index].row not in wanted]
        for source, target in zip(outside, others, strict=True):
            one, other = self._slots[source], self._slots[target]
            self._exchange(source, target)
            lengths = len(one.tokens), len(other.tokens)
            self.states.swap(source, target, lengths, max(one.reached, other.reached))
            if not other.written:
                self.states.clear(source)
            self._slots[source], self._slots[target] = other, one

    def _exchange(self, source: int, target: int) -> None:
        """Exchange the inputs of two slots that runs do not change."""

    def _longest_prefix(self, prompt: list[int], slots: Sequence[int]) -> tuple[int, int]:
        """The one of some slots whose tokens share the longest prefix with a prompt, -1 if none does, and the prefix'
        length; the prompt's last token is always computed."""
        best = (-1, 0)
        for index in slots:
            slot = self._slots[index]
            common = common_prefix(slot.tokens, prompt[:-1])
            if common < len(slot.tokens) and not self._can_truncate(slot.reached):
                continue
            if common > best[1] and common >= LEAST_SHARED:
                best = index, common
        return best

    def _can_truncate(self, length: int) -> bool:
        """Whether states that reached `length` tokens include those after fewer."""
        return not self.states.recurrent and self.states.is_linear(length)

    def _make_room(self) -> None:
        """Empty what ended rows have left, oldest first, until all slots fit the limit."""
        left = sorted((slot.released, index) for index, slot in enumerate(self._slots) if slot.row is None)
        for _, index in left:
            if self._held(range(len(self._slots))) <= self._most_tokens:
                return
            self._empty(index)

    def _empty(self, index: int) -> None:
        if self._slots[index].written:
            self.states.clear(index)
        self._slots[index] = Slot()


def run_length(count: int) -> int:
    """The length of runs over prompts of `count` tokens."""
    return 1 << (count - 1).bit_length() if count <= SHORT else -(-count // STEP) * STEP


def verified_length(count: int) -> int:
    """The length of runs over a token and `count` - 1 proposed ones: 1, 2, 3, 5, 9 ..."""
    return count if count <= 2 else 1 + (1 << (count - 2).bit_length())


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    count = min(len(one), len(other))
    differing = np.flatnonzero(np.array(one[:count], np.int64) != np.array(other[:count], np.int64))
    return int(differing[0]) if len(differing) else count

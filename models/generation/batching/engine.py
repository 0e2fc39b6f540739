"""The engine: decodes the requests of many callers together, each step one token of every running request."""

from __future__ import annotations

import atexit
import contextvars
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from ....runtime.base.compile_progress import Stopwatch
from ....runtime.base.errors import UsageError
from ..generate import CONTEXT, Timing, check_prompts
from ..sampling import Drafted
from .batched_rows import MAX_RUN
from .drafter import Wanted
from .model_rows import BatchModel, decoding_rows
from .request import CANCELLED, ERROR, LENGTH, Handle, Request
from .running import Running
from .speculation import Speculation, speculator_of

PROMPT_TOKENS = 512
"""Tokens of prompts after which running requests get their next token."""
IDLE = 0.25  # seconds without a request after which runs are planned ahead


class Engine:
    """Runs requests on a thread of its own until it is closed; any thread may submit.

    Args:
        model: a text model as `candle_convert.models.load` returns it; only the engine may use it until `close`.
        parallel: most requests that run at the same time; the others wait in order.
        context: most tokens of a request, its prompt included; None for the model's context length, at most
            8,192 tokens where rows are batched.
        max_memory: bytes of the states of all requests; those that it has no room for wait.
        speculation: how tokens are proposed that one run verifies; None to compute one token after another.
        warm_up: whether to plan runs for numbers of requests and lengths of prompts while no request waits.

    Raises UsageError for speculation that the model's states do not allow, and a draft of another vocabulary.

    Attributes:
        timing: of all runs; a request's first token counts for its prompt.
    """

    def __init__(
        self,
        model: BatchModel,
        parallel: int = 16,
        context: int | None = None,
        max_memory: int | None = None,
        speculation: Speculation | None = None,
        *,
        warm_up: bool = False,
    ) -> None:
        if parallel < 1:
            raise UsageError(
                "E-ENGINE-PARALLEL", None, "parallel is out of range", expected="1 or more", found=parallel
            )
        self.tokenizer = model.tokenizer
        self.parallel = parallel
        self._rows = decoding_rows(model, parallel, context, max_memory)
        self.context = self._rows.context
        self._speculator = None if speculation is None else speculator_of(model, self._rows, parallel, speculation)
        proposed = 0 if speculation is None else speculation.limit
        self._warming = self._rows.warm_up(proposed) if warm_up else iter(())
        self._queued: deque[Handle] = deque()
        self._running: list[Running] = []
        self._free = list(range(parallel))[::-1]
        self._changed = threading.Condition()
        self._closing = False
        self._deadline = float("inf")
        self.timing = Timing()
        limits = contextvars.copy_context()
        self._thread = threading.Thread(target=limits.run, args=(self._loop,), name="engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # native code of a thread must not run when the interpreter is gone

    @property
    def batched(self) -> bool:
        """Whether the tokens of running requests are computed in one run; otherwise one after another."""
        return self._rows.batched

    @property
    def queued(self) -> int:
        """Requests that have not begun."""
        return len(self._queued)

    @property
    def running(self) -> int:
        """Requests that have begun and not ended."""
        return len(self._running)

    def submit(self, request: Request) -> Handle:
        """Queue a request. UsageError for an empty prompt, one longer than the context, an unknown token, and after
        `close`."""
        self._check(request)
        handle = Handle(request, self._wake)
        with self._changed:
            if self._closing:
                raise UsageError("E-ENGINE-CLOSED", None, "the engine is closed")
            self._queued.append(handle)
            self._changed.notify()
        return handle

    def close(self, grace: float = 0.0) -> None:
        """Refuse further requests, finish those that were submitted for at most `grace` seconds, cancel the others, and
        end the thread."""
        with self._changed:
            self._closing = True
            self._deadline = min(self._deadline, time.monotonic() + grace)
            self._changed.notify()
        self._thread.join()
        atexit.unregister(self.close)

    def _check(self, request: Request) -> None:
        check_prompts(self._rows.vocabulary, self.tokenizer, [request.prompt_ids])
        count = len(self.tokenizer)  # an embedding may have more rows, which have no text
        for what, ids in (("the prompt", request.prompt_ids), ("logit_bias", request.logit_bias)):
            unknown = next((token for token in ids if not 0 <= token < count), None)
            if unknown is not None:
                why = f"{what} has an unknown token"
                raise UsageError("E-LM-TOKEN", None, why, expected=f"0 to {count - 1}", found=unknown)
        self._rows.check(request)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _loop(self) -> None:
        try:
            while self._wait():
                self._drop_cancelled()
                self._compute_prompts()
                self._decode()
        except Exception as error:  # of the engine itself: nobody may wait for what cannot come
            with self._changed:
                self._closing = True
                left = [*self._queued, *(one.handle for one in self._running)]
                self._queued.clear()
                self._running.clear()
            for handle in left:
                handle.finish(ERROR, error)

    def _wait(self) -> bool:
        """Sleep until there is work; False when the engine is closed and all requests have ended."""
        with self._changed:
            self._changed.wait_for(self._has_work, IDLE)  # planning would delay a caller who asks again at once
        while not self._has_work() and self._warms():
            pass
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._closing and time.monotonic() >= self._deadline:
                for handle in (*self._queued, *(one.handle for one in self._running)):
                    handle.cancelled = True
            return bool(self._queued or self._running)

    def _has_work(self) -> bool:
        return bool(self._queued or self._running or self._closing)

    def _warms(self) -> bool:
        """Plan the next expected run; False after the last."""
        try:
            return next(self._warming, self) is None
        except Exception:  # a request for which the run is needed reports it
            self._warming = iter(())
            return False

    def _drop_cancelled(self) -> None:
        with self._changed:
            for handle in [handle for handle in self._queued if handle.cancelled]:
                self._queued.remove(handle)
                handle.finish(CANCELLED)
        for one in [one for one in self._running if one.handle.cancelled]:
            self._end(one, CANCELLED)

    def _admit(self) -> None:
        """Begin queued requests, in order, until a prompt is to be computed: what it leaves may be a prefix of the
        next one."""
        while self._free and self._queued and not any(one.pending for one in self._running):
            with self._changed:
                if not self._rows.has_room(self._queued[0].request):
                    return
                handle = self._queued.popleft()
            if not self._ends_at_once(handle):
                self._begin(handle)

    def _begin(self, handle: Handle) -> None:
        row, started = self._free.pop(), False
        try:
            start = self._rows.start(row, handle.request)
            started = True
            one = Running(handle, row, start, self.context, self.tokenizer, batched=self.batched)
            if self._speculator is not None:
                self._speculator.begin(row, handle.request)
            self._running.append(one)
        except Exception as error:  # a request that fails must not end the others
            handle.finish(ERROR, error)
            if started:
                self._rows.release(row, reusable=False)
            self._free.append(row)

    def _ends_at_once(self, handle: Handle) -> bool:
        """Whether a request has no room for a token; its handle is finished then."""
        request, is_source = handle.request, self._rows.reads_source
        if request.max_tokens == 0:
            handle.made.reason = LENGTH
        elif not is_source and self.context is not None and len(request.prompt_ids) >= self.context:
            handle.made.reason = CONTEXT
        else:
            return False
        handle.finish(LENGTH)
        return True

    def _compute_prompts(self) -> None:
        """Begin queued requests and compute their prompts, chunk by chunk, until a token of each running request is
        due: tokens of many requests take hardly longer than those of a few."""
        left = PROMPT_TOKENS
        while left > 0:
            self._admit()
            taken = self._prefill()
            if not taken:
                return
            left -= taken

    def _prefill(self) -> int:
        """Compute a chunk of the first prompt that is not complete, and return its tokens; 0 if all prompts are."""
        one = next((one for one in self._running if one.pending), None)
        if one is None:
            return 0
        chunk, one.pending = one.pending[:MAX_RUN], one.pending[MAX_RUN:]
        watch = Stopwatch()
        try:
            logits = self._rows.extend(one.row, chunk)
        except Exception as error:  # as above
            self._end(one, ERROR, error)
            return len(chunk)
        self.timing.prompt_seconds += watch.seconds
        self.timing.prompt_tokens += len(chunk)
        if not one.pending and logits is not None:
            self._choose(one, logits[None])
        return len(chunk)

    def _decode(self) -> None:
        """Compute the next tokens of every request whose prompt is complete."""
        ready = [one for one in self._running if not one.pending]
        if not ready:
            return
        watch = Stopwatch()
        try:
            proposed = self._proposed(ready)
            logits = self._logits(ready, proposed)
        except Exception as error:  # as above; the states of all these rows are unknown
            for one in ready:
                self._end(one, ERROR, error)
            return
        before = sum(len(one.tokens) for one in ready)
        first = sum(not one.handle.made.tokens for one in ready)
        for one, rows, drafted in zip(ready, logits, proposed, strict=True):
            self._choose(one, rows, drafted)
        self.timing.generated_seconds += watch.seconds
        self.timing.prompt_tokens += first
        self.timing.generated_tokens += sum(len(one.tokens) for one in ready) - before - first

    def _proposed(self, ready: Sequence[Running]) -> list[list[Drafted]]:
        """Proposed tokens of each request, within its limits and the room of all of them."""
        if self._speculator is None:
            return [[]] * len(ready)
        room = None if self.context is None else self.context - max(len(one.tokens) for one in ready)
        wanted = []
        for one in ready:
            counts = [count for count in (room, None if one.left is None else one.left - 1) if count is not None]
            wanted.append(Wanted(one.row, one.tokens, min(counts, default=len(one.tokens))))
        return self._speculator.propose(wanted)

    def _logits(self, ready: Sequence[Running], proposed: Sequence[Sequence[Drafted]]) -> Sequence[np.ndarray]:
        """Logits [tokens, vocabulary] of each request, after its last token and after each proposed one."""
        rows = [one.row for one in ready]
        if not any(proposed):
            return list(self._rows.step(rows, [one.tokens[-1] for one in ready])[:, None])
        return self._rows.verify(
            rows,
            [[one.tokens[-1], *(each.token for each in drafted)] for one, drafted in zip(ready, proposed, strict=True)],
        )

    def _choose(self, one: Running, logits: np.ndarray, proposed: Sequence[Drafted] = ()) -> None:
        """Choose tokens from logits [tokens, vocabulary] as long as they are the proposed ones."""
        accepted = 0
        try:
            for row, drafted in itertools.zip_longest(logits, proposed):
                goes_on = one.choose(row, drafted)
                agrees = drafted is not None and one.tokens[-1] == drafted.token
                accepted += agrees
                if not (goes_on and agrees):
                    break
            if proposed:
                self._judge(one, len(proposed), accepted)
        except Exception as error:  # as above
            self._end(one, ERROR, error)
            return
        if not goes_on:
            self._end(one, one.finish_reason)

    def _judge(self, one: Running, proposed: int, accepted: int) -> None:
        """Drop the states of rejected tokens, and count."""
        assert self._speculator is not None
        self._rows.truncate(one.row, len(one.tokens) - 1)
        self._speculator.judge(one.row, proposed, accepted)
        for counts in (self.timing, one.handle.usage):
            counts.drafted_tokens += proposed
            counts.accepted_tokens += accepted

    def _end(self, one: Running, reason: str, error: Exception | None = None) -> None:
        self._rows.release(one.row, reusable=error is None)
        if self._speculator is not None:
            self._speculator.end(one.row)
        self._running.remove(one)
        self._free.append(one.row)
        one.handle.finish(reason, error)

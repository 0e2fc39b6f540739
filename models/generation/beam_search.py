"""Beam search: the most probable continuations of a batch of prompts, several hypotheses a prompt.

The search is that of transformers' `generate(num_beams=N)`. A prompt that is finished leaves the batch.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Value
from ...runtime.session import Session
from ...runtime.tensor.dtype import F32
from .sampling import not_finite
from .token_constraints import TokenConstraints

UNLIKELY = np.float32(-1e9)
"""Score of beams that do not exist yet and of hypotheses that are not candidates."""
NEVER = "never"
MAX_BEAMS = 1024


@dataclass(frozen=True)
class Beams:
    """Settings of beam search: comparison of hypotheses, and end of the search.

    Attributes:
        count: hypotheses that are continued.
        length_penalty: a finished hypothesis scores its log probability / its length ** length_penalty.
        early_stopping: True to end when `count` hypotheses are finished; False to end when none that is continued is
            likely to score better; ``"never"`` to end when none can.
        returned: hypotheses of each prompt that are returned.

    UsageError for values out of range.
    """

    count: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    returned: int = 1

    def __post_init__(self) -> None:
        for name, value, valid, expected in (
            ("beams", self.count, 0 < self.count <= MAX_BEAMS, f"1 to {MAX_BEAMS:,}"),
            ("length_penalty", self.length_penalty, np.isfinite(self.length_penalty), "a finite number"),
            ("early_stopping", self.early_stopping, self.early_stopping in (True, False, NEVER), "true, false, never"),
            ("num_return_sequences", self.returned, 0 < self.returned <= self.count, f"1 to {self.count}, the beams"),
        ):
            if not valid:
                raise UsageError("E-BEAMS", None, f"{name} is out of range", expected=expected, found=value)


@dataclass(frozen=True)
class Limits:
    """Limits of a sequence: its length, ends, and permitted tokens.

    Attributes:
        max_length: length of the longest sequence, its prompt included.
        ends: tokens that end a sequence.
        constraints: constraints on tokens.
    """

    max_length: int
    ends: tuple[int, ...] = ()
    constraints: TokenConstraints = TokenConstraints()


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence.

    Attributes:
        tokens: the generated ones, the end token included.
        score: log probability / length ** length_penalty.
    """

    tokens: list[int]
    score: float


class Step(Protocol):
    """The model that continues sequences."""

    def __call__(self, tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
        """Logits f32 [rows, vocabulary] after one more token of each row; the search overwrites them.

        Args:
            tokens: i64 [rows].
            parents: i64 [rows], for each row the row of the last step that it continues; None if each continues itself.
        """
        ...


class BeamSearch:
    """A search over a batch of prompts. Rows of a step are prompt by prompt the beams of the prompts that are not
    finished.

    Args:
        prompts: i64 [batch, length].
        threads: of a run; None for all cores.
    """

    def __init__(self, prompts: np.ndarray, beams: Beams, limits: Limits, threads: int | None = None) -> None:
        self.beams, self.limits, self._threads = beams, limits, threads
        self.prompt = prompts.shape[1]
        self.sequences = np.repeat(prompts[:, None], beams.count, 1)
        self.scores = np.full((len(prompts), beams.count), UNLIKELY)
        self.scores[:, 0] = 0
        self.searched = np.arange(len(prompts))
        self.finished: list[list[Hypothesis]] = [[] for _ in prompts]

    @property
    def done(self) -> bool:
        """Whether all prompts are finished."""
        return not len(self.searched)

    def continued(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of the next step, i64 [rows], and the row of the last step that each continues, i64 [rows].

        Args:
            logits: f32 [rows, vocabulary], overwritten.
        """
        count, batch = self.beams.count, len(self.searched)
        flat = self.sequences.reshape(batch * count, -1)
        totals = log_totals(logits, self._threads)
        constraints = self.limits.constraints
        if constraints.needs_probabilities(flat.shape[1], self.limits.max_length):
            logits -= totals
            totals = np.zeros_like(totals)
        constraints.apply(logits, flat, prompt=self.prompt, max_length=self.limits.max_length, ends=self.limits.ends)
        scores, parents, tokens = self._candidates(logits, self.scores.reshape(-1, 1) - totals)
        longest = flat.shape[1] + 1 >= self.limits.max_length
        ended = np.ones_like(tokens, bool) if longest else np.isin(tokens, self.limits.ends)
        self._finish(scores, parents, tokens, ended)
        scores = scores + np.where(ended, UNLIKELY, np.float32(0))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        parents, tokens, self.scores = (np.take_along_axis(each, best, 1) for each in (parents, tokens, scores))
        kept = np.take_along_axis(self.sequences, parents[..., None], 1)
        self.sequences = np.concatenate([kept, tokens[..., None]], 2)
        rows = parents + np.arange(batch)[:, None] * count
        open_ones = np.zeros(batch, bool) if longest else self._open()
        self.searched, self.sequences, self.scores = (
            each[open_ones] for each in (self.searched, self.sequences, self.scores)
        )
        return tokens[open_ones].reshape(-1), rows[open_ones].reshape(-1)

    def _candidates(self, logits: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, beams and tokens of the best continuations, [batch, candidates] each: as many as leave enough that
        do not end.

        Args:
            logits: f32 [rows, vocabulary].
            added: to all logits of a row for their scores, f32 [rows, 1].
        """
        beams, vocabulary = self.beams.count, logits.shape[1]
        count = max(2, 1 + len(self.limits.ends)) * beams
        values, tokens = largest(logits, min(count, vocabulary), self._threads)
        scores, tokens = (each.reshape(len(self.searched), -1) for each in (values + added, tokens))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        found = np.take_along_axis(scores, best, 1)
        if not np.isfinite(found[:, 0]).all():
            raise not_finite(str(found[~np.isfinite(found[:, 0]), 0][0]))
        return found, best // (scores.shape[1] // beams), np.take_along_axis(tokens, best, 1)

    def _finish(self, scores: np.ndarray, parents: np.ndarray, tokens: np.ndarray, ended: np.ndarray) -> None:
        """Add what ended among the best to the finished hypotheses of its prompt, and keep the best of these."""
        count = self.beams.count
        length = self.sequences.shape[2] + 1 - self.prompt
        scores = scores / np.float32(length**self.beams.length_penalty)
        for row, index in zip(*np.nonzero(ended[:, :count]), strict=True):
            score = float(scores[row, index])
            if score > UNLIKELY:
                held = self.finished[self.searched[row]]
                before = self.sequences[row, parents[row, index], self.prompt :].tolist()
                held.append(Hypothesis([*before, int(tokens[row, index])], score))
                held.sort(key=lambda one: -one.score)
                del held[count:]

    def _open(self) -> np.ndarray:
        """Whether prompts of this step are unfinished, bool [batch]."""
        generated = self.sequences.shape[2] - self.prompt
        never = self.beams.early_stopping == NEVER and self.beams.length_penalty > 0
        length = self.limits.max_length - self.prompt if never else generated
        possible = self.scores[:, 0] / np.float32(length**self.beams.length_penalty)
        held = [self.finished[prompt] for prompt in self.searched]
        full = np.array([len(each) == self.beams.count for each in held])
        worst = np.array([each[-1].score if each else UNLIKELY for each in held], np.float32)
        if self.beams.early_stopping is True:
            return ~full
        return ~full | (possible > worst)


def beam_search(
    step: Step, logits: np.ndarray, prompts: np.ndarray, beams: Beams, limits: Limits, threads: int | None = None
) -> list[list[Hypothesis]]:
    """The best continuations of each prompt, best first.

    Args:
        step: its first call continues rows of `logits`.
        logits: f32 [batch, vocabulary] after the prompts.
        prompts: i64 [batch, length].
        threads: of the search itself; None for all cores.

    Raises UnsupportedError if the largest logit of a row is not finite.
    """
    search = BeamSearch(prompts, beams, limits, threads)
    tokens, rows = search.continued(np.repeat(logits, beams.count, 0))
    parents, before = rows // beams.count, len(logits)
    while not search.done:
        same = len(parents) == before and (parents == np.arange(before)).all()
        before = len(parents)
        tokens, parents = search.continued(step(tokens, None if same else parents))
    return [held[: beams.returned] for held in search.finished]


def log_totals(logits: np.ndarray, threads: int | None = None) -> np.ndarray:
    """The log-sum-exp of logits f32 [rows, vocabulary], f32 [rows, 1]."""
    (found,) = _kernels(threads, 0).run(None, {LOGITS: logits})
    return found


def largest(logits: np.ndarray, count: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest logits of each row and their tokens, f32 and i64 [rows, count], in descending order."""
    values, tokens = _kernels(threads, count).run(None, {LOGITS: logits})
    return values, tokens


LOGITS = "logits"


@process_cache(maxsize=16)
def _kernels(threads: int | None, count: int) -> Session:
    """A session that computes `largest`, or `log_totals` for a `count` of 0."""
    graph = Graph(name="beam_search")
    graph.values[LOGITS] = Value(LOGITS, F32, ("rows", "vocabulary"))
    graph.inputs.append(graph.values[LOGITS])
    build = Builder(graph)
    name, attributes = ("TopK", {"axis": 1}) if count else ("ReduceLogSumExp", {"keepdims": 1})
    node = build.node(name, [graph.values[LOGITS], build.constant([count or 1])], attributes, outputs=2 if count else 1)
    graph.outputs = list(node.outputs)
    return Session(graph, threads, native=True)

"""Text generation on a cluster: every worker loads the language model, and answers some of the prompts of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...models.generation.batching.grammar import GrammarCompiler
from ...models.generation.batching.offline import generate_all
from ...models.generation.generate import Generation, Timing
from ...runtime.base.dataclass import dataclass
from ..load.load_model import load_language_model
from ..run.prompt_rows import requests_of
from .workers.cluster import Cluster
from .workers.opening import Opening
from .workers.work import Work

PROMPTS = 16
"""Prompts of a piece, which are answered as one batch."""


@dataclass(frozen=True)
class Prompts(Work):
    """Prompts of a file; a piece is the number of its first row, and rows.

    Attributes:
        options: of rows that have none, as of `requests_of`.
        context: most tokens of a prompt and its answer; None for those of the model.
        grammar: ``json_schema`` or ``grammar`` and its text, which all answers follow.
        loading: options of `load`.
    """

    opening: Opening
    options: Mapping[str, Any]
    context: int | None
    grammar: tuple[str, str] | None
    loading: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> tuple[Any, Any]:
        """The model, and the compiled grammar."""
        model = load_language_model(self.opening.graph(whole=True, parts=True), threads=threads, **self.loading)
        if self.grammar is None:
            return model, None
        kind, text = self.grammar
        return model, getattr(GrammarCompiler(model.tokenizer), kind)(text)

    def run(
        self, prepared: tuple[Any, Any], piece: tuple[int, Sequence[Mapping[str, Any]]]
    ) -> tuple[list[Generation], Timing]:
        """The answers, and how long they took."""
        (model, grammar), (first, rows), timing = prepared, piece, Timing()
        requests = requests_of(model, rows, self.options, grammar, first)
        return generate_all(model, requests, self.context or model.context, timing=timing), timing

    def describe(self, piece: tuple[int, Sequence[Mapping[str, Any]]]) -> str:
        return f"prompt {piece[0] + 1}"


def answers_on(
    cluster: Cluster, work: Prompts, rows: Sequence[Mapping[str, Any]], timing: Timing, advance: Callable[[int], object]
) -> list[Generation]:
    """The answers to all rows in order; `timing` gets the sums of all workers."""
    made: list[Generation] = []
    pieces: Iterable[Any] = ((start, rows[start : start + PROMPTS]) for start in range(0, len(rows), PROMPTS))
    for some, measured in cluster.in_order(work, pieces):
        made += some
        for name, value in vars(measured).items():
            setattr(timing, name, getattr(timing, name) + value)
        advance(len(some))
    return made

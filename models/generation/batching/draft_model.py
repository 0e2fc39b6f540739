"""Draft model: a smaller model proposes tokens, which are drawn with the sampling options of each request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..sampling import Drafted, Sampling, distribution
from .batched_rows import MAX_RUN
from .drafter import Wanted
from .request import Request
from .rows import Rows

TOGETHER = 2
"""Most tokens that the runs of several rows append together: all proposed tokens may be accepted, and one follows."""


class DraftModel:
    """A drafter of rows of its own, as of `Drafter`.

    Args:
        rows: as many as the verifying model has.
        known: tokens of the vocabulary; logits beyond are ignored.
    """

    def __init__(self, rows: Rows, known: int) -> None:
        self._rows, self._known = rows, known
        self._texts: dict[int, _Text] = {}

    def begin(self, row: int, request: Request) -> None:
        """Start a new sequence."""
        start = self._rows.start(row, request)
        self._texts[row] = _Text(request, list(start.tokens[: start.cached]))

    def propose(self, wanted: Sequence[Wanted]) -> list[list[Drafted]]:
        """Tokens that the draft draws one after another; none for texts that its context has no room for, and none
        after logits whose largest is not finite."""
        context = self._rows.context
        found: dict[int, list[Drafted]] = {one.row: [] for one in wanted}
        left = {one.row: one.count if context is None else min(one.count, context - len(one.tokens)) for one in wanted}
        live = [one for one in wanted if left[one.row] > 0]
        logits = self._caught_up(live)
        while live:
            for one, scores in zip(live, logits, strict=True):
                drawn = self._texts[one.row].drawn(scores[: self._known])
                if drawn is None:
                    left[one.row] = len(found[one.row])
                else:
                    found[one.row].append(drawn)
            live = [one for one in live if len(found[one.row]) < left[one.row]]
            if live:
                rows, tokens = [one.row for one in live], [found[one.row][-1].token for one in live]
                logits = list(self._rows.step(rows, tokens))
                for row, token in zip(rows, tokens, strict=True):
                    self._texts[row].seen.append(token)
        return [found[one.row] for one in wanted]

    def end(self, row: int) -> None:
        """End a text."""
        del self._texts[row]
        self._rows.release(row)

    def _caught_up(self, texts: Sequence[Wanted]) -> list[np.ndarray]:
        """Logits [vocabulary] after each text: its tokens replace those that the draft had proposed."""
        left: list[list[int]] = []
        for one in texts:
            text = self._texts[one.row]
            kept = text.kept(one.tokens)
            self._rows.truncate(one.row, kept)
            further, text.seen = list(one.tokens[kept:]), list(one.tokens)
            text.verified = len(one.tokens)
            alone = max(0, len(further) - TOGETHER)
            for begin in range(0, alone, MAX_RUN):
                self._rows.extend(one.row, further[begin : min(begin + MAX_RUN, alone)])
            left.append(further[alone:])
        made = self._rows.verify([one.row for one in texts], left) if texts else []
        return [logits[-1] for logits in made]


class _Text:
    """A text of the draft.

    Attributes:
        seen: tokens that the draft's states include.
        verified: how many of them are the text's own.
    """

    def __init__(self, request: Request, seen: list[int]) -> None:
        self.seen, self.verified = seen, len(seen)
        self._sampling: Sampling = request.sampling
        seed = request.sampling.seed if request.seed is None else request.seed
        self._random = np.random.default_rng(None if seed is None else [seed, request.choice, 1])

    def kept(self, tokens: Sequence[int]) -> int:
        """Number of tokens of the text that the states include, its last token excepted."""
        count, most = self.verified, min(len(self.seen), len(tokens) - 1)
        while count < most and self.seen[count] == tokens[count]:
            count += 1
        return min(count, most)

    def drawn(self, logits: np.ndarray) -> Drafted | None:
        """The next token; None where the largest logit is not finite."""
        if not np.isfinite(logits.max()):
            return None
        if self._sampling.temperature == 0:
            return Drafted(int(logits.argmax()))
        tokens, probabilities = distribution(logits, self._sampling)
        chosen = self._random.choice(len(tokens), p=probabilities)
        return Drafted(int(tokens[chosen]), (tokens, probabilities))

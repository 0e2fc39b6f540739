"""Times of words, from what the decoder attends to in the audio: dynamic time warping (Giorgino 2009) over the heads of
cross-attention that follow the speech. The steps are those of OpenAI's program.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from .....runtime.base.dataclass import dataclass
from ....tokenizer import Tokenizer

WIDTH = 7
"""Frames of the median filter."""
UNSPACED = frozenset(("zh", "ja", "th", "lo", "my", "yue"))
"""Languages that write no spaces between words."""
BEFORE, BEHIND = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
"""Punctuation that belongs to the word after it, and to the one before it."""
ENDS = ".。!！?？"
LONGEST = 0.7
"""Seconds: words are compared with their median length, but at most with this."""
REPLACED = "\ufffd"


@dataclass(frozen=True)
class TimedWord:
    """A word of a window: its text, tokens, times in seconds from the window's beginning, and probability."""

    text: str
    tokens: tuple[int, ...]
    start: float
    end: float
    probability: float

    def moved(self, **changes: float) -> TimedWord:
        """The word at another time."""
        values = {"start": self.start, "end": self.end, **changes}
        return TimedWord(self.text, self.tokens, values["start"], values["end"], self.probability)


def aligned_words(
    words: Sequence[tuple[str, Sequence[int]]], attention: np.ndarray, probabilities: np.ndarray, step: float
) -> list[TimedWord]:
    """Words with their times.

    Args:
        words: texts and tokens, of which the last one is the end token.
        attention: f32 [tokens, frames] as of `normalized`, of the positions that each token follows.
        probabilities: f32 [tokens], without the end token.
        step: seconds of a frame.
    """
    rows, frames = shortest_path(-attention)
    (starts,) = np.nonzero(np.diff(rows, prepend=-1))
    times = frames[starts] * step
    bounds = np.cumsum([0, *(len(tokens) for _, tokens in words[:-1])])
    return [
        TimedWord(text, tuple(tokens), float(times[first]), float(times[last]), float(probabilities[first:last].mean()))
        for (text, tokens), first, last in zip(words[:-1], bounds[:-1], bounds[1:], strict=True)
    ]


def normalized(scores: np.ndarray) -> np.ndarray:
    """Attention f32 [tokens, frames]: the mean over heads of what is standardized along tokens and filtered along
    frames.

    Args:
        scores: f32 [heads, tokens, frames], before the softmax.
    """
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    weights = powers / powers.sum(-1, keepdims=True)
    spread = weights.std(-2, keepdims=True)
    weights = (weights - weights.mean(-2, keepdims=True)) / np.where(spread > 0, spread, 1)
    half = WIDTH // 2
    if weights.shape[-1] > half:
        padded = np.pad(weights, ((0, 0), (0, 0), (half, half)), mode="reflect")
        weights = np.median(np.lib.stride_tricks.sliding_window_view(padded, WIDTH, axis=-1), axis=-1)
    found: np.ndarray = weights.mean(0)
    return found


def shortest_path(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, i64 [steps], of the cheapest monotonic path through costs f32 [rows, columns] from the first
    corner to the last one. Sums are computed diagonal by diagonal."""
    rows, columns = costs.shape
    totals = np.full((rows + 1, columns + 1), np.inf)
    totals[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), np.int8)
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before, above, left = totals[i - 1, j - 1], totals[i - 1, j], totals[i, j - 1]
        chosen = np.where((before < above) & (before < left), 0, np.where((above < before) & (above < left), 1, 2))
        totals[i, j] = costs[i - 1, j - 1] + np.choose(chosen, (before, above, left))
        came[i, j] = chosen
    came[0, :], came[:, 0] = 2, 1
    i, j = rows, columns
    path = []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = came[i, j]
        i, j = i - (step != 2), j - (step != 1)
    found = np.array(path[::-1])
    return found[:, 0], found[:, 1]


def split_words(tokenizer: Tokenizer, tokens: Sequence[int], language: str | None) -> list[tuple[str, list[int]]]:
    """Words with their tokens: at spaces and punctuation, or characters where the language writes no spaces."""
    parts = _characters(tokenizer, tokens)
    if language in UNSPACED:
        return parts
    words: list[tuple[str, list[int]]] = []
    for text, own in parts:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, own))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + own)
    return words


def _characters(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
    """The shortest runs of tokens that are whole characters."""
    whole, found, held, offset = tokenizer.decode(tokens), [], [], 0
    for token in tokens:
        held.append(token)
        text = tokenizer.decode(held)
        at = text.find(REPLACED)
        if at < 0 or (offset + at < len(whole) and whole[offset + at] == REPLACED):
            found.append((text, held))
            held = []
            offset += len(text)
    return found


def with_punctuation(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Punctuation joined with the words that it belongs to."""
    found: list[TimedWord] = []
    for word in reversed(words):
        mark = word.text.startswith(" ") and word.text.strip() and word.text.strip() in BEFORE
        if found and mark:
            behind = found[-1]
            joined = (word.text + behind.text, word.tokens + behind.tokens)
            found[-1] = TimedWord(*joined, behind.start, behind.end, behind.probability)
        else:
            found.append(word)
    made: list[TimedWord] = []
    for word in reversed(found):
        if made and word.text in BEHIND and not made[-1].text.endswith(" "):
            before = made[-1]
            joined = (before.text + word.text, before.tokens + word.tokens)
            made[-1] = TimedWord(*joined, before.start, before.end, before.probability)
        else:
            made.append(word)
    return made


def usual_length(words: Sequence[TimedWord]) -> float:
    """The median length of words in seconds, at most `LONGEST`; 0 without words."""
    lengths = [word.end - word.start for word in words if word.end != word.start]
    return min(LONGEST, float(np.median(lengths))) if lengths else 0.0


def shortened(words: Sequence[TimedWord], usual: float) -> list[TimedWord]:
    """Words at the ends of sentences, which would last through the pause, cut to twice the usual length."""
    found = list(words)
    for at in range(1, len(found)):
        word = found[at]
        if usual and word.end - word.start > 2 * usual:
            if word.text in ENDS:
                found[at] = word.moved(end=word.start + 2 * usual)
            elif found[at - 1].text in ENDS:
                found[at] = word.moved(start=word.end - 2 * usual)
    return found


def within_segment(
    words: Sequence[TimedWord], start: float, end: float, usual: float, last: float
) -> tuple[list[TimedWord], float, float]:
    """The words of a segment, those next to pauses shortened, and the segment's start and end by its words.

    Args:
        start, end: of the segment, by its timestamps.
        usual: as of `usual_length`.
        last: end of the segment before.
    """
    found, most = list(words), 2 * usual
    first = found[0]
    second = found[1] if len(found) > 1 else None
    after_pause = first.end - last > 4 * usual
    too_long = first.end - first.start > most or (second is not None and second.end - first.start > 2 * most)
    if after_pause and too_long:
        if second is not None and second.end - second.start > most:
            boundary = max(second.end / 2, second.end - most)
            first, found[1] = first.moved(end=boundary), second.moved(start=boundary)
        first = first.moved(start=max(0.0, first.end - most))
    if start < first.end and start - 0.5 > first.start:
        first = first.moved(start=max(0.0, min(first.end - usual, start)))
    else:
        start = first.start
    found[0] = first
    ending = found[-1]
    if end > ending.start and end + 0.5 < ending.end:
        found[-1] = ending.moved(end=max(ending.start + usual, end))
    else:
        end = ending.end
    return found, start, end

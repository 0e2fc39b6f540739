"""TfIdfVectorizer: counts of a pool's n-grams in sequences of strings or integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32
from ..rules.axes import input_error
from ..rules.output_limit import allowed

MODES = ("TF", "IDF", "TFIDF")


def infer_tf_idf_vectorizer(node: Inference) -> None:
    """One column for each coordinate of the output."""
    shape, places = node.shape(0), node.attributes["ngram_indexes"]
    width: Dim = max(places, default=-1) + 1
    node.set(0, F32, None if shape is None else (*shape[:-1], width))


def grams_of(pool: np.ndarray, starts: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """For each length, the n-grams of the pool as rows."""
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            why = f"the pool's part of {length}-grams is none"
            raise input_error("TfIdfVectorizer", why, "E-OP-ATTRIBUTE", found=f"{start} to {end} of {len(pool)}")
        yield length, pool[start:end].reshape(-1, length)


def _places(words: np.ndarray, grams: np.ndarray, size: int) -> np.ndarray:
    """For windows of word numbers, [..., length], the row of `grams` that each is; -1 for none. Words not known are
    -1."""
    code, own = words[..., 0], grams[:, 0]
    for column in range(1, grams.shape[1]):
        pairs, own = np.unique(own * size + grams[:, column], return_inverse=True)
        wanted = code * size + words[..., column]
        index = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        code = np.where((pairs[index] == wanted) & (code >= 0) & (words[..., column] >= 0), index, -1)
    row_of = np.full(size if grams.shape[1] == 1 else int(own.max()) + 1, -1)
    row_of[own] = np.arange(len(grams))
    return np.where(code >= 0, row_of[code], -1)


POOL: dict[str, Any] = {
    "min_gram_length": 1,
    "max_gram_length": 2,
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}
TOKENS = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])


@op(
    "TfIdfVectorizer",
    since=9,
    types="index+string",
    infer=infer_tf_idf_vectorizer,
    examples=[
        case(TOKENS, mode="TF", max_skip_count=0, **POOL),
        case(TOKENS[1], mode="TF", max_skip_count=5, **POOL),
        case(TOKENS, mode="IDF", max_skip_count=1, weights=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5], **POOL),
        case(
            TOKENS.astype(np.int32), mode="TFIDF", max_skip_count=2, weights=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5], **POOL
        ),
        case(
            np.array(["a", "b", "a", "c"], object),
            mode="TF",
            min_gram_length=2,
            max_gram_length=2,
            max_skip_count=1,
            ngram_counts=[0, 1],
            ngram_indexes=[1, 0, 2],
            pool_strings=["a", "a", "b", "a", "a"],
        ),
    ],
)
def tf_idf_vectorizer(
    x: np.ndarray,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> np.ndarray:
    """[C] or [N, C] to [width] or [N, width] of f32: counts, once-or-never, or counts times weights, at each n-gram's
    coordinate.

    An n-gram's words are next to one another or the same number of words apart, `max_skip_count` at most.
    """
    places = np.array(ngram_indexes, np.int64)
    pool = np.array(pool_strings, object) if pool_strings else np.array(pool_int64s or [], np.int64)
    if (
        mode not in MODES
        or places.min(initial=0) < 0
        or x.ndim not in (1, 2)
        or (x.dtype.kind in "iu") != (pool.dtype.kind == "i")
    ):
        raise input_error(
            "TfIdfVectorizer", "input, mode and pool do not fit", found=f"{mode}, {x.dtype}{list(x.shape)}"
        )
    rows = x.reshape(len(x) if x.ndim == 2 else 1, x.shape[-1])
    words, pool_words = np.unique(pool, return_inverse=True)
    found = (
        np.minimum(np.searchsorted(words, rows), max(len(words) - 1, 0))
        if rows.size and words.size
        else np.zeros(rows.shape, np.int64)
    )
    numbers = np.where(words[found] == rows, found, -1) if words.size else np.full(rows.shape, -1)
    width = int(places.max(initial=-1)) + 1
    counts = np.zeros(allowed((len(rows), width), 8, "TfIdfVectorizer"), np.int64)
    before = 0
    for length, grams in grams_of(pool_words, ngram_counts):
        if min_gram_length <= length <= max_gram_length and len(grams):
            if before + len(grams) > len(places):
                raise input_error(
                    "TfIdfVectorizer", "there are fewer coordinates than n-grams", "E-OP-ATTRIBUTE", found=len(places)
                )
            for apart in range(1, max_skip_count + 2 if length > 1 else 2):
                starts = rows.shape[1] - (length - 1) * apart
                if starts <= 0:
                    break
                window = np.stack(
                    [numbers[:, column * apart : column * apart + starts] for column in range(length)], -1
                )
                row, column = np.nonzero((place := _places(window, grams, len(words))) >= 0)
                np.add.at(counts, (row, places[before + place[row, column]]), 1)
        before += len(grams)
    found = np.minimum(counts, 1) if mode == "IDF" else counts
    return (found.astype(np.float32) * weights_of(mode, width, places, weights)).reshape((*x.shape[:-1], width))


def weights_of(mode: str, width: int, places: np.ndarray, weights: Sequence[float] | None) -> np.ndarray:
    """The factor of each coordinate's count."""
    factors = np.ones(width, np.float32)
    if mode != "TF" and weights is not None:
        if len(weights) != len(places):
            why = "there are not as many weights as coordinates"
            raise input_error("TfIdfVectorizer", why, "E-OP-ATTRIBUTE", expected=len(places), found=len(weights))
        factors[places] = np.array(weights, np.float32)
    return factors

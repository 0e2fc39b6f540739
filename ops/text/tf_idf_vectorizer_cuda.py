"""TfIdfVectorizer of integers on the device, one n-gram per thread; strings run on the CPU."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from .tf_idf_vectorizer import MODES, grams_of, tf_idf_vectorizer, weights_of

COUNT = """
    row, coordinate = i // width, i % width
    found = np.int64(0)
    for gram in range(grams[coordinate], grams[coordinate + 1]):
        start = starts[gram]
        length = starts[gram + 1] - start
        for apart in range(1, skips + 2 if length > 1 else 2):
            for first in range(columns - (length - 1) * apart):
                same = 1
                for word in range(length):
                    if np.int64(get_x(x, row * columns + first + word * apart)) != words[start + word]:
                        same = 0
                found += same
    y[i] = np.float32(FOUND) * factors[coordinate]
"""


@cuda(tf_idf_vectorizer)
def counts_on_device(step: Step) -> Planned:
    """Count n-grams; equal ones count at the coordinate of the last one, as on the CPU."""
    given, x, y = step.attributes, step.input(0), step.output()
    if x.dtype.kind not in "iu" or given["pool_strings"] or given["mode"] not in MODES or len(x.shape) not in (1, 2):
        return "its input, mode and pool contradict each other"
    width = y.shape[-1]
    places = np.array(given["ngram_indexes"], np.int64)
    known: dict[tuple[int, ...], int] = {}
    before = 0
    for length, grams in grams_of(np.array(given["pool_int64s"] or [], np.int64), given["ngram_counts"]):
        if given["min_gram_length"] <= length <= given["max_gram_length"]:
            if before + len(grams) > len(places):
                return "there are fewer coordinates than n-grams"
            known |= {tuple(gram): int(places[before + number]) for number, gram in enumerate(grams.tolist())}
        before += len(grams)
    sorted_grams = sorted(known, key=lambda gram: known[gram])
    of_coordinate = (
        np.bincount([known[gram] for gram in sorted_grams], minlength=width) if known else np.zeros(width, np.int64)
    )
    named = {
        "x": x,
        "y": y,
        "width": width,
        "columns": x.shape[-1],
        "skips": given["max_skip_count"],
        "grams": step.constant_buffer(np.cumsum([0, *of_coordinate.tolist()])),
        "starts": step.constant_buffer(np.cumsum([0, *(len(gram) for gram in sorted_grams)])),
        "words": step.constant_buffer(np.array([word for gram in sorted_grams for word in gram] or [0], np.int64)),
        "factors": step.constant_buffer(weights_of(given["mode"], width, places, given["weights"])),
    }
    return per_thread_launch(
        "n-grams that occur",
        y.count,
        named,
        COUNT.replace("FOUND", "min(found, 1)" if given["mode"] == "IDF" else "found"),
    )

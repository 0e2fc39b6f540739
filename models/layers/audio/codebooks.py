"""Frames of audio codes: one code of each codebook at a time, as a decoder reads them.

``input_ids`` is [batch, length, codebooks], i64. A model that also reads text has one more column: the token of a frame
that is text, `SPOKEN` in frames of audio.
"""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Value
from ..linear import embedding
from ..net import Net

SPOKEN = -1
"""In the column of text: the frame is audio."""


def frame_embeddings(
    net: Net, ids: Value, count: int, rows: int, text: str | None = None, name: str = "embed"
) -> Value:
    """The sum of the embeddings of a frame's codes, or the embedding of its token: f32 [batch, length, hidden].

    Args:
        ids: [batch, length, count], or with one more column if `text` is named.
        count: codebooks, whose embeddings stand one after the other in ``NAME.weight`` [count x rows, hidden].
        text: name of the embeddings of text.
        name: of the embeddings of codes.
    """
    codes, tokens = (ids, None) if text is None else net.split(ids, [count, 1])
    offsets = net.constant(np.arange(count, dtype=np.int64) * rows)
    x: Value = net.ReduceSum(embedding(net, net.Add(codes, offsets), name), [2], keepdims=0)
    if text is None:
        return x
    zero = net.Constant(value_int=0)
    words = embedding(net, net.Squeeze(net.Max(tokens, zero), [2]), text)
    both: Value = net.Where(net.GreaterOrEqual(tokens, zero), words, x)
    return both

"""Tokens that an encoder of texts is given, with their mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...runtime.base.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def source_tokens(input_ids: ArrayLike, attention_mask: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask i64 [batch, source] of [batch, source] or [source]; without a mask all are tokens. UsageError for
    different shapes, and for no tokens."""
    ids = np.atleast_2d(np.asarray(input_ids, np.int64))
    mask = np.ones_like(ids) if attention_mask is None else np.atleast_2d(np.asarray(attention_mask, np.int64))
    if mask.shape != ids.shape or not ids.size:
        why = "the shapes of attention_mask and input_ids differ" if ids.size else "input_ids has no tokens"
        raise UsageError("E-RUN-SHAPE", None, why, expected=list(ids.shape), found=list(mask.shape))
    return ids, mask

"""Finite results: NaN and infinity among what a model computes are an error, not an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UnsupportedError

CODE = "E-MODEL-NAN"
HINT = (
    "Look for damaged weights with candle-convert check, and for numbers such as image_std, rescale_factor or "
    "layer_norm_eps in the configuration that float32 cannot hold"
)


def finite(results: Sequence[Any], names: Sequence[str] = (), masked: bool = True) -> list[Any]:
    """The results of a run; UnsupportedError if one has NaN or infinity.

    Args:
        names: of the results, for the error.
        masked: whether some elements may be minus infinity, as masked scores are, if not all are.
    """
    for index, array in enumerate(results):
        if isinstance(array, np.ndarray) and array.size and array.dtype.kind not in "iubSUO":
            # the largest element is NaN if one is, and minus infinity if all are
            with np.errstate(invalid="ignore"):
                largest = array.max()
                largest = largest if masked or not np.isfinite(largest) else array.min()
            if not np.isfinite(largest):
                name = names[index] if index < len(names) else "the result"
                raise UnsupportedError(CODE, None, f"the model computes {float(largest)} in {name}", hint=HINT)
    return list(results)

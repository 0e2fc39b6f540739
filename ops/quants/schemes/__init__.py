"""Schemes of checkpoints that were quantized elsewhere, one file each: from their tensors to the weights of the model."""

from __future__ import annotations

import functools

from ....runtime import registry
from ....runtime.scheme import Scheme


@functools.cache
def schemes() -> dict[str, Scheme]:
    """The schemes by what config.json calls them."""
    return {method: scheme for scheme in registry.all_of("ops.quants.schemes", "SCHEME") for method in scheme.methods}

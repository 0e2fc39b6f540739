"""Schemes of checkpoints that were quantized elsewhere, one file each: from their tensors to the weights of the
model."""

from __future__ import annotations

import functools

from ....runtime.contract.quantization_scheme import Scheme
from ....runtime.plugin import discovery


@functools.cache
def schemes() -> dict[str, Scheme]:
    """The schemes by what config.json calls them."""
    return {method: scheme for scheme in discovery.below(__name__, "SCHEME").all() for method in scheme.methods}

"""Quantization schemes of checkpoints: one file each, from stored tensors to weights of the model."""

from __future__ import annotations

from ....runtime.contract.quantization_scheme import Scheme
from ....runtime.plugin import discovery
from ....runtime.plugin.package_cache import package_cache


@package_cache
def schemes() -> dict[str, Scheme]:
    """The schemes by `quant_method` of config.json."""
    return {method: scheme for scheme in discovery.below(__name__, "SCHEME").all() for method in scheme.methods}

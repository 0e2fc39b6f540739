"""Quantization schemes of checkpoints: one file each, from stored tensors to weights of the model."""

from __future__ import annotations

from ....runtime.base.process_cache import FILES, process_cache
from ....runtime.contract.quantization_scheme import Scheme
from ....runtime.plugin import discovery


@process_cache(kept=FILES)
def schemes() -> dict[str, Scheme]:
    """The schemes by `quant_method` of config.json."""
    return {method: scheme for scheme in discovery.below(__name__, "SCHEME").all() for method in scheme.methods}

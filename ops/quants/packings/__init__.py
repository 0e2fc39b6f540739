"""Packings: one file for each scheme of quantized checkpoints that is written, from weights to stored tensors."""

from __future__ import annotations

from ....runtime.base.process_cache import FILES, process_cache
from ....runtime.contract.quantization_scheme import Packing
from ....runtime.plugin import discovery


@process_cache(kept=FILES)
def packings() -> dict[str, Packing]:
    """The packings by name in lower case, sorted."""
    found = [packing for each in discovery.below(__name__, "PACKINGS").all() for packing in each]
    return {packing.name.lower(): packing for packing in sorted(found, key=lambda packing: packing.name.lower())}


def packing_named(type_name: str | None) -> Packing | None:
    """The packing of that name, in any case; None for other types."""
    return None if type_name is None else packings().get(type_name.lower())

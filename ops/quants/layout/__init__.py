"""How blocks are laid out: fields, packed bits and the tables that codes point into."""

from __future__ import annotations

from ....runtime.machine import Stored
from ....runtime.quant import Decoder


def native(name: str) -> Decoder:
    """The compiled decoder `name`."""
    return Decoder(Stored("ops.quants.layout.compiled", name))

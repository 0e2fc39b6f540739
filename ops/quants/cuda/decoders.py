"""Registry of device decoders of block types, by the interfaces of `runtime/cuda/element`."""

from __future__ import annotations

from ....runtime.cuda.element.block_quantized import Decoders
from . import digest, elements, table_of
from .dot4_runs import RUNS

DEVICE_DECODERS = Decoders(elements, table_of, digest, RUNS)

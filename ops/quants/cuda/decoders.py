"""What decodes blocks in kernels on the device."""

from __future__ import annotations

from ....runtime.cuda.element.block_quantized import Decoders
from . import digest, elements, table_of
from .dot4_runs import RUNS

DEVICE_DECODERS = Decoders(elements, table_of, digest, RUNS)

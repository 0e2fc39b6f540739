"""Operators, one small file each: shape rule, kernels, reference, examples. Quantized block types live in `quants/`."""

from __future__ import annotations

from ..runtime.plugin.provided import Provided

PROVIDED = Provided(__name__)
__getattr__ = PROVIDED.get
__dir__ = PROVIDED.names

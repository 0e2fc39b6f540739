"""Transposed convolutions of 16-bit numbers."""

from __future__ import annotations

from ...runtime.launch import PLANNERS
from .conv_transpose import conv_transpose
from .transposed_kernel import plan_conv_transpose
from .wide_kernel import of_halves

PLANNERS |= {conv_transpose: of_halves(plan_conv_transpose)}

"""Convolutions of 16-bit numbers."""

from __future__ import annotations

from ...runtime.launch import PLANNERS
from .conv import conv
from .conv_kernel import plan_conv
from .wide_kernel import of_halves

PLANNERS |= {conv: of_halves(plan_conv)}

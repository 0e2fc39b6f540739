"""Operators of complex numbers run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu, operators_of
from . import arithmetic, fourier, functions, parts

on_cpu("device tensors have no complex elements", *operators_of(arithmetic, fourier, functions, parts))

"""GridAttention on the device."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu
from .grid_attention import grid_attention

on_cpu("device graphs keep the positions of keys as elements", grid_attention)

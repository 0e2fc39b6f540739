"""Variants of attention that run on the CPU in device graphs."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import on_cpu
from .block_attention import block_attention, quantize_blocks
from .grid_attention import grid_attention

on_cpu("device graphs keep the positions of keys as elements", grid_attention)
on_cpu("device graphs keep keys and values as floats", block_attention, quantize_blocks)

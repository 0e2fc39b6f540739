"""Convolutions and pools of 16-bit numbers."""

from __future__ import annotations

from ...runtime.launch import PLANNERS, Planner
from ...runtime.op import Op
from .conv import conv
from .conv_kernel import plan_conv
from .conv_transpose import conv_transpose
from .global_pool import global_average_pool
from .pool import average_pool, max_pool
from .pool_kernel import plan_global_average, plan_pool
from .transposed_kernel import plan_conv_transpose
from .wide_kernel import of_halves

OPERATORS: dict[Op, Planner] = {
    conv: plan_conv, conv_transpose: plan_conv_transpose, max_pool: plan_pool, average_pool: plan_pool, global_average_pool: plan_global_average,
}  # fmt: skip
PLANNERS |= {operator: of_halves(planner) for operator, planner in OPERATORS.items()}

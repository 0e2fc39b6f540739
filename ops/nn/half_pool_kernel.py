"""Pools of 16-bit numbers."""

from __future__ import annotations

from ...runtime.launch import PLANNERS
from .global_pool import global_average_pool
from .pool import average_pool, max_pool
from .pool_kernel import plan_global_average, plan_pool
from .wide_kernel import of_halves

PLANNERS |= {
    max_pool: of_halves(plan_pool), average_pool: of_halves(plan_pool), global_average_pool: of_halves(plan_global_average),
}

"""Pooling of f16 and bf16 tensors."""

from __future__ import annotations

from ...runtime.plan.kernel_api import native
from ..kernels.half_via_f32 import via_f32
from .global_pool import global_average_pool
from .pool import average_pool, max_pool
from .pool_indices_kernel import plan_max_pool
from .pool_kernel import plan_global_average, plan_pool

native(max_pool)(via_f32(plan_max_pool))
native(average_pool)(via_f32(plan_pool))
native(global_average_pool)(via_f32(plan_global_average))

"""Means of planes in NCHW16c layout on the device."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu
from .blocked_mean import blocked_mean

on_cpu("device graphs do not use blocked channels", blocked_mean)

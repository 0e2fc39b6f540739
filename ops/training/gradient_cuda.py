"""Gradient is expanded to other operators before it reaches the device."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu, operators_of
from . import gradient

on_cpu("it is replaced by other operators when a model is opened", *operators_of(gradient))

"""NCHW16c convolution on the device."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu
from .conv_nchwc import blocked_conv

on_cpu("device graphs do not use blocked channels", blocked_conv)

"""Operators over windows without a kernel on the device."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu, within
from . import deform_conv, unpool

on_cpu("no kernel has been written for it yet", *within(deform_conv, unpool))

"""String operators run on the CPU."""

from __future__ import annotations

from ...runtime.cuda.plan.kernel_api import on_cpu, operators_of
from . import string

on_cpu("strings are Python objects", *operators_of(string))

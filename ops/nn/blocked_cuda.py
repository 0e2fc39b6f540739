"""Where convolutions of channels in blocks run."""

from __future__ import annotations

from ...runtime.cuda.place import on_cpu
from .blocked_conv import blocked_conv

on_cpu("graphs for a device keep channels apart", blocked_conv)

"""Waiting: whom work that nobody asked for by name, and that takes seconds, tells how far it is."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

compiling: contextvars.ContextVar[Callable[[int, int], None] | None] = contextvars.ContextVar("compiling", default=None)
"""Is called with how many kernels are compiled, and how many will be; both are the same at the end."""

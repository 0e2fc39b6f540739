"""Progress callback for kernel compilation: called with (compiled, total)."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

compiling: contextvars.ContextVar[Callable[[int, int], None] | None] = contextvars.ContextVar("compiling", default=None)
"""Called with the number of compiled kernels and the total; both are equal at the end."""

"""Convert models: ``candle_convert.convert("model.pth", "model.gguf", dtype="bf16")`` calls the function `convert`
below.

The package holds what opens checkpoints, plans and writes conversions, makes reports, and the command line. It shares
its name with the function, so it is callable and calls that.
"""

from __future__ import annotations

import sys
import types
from inspect import signature
from typing import Any

__all__ = ["convert"]


class _CallablePackage(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.convert(*args, **kwargs)

    @property
    def convert(self) -> Any:
        """The function."""
        from .api.convert import convert

        return convert

    @property
    def __signature__(self) -> Any:
        return signature(self.convert)

    def __dir__(self) -> list[str]:
        return ["convert"]


sys.modules[__name__].__class__ = _CallablePackage

"""The composition root: opening checkpoints, planning and writing conversions, reports, and the command line.

The package shares its name with the function `candle_convert.convert`, so it is callable and calls that.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _CallablePackage(types.ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from .api import convert

        return convert(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage

"""candle-convert: every model format in, every model format out, one graph, and proof that the result computes the same thing.

The names below load on first use; importing the package itself loads neither numpy, numba, onnx nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import models as models
    from . import ops as ops
    from .convert import onnx as onnx
    from .convert.api import convert as convert
    from .convert.api import hash as hash
    from .convert.api import load_file as load_file
    from .convert.api import open as open
    from .convert.api import plan as plan
    from .convert.api import save_file as save_file
    from .convert.certifying import verify as verify
    from .convert.diff import diff as diff
    from .convert.extending import register_op as register_op
    from .convert.functions import erf as erf
    from .convert.functions import gelu as gelu
    from .convert.functions import relu as relu
    from .convert.functions import sigmoid as sigmoid
    from .convert.functions import silu as silu
    from .convert.functions import softmax as softmax
    from .convert.inference import InferenceSession as InferenceSession
    from .convert.options import Options as Options
    from .convert.progress import RichProgress as RichProgress
    from .convert.quantizing.arrays import decode as decode
    from .convert.quantizing.arrays import encode as encode
    from .convert.quantizing.library import Recipe as Recipe
    from .convert.quantizing.library import quantize as quantize
    from .convert.scan import scan as scan
    from .runtime.errors import Error as Error
    from .runtime.errors import FileAccessError as FileAccessError
    from .runtime.errors import FormatError as FormatError
    from .runtime.errors import LimitError as LimitError
    from .runtime.errors import UnsafeFileError as UnsafeFileError
    from .runtime.errors import UnsupportedError as UnsupportedError
    from .runtime.errors import UsageError as UsageError
    from .runtime.graph import Graph as Graph
    from .runtime.limits import limits as limits
    from .runtime.tensor import Tensor as Tensor

_HOMES = {
    "convert.api": ("hash", "load_file", "open", "plan", "save_file"),
    "convert.certifying": ("verify",),
    "convert.diff": ("diff",),
    "convert.extending": ("register_op",),
    "convert.functions": ("erf", "gelu", "relu", "sigmoid", "silu", "softmax"),
    "convert.inference": ("InferenceSession",),
    "convert.options": ("Options",),
    "convert.progress": ("RichProgress",),
    "convert.quantizing.arrays": ("decode", "encode"),
    "convert.quantizing.library": ("Recipe", "quantize"),
    "convert.scan": ("scan",),
    "runtime.errors": ("Error", "FileAccessError", "FormatError", "LimitError", "UnsafeFileError", "UnsupportedError", "UsageError"),
    "runtime.graph": ("Graph",),
    "runtime.limits": ("limits",),
    "runtime.tensor": ("Tensor",),
}
_MODULES = {"convert": "convert", "models": "models", "onnx": "convert.onnx", "ops": "ops"}
"""Modules under the names that they have here; `convert` can be called too."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *sorted(_MODULES), *sorted(_HOME_OF)]


if not TYPE_CHECKING:  # for mypy a module with __getattr__ has every name, misspelled ones too

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f".{_MODULES[name]}", __name__)
        if name not in _HOME_OF:
            from .runtime.nearest import nearest

            meant = nearest(name, __all__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{f'. Did you mean {meant!r}?' if meant else ''}")
        return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__

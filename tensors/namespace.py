"""Names of the package that are functions of tensors, and dtypes."""

from __future__ import annotations

import importlib
import math
from typing import Any

from ..runtime.plugin.discovery import ROOT, module_files
from .core.autocast import autocast
from .core.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .core.promotion import NAMES, get_default_dtype, promote_types, set_default_dtype
from .core.registry import FUNCTIONS
from .core.tensor import Tensor
from .jit import jit
from .kernel import kernel
from .public_function import public_function
from .signature import with_signature

for _folder in ("operations", "complex", "autograd", "special", "linalg", "writes", "candle_names"):
    for _module in module_files(f"tensors.{_folder}"):
        importlib.import_module(f"{ROOT}.{_module}")
_HERE = (
    autocast, enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled, get_default_dtype, promote_types,
    set_default_dtype, jit, kernel,
)  # fmt: skip


def _as_it_is(made: Any, *example: Any, **options: Any) -> Any:
    """A function or module itself, where scripts of PyTorch ask for TorchScript."""
    return made


vars(jit).update(script=_as_it_is, trace=_as_it_is, ignore=_as_it_is, export=_as_it_is, unused=_as_it_is)
vars(jit).update(is_scripting=lambda: False, is_tracing=lambda: False)


PUBLIC: dict[str, Any] = {
    **NAMES,
    **{name: public_function(compute, name, ROOT) for name, compute in FUNCTIONS.items()},
    **{item.__name__: item for item in _HERE},
    "Tensor": Tensor,
    "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None,
}  # fmt: skip
"""Attributes of the package besides those that its own module names."""


def public(name: str, default: Any = None) -> Any:
    """The attribute of the package of this name, with the signature that users see."""
    return with_signature(PUBLIC[name]) if name in PUBLIC else default

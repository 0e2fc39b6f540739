"""Names of the package that are functions of tensors, and dtypes."""

from __future__ import annotations

import importlib
from typing import Any

from ..runtime.plugin.discovery import ROOT, module_files
from .core.autocast import autocast
from .core.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .core.promotion import NAMES, get_default_dtype, promote_types, set_default_dtype
from .core.registry import FUNCTIONS
from .jit import jit
from .kernel import kernel

for _folder in ("operations", "writes", "autograd"):
    for _module in module_files(f"tensors.{_folder}"):
        importlib.import_module(f"{ROOT}.{_module}")
_HERE = (
    autocast, enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled, get_default_dtype, promote_types,
    set_default_dtype, jit, kernel,
)  # fmt: skip
PUBLIC: dict[str, Any] = {**NAMES, **FUNCTIONS, **{each.__name__: each for each in _HERE}}
"""Attributes of the package besides those that its own module names."""

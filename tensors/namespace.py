"""Names of the package that are functions of tensors, and dtypes."""

from __future__ import annotations

import functools
import importlib
import math
import warnings
from collections.abc import Sequence
from typing import Any

from ..runtime.base.errors import UsageError
from ..runtime.plugin.discovery import ROOT, module_files
from .core.autocast import autocast
from .core.expression import cast
from .core.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .core.lazy_tensor import LazyTensor
from .core.promotion import NAMES, category, get_default_dtype, promote_types, set_default_dtype
from .core.registry import FUNCTIONS
from .jit import jit
from .kernel import kernel

for _folder in ("operations", "writes", "autograd", "special", "linalg"):
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


def with_out(made: Any) -> Any:
    """A function that writes its result into `out`, too: a tensor, or a tuple of tensors for several results."""
    if not hasattr(made, "__code__") or made.__name__ in ("checkpoint", "grad", "value_and_grad"):
        return made

    @functools.wraps(made)
    def called(*arguments: Any, **options: Any) -> Any:
        if "out" not in options:
            return made(*arguments, **options)
        out = options.pop("out")
        found = made(*arguments, **options)
        return found if out is None else write_out(found, out)

    return called


def write_out(found: Any, out: Any) -> Any:
    """Give `out` the elements of a result in its own dtype, and the result's shape."""
    if isinstance(found, tuple) and isinstance(out, Sequence) and len(found) == len(out):
        parts = [write_out(each, into) for each, into in zip(found, out, strict=True)]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    if not isinstance(out, LazyTensor) or not isinstance(found, LazyTensor):
        what = f"{type(found).__name__} into {type(out).__name__}"
        raise UsageError("E-TENSOR-OUT", None, f"a result cannot be written: {what}", hint="Pass a tensor as out")
    if out.requires_grad or found.requires_grad:
        why = "a result is written into out, which does not record gradients"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Leave out, or compute in no_grad()")
    if category(found.dtype) > category(out.dtype):
        raise UsageError("E-TENSOR-DTYPE", None, f"a result of {found.dtype} is written into {out.dtype}")
    if out.shape == found.shape:
        return out.become(found)
    if out.numel():
        warnings.warn(f"out of shape {list(out.shape)} becomes one of shape {list(found.shape)}", stacklevel=3)
    out.expression.holder = None
    out.set_expression(cast(found.expression, out.dtype))
    return out


PUBLIC: dict[str, Any] = {
    **NAMES,
    **{name: with_out(made) for name, made in FUNCTIONS.items()},
    **{each.__name__: each for each in _HERE},
    "pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None,
}  # fmt: skip
"""Attributes of the package besides those that its own module names."""

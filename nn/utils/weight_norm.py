"""Weight norm by a hook, as older networks have it: a weight is computed before each call from NAME_g and NAME_v."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ..core.module import Module
from ..core.parameter import Parameter
from .parametrizations import WeightNorm

HANDLE = "_weight_norm_of_{}"


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the norms of a weight along `dim`, None for that of the whole, as NAME_g, and its direction as NAME_v.
    Returns the module. `parametrizations.weight_norm` does the same under the names that newer networks have.

    Raises UsageError if it has no such parameter.
    """
    formula = WeightNorm(dim)
    norm, direction = formula.right_inverse(module.get_parameter(name).detach())
    delattr(module, name)
    for suffix, part in (("g", norm), ("v", direction)):
        module.register_parameter(f"{name}_{suffix}", Parameter(part))

    def compute(module: Module, arguments: Any = ()) -> None:
        weight = formula(getattr(module, f"{name}_g"), getattr(module, f"{name}_v"))
        object.__setattr__(module, name, weight)

    compute(module)
    object.__setattr__(module, HANDLE.format(name), (compute, module.register_forward_pre_hook(compute)))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight a parameter again. Returns the module; UsageError if `weight_norm` was not called for it."""
    if HANDLE.format(name) not in vars(module):
        why = f"{name} of {type(module).__name__} is not computed by weight_norm"
        raise UsageError("E-NN-PARAMETRIZE", None, why, hint="See remove_parametrizations")
    compute, handle = vars(module).pop(HANDLE.format(name))
    compute(module)
    handle.remove()
    value = Parameter(vars(module).pop(name).detach())
    for suffix in "gv":
        delattr(module, f"{name}_{suffix}")
    module.register_parameter(name, value)
    return module

"""Spectral norm by a hook, as older networks have it: a weight is computed before each call from NAME_orig."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.grad_mode import no_grad
from ...tensors.operations.random import randn
from ..core.module import Module
from ..core.parameter import Parameter
from .parametrizations import unit

HANDLE = "_spectral_norm_of_{}"


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight, the parameter NAME_orig, by its largest singular value, which power iterations in the buffers
    NAME_u and NAME_v estimate (Miyato et al. 2018, arXiv:1802.05957). Returns the module.

    Args:
        n_power_iterations: of each call in training mode.
        dim: whose parts are the rows of the matrix; by default that of the outputs.

    Raises UsageError if it has no such parameter.
    """
    place = (1 if "ConvTranspose" in type(module).__name__ else 0) if dim is None else dim
    weight = module.get_parameter(name)
    rows, columns = weight.movedim(place, 0).flatten(1).shape
    vectors = [unit(randn(length), eps) for length in (rows, columns)]
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    for suffix, vector in zip("uv", vectors, strict=True):
        module.register_buffer(f"{name}_{suffix}", vector)

    def compute(module: Module, arguments: Any = (), iterate: bool = True) -> None:
        weight = getattr(module, f"{name}_orig")
        matrix = weight.movedim(place, 0).flatten(1)
        u, v = (getattr(module, f"{name}_{suffix}") for suffix in "uv")
        if module.training and iterate:
            with no_grad():
                held = matrix.detach()
                for _ in range(n_power_iterations):
                    v.copy_(unit(held.T @ u, eps))
                    u.copy_(unit(held @ v, eps))
        object.__setattr__(module, name, weight / ((u * 1) @ (matrix @ (v * 1))))

    compute(module, iterate=False)
    object.__setattr__(module, HANDLE.format(name), (compute, module.register_forward_pre_hook(compute)))
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight that is computed a parameter. Returns the module.

    Raises UsageError if `spectral_norm` was not called for it.
    """
    if HANDLE.format(name) not in vars(module):
        why = f"{name} of {type(module).__name__} is not computed by spectral_norm"
        raise UsageError("E-NN-PARAMETRIZE", None, why, hint="See remove_parametrizations")
    compute, handle = vars(module).pop(HANDLE.format(name))
    compute(module, iterate=False)
    handle.remove()
    value = Parameter(vars(module).pop(name).detach())
    for suffix in ("orig", "u", "v"):
        delattr(module, f"{name}_{suffix}")
    module.register_parameter(name, value)
    return module

"""`cc.func`: functions of functions, and modules as functions of their parameters."""

from __future__ import annotations

from ..tensors.autograd.functional import grad as grad
from ..tensors.autograd.transforms import grad_and_value as grad_and_value
from ..tensors.autograd.transforms import hessian as hessian
from ..tensors.autograd.transforms import jacfwd as jacfwd
from ..tensors.autograd.transforms import jacrev as jacrev
from ..tensors.autograd.transforms import jvp as jvp
from ..tensors.autograd.transforms import vjp as vjp
from ..tensors.autograd.transforms import vmap as vmap
from .utils.stateless import functional_call as functional_call
from .utils.stateless import stack_module_state as stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp",
    "vmap",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)

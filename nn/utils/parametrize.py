"""Parametrizations: a parameter of a module is computed from others, which are trained instead."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ..core.module import Module
from ..core.parameter import Parameter

TABLE = "parametrizations"
"""The module that has the parametrizations of another one, by the names of its parameters."""


class ParametrizationList(Module):
    """The parametrization of one parameter: its source tensors ``original``, or ``original0``, ``original1`` ..., and
    the modules applied to them in order.

    Args:
        first: the first of these modules. It may have ``right_inverse``, which gives the originals of a value.
        value: the parameter.
    """

    def __init__(self, first: Module, value: Parameter) -> None:
        super().__init__()
        self.add_module("0", first)
        parts = value if not hasattr(first, "right_inverse") else _inverse(first, value)
        several = isinstance(parts, tuple | list)
        self.names = [f"original{index}" for index in range(len(parts))] if several else ["original"]
        for name, part in zip(self.names, parts if several else [parts], strict=True):
            kept = part is value
            self.register_parameter(name, value if kept else Parameter(part, requires_grad=value.requires_grad))

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Any:
        return list(self._modules.values())[index]

    def append(self, parametrization: Module) -> None:
        """Compute the parameter by one module more."""
        value = self()
        self.add_module(str(len(self)), parametrization)
        if hasattr(parametrization, "right_inverse"):
            self.assign(value)

    def assign(self, value: Tensor) -> None:
        """Set the originals so that the parameter has a value. UsageError where that is not known."""
        found: Any = value
        for module in reversed(list(self._modules.values())):
            if module is not None and not hasattr(module, "right_inverse"):
                why = f"{type(module).__name__} has no right_inverse, which assigning to what it computes needs"
                raise UsageError("E-NN-PARAMETRIZE", None, why, hint="Assign the originals")
            found = _inverse(module, found)
        with no_grad():
            for name, part in zip(self.names, found if isinstance(found, tuple | list) else [found], strict=True):
                getattr(self, name).copy_(part)

    def forward(self) -> Tensor:
        """The parameter."""
        first, *others = self._modules.values()
        assert first is not None
        found: Tensor = first(*(getattr(self, name) for name in self.names))
        for module in others:
            assert module is not None
            found = module(found)
        return found


def _inverse(module: Any, value: Any) -> Any:
    with no_grad():
        return module.right_inverse(value)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """Let a module compute one of its parameters: ``parametrization(original)``, or of several originals, which its
    ``right_inverse`` gives for the value that the parameter has. They are trained instead, under the names
    ``parametrizations.NAME.original``. Returns the module.

    Raises UsageError if it has no such parameter.
    """
    if is_parametrized(module, tensor_name):
        getattr(getattr(module, TABLE), tensor_name).append(parametrization)
        return module
    made = ParametrizationList(parametrization, module.get_parameter(tensor_name))
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.add_module(TABLE, Module())
        kind = type(module)
        object.__setattr__(module, "__class__", type(f"Parametrized{kind.__name__}", (kind,), {}))
    getattr(module, TABLE).add_module(tensor_name, made)
    setattr(type(module), tensor_name, _computed(tensor_name))
    return module


def _computed(name: str) -> property:
    """An attribute that a parametrization computes."""

    def found(module: Module) -> ParametrizationList:
        made: ParametrizationList = getattr(getattr(module, TABLE), name)
        return made

    def computed(module: Module) -> Tensor:
        made = found(module)
        if not _CACHE.depth:
            return made()
        if made not in _CACHE.values:
            _CACHE.values[made] = made()
        return _CACHE.values[made]

    return property(computed, lambda module, value: found(module).assign(value))


class _Cache(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[ParametrizationList, Tensor] = {}


_CACHE = _Cache()


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A context in which each parametrization computes its parameter once, until the context ends."""
    _CACHE.depth += 1
    try:
        yield
    finally:
        _CACHE.depth -= 1
        if not _CACHE.depth:
            _CACHE.values.clear()


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether any parameter, or the one of this name, is computed."""
    table = module._modules.get(TABLE)
    return table is not None and (tensor_name is None or tensor_name in table._modules)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Let a parameter be one again: of the value that is computed now, or the original. Returns the module.

    Raises UsageError if it is not computed, or has several originals and `leave_parametrized` is False.
    """
    if not is_parametrized(module, tensor_name):
        why = f"{tensor_name} of {type(module).__name__} is not parametrized"
        raise UsageError("E-NN-PARAMETRIZE", None, why, hint="See register_parametrization")
    table = getattr(module, TABLE)
    made = getattr(table, tensor_name)
    if not leave_parametrized and made.names != ["original"]:
        why = f"{tensor_name} of {type(module).__name__} has the originals {', '.join(made.names)}"
        raise UsageError("E-NN-PARAMETRIZE", None, why, hint="Pass leave_parametrized=True")
    value = made().detach() if leave_parametrized else made.original
    delattr(type(module), tensor_name)
    delattr(table, tensor_name)
    if not table._modules:
        delattr(module, TABLE)
        object.__setattr__(module, "__class__", type(module).__mro__[1])
    trained = getattr(made, made.names[0]).requires_grad
    module.register_parameter(tensor_name, value if isinstance(value, Parameter) else Parameter(value, trained))
    return module

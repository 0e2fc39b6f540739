"""Containers: modules that hold modules or parameters in a sequence or by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..core.module import Module
from ..core.parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Numbered(Module):
    """Modules under the names 0, 1, 2 ..."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def _name(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {counted(len(self), 'module')}")
        return list(self._modules)[index]

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._modules[self._name(index)]
        found = type(self)()
        found._modules.update(list(self._modules.items())[index])
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._name(index)] = module

    def __delitem__(self, index: int | slice) -> None:
        kept = list(self._modules.values())
        del kept[index]
        self._restart(kept)

    def _restart(self, modules: Iterable[Module | None]) -> None:
        items = list(modules)
        self._modules.clear()
        self._modules.update({str(index): module for index, module in enumerate(items)})

    def append(self, module: Module) -> _Numbered:
        """Add a module at the end; UsageError for anything else."""
        if not isinstance(module, Module):
            why = f"{module!r} is not a module"
            raise UsageError("E-NN-MODULE", None, why, hint="Pass layers, such as cc.nn.ReLU()")
        self._modules[str(len(self))] = module
        return self

    def extend(self, modules: Iterable[Module]) -> _Numbered:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def pop(self, index: int) -> Any:
        """Take a module out, which is returned."""
        found = self[index]
        del self[index]
        return found

    def insert(self, index: int, module: Module) -> _Numbered:
        """Add a module in front of another one."""
        items = list(self._modules.values())
        items.insert(index, module)
        self._restart(items)
        return self


class Sequential(_Numbered):
    """Modules that are called one after the other; given one by one, or as a dictionary by name."""

    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__()
            self._modules.update(modules[0])
        else:
            super().__init__(modules)

    def forward(self, input: Any) -> Any:
        """The result of the last module."""
        for module in self:
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules."""

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(itertools.chain(self, other))


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        super().__init__()
        self.update(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names with modules."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name."""
        for name, module in dict(modules).items():
            self.add_module(name, module)


def _parameter_lines(parameters: Mapping[str, Any]) -> str:
    return "\n".join(f"({name}): Parameter containing: {each.expression.type}" for name, each in parameters.items())


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]

    def extra_repr(self) -> str:
        """A line for each parameter."""
        return _parameter_lines(self._parameters)

    def append(self, value: Any) -> ParameterList:
        """Add a tensor, which becomes a parameter."""
        self._parameters[str(len(self))] = value if isinstance(value, Parameter) else Parameter(value)
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add tensors, which become parameters."""
        for value in values:
            self.append(value)
        return self


class ParameterDict(Module):
    """A dictionary of parameters."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        for name, value in dict(parameters).items():
            self[name] = value

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def extra_repr(self) -> str:
        """A line for each parameter."""
        return _parameter_lines(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def __getitem__(self, name: str) -> Any:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._parameters[name] = value if isinstance(value, Parameter) else Parameter(value)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names with parameters."""
        return self._parameters.items()

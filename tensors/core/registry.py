"""Registry of operations: functions of the package, and methods of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ...runtime.base.errors import UsageError, UsageTypeError
from ...runtime.base.process_cache import PROCESS, owned
from .promotion import category
from .tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = owned({}, PROCESS)
"""Functions of the package by name."""


NUMPY_WORDS = {"axis": "dim", "keepdims": "keepdim"}
"""NumPy's names of options, which PyTorch takes in place of its own."""


def with_numpy_words(made: F) -> F:
    """A function that takes NumPy's names of options, too, if it has an option `dim`."""
    code = getattr(made, "__code__", None)
    if code is None or "dim" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return made

    @functools.wraps(made)
    def called(*arguments: Any, **options: Any) -> Any:
        if options:
            options = {NUMPY_WORDS.get(name, name): value for name, value in options.items()}
        return made(*arguments, **options)

    return called  # type: ignore[return-value]


def function(*names: str) -> Callable[[F], F]:
    """Register a function under these names, by default its own."""

    def registered(made: F) -> F:
        called = with_numpy_words(made)
        for name in names or (made.__name__,):
            FUNCTIONS[name] = called
        return made

    return registered


def method(*names: str) -> Callable[[F], F]:
    """Attach a function to tensors under these names, by default its own; its first argument is the tensor."""

    def registered(made: F) -> F:
        called = with_numpy_words(made)
        for name in names or (made.__name__,):
            setattr(Tensor, name, called)
        return made

    return registered


def constructor(*names: str) -> Callable[[F], F]:
    """Attach a function to the class of tensors, which makes tensors of no tensor, under these names, by default its
    own."""

    def registered(made: F) -> F:
        for name in names or (made.__name__,):
            setattr(Tensor, name, staticmethod(made))
        return made

    return registered


def operation(*names: str) -> Callable[[F], F]:
    """Register a function, and attach it as a method, under its own name and under `names`."""

    def registered(made: F) -> F:
        own = made.__name__.rstrip("_")
        plain = [name for name in names if not name.startswith("__")]
        function(own, *plain)(made)
        return method(own, *names)(made)

    return registered


def attribute(name: str, get: Callable[[Tensor], Any], change: Callable[[Tensor, Any], None] | None = None) -> None:
    """Attach a function of a tensor as an attribute that is computed; `change` is called where it is assigned."""
    setattr(Tensor, name, property(get, change))


def in_place(made: Callable[..., Tensor], *names: str) -> None:
    """Attach methods that give a tensor the result of an operation on it, in its own dtype.

    They raise UsageError for results that this dtype cannot hold, as floats in a tensor of integers.
    """

    @functools.wraps(made)
    def changed(self: Tensor, *others: Any, **options: Any) -> Tensor:
        if not isinstance(self, Tensor):
            why = f"{names[0]} changes a tensor, not {type(self).__name__}"
            raise UsageTypeError("E-TENSOR-TYPE", None, why, hint=f"Use {made.__name__}, which returns a new tensor")
        found = made(self, *others, **options)
        if category(found.dtype) > category(self.dtype):
            why = f"{made.__name__}_ gives {found.dtype}, which a tensor of {self.dtype} cannot hold"
            raise UsageError("E-TENSOR-DTYPE", None, why, hint="Leave out the underscore, or convert it with to(dtype)")
        return self.become(found)

    method(*names)(changed)
    function(*(name for name in names if not name.startswith("__")))(changed)

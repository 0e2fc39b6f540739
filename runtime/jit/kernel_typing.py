"""Typing of operators in kernels, remembered: Numba tries dozens of templates each time it types ``a + b``."""

# mypy: disable-error-code="misc"
from __future__ import annotations

import functools
from typing import Any

from numba.core import types
from numba.core.typing import Context

_signatures: dict[Any, Any] = {}


@functools.cache
def kernel_typing(context: Any) -> Any:
    """The typing context of kernels that shares all state with a context of Numba's: one for each, since compiled
    functions are found by their context."""
    return _KernelTyping(context)


class _KernelTyping(Context):
    """Numba's typing context, with the signatures of built-in functions remembered by argument types."""

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a function for argument types."""
        key = func, tuple(args)
        try:
            signature = None if kws else _signatures.get(key)
        except TypeError:  # the types of literal slices cannot be hashed
            return super().resolve_function_type(func, args, kws)
        if signature is None:
            signature = super().resolve_function_type(func, args, kws)
            if not kws and _is_builtin(func, signature):
                _signatures[key] = signature
        return signature


def _is_builtin(function: Any, signature: Any) -> bool:
    """Whether the signature depends on argument types alone: those of functions that are compiled for a caller depend
    on its options, too."""
    return (
        signature is not None
        and isinstance(function, types.Function)
        and function.get_impl_key(signature) is function.typing_key
    )

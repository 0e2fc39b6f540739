"""Public functions: they take arrays, lists and numbers in place of tensors, and write results into `out`."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.base.errors import UsageError
from .core.expression import cast
from .core.promotion import category
from .core.tensor import Tensor
from .operations.creation import as_tensor
from .operations.operands import NUMBERS

TENSOR = Tensor.__name__
RESULTS = re.compile(rf"{TENSOR}|\b(Extremes|QR|SlogDet|Sorted)\b")
"""Annotations of results that `out` can hold."""
OPERANDS = ("condition", "elements", "input", "other", "tensor1", "tensor2")
"""Parameters that are tensors where their annotation leaves that open."""
LIKE = "TensorLike"
"""Annotation of a tensor, array, list or number in signatures."""


def public_function(compute: Any, name: str, module: str) -> Any:
    """A function as the package shows it; classes and constants stay themselves.

    Args:
        name, module: where users find it, and pickles.
    """
    if not inspect.isfunction(compute):
        return compute
    parameters = [] if name.endswith("_") else [*compute.__annotations__.items()]
    converters = {word: CONVERTERS[annotation] for word, annotation in parameters if annotation in CONVERTERS}
    code = inspect.unwrap(compute).__code__
    at_index = [
        (index, converters[word])
        for index, word in enumerate(code.co_varnames[: code.co_argcount])
        if word in converters
    ]
    takes_many = bool(code.co_flags & inspect.CO_VARARGS) and code.co_varnames[_varargs(code)] in converters
    takes_out = has_out(compute)

    @functools.wraps(compute)
    def called(*arguments: Any, **options: Any) -> Any:
        for index, convert in at_index:
            if index < len(arguments) and not isinstance(arguments[index], Tensor):
                arguments = (*arguments[:index], convert(arguments[index]), *arguments[index + 1 :])
        if takes_many:
            arguments = tuple(map(_tensor, arguments))
        if not options:
            return compute(*arguments)
        for word in converters.keys() & options.keys():
            options[word] = converters[word](options[word])
        out = options.pop("out", None) if takes_out else None
        result = compute(*arguments, **options)
        return result if out is None else write_out(result, out)

    called.__name__ = called.__qualname__ = name
    called.__module__ = module
    return called


def _tensor(item: Any) -> Any:
    return item if item is None or isinstance(item, Tensor) else as_tensor(item)


def _operand(item: Any) -> Any:
    return item if isinstance(item, NUMBERS) else _tensor(item)


def _tensors(items: Any) -> Any:
    return items if isinstance(items, Tensor) else [_tensor(item) for item in items]


CONVERTERS = {
    TENSOR: _tensor,
    f"{TENSOR} | None": _tensor,
    f"{TENSOR} | float": _operand,
    f"{TENSOR} | float | None": _operand,
    f"Sequence[{TENSOR}]": _tensors,
}
"""Converters of arguments to tensors, by the parameter's annotation."""


def _varargs(code: Any) -> int:
    """Index of the name of ``*arguments`` among the variables of a function."""
    return int(code.co_argcount + code.co_kwonlyargcount)


def has_out(compute: Callable[..., Any]) -> bool:
    """Whether a function makes tensors of its operands or of numbers, which `out` can hold."""
    annotations = dict(compute.__annotations__)
    returns = str(annotations.pop("return", None))
    return bool(RESULTS.search(returns)) or (returns == "Any" and next(iter(annotations), None) in OPERANDS)


def write_out(result: Any, out: Any) -> Any:
    """Give `out` the elements of a result in its own dtype, and the result's shape."""
    if isinstance(result, tuple) and isinstance(out, Sequence) and len(result) == len(out):
        parts = [write_out(part, into) for part, into in zip(result, out, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        what = f"{type(result).__name__} into {type(out).__name__}"
        raise UsageError("E-TENSOR-OUT", None, f"a result cannot be written: {what}", hint="Pass a tensor as out")
    if out.requires_grad or result.requires_grad:
        why = "a result is written into out, which does not record gradients"
        raise UsageError("E-TENSOR-GRAD", None, why, hint="Leave out, or compute in no_grad()")
    if category(result.dtype) > category(out.dtype):
        raise UsageError("E-TENSOR-DTYPE", None, f"a result of {result.dtype} is written into {out.dtype}")
    if out.shape == result.shape:
        return out.become(result)
    if out.numel():
        warnings.warn(f"out of shape {list(out.shape)} becomes one of shape {list(result.shape)}", stacklevel=3)
    out.expression.holder = None
    out.set_expression(cast(result.expression, out.dtype))
    return out

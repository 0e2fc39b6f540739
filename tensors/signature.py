"""Signatures of public functions and methods: what `help`, notebooks and the stubs show."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from .operations.creation import WITHOUT_EFFECT, is_creator
from .public_function import LIKE, OPERANDS, TENSOR, has_out

SETTINGS = {"device": None, "requires_grad": False, **dict.fromkeys(WITHOUT_EFFECT)}
"""Options of functions that make tensors, with their defaults."""


def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a public function, with every option that it takes."""
    plain = inspect.signature(function)
    parameters = [_like(parameter) for parameter in plain.parameters.values()]
    options: dict[str, Parameter] = {}
    if is_creator(function):
        options |= {name: _option(name, default) for name, default in SETTINGS.items()}
    if has_out(function):
        options["out"] = _option("out", None)
    named = [parameter for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]
    others = parameters[len(named) :]
    extra = [option for name, option in options.items() if name not in plain.parameters]
    return plain.replace(parameters=[*named, *extra, *others])


def _option(name: str, default: bool | None) -> Parameter:
    annotation = "Any" if default is None else "bool"
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _like(parameter: Parameter) -> Parameter:
    annotation = str(parameter.annotation)
    if annotation == "Any" and parameter.name in OPERANDS:
        return parameter.replace(annotation=f"{LIKE} | None" if parameter.default is None else LIKE)
    return parameter.replace(annotation=re.sub(rf"\b{TENSOR}\b", LIKE, annotation))


def with_signature(function: Any) -> Any:
    """The function itself, which `inspect.signature` and `help` show as users can call it."""
    if inspect.isfunction(function) and "__signature__" not in vars(function):
        vars(function)["__signature__"] = signature_of(function)
    return function

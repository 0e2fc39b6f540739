"""functional_call: a module called with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.joining import stack
from ..core.module import Module


def functional_call(
    module: Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Mapping[str, Any] | None = None,
    *, strict: bool = False, tie_weights: bool = True,
) -> Any:  # fmt: skip
    """Call a module with other values for its parameters and buffers, so that it can be differentiated by them.

    Args:
        parameter_and_buffer_dicts: tensors by name, or several such dictionaries.
        args, kwargs: of the call; one argument needs no tuple.
        strict: UsageError unless all parameters and buffers are given.
        tie_weights: PyTorch's setting; a parameter under two names is given under each.

    Raises UsageError for names that the module does not have.
    """
    given: dict[str, Tensor] = {}
    several = isinstance(parameter_and_buffer_dicts, Sequence)
    for each in parameter_and_buffer_dicts if several else (parameter_and_buffer_dicts,):
        given.update(each)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, given, strict):
        return module(*arguments, **(kwargs or {}))


@contextmanager
def _replaced(module: Module, given: Mapping[str, Tensor], strict: bool) -> Iterator[None]:
    places: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, part in module.named_modules():
        for table in (part._parameters, part._buffers):
            for name in table:
                places[f"{prefix}.{name}" if prefix else name] = table, name
    unknown = sorted(set(given) - set(places))
    missing = sorted(set(places) - set(given)) if strict else []
    if unknown or missing:
        why = f"{type(module).__name__} has no {unknown[0]}" if unknown else f"{missing[0]} is not given"
        raise UsageError("E-NN-STATE", None, why, hint="Names are those of state_dict()")
    before = {name: places[name][0][places[name][1]] for name in given}
    try:
        for name, value in given.items():
            table, key = places[name]
            table[key] = value  # type: ignore[assignment] # for the time of the call
        yield
    finally:
        for name, value in before.items():
            table, key = places[name]
            table[key] = value


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of one structure, along a new first dim, for `vmap`."""
    if not models:
        raise UsageError("E-NN-STATE", None, "stack_module_state of no modules")
    parameters = _stacked([dict(model.named_parameters()) for model in models])
    buffers = _stacked([dict(model.named_buffers()) for model in models])
    return {name: each.requires_grad_() for name, each in parameters.items()}, buffers


def _stacked(tables: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: stack([table[name].detach() for table in tables]) for name in tables[0]}

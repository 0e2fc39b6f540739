"""Hooks of modules: functions that are called with arguments, results and gradients of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.nested import mapped
from ...tensors.core.tensor import Tensor

Hook = Callable[..., Any]


class ForwardHook(NamedTuple):
    """A function that is called before or after `forward`, with the options or without."""

    function: Hook
    with_options: bool


def call_with_hooks(module: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a module with its hooks."""
    for hook, with_options in tuple(module._pre_hooks):
        if with_options:
            changed = hook(module, arguments, options)
            if changed is not None:
                arguments, options = changed
        else:
            changed = hook(module, arguments)
            if changed is not None:
                arguments = changed if isinstance(changed, tuple) else (changed,)
    watched = _Watched(module, arguments) if module._backward_hooks else None
    result = module.forward(*(arguments if watched is None else watched.arguments), **options)
    for hook, with_options in tuple(module._hooks):
        given = (arguments, options) if with_options else (arguments,)
        changed = hook(module, *given, result)
        result = result if changed is None else changed
    return result if watched is None else watched.watch(result)


class _Watched:
    """Gradients of one call of a module.

    Attributes:
        arguments: stand for those of the call; their gradients come last.
    """

    def __init__(self, module: Any, arguments: tuple[Any, ...]) -> None:
        self._module = module
        self._of_results: list[Tensor | None] = []
        self._of_arguments: dict[int, Tensor] = {}
        self._moving = [
            place for place, each in enumerate(arguments) if isinstance(each, Tensor) and each.requires_grad
        ]
        self._count = len(arguments)
        self.arguments = tuple([each.clone() if n in self._moving else each for n, each in enumerate(arguments)])
        for place in self._moving:
            self.arguments[place].register_hook(lambda grad, place=place: self._argument(place, grad))

    def watch(self, result: Any) -> Any:
        """The result, whose gradients are noted."""
        results: list[Tensor] = []

        def watched(item: Any) -> Any:
            if not isinstance(item, Tensor) or not item.requires_grad:
                return item
            place = len(results)
            results.append(item.clone())
            results[place].register_hook(lambda grad: self._result(place, grad))
            return results[place]

        found, _ = mapped((result, {}), watched)
        self._of_results = [None] * len(results)
        return found

    def _result(self, place: int, grad: Tensor) -> None:
        self._of_results[place] = grad
        if not self._moving and place == 0:
            self._call((None,) * self._count)

    def _argument(self, place: int, grad: Tensor) -> Tensor | None:
        self._of_arguments[place] = grad
        if place != self._moving[0]:
            return None
        changed = self._call(tuple([self._of_arguments.get(each) for each in range(self._count)]))
        return changed[place] if changed is not None else None

    def _call(self, gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        replaced = None
        for hook in tuple(self._module._backward_hooks):
            changed = hook(self._module, gradients, tuple(self._of_results))
            if changed is not None:
                gradients = replaced = changed if isinstance(changed, tuple) else (changed,)
                if len(gradients) != self._count:
                    why = f"a hook of {type(self._module).__name__} returns {counted(len(gradients), 'gradient')}"
                    raise UsageError("E-NN-HOOK", None, why, expected=self._count)
        return replaced

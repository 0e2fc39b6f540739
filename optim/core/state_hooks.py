"""Hooks of an optimizer's state: functions called before and after `state_dict` and `load_state_dict`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...tensors.autograd.hooks import RemovableHandle, added


def state_hooked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """`state_dict` or `load_state_dict` with its hooks, which the outermost of overriding methods calls."""

    @functools.wraps(method)
    def called(self: Any, *arguments: Any) -> Any:
        if self.in_state_hook:
            return method(self, *arguments)
        self.in_state_hook = True
        try:
            for hook in list(self.state_hooks[f"{name}_pre"]):
                changed = hook(self, *arguments)
                arguments = arguments if changed is None else (changed,)
            result = method(self, *arguments)
            for hook in list(self.state_hooks[f"{name}_post"]):
                changed = hook(self, result) if name == "state_dict" else hook(self)
                result = result if changed is None or name != "state_dict" else changed
            return result
        finally:
            self.in_state_hook = False

    return called


class StateHooks:
    """Base of optimizers: registers hooks of the state.

    Attributes:
        state_hooks: functions by the method and the moment, such as ``state_dict_post``.
    """

    in_state_hook = False
    state_hooks: dict[str, list[Callable[..., Any]]]

    def __init__(self) -> None:
        self.state_hooks = {
            f"{name}_{moment}": [] for name in ("state_dict", "load_state_dict") for moment in ("pre", "post")
        }

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for name in ("state_dict", "load_state_dict"):
            if name in vars(cls):
                setattr(cls, name, state_hooked(name, vars(cls)[name]))

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have a function called with the optimizer before `state_dict`."""
        return self._registered("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have a function called with the optimizer and the state; it may return another one."""
        return self._registered("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have a function called with the optimizer and the state to load; it may return another one."""
        return self._registered("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Have a function called with the optimizer after a state was loaded."""
        return self._registered("load_state_dict_post", hook, prepend)

    def _registered(self, name: str, hook: Callable[..., Any], prepend: bool) -> RemovableHandle:
        return added(self.state_hooks[name], hook, prepend)

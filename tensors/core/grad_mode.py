"""Grad mode: whether operations record what gradients need, for each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


class _GradMode(threading.local):
    enabled = True


GRAD_MODE = _GradMode()


class set_grad_enabled(ContextDecorator):  # noqa: N801 (a function in torch)
    """A context, or a decorator, in which gradients are recorded, or are not."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(GRAD_MODE.enabled)
        GRAD_MODE.enabled = self._enabled

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        GRAD_MODE.enabled = self._before.pop()


@overload
def no_grad() -> set_grad_enabled: ...
@overload
def no_grad(decorated: F) -> F: ...
def no_grad(decorated: Callable[..., Any] | None = None) -> Any:
    """A context, or a decorator with or without parentheses, in which results do not require gradients."""
    mode = set_grad_enabled(False)
    return mode if decorated is None else mode(decorated)


@overload
def enable_grad() -> set_grad_enabled: ...
@overload
def enable_grad(decorated: F) -> F: ...
def enable_grad(decorated: Callable[..., Any] | None = None) -> Any:
    """A context inside of `no_grad` in which gradients are recorded again, or a decorator."""
    mode = set_grad_enabled(True)
    return mode if decorated is None else mode(decorated)


def inference_mode(mode: Any = True) -> Any:
    """As `no_grad`; where `mode` is False, gradients are recorded."""
    return no_grad(mode) if callable(mode) else set_grad_enabled(not mode)


def is_grad_enabled() -> bool:
    """Whether gradients are recorded."""
    return GRAD_MODE.enabled

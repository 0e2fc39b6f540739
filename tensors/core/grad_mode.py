"""Grad mode: whether operations record what gradients need, for each thread."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from types import TracebackType


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


def no_grad() -> set_grad_enabled:
    """A context, or a decorator, in which results do not require gradients."""
    return set_grad_enabled(False)


def enable_grad() -> set_grad_enabled:
    """A context inside of `no_grad` in which gradients are recorded again."""
    return set_grad_enabled(True)


def is_grad_enabled() -> bool:
    """Whether gradients are recorded."""
    return GRAD_MODE.enabled

"""Functions of `keras.backend`: names of layers that begin anew."""

from __future__ import annotations

from .core.layer import clear_session

__all__ = ["clear_session"]


def __dir__() -> list[str]:
    return __all__

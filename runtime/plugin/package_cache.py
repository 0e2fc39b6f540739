"""Caches of what the package's own files declare: one registry, which one reset empties."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Result = TypeVar("Result")
_CACHES: list[_lru_cache_wrapper[Any]] = []


def package_cache(function: Callable[..., Result], maxsize: int | None = None) -> _lru_cache_wrapper[Result]:
    """`functools.lru_cache` for what is read from files of the package: modules and what they declare."""
    cached = functools.lru_cache(maxsize)(function)
    _CACHES.append(cached)
    return cached


def reset() -> None:
    """Forget all of it, so that changed files are read again. Modules that were imported stay as they are."""
    for cached in _CACHES:
        cached.cache_clear()
